//! A fake Discord: gateway, REST and interactions. It fails the way the real one does, and tests see what a user would see.
//!
//! The core has no sockets and no clock: [`FakeDiscord::handle`] is a REST call of a bot, [`FakeDiscord::act`] is what a
//! user does, [`FakeDiscord::connect`] and [`FakeDiscord::receive`] are a socket of the gateway.
//! [`FakeDiscord::serve`] puts a server around it, with a control API for other programs.

mod answer;
mod calls;
mod channels;
mod direct;
mod faults;
mod files;
mod gateway;
mod intents;
mod interactions;
mod limits;
mod people;
mod permissions;
mod posting;
mod rest;
mod server;
mod shapes;
mod signing;
mod snowflake;
mod state;
#[cfg(test)]
mod tests;
mod threads;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

pub use answer::{ApiError, Response, Transport};
pub use calls::CallRecord;
pub use direct::Direct;
pub use faults::{Fault, FaultRule, Scope};
pub use gateway::{GatewaySettings, Out, SocketFault};
pub use interactions::Post;
pub use limits::{Limits, Window};
pub use people::{Act, ActError, Interact, NewBot, NewChannel, NewFile, NewGuild, NewMember, NewRole, NewUser, Say};
pub use rest::{RestRequest, Upload};
pub use server::Server;
pub use signing::{headers as signature_headers, public_key};
pub use snowflake::Id;

use state::State;

/// A handle; clones share one state.
#[derive(Clone, Default)]
pub struct FakeDiscord {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Counts changes, for those that wait for one.
    changes: watch::Sender<u64>,
}

impl FakeDiscord {
    /// Without bots, users and guilds; with the default limits.
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

    fn change_at<T>(&self, now_ms: u64, with: impl FnOnce(&mut State) -> T) -> T {
        self.change(|state| {
            state.now_ms = now_ms;
            with(state)
        })
    }

    /// A REST call.
    pub fn handle(&self, now_ms: u64, request: &RestRequest) -> Response {
        self.change_at(now_ms, |state| rest::call(state, now_ms, request))
    }

    /// The bot of an `Authorization` header.
    fn bot_of(&self, authorization: &str) -> Option<Id> {
        let state = self.state();
        rest::bot_of(&state, authorization)
    }

    /// Something that a user does.
    pub fn act(&self, now_ms: u64, act: Act) -> Result<Value, ActError> {
        self.change_at(now_ms, |state| people::act(state, now_ms, act))
    }

    /// The next calls of a route fail.
    pub fn fault(&self, rule: FaultRule) {
        self.change(|state| state.faults.push(rule));
    }

    /// How many rules wait to be used.
    pub fn faults_waiting(&self) -> usize {
        self.state().faults.waiting()
    }

    /// Something happens to the sockets of a bot. Returns how many live ones it has.
    pub fn socket_fault(&self, bot: Id, fault: &SocketFault) -> usize {
        self.change(|state| gateway::trouble(state, bot, fault))
    }

    pub fn set_limits(&self, limits: Limits) {
        self.change(|state| state.limits = limits);
    }

    pub fn set_gateway(&self, settings: GatewaySettings) {
        self.change(|state| state.gateway.settings = settings);
    }

    /// Calls and frames behind this number; 0 is all that are kept.
    pub fn calls_after(&self, number: u64) -> Vec<CallRecord> {
        self.state().calls.after(number)
    }

    /// Calls that were answered with 429.
    pub fn refused_for_rate(&self) -> u64 {
        self.state().calls.refused_for_rate()
    }

    /// How many calls the vendor would hold against the address now, and how often it would have banned it.
    pub fn invalid_requests(&self) -> (usize, u64) {
        let state = self.state();
        (state.meter.invalid(), state.meter.bans())
    }

    /// Sessions, with their intents and the number of the latest dispatch.
    pub fn sessions(&self, bot: Option<Id>) -> Value {
        self.state().gateway.view(bot)
    }

    /// The channel as users see it: messages that are not deleted, reactions, threads, typing.
    pub fn channel(&self, channel: Id) -> Option<Value> {
        view::channel(&self.state(), channel)
    }

    /// The newest message of a channel as users see it.
    pub fn newest(&self, channel: Id) -> Option<Value> {
        view::newest(&self.state(), channel)
    }

    /// The state of an interaction: the answer, its messages, and how the endpoint answered.
    pub fn interaction(&self, id: Id) -> Option<Value> {
        interactions::view(&self.state(), id)
    }

    /// Commands that a bot has registered; guild 0 has the global ones.
    pub fn commands(&self, bot: Id, guild: Id) -> Vec<Value> {
        self.state().commands.get(&(bot, guild)).cloned().unwrap_or_default()
    }

    /// The content of a file and its media type. An address is valid for a day.
    pub fn file(&self, now_ms: u64, path: &str, query: &str) -> Option<(bytes::Bytes, String)> {
        let until = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "ex");
        let until = until.and_then(|(_, value)| u64::from_str_radix(&value, 16).ok())?;
        self.state().files.get(path).filter(|_| until > now_ms / 1_000)
    }

    /// Forgets everything but the address of the server. Open sockets are cut.
    pub fn reset(&self) {
        self.change(|state| *state = State { host: std::mem::take(&mut state.host), ..State::default() });
    }

    /// A new socket of the gateway, or `None` if it is refused.
    pub fn connect(&self, now_ms: u64) -> Option<u64> {
        self.change_at(now_ms, |state| gateway::connect(state, now_ms))
    }

    /// A frame of the client.
    pub fn receive(&self, now_ms: u64, connection: u64, text: &str) {
        self.change_at(now_ms, |state| gateway::receive(state, now_ms, connection, text));
    }

    /// What the socket has to send now.
    pub fn take_out(&self, now_ms: u64, connection: u64) -> Vec<Out> {
        let mut state = self.state();
        gateway::tick(&mut state, now_ms);
        gateway::take_out(&mut state, connection)
    }

    /// The clock was moved ahead under clients whose own clocks were not.
    fn forgive_beats(&self, by_ms: u64) {
        self.state().gateway.forgive_beats(by_ms);
    }

    /// The socket is gone; the code is that of the client's close frame.
    pub fn disconnected(&self, now_ms: u64, connection: u64, code: Option<u16>) {
        self.change_at(now_ms, |state| gateway::disconnected(state, now_ms, connection, code));
    }

    /// Interactions that are due at endpoints.
    pub fn take_posts(&self) -> Vec<Post> {
        self.state().interactions.take_posts()
    }

    /// The PING with which an endpoint is proved, with a valid signature or with a bad one.
    pub fn ping(&self, now_ms: u64, bot: Id, url: &str, bad_signature: bool) -> Post {
        self.change_at(now_ms, |state| interactions::ping(state, now_ms, bot, url, bad_signature))
    }

    /// What an endpoint answered to an interaction.
    pub fn answered(&self, now_ms: u64, interaction: Id, latency_ms: u64, outcome: Result<(u16, Vec<u8>), String>) {
        self.change_at(now_ms, |state| interactions::answered(state, now_ms, interaction, latency_ms, outcome));
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
