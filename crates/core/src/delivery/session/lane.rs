//! Actions of one chat, or of one session, in the order in which they were asked for.
//!
//! One task at a time works a lane. It goes on when the socket ends: everything that was asked for is
//! answered, on the next socket if need be.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::{Act, Action};
use tokio::sync::OwnedSemaphorePermit;

/// Lanes of one session that are worked on at once; others wait.
const LANES_MAX: usize = 64;

pub struct Job {
    pub(crate) request_id: String,
    /// The identities that may be meant: platform and bot.
    pub(crate) candidates: Vec<(String, String)>,
    /// Everything that the socket had said hello for by then.
    pub(crate) identities: Arc<Vec<(String, String)>>,
    pub(crate) action: Action,
    pub(crate) asked_ms: u64,
    /// Its share of what the actions of a socket may hold.
    pub(crate) _room: OwnedSemaphorePermit,
}

#[derive(Default)]
pub struct Lane {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    busy: bool,
}

impl Lane {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True: nobody works here yet, so whoever pushed must see to it.
    pub(crate) fn push(&self, job: Job) -> bool {
        let mut state = self.state();
        state.waiting.push_back(job);
        !std::mem::replace(&mut state.busy, true)
    }

    /// The next one; `None` ends the work.
    pub(crate) fn next(&self) -> Option<Job> {
        let mut state = self.state();
        let next = state.waiting.pop_front();
        state.busy = next.is_some();
        next
    }

    pub(crate) fn is_free(&self) -> bool {
        !self.state().busy
    }
}

/// The lanes of one session.
#[derive(Default)]
pub(super) struct Lanes {
    by_name: HashMap<String, Arc<Lane>>,
    /// With work that nobody has begun.
    idle: VecDeque<String>,
    busy: usize,
}

impl Lanes {
    pub(super) fn push(&mut self, job: Job) {
        let name = lane_of(&job.action);
        if self.by_name.entry(name.clone()).or_default().push(job) {
            self.idle.push_back(name);
        }
    }

    /// The next lane that may be worked on.
    pub(super) fn start(&mut self) -> Option<(String, Arc<Lane>)> {
        while self.busy < LANES_MAX {
            let name = self.idle.pop_front()?;
            if let Some(lane) = self.by_name.get(&name).cloned() {
                self.busy += 1;
                return Some((name, lane));
            }
        }
        None
    }

    /// A lane's worker is at its end; its name is free unless something came in that moment.
    pub(super) fn done(&mut self, name: &str) {
        self.busy = self.busy.saturating_sub(1);
        if self.by_name.get(name).is_some_and(|lane| lane.is_free()) {
            self.by_name.remove(name);
        }
    }

    /// The session is at its end; what nobody has begun is done all the same.
    pub(super) fn leave(&mut self) -> Vec<Arc<Lane>> {
        self.idle.drain(..).filter_map(|name| self.by_name.remove(&name)).collect()
    }
}

/// Which lane an action takes.
fn lane_of(action: &Action) -> String {
    match &action.act {
        Act::FollowUp { session_key, .. } => format!("s:{session_key}"),
        act => format!("c:{}", act.chat_id().unwrap_or_default()),
    }
}
