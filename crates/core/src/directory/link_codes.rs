//! Codes by which people link themselves, and how often somebody may guess.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::env::Env;

/// What a code is made of: nothing that looks like something else.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const CODE_CHARS: usize = 8;
/// Wrong codes of one author in this time before the desk stops looking. With 32^8 codes and a few
/// open at a time, that is far from a guess.
const TRIES_MAX: u32 = 5;
const TRIES_WINDOW_MS: u64 = 600_000;
/// Authors remembered; beyond it the oldest are forgotten first.
const AUTHORS_MAX: usize = 10_000;

pub(super) fn new_code(env: &dyn Env) -> String {
    let mut random = [0; CODE_CHARS];
    env.fill(&mut random);
    let letters: String = random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect();
    format!("{}-{}", &letters[..CODE_CHARS / 2], &letters[CODE_CHARS / 2..])
}

/// Wrong codes per author, for a while.
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
    fn an_author_has_a_few_tries_in_a_while() {
        let tries = Tries::default();
        for _ in 0..TRIES_MAX {
            assert!(!tries.is_over("ann", 0));
            tries.wrong("ann".into(), 0);
        }
        assert!(tries.is_over("ann", TRIES_WINDOW_MS - 1));
        assert!(!tries.is_over("bob", 0));
        assert!(!tries.is_over("ann", TRIES_WINDOW_MS));
        tries.wrong("ann".into(), TRIES_WINDOW_MS);
        assert!(!tries.is_over("ann", TRIES_WINDOW_MS), "a new while begins at one");
        for author in 0..AUTHORS_MAX + 10 {
            tries.wrong(author.to_string(), 5);
        }
        assert!(tries.authors.lock().unwrap().len() <= AUTHORS_MAX);
    }
}
