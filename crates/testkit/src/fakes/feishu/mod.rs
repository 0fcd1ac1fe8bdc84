//! A fake Feishu: the part of the open API that bots use, events by request (signed and encrypted) with their retries, and the
//! persistent connection with its frames.
//!
//! The core has no sockets and no clock: [`FakeFeishu::call`] is a call of the API, [`FakeFeishu::act`] is what a user does.
//! [`FakeFeishu::serve`] puts an HTTP server around it, with a control API for other programs.

mod api;
mod delivery;
mod faults;
mod frames;
mod people;
mod server;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

pub use api::{Answered, Asked};
pub use delivery::{Pending, sealed, signature};
pub use faults::{Fault, FaultRule};
pub use frames::Frame;
pub use people::{Act, ActError};
pub use server::Server;
pub use state::{App, CallRecord, Message};

use state::State;

/// A handle; clones share one state.
#[derive(Clone, Default)]
pub struct FakeFeishu {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Counts changes, for those that wait for one.
    changes: watch::Sender<u64>,
}

impl FakeFeishu {
    /// Without an app, chats and users.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked with the lock has failed already.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        let result = with(&mut self.state());
        self.shared.changes.send_modify(|count| *count += 1);
        result
    }

    /// A call of the API.
    pub fn call(&self, now_ms: u64, asked: &Asked) -> Answered {
        self.change(|state| api::call(state, now_ms, asked))
    }

    /// Something that a user does.
    pub fn act(&self, now_ms: u64, act: Act) -> Result<Value, ActError> {
        self.change(|state| people::act(state, now_ms, act))
    }

    /// The next calls of a method fail.
    pub fn fault(&self, rule: FaultRule) {
        self.change(|state| state.faults.push(rule));
    }

    /// Calls behind this number; 0 is all that are kept.
    pub fn calls_after(&self, number: u64) -> Vec<CallRecord> {
        self.state().calls.iter().filter(|call| call.number > number).cloned().collect()
    }

    /// The messages of a chat as people see them.
    pub fn messages(&self, chat: &str) -> Vec<Message> {
        self.state().shown(chat)
    }

    /// Results of deliveries: `{"id","type","attempt","status","body"}`.
    pub fn deliveries(&self) -> Vec<Value> {
        self.state().delivered.clone()
    }

    /// Events that were not acknowledged yet.
    pub fn waiting(&self) -> usize {
        let state = self.state();
        state.pending.len() + state.in_flight.len()
    }

    /// Sockets that are open.
    pub fn sockets(&self) -> usize {
        self.state().sockets.len()
    }

    /// Forgets everything.
    pub fn reset(&self) {
        self.change(|state| {
            let sockets = std::mem::take(&mut state.sockets);
            *state = State::default();
            state.sockets = sockets.into_keys().map(|id| (id, true)).collect();
        });
    }

    /// Sees every change from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Returns the first value that `probe` finds, now or after a change.
    pub async fn wait_for<T>(&self, mut probe: impl FnMut(&Self) -> Option<T>) -> T {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            if let Some(found) = probe(self) {
                return found;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
