//! Exchanges entries of the event stream between servers, so that a watcher at one server sees the events of all. They go
//! over the bus, and only while there is a watcher. Entries are numbered, so that lost ones are reported.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::DeskNo;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{BACKLOG, Notice};
use crate::port::bus::TailPart;

/// How long a request for entries is valid. Servers with watchers repeat it earlier.
const ASKED_MS: u64 = 5_000;
/// Entries that wait to be sent. The oldest are dropped.
const WAITING_MAX: usize = 1_000;
const WAITING_MAX_BYTES: usize = 256 << 10;
/// Size of one message on the bus. Longer entries are not sent.
const PART_MAX_BYTES: usize = 5_000;

pub(super) struct Elsewhere {
    outgoing: Mutex<Outgoing>,
    is_asked: AtomicBool,
    /// Number of the next expected entry of each server.
    expected: Mutex<HashMap<DeskNo, u64>>,
    watchers: broadcast::Sender<Arc<Value>>,
}

#[derive(Default)]
struct Outgoing {
    /// Servers with watchers, and the time until which they get entries.
    askers: BTreeMap<DeskNo, u64>,
    entries: VecDeque<(u64, usize, Value)>,
    bytes: usize,
    next: u64,
}

impl Elsewhere {
    pub(super) fn new() -> Self {
        Self {
            outgoing: Mutex::default(),
            is_asked: AtomicBool::new(false),
            expected: Mutex::default(),
            watchers: broadcast::channel(BACKLOG).0,
        }
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expected(&self) -> MutexGuard<'_, HashMap<DeskNo, u64>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(&self) -> broadcast::Receiver<Arc<Value>> {
        self.watchers.subscribe()
    }

    /// Whether this server has a watcher for events of other servers.
    pub(super) fn is_watched(&self) -> bool {
        let is_watched = self.watchers.receiver_count() > 0;
        if !is_watched {
            self.expected().clear(); // entries that are not sent in the meantime do not count as lost
        }
        is_watched
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    pub(super) fn asked(&self, by: DeskNo, now_ms: u64) {
        self.outgoing().askers.insert(by, now_ms + ASKED_MS);
        self.is_asked.store(true, Ordering::Relaxed);
    }

    pub(super) fn add(&self, notice: &Notice) {
        let Ok(entry) = serde_json::to_value(notice) else { return };
        let bytes = entry.to_string().len();
        let mut outgoing = self.outgoing();
        let number = outgoing.next;
        outgoing.next += 1;
        if bytes > PART_MAX_BYTES {
            return;
        }
        outgoing.bytes += bytes;
        outgoing.entries.push_back((number, bytes, entry));
        while outgoing.entries.len() > WAITING_MAX || outgoing.bytes > WAITING_MAX_BYTES {
            let Some((_, bytes, _)) = outgoing.entries.pop_front() else { break };
            outgoing.bytes -= bytes;
        }
    }

    /// What waits, in messages for each of those who asked.
    pub(super) fn parts(&self, me: DeskNo, name: &str, now_ms: u64) -> Vec<(DeskNo, TailPart)> {
        if !self.is_asked() {
            return Vec::new();
        }
        let mut outgoing = self.outgoing();
        outgoing.askers.retain(|_, until_ms| now_ms < *until_ms);
        self.is_asked.store(!outgoing.askers.is_empty(), Ordering::Relaxed);
        outgoing.bytes = 0;
        let (mut parts, mut bytes): (Vec<TailPart>, usize) = (Vec::new(), 0);
        for (number, size, entry) in std::mem::take(&mut outgoing.entries) {
            bytes += size;
            match parts.last_mut() {
                Some(part) if bytes <= PART_MAX_BYTES && part.first + part.entries.len() as u64 == number => {
                    part.entries.push(entry);
                }
                _ => {
                    bytes = size;
                    parts.push(TailPart { of: me, name: name.to_owned(), first: number, entries: vec![entry] });
                }
            }
        }
        let for_each = |to: &DeskNo| parts.iter().map(|part| (*to, part.clone())).collect::<Vec<_>>();
        outgoing.askers.keys().flat_map(for_each).collect()
    }

    pub(super) fn received(&self, part: TailPart) {
        let TailPart { of, name, first, entries } = part;
        if !self.is_watched() {
            return;
        }
        let after = first + entries.len() as u64;
        let lost = match self.expected().insert(of, after) {
            Some(expected) => first.saturating_sub(expected),
            None => 0,
        };
        if lost > 0 {
            self.publish(json!({ "step": "missed", "desk": name, "text": format!("{lost} entries lost") }));
        }
        for mut entry in entries {
            entry["desk"] = name.as_str().into();
            self.publish(entry);
        }
    }

    /// To the watchers here.
    pub(super) fn publish(&self, entry: Value) {
        let _ = self.watchers.send(Arc::new(entry)); // the last watcher may just have left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(text: &str) -> Notice {
        Notice { step: "accepted", text: text.into(), ..Notice::default() }
    }

    #[test]
    fn entries_reach_those_who_asked_and_losses_are_reported() {
        let (here, there) = (Elsewhere::new(), Elsewhere::new());
        here.add(&notice("nobody asked"));
        here.parts(DeskNo(1), "a", 0);
        let mut watching = there.watch();
        here.asked(DeskNo(2), 0);
        here.outgoing().entries.clear();
        here.add(&notice("one"));
        for (to, part) in here.parts(DeskNo(1), "a", 10) {
            assert_eq!(to, DeskNo(2));
            there.received(part);
        }
        let entry = watching.try_recv().unwrap();
        assert_eq!((&entry["text"], &entry["desk"]), (&json!("one"), &json!("a")));
        here.add(&notice(&"x".repeat(PART_MAX_BYTES))); // too long
        for number in 0..3_000 {
            here.add(&notice(&number.to_string()));
        }
        let parts = here.parts(DeskNo(1), "a", 20);
        assert!(parts.len() > 5 && parts.iter().all(|(_, part)| serde_json::to_string(part).unwrap().len() < 7_000));
        let mut sent = 0;
        for (_, part) in parts {
            sent += part.entries.len();
            there.received(part);
        }
        assert_eq!(sent, WAITING_MAX);
        assert_eq!(watching.try_recv().unwrap()["text"], "2001 entries lost");
        assert_eq!(watching.try_recv().unwrap()["text"], "2000");
        here.add(&notice("late"));
        assert!(here.parts(DeskNo(1), "a", ASKED_MS).is_empty() && !here.is_asked(), "nobody asked again");
    }
}
