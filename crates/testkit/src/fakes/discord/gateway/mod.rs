//! The gateway without its sockets: a connection takes frames in, and has a queue of what goes out.

mod frames;
mod session;
mod trouble;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::calls::CallRecord;
use super::snowflake::Id;
use super::state::State;
pub(super) use frames::receive;
use session::Session;
pub(super) use session::{Audience, Viewer, dispatch};
pub use trouble::SocketFault;
pub(super) use trouble::apply as trouble;

/// What a socket sends next.
#[derive(Debug, Clone, PartialEq)]
pub enum Out {
    Frame(Value),
    Close(u16, &'static str),
    /// The connection ends without a close frame.
    Cut,
    /// What follows comes that much later.
    Pause {
        ms: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewaySettings {
    pub heartbeat_interval_ms: u64,
    /// Dispatches that a session keeps for a RESUME.
    pub kept_dispatches: usize,
    /// How long a session without a socket can be resumed.
    pub session_ttl_ms: u64,
    /// One IDENTIFY of a bot in this time; 0 for no limit.
    pub identify_every_ms: u64,
    /// IDENTIFY calls of a day.
    pub session_starts: usize,
    /// How many shards it recommends.
    pub shards: u64,
    /// Shards that may identify at the same time; 0 tells clients not to wait at all.
    pub max_concurrency: u64,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            heartbeat_interval_ms: 41_250,
            kept_dispatches: 1_000,
            session_ttl_ms: 180_000,
            identify_every_ms: 5_000,
            session_starts: 1_000,
            shards: 1,
            max_concurrency: 1,
        }
    }
}

#[derive(Debug)]
struct Connection {
    session: Option<String>,
    out: VecDeque<Out>,
    last_beat_ms: u64,
    /// When the latest frames came, for the limit of 120 a minute.
    frames_ms: VecDeque<u64>,
    /// After this many dispatches the socket is cut.
    cut_after: Option<u64>,
    is_over: bool,
}

#[derive(Debug, Default)]
pub(super) struct Gateway {
    pub(super) settings: GatewaySettings,
    connections: BTreeMap<u64, Connection>,
    sessions: BTreeMap<String, Session>,
    last_connection: u64,
    /// When each bot identified in the last day.
    identified_ms: BTreeMap<Id, VecDeque<u64>>,
    /// When shards of a bot identified last; those with the same remainder by `max_concurrency` wait for each other.
    last_identify_ms: BTreeMap<(Id, u64), u64>,
    /// Upgrades that are answered with 503.
    refuse_connects: u32,
    /// Sockets that are accepted, and get no greeting.
    silent_connects: u32,
    /// Heartbeats of each bot that get no ack.
    withheld_acks: BTreeMap<Id, u32>,
    /// What happens to the next dispatches of a bot.
    marks: BTreeMap<Id, VecDeque<trouble::Mark>>,
}

const DAY_MS: u64 = 86_400_000;

impl Gateway {
    fn starts_left(&mut self, now_ms: u64, bot: Id) -> usize {
        let starts = self.identified_ms.entry(bot).or_default();
        while starts.front().is_some_and(|at| at + DAY_MS <= now_ms) {
            starts.pop_front();
        }
        self.settings.session_starts.saturating_sub(starts.len())
    }

    /// As `GET /gateway/bot` shows it.
    pub(super) fn start_limit(&mut self, now_ms: u64, bot: Id) -> Value {
        let remaining = self.starts_left(now_ms, bot);
        let first = self.identified_ms.get(&bot).and_then(|starts| starts.front());
        let reset_after = first.map_or(0, |at| at + DAY_MS - now_ms);
        json!({"total": self.settings.session_starts, "remaining": remaining, "reset_after": reset_after,
            "max_concurrency": self.settings.max_concurrency})
    }

    pub(super) fn forgive_beats(&mut self, by_ms: u64) {
        for connection in self.connections.values_mut() {
            connection.last_beat_ms += by_ms;
        }
    }

    /// Live sockets of a bot that have identified.
    pub(super) fn live(&self, bot: Id) -> Vec<u64> {
        self.live_where(|session| session.bot == bot)
    }

    fn live_where(&self, is_meant: impl Fn(&Session) -> bool) -> Vec<u64> {
        self.sessions.values().filter(|session| is_meant(session)).filter_map(|session| session.connection).collect()
    }

    pub(super) fn view(&self, bot: Option<Id>) -> Value {
        let sessions = self.sessions.iter().filter(|(_, session)| bot.is_none_or(|bot| session.bot == bot));
        sessions
            .map(|(id, session)| {
                json!({"session_id": id, "bot": session.bot.to_string(), "seq": session.seq,
                    "intents": session.intents, "shard": [session.shard.0, session.shard.1], "is_connected": session.connection.is_some()})
            })
            .collect()
    }
}

/// A new socket, which is sent a hello; `None` if it is refused.
pub(super) fn connect(state: &mut State, now_ms: u64) -> Option<u64> {
    let gateway = &mut state.gateway;
    if gateway.refuse_connects > 0 {
        gateway.refuse_connects -= 1;
        return None;
    }
    gateway.last_connection += 1;
    let id = gateway.last_connection;
    let hello = json!({"op": 10, "s": null, "t": null, "d": {
        "heartbeat_interval": gateway.settings.heartbeat_interval_ms, "_trace": ["[\"fake-gateway\",{}]"]}});
    let is_silent = gateway.silent_connects > 0;
    gateway.silent_connects -= u32::from(is_silent);
    let connection = Connection {
        session: None,
        out: if is_silent { VecDeque::new() } else { VecDeque::from([Out::Frame(hello)]) },
        last_beat_ms: now_ms,
        frames_ms: VecDeque::new(),
        cut_after: None,
        is_over: false,
    };
    gateway.connections.insert(id, connection);
    note(state, now_ms, None, "connect", json!({"connection": id}));
    Some(id)
}

/// All that waits to be sent.
pub(super) fn take_out(state: &mut State, connection: u64) -> Vec<Out> {
    let Some(connection) = state.gateway.connections.get_mut(&connection) else { return vec![Out::Cut] };
    connection.out.drain(..).collect()
}

/// The socket is gone. A client that said good-bye with 1000 or 1001 has ended its session.
pub(super) fn disconnected(state: &mut State, now_ms: u64, connection: u64, code: Option<u16>) {
    let Some(gone) = state.gateway.connections.remove(&connection) else { return };
    let mut bot = None;
    if let Some(id) = gone.session {
        let ends = matches!(code, Some(1000 | 1001)) && !gone.is_over;
        if let Some(session) = state.gateway.sessions.get_mut(&id).filter(|it| it.connection == Some(connection)) {
            session.connection = None;
            session.gone_ms = now_ms;
            bot = Some(session.bot);
            if ends {
                state.gateway.sessions.remove(&id);
            }
        }
    }
    note(state, now_ms, bot, "closed", json!({"connection": connection, "code": code}));
}

/// Sockets without heartbeats are closed. Sessions that were not resumed are forgotten.
pub(super) fn tick(state: &mut State, now_ms: u64) {
    let time_limit_ms = state.gateway.settings.heartbeat_interval_ms * 3 / 2 + 1_000;
    let late = |connection: &Connection| !connection.is_over && connection.last_beat_ms + time_limit_ms < now_ms;
    let ids: Vec<u64> =
        state.gateway.connections.iter().filter(|(_, connection)| late(connection)).map(|(id, _)| *id).collect();
    for id in ids {
        close(state, id, 4009, "Session timed out.");
    }
    let ttl_ms = state.gateway.settings.session_ttl_ms;
    let is_kept = |session: &Session| session.connection.is_some() || session.gone_ms + ttl_ms > now_ms;
    state.gateway.sessions.retain(|_, session| is_kept(session));
}

fn push(state: &mut State, connection: u64, out: Out) {
    if let Some(connection) = state.gateway.connections.get_mut(&connection).filter(|it| !it.is_over) {
        connection.is_over = matches!(out, Out::Close(..) | Out::Cut);
        connection.out.push_back(out);
    }
}

/// Codes that end a session, as the vendor lists them, forget it.
fn close(state: &mut State, connection: u64, code: u16, reason: &'static str) {
    let ends = matches!(code, 4003..=4007 | 4009..=4014);
    let session = state.gateway.connections.get(&connection).and_then(|it| it.session.clone());
    if let Some(session) = session.filter(|_| ends) {
        state.gateway.sessions.remove(&session);
    }
    push(state, connection, Out::Close(code, reason));
}

/// In the record of calls, so that tests can wait for it.
fn note(state: &mut State, at_ms: u64, bot: Option<Id>, what: &str, params: Value) {
    state.calls.push(CallRecord {
        number: 0,
        at_ms,
        bot,
        method: format!("gateway {what}"),
        path: String::new(),
        params,
        files: Vec::new(),
        status: 200,
        code: None,
        fault: None,
    });
}
