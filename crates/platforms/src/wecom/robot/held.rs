//! Files of people whose links end after five minutes, kept in memory for agents that wake later. As they came: sealed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// Of all files together.
const BYTES_MAX: usize = 64 << 20;
const FILES_MAX: usize = 1_000;
const TTL_MS: u64 = 24 * 3_600_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldFile {
    pub(super) mime: String,
    pub(super) filename: Option<String>,
    pub(super) bytes: Bytes,
}

#[derive(Default)]
pub(super) struct Held(Mutex<Files>);

/// Bot and link.
type Key = (String, String);

#[derive(Default)]
struct Files {
    by_key: HashMap<Key, (u64, HeldFile)>,
    oldest: VecDeque<Key>,
    bytes: usize,
}

impl Files {
    fn remove(&mut self, index: usize) {
        let removed = self.oldest.remove(index).and_then(|key| self.by_key.remove(&key));
        self.bytes -= removed.map_or(0, |(_, file)| file.bytes.len());
    }

    /// Drops the oldest file of the bot that has the most, as `weight` counts them: one bot cannot push out the files of others.
    fn make_room(&mut self, weight: impl Fn(&HeldFile) -> usize) {
        let mut of_bots: HashMap<&str, usize> = HashMap::new();
        for ((bot, _), (_, file)) in &self.by_key {
            *of_bots.entry(bot).or_default() += weight(file);
        }
        let most = of_bots.into_iter().max_by_key(|(_, weight)| *weight).map(|(bot, _)| bot.to_owned());
        let index = self.oldest.iter().position(|(bot, _)| Some(bot) == most.as_ref());
        self.remove(index.unwrap_or_default());
    }
}

impl Held {
    /// Old ones make room. A file that is longer than all of them may be is not kept.
    pub(super) fn put(&self, bot: &str, url: String, file: HeldFile, now_ms: u64) {
        let key = (bot.to_owned(), url);
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if file.bytes.len() > BYTES_MAX || files.by_key.contains_key(&key) {
            return;
        }
        files.bytes += file.bytes.len();
        files.oldest.push_back(key.clone());
        files.by_key.insert(key, (now_ms, file));
        let is_old = |files: &Files| {
            let first = files.oldest.front().and_then(|key| files.by_key.get(key));
            first.is_some_and(|(at_ms, _)| now_ms.saturating_sub(*at_ms) > TTL_MS)
        };
        while is_old(&files) {
            files.remove(0);
        }
        while files.bytes > BYTES_MAX {
            files.make_room(|file| file.bytes.len());
        }
        while files.oldest.len() > FILES_MAX {
            files.make_room(|_| 1);
        }
    }

    pub(super) fn get(&self, bot: &str, url: &str, now_ms: u64) -> Option<HeldFile> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at_ms, file) = files.by_key.get(&(bot.to_owned(), url.to_owned()))?;
        (now_ms.saturating_sub(*at_ms) <= TTL_MS).then(|| file.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: usize) -> HeldFile {
        HeldFile { mime: "image/png".into(), filename: None, bytes: vec![7; size].into() }
    }

    #[test]
    fn it_is_bounded_in_bytes_count_and_time() {
        let held = Held::default();
        for number in 0..5 {
            held.put("b", format!("u{number}"), file(20 << 20), 0);
        }
        assert_eq!((held.get("b", "u1", 0), held.get("b", "u4", 0).is_some()), (None, true));
        assert_eq!(held.0.lock().unwrap().bytes, 60 << 20);
        held.put("b", "u4".into(), file(1), 0);
        assert_eq!(held.get("b", "u4", 0), Some(file(20 << 20)), "a link is that of one file");
        assert_eq!(held.get("b", "u4", TTL_MS + 1), None);
        held.put("b", "huge".into(), file(BYTES_MAX + 1), 0);
        assert_eq!(held.get("b", "huge", 0), None);
        for number in 0..2 * FILES_MAX {
            held.put("b", format!("n{number}"), file(1), TTL_MS + 1);
        }
        let files = held.0.lock().unwrap();
        assert_eq!((files.by_key.len(), files.oldest.len(), files.bytes), (FILES_MAX, FILES_MAX, FILES_MAX));
    }

    #[test]
    fn a_bot_makes_room_with_its_own_files() {
        let held = Held::default();
        held.put("small", "u".into(), file(1 << 20), 0);
        for number in 0..9 {
            held.put("big", format!("u{number}"), file(16 << 20), 0);
        }
        assert!(held.get("small", "u", 0).is_some() && held.get("big", "u8", 0).is_some());
        assert_eq!((held.get("big", "u0", 0), held.get("small", "u8", 0)), (None, None));
    }
}
