//! A fake Telegram Bot API server. It fails the way the real one does, and tests see what a user would see.
//!
//! The core has no sockets and no clock: [`FakeTelegram::handle`] is a call of a bot, [`FakeTelegram::act`] is what a user
//! does. [`FakeTelegram::serve`] puts an HTTP server around it, with a control API for other programs.

mod answer;
mod calls;
mod direct;
mod engine;
mod faults;
mod files;
mod limits;
mod markup;
mod methods;
mod params;
mod people;
mod posting;
mod queue;
mod server;
mod shapes;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

pub use answer::{ApiError, Response, Transport};
pub use calls::CallRecord;
pub use direct::Direct;
pub use engine::{Delivery, Poll};
pub use faults::{Fault, FaultRule};
pub use limits::{Limits, Rate, Window};
pub use params::{Params, Upload};
pub use people::{Act, ActError, At, NewBot, NewChat, NewFile, NewUser, Say};
pub use server::Server;

use state::State;

/// A handle; clones share one state.
#[derive(Clone, Default)]
pub struct FakeTelegram {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Counts changes, for those that wait for one.
    changes: watch::Sender<u64>,
}

impl FakeTelegram {
    /// Without bots, users and chats; with the default limits.
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

    /// A call of a bot. `getUpdates` is answered at once, also without updates.
    pub fn handle(&self, now_ms: u64, token: &str, method: &str, params: &Params, files: &[Upload]) -> Response {
        self.change(|state| engine::call(state, now_ms, token, method, params, files))
    }

    /// Something that a user does.
    pub fn act(&self, now_ms: u64, act: Act) -> Result<Value, ActError> {
        self.change(|state| people::act(state, now_ms, act))
    }

    /// The next calls of a method fail.
    pub fn fault(&self, rule: FaultRule) {
        self.change(|state| state.faults.push(rule));
    }

    /// How many rules wait to be used.
    pub fn faults_waiting(&self) -> usize {
        self.state().faults.waiting()
    }

    pub fn set_limits(&self, limits: Limits) {
        self.change(|state| state.limits = limits);
    }

    /// Calls behind this number; 0 is all that are kept.
    pub fn calls_after(&self, number: u64) -> Vec<CallRecord> {
        self.state().calls.after(number)
    }

    /// Calls that were answered with 429.
    pub fn refused_for_rate(&self) -> u64 {
        self.state().calls.refused_for_rate()
    }

    /// Updates that the bot has not confirmed.
    pub fn updates_waiting(&self, bot: i64) -> usize {
        self.state().bots.get(&bot).map_or(0, |bot| bot.queue.len())
    }

    /// The chat as a user sees it: messages that are not deleted, reactions, drafts, actions.
    pub fn chat(&self, bot: i64, chat: i64) -> Option<Value> {
        view::chat(&self.state(), bot, chat)
    }

    /// The newest message of a chat as a user sees it.
    pub fn newest(&self, bot: i64, chat: i64) -> Option<Value> {
        view::newest(&self.state(), bot, chat)
    }

    /// What the bot answered to a pressed button, if it has.
    pub fn callback_answer(&self, callback_query_id: &str) -> Option<Value> {
        self.state().callbacks.get(callback_query_id)?.answer.clone()
    }

    /// The content at a path of `getFile`, and its media type.
    pub fn file(&self, token: &str, path: &str) -> Result<(bytes::Bytes, String), ApiError> {
        let state = self.state();
        engine::bot_of(&state, token)?;
        let file = state.files.at(path).ok_or_else(|| ApiError::new(404, "Not Found"))?;
        Ok((file.bytes.clone(), file.mime.clone()))
    }

    /// Forgets everything.
    pub fn reset(&self) {
        self.change(|state| *state = State::default());
    }

    /// Begins a `getUpdates` call; an older one of the same bot ends with 409.
    pub fn begin_poll(&self, token: &str) -> Result<Poll, ApiError> {
        self.change(|state| engine::begin_poll(state, token))
    }

    /// The answer of a poll, or `None` while it has to wait. `at_end` answers also without updates.
    pub fn try_poll(&self, now_ms: u64, poll: &Poll, params: &Params, at_end: bool) -> Option<Response> {
        engine::try_poll(&mut self.state(), now_ms, poll, params, at_end)
    }

    /// Updates that are due at webhooks, at most one per bot, and when to ask again.
    pub fn due_deliveries(&self, now_ms: u64) -> (Vec<Delivery>, Option<u64>) {
        engine::due_deliveries(&mut self.state(), now_ms)
    }

    /// What the webhook answered. A body that names a method is carried out.
    pub fn delivered(&self, now_ms: u64, delivery: &Delivery, outcome: Result<(u16, Vec<u8>), String>) {
        self.change(|state| engine::delivered(state, now_ms, delivery, outcome));
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
