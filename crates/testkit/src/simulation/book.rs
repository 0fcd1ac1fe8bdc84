//! What happened in a simulation: the log, and the facts that the invariants compare.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use frontdesk_core::port::store::{DeskNo, Position, Seq, SessionNo};
use frontdesk_wire::InstanceNo;

/// A call of a wake URL.
#[derive(Clone, Copy)]
pub(super) struct Poke {
    pub(super) desk: DeskNo,
    pub(super) at_ms: u64,
    /// Its desk had a response of the store a short while ago.
    pub(super) was_in_touch: bool,
}

/// What the store knows of a desk, and what the desk got from the store.
#[derive(Clone, Copy, Default)]
pub(super) struct LeaseFacts {
    pub(super) enlisted_ms: u64,
    /// When the desk last got an answer to a renewal.
    pub(super) heard_ms: u64,
}

#[derive(Default)]
pub(super) struct Facts {
    /// The time of the store.
    pub(super) now_ms: u64,
    pub(super) log: Vec<String>,
    /// The first invariant that did not hold.
    pub(super) broken: Option<String>,
    pub(super) pokes: BTreeMap<String, Poke>,
    /// Gateways whose wake URL was called since the last look.
    pub(super) poked: Vec<String>,
    /// When each gateway got its last session.
    pub(super) came_ms: BTreeMap<String, u64>,
    /// The gateway of each instance.
    pub(super) gateways: BTreeMap<InstanceNo, String>,
    /// What each session may not send: settled when it began, or by itself.
    pub(super) settled: BTreeMap<SessionNo, Position>,
    /// People were told of rows up to this one.
    pub(super) noticed: BTreeMap<InstanceNo, Seq>,
    /// Credentials up to this one are revoked, and every live desk has confirmed it.
    pub(super) revoked: BTreeMap<String, u32>,
    /// Desks whose clocks stood still, each with the time at which it went on. Until the store has answered a renewal since
    /// then, such a desk cannot know that its lease has run out, and lets in who was revoked.
    pub(super) unaware: BTreeMap<String, u64>,
    pub(super) leases: BTreeMap<DeskNo, LeaseFacts>,
}

/// Shared by everything in one simulation.
#[derive(Clone, Default)]
pub(super) struct Book(Arc<Mutex<Facts>>);

impl Book {
    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.facts().now_ms
    }

    pub(super) fn say(&self, text: impl AsRef<str>) {
        let mut facts = self.facts();
        let line = format!("{:>7} {}", facts.now_ms - crate::TestEnv::START_MS, text.as_ref());
        facts.log.push(line);
    }

    /// Whether this credential is revoked, and this desk must know it.
    pub(super) fn is_revoked(&self, gateway: &str, credential: u32, desk: &str) -> bool {
        let facts = self.facts();
        facts.revoked.get(gateway).is_some_and(|revoked| credential <= *revoked) && !facts.unaware.contains_key(desk)
    }

    /// An invariant does not hold.
    pub(super) fn fail(&self, text: impl Into<String>) {
        let text = text.into();
        self.say(format!("BROKEN {text}"));
        self.facts().broken.get_or_insert(text);
    }
}
