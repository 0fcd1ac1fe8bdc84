//! Notices about encryption: each room is notified once per start, with a bounded number of attempts.

use std::collections::HashMap;
use std::sync::Mutex;

use super::lock::locked;

/// Rooms that are notified.
const NOTED_MAX: usize = 10_000;
const NOTE_ATTEMPTS: u32 = 5;
const UNANSWERED: &str = "the homeserver did not answer in time";

/// A bot, and a room.
type Key = (String, String);

struct Note {
    txn: String,
    attempts: u32,
    is_done: bool,
    why: Option<String>,
}

#[derive(Default)]
pub(super) struct Notes(Mutex<HashMap<Key, Note>>);

fn key(bot: &str, room_id: &str) -> Key {
    (bot.to_owned(), room_id.to_owned())
}

impl Notes {
    /// The key for a notice about encryption, the same for every attempt. `None`: it was sent. `Err`: it is not sent, and
    /// why. The attempt counts as failed until it ends, because it may be dropped before.
    pub(super) fn begin(
        &self,
        bot: &str,
        room_id: &str,
        txn: impl FnOnce() -> String,
    ) -> Result<Option<String>, String> {
        let mut noted = locked(&self.0);
        let key = key(bot, room_id);
        if noted.len() >= NOTED_MAX && !noted.contains_key(&key) {
            return Err(format!("{NOTED_MAX} encrypted rooms got a notice since the start, which is the maximum"));
        }
        let new = || Note { txn: txn(), attempts: 0, is_done: false, why: None };
        let note = noted.entry(key).or_insert_with(new);
        if note.is_done {
            return Ok(None);
        }
        if note.attempts >= NOTE_ATTEMPTS {
            return Err(note.why.clone().unwrap_or_else(|| UNANSWERED.into()));
        }
        note.attempts += 1;
        note.why = Some(UNANSWERED.into());
        Ok(Some(note.txn.clone()))
    }

    pub(super) fn end(&self, bot: &str, room_id: &str, why: Option<String>) {
        // Of two attempts at once, one that worked is enough.
        if let Some(note) = locked(&self.0).get_mut(&key(bot, room_id)).filter(|note| !note.is_done) {
            note.is_done = why.is_none();
            note.why = why;
        }
    }

    pub(super) fn may_try(&self, bot: &str, room_id: &str) -> bool {
        let noted = locked(&self.0);
        noted.get(&key(bot, room_id)).is_some_and(|note| !note.is_done && note.attempts < NOTE_ATTEMPTS)
    }

    /// Encrypted rooms that were not notified, with the reason.
    pub(super) fn failures(&self, bot: &str) -> Vec<(String, String)> {
        let noted = locked(&self.0);
        let failed = |((of, room_id), note): (&Key, &Note)| {
            let why = note.why.clone().filter(|_| of == bot)?;
            Some((room_id.clone(), why))
        };
        noted.iter().filter_map(failed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a room whose notice was cut off counted as notified.
    #[test]
    fn an_attempt_that_does_not_end_is_a_failure() {
        let notes = Notes::default();
        for _ in 0..NOTE_ATTEMPTS {
            assert_eq!(notes.begin("b", "!r", || "t".into()), Ok(Some("t".into())));
            assert_eq!(notes.failures("b"), [("!r".to_owned(), UNANSWERED.to_owned())]);
        }
        assert_eq!(notes.begin("b", "!r", || "t".into()), Err(UNANSWERED.into()));
        notes.end("b", "!r", None);
        assert_eq!((notes.begin("b", "!r", || "t".into()), notes.failures("b")), (Ok(None), vec![]));
    }

    /// Regression: rooms beyond the bound counted as notified.
    #[test]
    fn rooms_beyond_the_bound_are_reported() {
        let notes = Notes::default();
        for n in 0..NOTED_MAX {
            assert!(notes.begin("b", &n.to_string(), String::new).is_ok());
        }
        assert!(notes.begin("b", "!more", String::new).is_err_and(|why| why.contains("10000")));
        assert!(notes.begin("b", "1", String::new).is_ok());
    }
}
