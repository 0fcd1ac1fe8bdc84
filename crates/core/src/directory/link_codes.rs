//! Codes with which users link themselves, and a limit on guesses.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::env::Env;

/// Without characters that look alike.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const CODE_CHARS: usize = 8;
/// Wrong codes per author in this time; then further codes are refused. With 32^8 codes, of which a few are open,
/// guessing is not feasible.
const TRIES_MAX: u32 = 5;
const TRIES_WINDOW_MS: u64 = 600_000;
/// Authors in memory; the oldest are removed first.
const AUTHORS_MAX: usize = 10_000;

pub(super) fn new_code(env: &dyn Env) -> String {
    let mut random = [0; CODE_CHARS];
    env.fill(&mut random);
    let letters: String = random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect();
    format!("{}-{}", &letters[..CODE_CHARS / 2], &letters[CODE_CHARS / 2..])
}

/// Wrong codes per author.
#[derive(Default)]
pub(super) struct Tries {
    authors: Mutex<HashMap<String, (u32, u64)>>,
}

impl Tries {
    pub(super) fn is_over(&self, author: &str, now_ms: u64) -> bool {
        let authors = self.authors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        authors.get(author).is_some_and(|(tries, until_ms)| *tries >= TRIES_MAX && *until_ms > now_ms)
    }

    pub(super) fn wrong(&self, author: String, now_ms: u64) {
        let mut authors = self.authors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if authors.len() >= AUTHORS_MAX {
            authors.retain(|_, (_, until_ms)| *until_ms > now_ms);
        }
        if authors.len() >= AUTHORS_MAX
            && let Some(oldest) =
                authors.iter().min_by_key(|(_, (_, until_ms))| *until_ms).map(|(name, _)| name.clone())
        {
            authors.remove(&oldest);
        }
        let entry = authors.entry(author).or_insert((0, now_ms + TRIES_WINDOW_MS));
        if entry.1 <= now_ms {
            *entry = (0, now_ms + TRIES_WINDOW_MS);
        }
        entry.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_codes_are_limited_per_author_and_time() {
        let tries = Tries::default();
        for _ in 0..TRIES_MAX {
            assert!(!tries.is_over("ann", 0));
            tries.wrong("ann".into(), 0);
        }
        assert!(tries.is_over("ann", TRIES_WINDOW_MS - 1));
        assert!(!tries.is_over("bob", 0));
        assert!(!tries.is_over("ann", TRIES_WINDOW_MS));
        tries.wrong("ann".into(), TRIES_WINDOW_MS);
        assert!(!tries.is_over("ann", TRIES_WINDOW_MS), "a new window starts at one");
        for author in 0..AUTHORS_MAX + 10 {
            tries.wrong(author.to_string(), 5);
        }
        assert!(tries.authors.lock().unwrap().len() <= AUTHORS_MAX);
    }
}
