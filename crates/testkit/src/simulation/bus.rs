//! A bus that delays, loses, doubles and reorders hints.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::bus::{Bus, BusEvent, Hint, To};
use frontdesk_wire::DeskNo;
use tokio::sync::Notify;

use super::book::Book;
use crate::world::dice::Dice;

/// What the bus does to hints, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noise {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) delay_max_ms: u64,
}

impl Noise {
    pub(super) const NONE: Self = Self { lost: 0, doubled: 0, delay_max_ms: 1 };
    pub(super) const SOME: Self = Self { lost: 15, doubled: 15, delay_max_ms: 1_500 };
    pub(super) const SILENT: Self = Self { lost: 100, doubled: 0, delay_max_ms: 1 };
}

/// Hints of one desk.
#[derive(Default)]
struct Inbox {
    received: Mutex<VecDeque<Hint>>,
    notify: Notify,
}

struct State {
    dice: Dice,
    noise: Noise,
    desks: BTreeMap<DeskNo, Arc<Inbox>>,
    /// By the time at which they arrive, and a number.
    in_flight: BTreeMap<(u64, u64), (Arc<Inbox>, Hint)>,
    last: u64,
}

#[derive(Clone)]
pub(super) struct Hub {
    book: Book,
    state: Arc<Mutex<State>>,
}

impl Hub {
    pub(super) fn new(book: Book, dice: Dice) -> Self {
        let (desks, in_flight) = (BTreeMap::new(), BTreeMap::new());
        let state = State { dice, noise: Noise::NONE, desks, in_flight, last: 0 };
        Self { book, state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn set_noise(&self, noise: Noise) {
        self.state.lock().unwrap().noise = noise;
    }

    pub(super) fn join(&self) -> Arc<dyn Bus> {
        Arc::new(SimulatedBus { hub: self.clone(), inbox: Arc::default(), me: Mutex::default() })
    }

    /// Hints whose time has come arrive.
    pub(super) fn deliver(&self) {
        let now_ms = self.book.now_ms();
        let mut state = self.state.lock().unwrap();
        let later = state.in_flight.split_off(&(now_ms + 1, 0));
        for (inbox, hint) in std::mem::replace(&mut state.in_flight, later).into_values() {
            inbox.received.lock().unwrap().push_back(hint);
            inbox.notify.notify_one();
        }
    }
}

struct SimulatedBus {
    hub: Hub,
    inbox: Arc<Inbox>,
    me: Mutex<DeskNo>,
}

impl Drop for SimulatedBus {
    fn drop(&mut self) {
        self.hub.state.lock().unwrap().desks.remove(&*self.me.lock().unwrap());
    }
}

impl Bus for SimulatedBus {
    fn listen_as(&self, me: DeskNo) {
        let before = std::mem::replace(&mut *self.me.lock().unwrap(), me);
        let mut state = self.hub.state.lock().unwrap();
        state.desks.remove(&before);
        state.desks.insert(me, self.inbox.clone());
    }

    fn send(&self, to: To, hint: Hint) {
        let now_ms = self.hub.book.now_ms();
        let mut state = self.hub.state.lock().unwrap();
        let is_meant = |desk: &DeskNo| to == To::All || to == To::Desk(*desk);
        let inboxes: Vec<_> = state.desks.iter().filter(|(desk, _)| is_meant(desk)).map(|(_, it)| it.clone()).collect();
        let noise = state.noise;
        for inbox in inboxes {
            if state.dice.chance(noise.lost) {
                continue;
            }
            let copies = 1 + u64::from(state.dice.chance(noise.doubled));
            for _ in 0..copies {
                let at_ms = now_ms + state.dice.throw() % noise.delay_max_ms;
                state.last += 1;
                let number = state.last;
                state.in_flight.insert((at_ms, number), (inbox.clone(), hint.clone()));
            }
        }
    }

    fn next_event(&self) -> BoxFuture<'_, BusEvent> {
        Box::pin(async move {
            loop {
                let received = self.inbox.received.lock().unwrap().pop_front();
                if let Some(hint) = received {
                    return BusEvent::Hint(hint);
                }
                self.inbox.notify.notified().await;
            }
        })
    }
}
