//! A fake Slack: the part of the Web API that bots use, Socket Mode, the Events API with its retries, files, and the
//! installation of apps.
//!
//! The core has no sockets and no clock: [`FakeSlack::call`] is a call of the Web API, [`FakeSlack::act`] is what a user does.
//! [`FakeSlack::serve`] puts an HTTP server around it, with a control API for other programs.

mod api;
mod delivery;
mod faults;
mod people;
mod server;
mod state;
#[cfg(test)]
mod tests;
mod uploads;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

pub use api::Answered;
pub use delivery::{Pending, signature};
pub use faults::{Fault, FaultRule};
pub use people::{Act, ActError};
pub use server::Server;
pub use state::{App, CallRecord};

use state::State;

/// A handle; clones share one state.
#[derive(Clone, Default)]
pub struct FakeSlack {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Counts changes, for those that wait for one.
    changes: watch::Sender<u64>,
}

impl FakeSlack {
    /// Without an app, workspaces and users.
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

    /// A call of the Web API. `origin` is scheme, host and port of the server.
    pub fn call(&self, now_ms: u64, origin: &str, token: &str, method: &str, params: &Value) -> Answered {
        self.change(|state| api::call(state, now_ms, origin, token, method, params))
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

    /// The messages of a channel as people see them.
    pub fn messages(&self, channel: &str) -> Vec<Value> {
        self.state().messages(channel)
    }

    /// What was posted to response URLs: `{"channel","user","body"}` each.
    pub fn responses(&self) -> Vec<Value> {
        self.state().responses.clone()
    }

    /// The status line of a thread; empty if there is none.
    pub fn status(&self, channel: &str, thread_ts: &str) -> String {
        self.state().statuses.get(&(channel.to_owned(), thread_ts.to_owned())).cloned().unwrap_or_default()
    }

    /// Results of deliveries: `{"type","attempt","status","body"}` or the acknowledgement of a socket.
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
        self.change(|state| *state = State::default());
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
