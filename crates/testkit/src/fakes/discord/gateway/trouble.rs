//! What tests do to the sockets of a bot.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::snowflake::Id;
use super::super::state::State;
use super::{Out, close, push};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum SocketFault {
    /// The connection ends now, without a close frame.
    Cut,
    /// The same for the sockets of one shard.
    CutShard {
        shard: u64,
    },
    /// It ends behind so many more dispatches. Later ones wait for a RESUME.
    CutAfter {
        dispatches: u64,
    },
    Close {
        code: u16,
    },
    /// Opcode 7.
    Reconnect,
    /// Opcode 9. The session is forgotten unless it is resumable.
    InvalidSession {
        resumable: bool,
    },
    /// The sessions are forgotten silently, as after a failure of the vendor's host.
    ForgetSessions,
    /// So many heartbeats get no ack; 0 ends it.
    WithholdAcks {
        count: u32,
    },
    /// Opcode 1: a heartbeat is asked for.
    AskHeartbeat,
    /// The next dispatch has a number one higher than it should.
    SkipSequence,
    /// The next dispatches come twice.
    Duplicate {
        #[serde(default = "once")]
        count: u32,
    },
    /// The next dispatch does not say what it is, also when it is sent again.
    Spoil,
    /// The next dispatch, and what is behind it, comes later.
    Delay {
        ms: u64,
    },
    /// The next connections of any bot are refused with 503.
    RefuseConnects {
        count: u32,
    },
    /// The next connections of any bot are accepted, and get no HELLO.
    Silence {
        count: u32,
    },
}

fn once() -> u32 {
    1
}

/// What happens to one dispatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    SkipSequence,
    Duplicate,
    Spoil,
    Delay { ms: u64 },
}

/// Returns how many live sockets it concerns.
pub(in super::super) fn apply(state: &mut State, bot: Id, fault: &SocketFault) -> usize {
    let live = state.gateway.live(bot);
    let op = |op: u8, d: serde_json::Value| Out::Frame(json!({"op": op, "d": d, "s": null, "t": null}));
    match *fault {
        SocketFault::Cut => live.iter().for_each(|id| push(state, *id, Out::Cut)),
        SocketFault::CutShard { shard } => {
            let of_shard = state.gateway.live_where(|session| session.bot == bot && session.shard.0 == shard);
            for id in &of_shard {
                push(state, *id, Out::Cut);
            }
            return of_shard.len();
        }
        SocketFault::CutAfter { dispatches } => {
            for id in &live {
                if let Some(connection) = state.gateway.connections.get_mut(id) {
                    connection.cut_after = Some(dispatches.max(1));
                }
            }
        }
        SocketFault::Close { code } => live.iter().for_each(|id| close(state, *id, code, "Closed by a test.")),
        SocketFault::Reconnect => live.iter().for_each(|id| push(state, *id, op(7, json!(null)))),
        SocketFault::InvalidSession { resumable } => {
            for id in &live {
                push(state, *id, op(9, json!(resumable)));
            }
            if !resumable {
                forget(state, bot);
            }
        }
        SocketFault::ForgetSessions => forget(state, bot),
        SocketFault::WithholdAcks { count } => {
            state.gateway.withheld_acks.insert(bot, count);
        }
        SocketFault::AskHeartbeat => live.iter().for_each(|id| push(state, *id, op(1, json!(null)))),
        SocketFault::SkipSequence => mark(state, bot, Mark::SkipSequence),
        SocketFault::Duplicate { count } => (0..count).for_each(|_| mark(state, bot, Mark::Duplicate)),
        SocketFault::Spoil => mark(state, bot, Mark::Spoil),
        SocketFault::Delay { ms } => mark(state, bot, Mark::Delay { ms }),
        SocketFault::RefuseConnects { count } => state.gateway.refuse_connects = count,
        SocketFault::Silence { count } => state.gateway.silent_connects = count,
    }
    live.len()
}

fn mark(state: &mut State, bot: Id, mark: Mark) {
    state.gateway.marks.entry(bot).or_default().push_back(mark);
}

/// Sockets stay open, but get nothing more.
fn forget(state: &mut State, bot: Id) {
    state.gateway.sessions.retain(|_, session| session.bot != bot);
    for connection in state.gateway.connections.values_mut() {
        connection.session = connection.session.take().filter(|id| state.gateway.sessions.contains_key(id));
    }
}
