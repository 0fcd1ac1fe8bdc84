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

#[derive(Default)]
struct Files {
    by_url: HashMap<String, (u64, HeldFile)>,
    oldest: VecDeque<String>,
    bytes: usize,
}

impl Files {
    fn drop_oldest(&mut self) {
        let removed = self.oldest.pop_front().and_then(|url| self.by_url.remove(&url));
        self.bytes -= removed.map_or(0, |(_, file)| file.bytes.len());
    }
}

impl Held {
    /// The oldest make room. A file that is longer than all of them may be is not kept.
    pub(super) fn put(&self, url: String, file: HeldFile, now_ms: u64) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if file.bytes.len() > BYTES_MAX || files.by_url.contains_key(&url) {
            return;
        }
        files.bytes += file.bytes.len();
        files.oldest.push_back(url.clone());
        files.by_url.insert(url, (now_ms, file));
        let is_over = |files: &Files| {
            let first = files.oldest.front().and_then(|url| files.by_url.get(url));
            let is_old = first.is_some_and(|(at_ms, _)| now_ms.saturating_sub(*at_ms) > TTL_MS);
            is_old || files.bytes > BYTES_MAX || files.oldest.len() > FILES_MAX
        };
        while is_over(&files) {
            files.drop_oldest();
        }
    }

    pub(super) fn get(&self, url: &str, now_ms: u64) -> Option<HeldFile> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at_ms, file) = files.by_url.get(url)?;
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
            held.put(format!("u{number}"), file(20 << 20), 0);
        }
        assert_eq!((held.get("u1", 0), held.get("u4", 0).is_some()), (None, true));
        assert_eq!(held.0.lock().unwrap().bytes, 60 << 20);
        held.put("u4".into(), file(1), 0);
        assert_eq!(held.get("u4", 0), Some(file(20 << 20)), "a link is that of one file");
        assert_eq!(held.get("u4", TTL_MS + 1), None);
        held.put("huge".into(), file(BYTES_MAX + 1), 0);
        assert_eq!(held.get("huge", 0), None);
        for number in 0..2 * FILES_MAX {
            held.put(format!("n{number}"), file(1), TTL_MS + 1);
        }
        let files = held.0.lock().unwrap();
        assert_eq!((files.by_url.len(), files.oldest.len(), files.bytes), (FILES_MAX, FILES_MAX, FILES_MAX));
    }
}
