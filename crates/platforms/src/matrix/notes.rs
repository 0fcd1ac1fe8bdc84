//! Notices about encryption: each room is told once per start, with a bounded number of attempts.

use std::collections::HashMap;
use std::sync::Mutex;

use super::lock::locked;

/// Rooms that are told.
const NOTED_MAX: usize = 10_000;
const NOTE_ATTEMPTS: u32 = 5;

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
    /// The key for a notice about encryption, the same for every attempt. `None`: it was sent, or tried often enough.
    pub(super) fn begin(&self, bot: &str, room_id: &str, txn: impl FnOnce() -> String) -> Option<String> {
        let mut noted = locked(&self.0);
        let key = key(bot, room_id);
        if noted.len() >= NOTED_MAX && !noted.contains_key(&key) {
            return None;
        }
        let new = || Note { txn: txn(), attempts: 0, is_done: false, why: None };
        let note = noted.entry(key).or_insert_with(new);
        if note.is_done || note.attempts >= NOTE_ATTEMPTS {
            return None;
        }
        note.attempts += 1;
        Some(note.txn.clone())
    }

    pub(super) fn end(&self, bot: &str, room_id: &str, why: Option<String>) {
        if let Some(note) = locked(&self.0).get_mut(&key(bot, room_id)) {
            note.is_done = why.is_none();
            note.why = why;
        }
    }

    pub(super) fn may_try(&self, bot: &str, room_id: &str) -> bool {
        let noted = locked(&self.0);
        noted.get(&key(bot, room_id)).is_some_and(|note| !note.is_done && note.attempts < NOTE_ATTEMPTS)
    }

    /// Why the room was not told that it is encrypted.
    pub(super) fn failure(&self, bot: &str, room_id: &str) -> Option<String> {
        locked(&self.0).get(&key(bot, room_id)).and_then(|note| note.why.clone())
    }

    /// Encrypted rooms that were not told, with the reason.
    pub(super) fn failures(&self, bot: &str) -> Vec<(String, String)> {
        let noted = locked(&self.0);
        let failed = |((of, room_id), note): (&Key, &Note)| {
            let why = note.why.clone().filter(|_| of == bot)?;
            Some((room_id.clone(), why))
        };
        noted.iter().filter_map(failed).collect()
    }
}
