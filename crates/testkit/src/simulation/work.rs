//! What people and gateways ask of a desk. It runs as a task of that desk, and ends with it.

use std::sync::Arc;

use frontdesk_core::Desk;
use frontdesk_core::agents::AgentsCaller;
use frontdesk_core::port::store::{Acceptance, Closing, JournalEntry, Outcome};
use frontdesk_wire::{GatewayId, InstanceNo, Secret, TenantId};
use serde_json::json;

use super::{Simulation, request};
use crate::store_suite::delivery;

/// What came of it.
pub(super) enum Happened {
    Sent { event: usize, is_accepted: bool },
    Provisioned { gateway: usize, secret: Option<String> },
    Revoked { gateway: usize, credential: u32, is_confirmed: bool },
    Opened { slot: usize, id: u64 },
}

/// An open entry of the journal, and where its action is under way.
pub(super) struct Entry {
    pub(super) slot: usize,
    pub(super) id: u64,
}

impl Simulation {
    /// Starts work at a desk.
    fn ask<F>(&self, slot: usize, work: impl FnOnce(Arc<Desk>) -> F)
    where
        F: Future<Output = Option<Happened>> + Send + 'static,
    {
        let Some(desk) = self.slots[slot].desk.clone() else { return };
        let (work, happened) = (work(desk), self.happened.clone());
        self.slots[slot].tasks.spawner.spawn(async move {
            if let Some(what) = work.await {
                happened.lock().unwrap().push(what);
            }
        });
    }

    pub(super) fn take_happened(&mut self) {
        let happened = std::mem::take(&mut *self.happened.lock().unwrap());
        for what in happened {
            match what {
                Happened::Sent { event, is_accepted } => {
                    self.book.say(format!("event {event} accepted: {is_accepted}"));
                    self.events[event].is_accepted |= is_accepted;
                    self.events[event].is_sent = None;
                }
                Happened::Provisioned { gateway, secret } => {
                    let gateway = &mut self.gateways[gateway];
                    self.book.say(format!("{} provisioned: {}", gateway.name, secret.is_some()));
                    if let Some(secret) = secret {
                        gateway.secret = Some(Secret::new(secret));
                        gateway.credential += 1;
                    }
                }
                Happened::Revoked { gateway, credential, is_confirmed } => {
                    let name = &self.gateways[gateway].name;
                    self.book.say(format!("{name} revoked; confirmed by all: {is_confirmed}"));
                    if is_confirmed {
                        let mut facts = self.book.facts();
                        let known = facts.revoked.entry(name.clone()).or_default();
                        *known = credential.max(*known);
                    }
                }
                Happened::Opened { slot, id } => self.entries.push(Entry { slot, id }),
            }
        }
    }

    /// Sends an event; the answer may be that it is known.
    pub(super) fn send(&mut self, event: usize, slot: usize) {
        let gateway = &self.gateways[self.events[event].gateway];
        let Some(instance) = gateway.instance else { return };
        let (tenant, name) = (gateway.tenant, gateway.name.clone());
        self.book.say(format!("event {event} for {name} goes to {}", self.slots[slot].name));
        self.events[event].is_sent = Some(slot);
        let text = format!("[[{tenant}/{name}/{event}]]");
        if self.events[event].is_forward {
            let forward = forward(tenant, event, instance, &text);
            return self.ask(slot, |desk| async move {
                let accepted = desk.lease().accept(&*desk.stores().ledger, vec![forward]).await;
                Some(Happened::Sent { event, is_accepted: accepted.is_ok() })
            });
        }
        let body = json!({ "kind": "augment", "content": text, "meta":
            { "dispatch_id": format!("event-{event}"), "sent_at": 1, "origin": {} } });
        let payload = serde_json::from_value(body).unwrap();
        self.ask(slot, |desk| async move {
            let tenant = TenantId::from(tenant);
            let who = AgentsCaller::operator(&tenant);
            let sent = desk.messages().deliver(who, &name, &payload).await;
            Some(Happened::Sent { event, is_accepted: sent.is_ok() })
        });
    }

    pub(super) fn provision(&mut self, gateway: usize, slot: usize) {
        self.book.say(format!("{} is provisioned at {}", self.gateways[gateway].name, self.slots[slot].name));
        let ask = request(&self.gateways[gateway]);
        self.ask(slot, |desk| async move {
            let secret = desk.directory().add_gateway(ask).await.ok().map(|made| made.secret);
            Some(Happened::Provisioned { gateway, secret })
        });
    }

    pub(super) fn revoke(&mut self, gateway: usize, slot: usize) {
        let (name, credential) = (self.gateways[gateway].name.clone(), self.gateways[gateway].credential);
        self.book.say(format!("{name} is revoked at {}", self.slots[slot].name));
        self.ask(slot, |desk| async move {
            desk.directory().revoke(&GatewayId::from(&name)).await.ok()?;
            let is_confirmed = desk.cluster().unconfirmed().await.is_ok_and(|behind| behind.is_empty());
            Some(Happened::Revoked { gateway, credential, is_confirmed })
        });
    }

    /// An action of an agent begins.
    pub(super) fn open_entry(&mut self, slot: usize) {
        self.ask(slot, |desk| async move {
            let entry = JournalEntry {
                id: 0,
                tenant: "acme".into(),
                instance: "gw-0".into(),
                platform: "relay".into(),
                bot: "desk".into(),
                chat_id: "c".into(),
                op: "send".into(),
                at_ms: desk.env().now_ms(),
                outcome: Outcome::Open,
                parts: 1,
                cursor: 0,
                note: String::new(),
                desk: desk.lease().me(),
            };
            let id = desk.stores().journal.open_entry(entry, None).await.ok()?;
            Some(Happened::Opened { slot, id })
        });
    }

    /// The oldest action ends.
    pub(super) fn close_entry(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let Entry { slot, id } = self.entries.remove(0);
        self.ask(slot, |desk| async move {
            let _ = desk.stores().journal.close_entry(id, Closing::new(Outcome::Delivered, 1, "")).await;
            None
        });
    }

    /// An operator replays or drops a row.
    pub(super) fn handle_mail(&mut self, slot: usize, id: String, replays: bool) {
        self.book.say(format!("{} mail {id} at {}", if replays { "replay" } else { "drop" }, self.slots[slot].name));
        self.ask(slot, |desk| async move {
            let _ = match replays {
                true => desk.delivery().replay_mail(&id).await.map(drop),
                false => desk.delivery().drop_mail(&id, "not needed").await,
            };
            None
        });
    }
}

/// An event that a gateway need not ack: it counts as delivered if the socket stays healthy.
fn forward(tenant: &str, event: usize, instance: InstanceNo, text: &str) -> Acceptance {
    let json = json!({ "text": text }).to_string();
    let delivery = frontdesk_core::port::store::Delivery { passthrough: true, json, ..delivery(event as u64) };
    let dedup = format!("forward-{event}").into_bytes();
    let unreceived = Acceptance::unreceived(&TenantId::from(tenant), dedup, delivery, "{}".into());
    Acceptance { receivers: vec![instance], ..unreceived }
}
