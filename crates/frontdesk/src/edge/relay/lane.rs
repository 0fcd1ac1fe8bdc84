//! Actions of one chat, or of one session, in the order in which they were asked for.
//!
//! One task at a time works a lane. It goes on when the socket ends: everything that was asked for is
//! answered, on the next socket if need be.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::{Act, Action};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

pub(super) struct Job {
    pub(super) request_id: String,
    /// The identities that may be meant: platform and bot.
    pub(super) candidates: Vec<(String, String)>,
    /// Everything that the socket had said hello for by then.
    pub(super) identities: Arc<Vec<(String, String)>>,
    pub(super) action: Action,
    pub(super) asked: Instant,
    /// Its share of what the actions of a socket may hold.
    pub(super) _room: OwnedSemaphorePermit,
}

#[derive(Default)]
pub(super) struct Lane {
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
    pub(super) fn push(&self, job: Job) -> bool {
        let mut state = self.state();
        state.waiting.push_back(job);
        !std::mem::replace(&mut state.busy, true)
    }

    /// The next one; `None` ends the work.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.state();
        let next = state.waiting.pop_front();
        state.busy = next.is_some();
        next
    }

    pub(super) fn is_free(&self) -> bool {
        !self.state().busy
    }
}

/// Which lane an action takes.
pub(super) fn lane_of(action: &Action) -> String {
    match &action.act {
        Act::FollowUp { session_key, .. } => format!("s:{session_key}"),
        act => format!("c:{}", act.chat_id().unwrap_or_default()),
    }
}
