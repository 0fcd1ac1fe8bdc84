//! The sessions of which an agent got rows lately: to find the turn that `/stop` means.

use frontdesk_wire::{ChatId, SessionKey};

use crate::hash::TextMap;
use crate::port::store::{SentTurn, TURN_SESSIONS_MAX};

/// Turns that began earlier are considered finished.
pub(super) const TURN_MS: u64 = 30 * 60 * 1000;

/// Keys and chats of one agent's sessions. If there are more, the older half is forgotten.
const BYTES_MAX: usize = 1 << 20;
/// Limit while the agent is not connected.
const BYTES_ABSENT_MAX: usize = 16 << 10;
/// Fixed overhead counted per entry, in addition to its strings.
const ENTRY_BYTES: usize = 128;

/// By session key: the chat, and when the newest row went out.
#[derive(Default)]
pub(super) struct RunningTurns {
    sessions: TextMap<SessionKey, (ChatId, u64)>,
    bytes: usize,
    /// The socket for which the ledger was read. After a new socket it must be read again, because another server may have
    /// sent rows in between.
    complete_for: Option<u64>,
}

impl RunningTurns {
    pub(super) fn note(&mut self, session_key: &SessionKey, chat_id: &ChatId, at_ms: u64) {
        match self.sessions.get_mut(session_key) {
            Some(known) if known.0 == *chat_id => known.1 = known.1.max(at_ms),
            Some(known) => {
                self.bytes = self.bytes + chat_id.len() - known.0.len();
                *known = (chat_id.clone(), at_ms);
            }
            None => {
                self.make_room(at_ms);
                self.bytes += bytes_of(session_key, chat_id);
                self.sessions.insert(session_key.clone(), (chat_id.clone(), at_ms));
            }
        }
    }

    fn is_full(&self) -> bool {
        self.sessions.len() >= TURN_SESSIONS_MAX || self.bytes >= BYTES_MAX
    }

    /// Finished turns are forgotten first, then the older half.
    fn make_room(&mut self, now_ms: u64) {
        if !self.is_full() {
            return;
        }
        self.retain(|at_ms| at_ms + TURN_MS > now_ms);
        if self.is_full() {
            self.forget_older_half();
        }
    }

    /// For an agent without a socket. Its newest turns stay until they are finished: it may come back at once, and the ledger
    /// does not have the time at which a row was sent.
    pub(super) fn shrink(&mut self, now_ms: u64) {
        if self.sessions.is_empty() {
            return;
        }
        self.retain(|at_ms| at_ms + TURN_MS > now_ms);
        while self.bytes > BYTES_ABSENT_MAX {
            self.forget_older_half();
        }
        self.sessions.shrink_to_fit();
    }

    fn forget_older_half(&mut self) {
        let half = self.sessions.len() / 2;
        let mut times: Vec<u64> = self.sessions.values().map(|(_, at_ms)| *at_ms).collect();
        let (_, &mut median, newer) = times.select_nth_unstable(half);
        // Several entries may have the median time; only as many as needed are kept.
        let mut left = half.saturating_sub(newer.iter().filter(|at_ms| **at_ms > median).count());
        self.retain(|at_ms| {
            let is_tie = at_ms == median && left > 0;
            left -= usize::from(is_tie);
            is_tie || at_ms > median
        });
    }

    fn retain(&mut self, mut stays: impl FnMut(u64) -> bool) {
        self.sessions.retain(|_, (_, at_ms)| stays(*at_ms));
        self.bytes = self.sessions.iter().map(|(key, (chat_id, _))| bytes_of(key, chat_id)).sum();
    }

    /// Whether all turns from before this socket are known.
    pub(super) fn is_complete_for(&self, socket: u64) -> bool {
        self.complete_for == Some(socket)
    }

    /// Adds the turns from before this socket, as read from the ledger.
    pub(super) fn complete(&mut self, socket: u64, stored: Vec<SentTurn>) {
        for SentTurn { session_key, chat_id, at_ms } in stored {
            if self.sessions.get(&session_key).is_none_or(|(_, known_ms)| *known_ms < at_ms) {
                self.note(&session_key, &chat_id, at_ms);
            }
        }
        self.complete_for = Some(socket);
    }

    /// The chat of the session's latest turn, if it began since then.
    pub(super) fn chat(&self, session_key: &SessionKey, since_ms: u64) -> Option<&ChatId> {
        self.sessions.get(session_key).filter(|(_, at_ms)| *at_ms >= since_ms).map(|(chat_id, _)| chat_id)
    }
}

fn bytes_of(session_key: &SessionKey, chat_id: &ChatId) -> usize {
    session_key.len() + chat_id.len() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(turns: &mut RunningTurns, session_key: &str, at_ms: u64) {
        turns.note(&session_key.into(), &format!("chat of {session_key}").into(), at_ms);
    }

    #[test]
    fn the_latest_turn_of_a_session_counts() {
        let mut turns = RunningTurns::default();
        note(&mut turns, "a", 1_000);
        note(&mut turns, "b", 1_000);
        note(&mut turns, "a", 2_000);
        assert_eq!(turns.chat(&"a".into(), 2_000).map(|it| &**it), Some("chat of a"));
        assert_eq!(turns.chat(&"a".into(), 2_001), None);
        assert_eq!(turns.chat(&"b".into(), 1_000).map(|it| &**it), Some("chat of b"));
        assert_eq!((turns.chat(&"b".into(), 1_500), turns.chat(&"c".into(), 0)), (None, None));
    }

    #[test]
    fn sessions_are_bounded_and_the_newest_stay() {
        let mut turns = RunningTurns::default();
        let now_ms = 10 * TURN_MS;
        for number in 0..100 {
            note(&mut turns, &format!("finished {number}"), number);
        }
        for number in 100..3 * TURN_SESSIONS_MAX as u64 {
            note(&mut turns, &number.to_string(), now_ms + number);
            assert!(turns.sessions.len() <= TURN_SESSIONS_MAX);
        }
        assert!(turns.chat(&"finished 99".into(), 0).is_none());
        let newest = 3 * TURN_SESSIONS_MAX - 1;
        assert!(
            (newest - TURN_SESSIONS_MAX / 2 + 1..=newest).all(|it| turns.chat(&it.to_string().into(), 0).is_some())
        );
        let mut turns = RunningTurns::default();
        for number in 0..2 * TURN_SESSIONS_MAX {
            note(&mut turns, &number.to_string(), now_ms); // all at one time
            assert!(turns.sessions.len() <= TURN_SESSIONS_MAX);
        }
        assert!(turns.chat(&(2 * TURN_SESSIONS_MAX - 1).to_string().into(), 0).is_some());
    }

    #[test]
    fn sessions_are_bounded_in_bytes() {
        let mut turns = RunningTurns::default();
        for number in 0..1_000 {
            note(&mut turns, &format!("{number}{}", "x".repeat(4_096)), 10 * TURN_MS + number);
            assert!(turns.bytes < BYTES_MAX + (16 << 10));
        }
        assert!(turns.sessions.len() > 50 && turns.chat(&format!("999{}", "x".repeat(4_096)).into(), 0).is_some());
        turns.retain(|_| false);
        assert_eq!(turns.bytes, 0);
    }

    #[test]
    fn an_absent_agent_keeps_its_newest_turns() {
        let mut turns = RunningTurns::default();
        for number in 0..10 {
            note(&mut turns, &number.to_string(), number);
        }
        turns.shrink(0);
        assert_eq!(turns.sessions.len(), 10, "few are kept");
        for number in 10..1_000 {
            note(&mut turns, &number.to_string(), number);
        }
        turns.shrink(0);
        assert!(
            turns.bytes <= BYTES_ABSENT_MAX
                && turns.chat(&"999".into(), 0).is_some()
                && turns.chat(&"0".into(), 0).is_none()
        );
        note(&mut turns, &"x".repeat(BYTES_ABSENT_MAX), 1_000);
        turns.shrink(0); // ends, although one alone is too large
        assert!(turns.bytes <= BYTES_ABSENT_MAX);
        note(&mut turns, "new", 2_000);
        turns.shrink(TURN_MS + 1_999);
        assert_eq!(
            (turns.sessions.len(), turns.chat(&"new".into(), 0).is_some()),
            (1, true),
            "finished ones are forgotten"
        );
    }

    #[test]
    fn what_the_ledger_has_is_added_once_for_each_socket() {
        let mut turns = RunningTurns::default();
        note(&mut turns, "a", 2_000);
        assert!(!turns.is_complete_for(1));
        let stored = |session_key: &str, chat: &str, at_ms| SentTurn {
            session_key: session_key.into(),
            chat_id: chat.into(),
            at_ms,
        };
        turns.complete(1, vec![stored("a", "older", 1_000), stored("b", "c", 1_500)]);
        assert!(turns.is_complete_for(1) && !turns.is_complete_for(2));
        assert_eq!(turns.chat(&"a".into(), 2_000).map(|it| &**it), Some("chat of a"), "the newer one stays");
        assert_eq!(turns.chat(&"b".into(), 1_500).map(|it| &**it), Some("c"));
    }
}
