//! The end of a simulation: the faults stop, and everything that is owed arrives.

use super::bus::Noise;
use super::checks::owed;
use super::desk::State;
use super::link::Weather;
use super::{DESKS, GATEWAYS, GATEWAYS_LATER, Simulation};

/// Seconds until everything must have arrived: leases run out, dead sockets are found, agents are woken several times.
const LIMIT_S: usize = 180;

impl Simulation {
    pub(super) async fn end(&mut self) {
        self.book.say("the faults stop");
        self.hub.set_noise(Noise::NONE);
        for slot in 0..DESKS {
            let it = &mut self.slots[slot];
            it.link.set_weather(Weather::CALM);
            while it.link.hanging() > 0 {
                it.link.release(false);
            }
            match it.state {
                State::Down => self.start(slot),
                State::Running => {}
                State::Stopped | State::Suspended => it.go_on(),
            }
        }
        self.pass(10_000).await;
        for gateway in 0..GATEWAYS + GATEWAYS_LATER {
            self.provision(gateway, gateway % DESKS);
            self.look();
        }
        for _ in 0..LIMIT_S {
            self.pass(1_000).await;
            for gateway in 0..self.gateways.len() {
                self.gateways[gateway].read(usize::MAX, &self.book);
                self.gateways[gateway].ack(|| true);
                // It comes only if it is called, or if a desk closed its connection.
                if self.gateways[gateway].wants_to_dial {
                    self.dial(gateway);
                }
            }
            self.send_again();
            self.look();
            let is_sent = self.events.iter().all(|event| event.is_accepted);
            if self.book.facts().broken.is_some() || (is_sent && owed(&*self.store).is_empty()) {
                return;
            }
        }
        let unsent: Vec<usize> = (0..self.events.len()).filter(|it| !self.events[*it].is_accepted).collect();
        self.book.fail(format!("still held: {:?}; never accepted: events {unsent:?}", owed(&*self.store)));
    }
}
