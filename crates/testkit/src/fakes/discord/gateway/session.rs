//! Sessions: what they have been sent, and what they are sent next.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::super::snowflake::Id;
use super::super::state::State;
use super::super::{intents, permissions};
use super::trouble::Mark;
use super::{Out, push};

#[derive(Debug)]
pub(super) struct Session {
    pub(super) bot: Id,
    pub(super) intents: u64,
    /// Number and count.
    pub(super) shard: (u64, u64),
    pub(super) seq: u64,
    pub(super) kept: SentFrames,
    pub(super) connection: Option<u64>,
    pub(super) gone_ms: u64,
}

/// The latest dispatches, for a RESUME.
#[derive(Debug, Default)]
pub(super) struct SentFrames {
    frames: VecDeque<(u64, Value)>,
    /// Up to this number dispatches are no longer there.
    dropped: u64,
}

impl SentFrames {
    pub(super) fn push(&mut self, seq: u64, frame: Value, most: usize) {
        self.frames.push_back((seq, frame));
        while self.frames.len() > most {
            self.dropped = self.frames.pop_front().map_or(self.dropped, |(seq, _)| seq);
        }
    }

    /// Dispatches behind this number, or `None` if some of them are no longer there.
    pub(super) fn after(&self, seq: u64) -> Option<Vec<Value>> {
        if seq < self.dropped {
            return None;
        }
        Some(self.frames.iter().filter(|(at, _)| *at > seq).map(|(_, frame)| frame.clone()).collect())
    }
}

/// Who a dispatch is for.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Audience {
    /// Bots that are members.
    Guild(Id),
    /// Bots that see this channel or thread.
    Channel(Id),
    /// One bot, for what concerns only it; and the guild that it is about.
    Bot(Id, Option<Id>),
}

/// Whose eyes a dispatch is written for.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Viewer {
    pub(in super::super) bot: Id,
    pub(in super::super) intents: u64,
}

fn is_for(state: &State, audience: Audience, session: &Session) -> bool {
    let guild = match audience {
        Audience::Guild(guild) => Some(guild),
        Audience::Channel(channel) => state.channels.get(&channel).and_then(|channel| channel.guild),
        Audience::Bot(_, guild) => guild,
    };
    let (shard, count) = session.shard;
    if guild.map_or(0, |guild| (guild >> 22) % count) != shard {
        return false;
    }
    let sees = |channel| {
        let channel = state.channels.get(&channel);
        channel.is_some_and(|channel| permissions::sees(state, channel, session.bot))
    };
    match audience {
        Audience::Guild(guild) => state.guilds.get(&guild).is_some_and(|it| it.members.contains_key(&session.bot)),
        Audience::Channel(channel) => sees(channel),
        Audience::Bot(bot, _) => session.bot == bot,
    }
}

/// To every session that may have it and asked for it. `make` writes it for each of them, or leaves it out.
pub(in super::super) fn dispatch(
    state: &mut State,
    audience: Audience,
    event: &str,
    make: impl Fn(&State, Viewer) -> Option<Value>,
) {
    let in_guild = match audience {
        Audience::Guild(_) | Audience::Bot(_, Some(_)) => true,
        Audience::Bot(_, None) => false,
        Audience::Channel(channel) => state.channels.get(&channel).is_some_and(|channel| channel.guild.is_some()),
    };
    let mut due = Vec::new();
    for (id, session) in &state.gateway.sessions {
        if intents::allows(session.intents, event, in_guild) && is_for(state, audience, session) {
            let viewer = Viewer { bot: session.bot, intents: session.intents };
            due.extend(make(state, viewer).map(|data| (id.clone(), data)));
        }
    }
    for (id, data) in due {
        send(state, &id, event, data);
    }
}

pub(super) fn send(state: &mut State, session: &str, event: &str, data: Value) {
    let most = state.gateway.settings.kept_dispatches;
    let Some(found) = state.gateway.sessions.get_mut(session) else { return };
    let bot = found.bot;
    let mark = state.gateway.marks.get_mut(&bot).and_then(VecDeque::pop_front);
    found.seq += if mark == Some(Mark::SkipSequence) { 2 } else { 1 };
    let event = (mark != Some(Mark::Spoil)).then_some(event);
    let frame = json!({"op": 0, "t": event, "s": found.seq, "d": data});
    found.kept.push(found.seq, frame.clone(), most);
    let Some(connection) = found.connection else { return };
    if let Some(Mark::Delay { ms }) = mark {
        push(state, connection, Out::Pause { ms });
    }
    if mark == Some(Mark::Duplicate) {
        push(state, connection, Out::Frame(frame.clone()));
    }
    push(state, connection, Out::Frame(frame));
    let cut = state.gateway.connections.get_mut(&connection).and_then(|it| it.cut_after.as_mut());
    if let Some(left) = cut {
        *left = left.saturating_sub(1);
        if *left == 0 {
            push(state, connection, Out::Cut);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_dispatches_are_replayed_or_known_to_be_gone() {
        let mut kept = SentFrames::default();
        for seq in 1..=5 {
            kept.push(seq, json!(seq), 3);
        }
        assert_eq!(kept.after(2), Some(vec![json!(3), json!(4), json!(5)]));
        assert_eq!(kept.after(4), Some(vec![json!(5)]));
        assert_eq!(kept.after(5), Some(vec![]));
        assert_eq!(kept.after(1), None, "2 is no longer there");
    }
}
