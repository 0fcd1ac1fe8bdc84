//! Actions of one chat, or of one session, in the order in which they were asked for.
//!
//! One task at a time works a lane. It goes on when the socket ends: everything that was asked for is
//! answered, on the next socket if need be.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::{Act, Action};
use tokio::sync::OwnedSemaphorePermit;

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

/// Which lane an action takes.
pub(crate) fn lane_of(action: &Action) -> String {
    match &action.act {
        Act::FollowUp { session_key, .. } => format!("s:{session_key}"),
        act => format!("c:{}", act.chat_id().unwrap_or_default()),
    }
}
