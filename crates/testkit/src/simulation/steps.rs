//! The steps of a simulation, chosen by the seed.

use std::sync::Arc;

use frontdesk_core::mail_id;
use frontdesk_core::port::store::Seq;
use frontdesk_wire::token::mint;

use super::bus::Noise;
use super::checks::{Event, event_of};
use super::desk::State;
use super::link::Weather;
use super::store::at_once;
use super::wire::{Carrier, Wire};
use super::{DESKS, GATEWAYS, GATEWAYS_LATER, Simulation};

impl Simulation {
    fn any_running(&mut self) -> Option<usize> {
        let running = self.running();
        (!running.is_empty()).then(|| *self.dice.pick(&running))
    }

    fn any_gateway(&mut self) -> usize {
        self.dice.below(GATEWAYS + GATEWAYS_LATER)
    }

    pub(super) async fn step(&mut self) {
        match self.dice.below(100) {
            0..=27 => {
                let by_ms = 1 + self.dice.throw() % 2_500;
                self.pass(by_ms).await;
            }
            28..=41 => self.send_new(),
            42..=45 => self.send_again(),
            46..=54 => self.gateway_dials(),
            55..=72 => self.gateway_reads(),
            73..=75 => {
                let (gateway, closes) = (self.any_gateway(), self.dice.chance(50));
                self.book.say(format!("{} leaves, closing: {closes}", self.gateways[gateway].name));
                self.gateways[gateway].leave(closes);
            }
            76 | 77 => {
                let gateway = self.any_gateway();
                self.gateways[gateway].go_idle(&self.book);
            }
            78..=80 => self.weather_changes(),
            81 => {
                let noise = *self.dice.pick(&[Noise::NONE, Noise::SOME, Noise::SOME, Noise::SILENT]);
                self.book.say(format!("the bus: {noise:?}"));
                self.hub.set_noise(noise);
            }
            82..=86 => self.hanging_go_on(),
            87..=91 => self.desk_changes().await,
            92 | 93 => self.directory_changes(),
            94 | 95 => self.mail_is_handled(),
            96 | 97 => {
                if let Some(slot) = self.any_running() {
                    self.open_entry(slot);
                }
            }
            _ => self.close_entry(),
        }
    }

    fn send_new(&mut self) {
        let (gateway, is_forward) = (self.any_gateway(), self.dice.chance(30));
        let Some(slot) = self.any_running().filter(|_| self.gateways[gateway].instance.is_some()) else { return };
        self.events.push(Event { gateway, is_forward, is_accepted: false, is_sent: None, replays: 0 });
        self.send(self.events.len() - 1, slot);
    }

    /// Senders whose event was refused, or who got no answer, repeat it.
    pub(super) fn send_again(&mut self) {
        let unsent = self.events.iter().position(|it| !it.is_accepted && it.is_sent.is_none());
        if let (Some(event), Some(slot)) = (unsent, self.any_running()) {
            self.send(event, slot);
        }
    }

    fn gateway_dials(&mut self) {
        let gateway = self.any_gateway();
        if self.gateways[gateway].wants_to_dial || self.dice.chance(30) {
            self.dial(gateway);
        }
    }

    /// A gateway dials some desk; the connection before is left.
    pub(super) fn dial(&mut self, gateway: usize) {
        let Some(slot) = self.any_running() else { return };
        let closes = self.dice.chance(50);
        let (Some(desk), Some(secret)) = (self.slots[slot].desk.clone(), &self.gateways[gateway].secret) else {
            return;
        };
        let it = &self.gateways[gateway];
        let bearer = mint(&it.name, secret, u64::from(u32::MAX) * 1_000);
        let Ok(caller) = desk.directory().prove_gateway(&bearer) else {
            self.book.say(format!("{} is refused by {}", it.name, self.slots[slot].name));
            return;
        };
        if self.book.is_revoked(&it.name, it.credential, &self.slots[slot].name) {
            self.book.fail(format!("{} may dial {} although it was revoked", it.name, self.slots[slot].name));
        }
        self.last_wire += 1;
        let wire = Arc::new(Wire::new(self.last_wire, &it.name, it.credential));
        self.book.say(format!("{} dials {} by wire {}", it.name, self.slots[slot].name, wire.number));
        let spawner = self.slots[slot].tasks.spawner.clone();
        let carrier = Carrier::new(desk, caller, wire.clone(), spawner.clone(), self.book.clone());
        spawner.spawn(Box::pin(carrier.live()));
        self.slots[slot].wires.push(Arc::downgrade(&wire));
        self.gateways[gateway].take_wire(wire, closes);
    }

    fn gateway_reads(&mut self) {
        let (gateway, count, how) = (self.any_gateway(), 1 + self.dice.below(8), self.dice.below(4));
        self.gateways[gateway].read(count, &self.book);
        let dice = &mut self.dice;
        match how {
            0 => {}
            1 => self.gateways[gateway].ack(|| dice.chance(50)),
            _ => self.gateways[gateway].ack(|| true),
        }
    }

    fn weather_changes(&mut self) {
        let slot = self.dice.below(DESKS);
        let weather = *self.dice.pick(&[Weather::CALM, Weather::CALM, Weather::ROUGH, Weather::ROUGH, Weather::CUT]);
        self.book.say(format!("the store behind {}: {weather:?}", self.slots[slot].name));
        self.slots[slot].link.set_weather(weather);
    }

    fn hanging_go_on(&mut self) {
        let (slot, is_lost, all) = (self.dice.below(DESKS), self.dice.chance(30), self.dice.chance(50));
        let count = if all { self.slots[slot].link.hanging() } else { 1 };
        (0..count).for_each(|_| self.slots[slot].link.release(is_lost));
    }

    /// A desk is stopped, continued, crashed or started.
    async fn desk_changes(&mut self) {
        let slot = self.dice.below(DESKS);
        match self.slots[slot].state {
            State::Down => self.start(slot),
            State::Stopped | State::Suspended => {
                self.slots[slot].go_on();
            }
            State::Running if self.dice.chance(70) => {
                let state = if self.dice.chance(30) { State::Suspended } else { State::Stopped };
                self.slots[slot].stop(state);
                let by_ms = self.dice.throw() % 15_000;
                self.pass(by_ms).await;
            }
            State::Running => {
                let are_lost = self.dice.chance(50);
                self.crash(slot, are_lost);
            }
        }
    }

    fn crash(&mut self, slot: usize, are_lost: bool) {
        self.slots[slot].crash(are_lost);
        for event in self.events.iter_mut().filter(|it| it.is_sent == Some(slot)) {
            event.is_sent = None;
        }
        self.entries.retain(|entry| entry.slot != slot);
    }

    fn directory_changes(&mut self) {
        let gateway = self.any_gateway();
        let Some(slot) = self.any_running() else { return };
        let is_there = self.gateways[gateway].secret.is_some();
        if is_there && self.dice.chance(50) {
            self.revoke(gateway, slot);
        } else {
            self.provision(gateway, slot);
        }
    }

    fn mail_is_handled(&mut self) {
        let (gateway, replays) = (self.any_gateway(), self.dice.chance(50));
        let (Some(instance), Some(slot)) = (self.gateways[gateway].instance, self.any_running()) else { return };
        let rows = at_once(self.store.mail(instance, None, Seq::NONE, usize::MAX)).unwrap();
        if rows.is_empty() {
            return;
        }
        let row = self.dice.pick(&rows);
        if let Some((.., event)) = event_of(&row.delivery.json).filter(|_| replays) {
            self.events[event].replays += 1;
        }
        self.handle_mail(slot, mail_id(instance, row.seq), replays);
    }
}
