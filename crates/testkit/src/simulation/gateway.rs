//! A gateway: it connects, reads what a desk writes, acks it or not, and disconnects with or without a close.

use std::collections::BTreeSet;
use std::sync::Arc;

use frontdesk_wire::{InstanceNo, Secret, Seq};
use serde_json::json;

use super::book::Book;
use super::wire::{Down, Up, Wire, row_of};
use crate::session::line;

pub(super) struct Gateway {
    pub(super) name: String,
    pub(super) tenant: &'static str,
    /// `None`: it was not provisioned yet.
    pub(super) secret: Option<Secret>,
    /// Counts the secrets that it got.
    pub(super) credential: u32,
    pub(super) instance: Option<InstanceNo>,
    pub(super) acks: bool,
    pub(super) wire: Option<Arc<Wire>>,
    /// It was woken, or lost its connection, and is about to dial.
    pub(super) wants_to_dial: bool,
    /// It said so on its current wire.
    is_idle: bool,
    pub(super) received: BTreeSet<Seq>,
    /// Rows that it has read on the current wire and not acked.
    unacked: Vec<String>,
}

impl Gateway {
    pub(super) fn new(name: String, tenant: &'static str, acks: bool) -> Self {
        Self {
            name,
            tenant,
            secret: None,
            credential: 0,
            instance: None,
            acks,
            wire: None,
            wants_to_dial: false,
            is_idle: false,
            received: BTreeSet::new(),
            unacked: Vec::new(),
        }
    }

    /// A new wire; the one before is left silently, or closed.
    pub(super) fn take_wire(&mut self, wire: Arc<Wire>, closes: bool) {
        wire.send(Up::Text(crate::session::hello()));
        self.leave(closes);
        self.wants_to_dial = false;
        self.wire = Some(wire);
    }

    pub(super) fn leave(&mut self, closes: bool) {
        self.unacked.clear();
        self.is_idle = false;
        if let Some(wire) = self.wire.take().filter(|_| closes) {
            wire.send(Up::End);
        }
    }

    /// Its wake URL was called. One that is connected and not idle has no reason to come.
    pub(super) fn wake(&mut self) {
        self.wants_to_dial |= self.wire.is_none() || self.is_idle;
    }

    pub(super) fn go_idle(&mut self, book: &Book) {
        if let Some(wire) = &self.wire {
            book.say(format!("{} goes idle", self.name));
            self.is_idle = true;
            wire.send(Up::Text(line(&json!({ "type": "going_idle" }))));
        }
    }

    /// Reads up to this many frames.
    pub(super) fn read(&mut self, mut count: usize, book: &Book) {
        let Some(wire) = self.wire.clone() else { return };
        while count > 0
            && let Some(down) = wire.read()
        {
            count -= 1;
            match down {
                Down::Ping => wire.send(Up::Pong),
                Down::Line(line) => self.take(&line, book),
            }
        }
        if wire.is_over() {
            // As real ones do, it comes back.
            self.leave(false);
            self.wants_to_dial = true;
        }
    }

    fn take(&mut self, line: &str, book: &Book) {
        let Some((instance, seq)) = row_of(line) else { return };
        book.say(format!("{} reads i{instance}.{seq}", self.name));
        let own = format!("[[{}/{}/", self.tenant, self.name);
        if Some(InstanceNo(instance)) != self.instance || !line.contains(&own) {
            book.fail(format!("{} gets a row of somebody else: {line}", self.name));
        }
        let last = self.received.last().copied().unwrap_or_default();
        if self.received.insert(seq) && seq < last {
            book.fail(format!("{} gets i{instance}.{seq} for the first time after {last}", self.name));
        }
        let frame: serde_json::Value = serde_json::from_str(line).unwrap();
        self.unacked.push(frame["bufferId"].as_str().unwrap().to_owned());
    }

    /// Acks what it has read, or the part of it for which `picks` says so.
    pub(super) fn ack(&mut self, mut picks: impl FnMut() -> bool) {
        let Some(wire) = self.wire.clone().filter(|_| self.acks) else { return };
        self.unacked.retain(|id| {
            let is_picked = picks();
            if is_picked {
                wire.send(Up::Text(line(&json!({ "type": "inbound_ack", "bufferId": id }))));
            }
            !is_picked
        });
    }
}
