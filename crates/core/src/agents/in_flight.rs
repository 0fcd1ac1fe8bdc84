//! What is being carried to connectors just now. Whoever says the same word again meanwhile leaves it to the
//! one who carries it, so that no connector hears it twice.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The dedup mark of a word.
type Mark = [u8; 16];

#[derive(Default, Clone)]
pub struct InFlight {
    marks: Arc<Mutex<HashSet<Mark>>>,
}

/// Held by whoever carries a word. Dropped, also by a caller that hangs up, the next one may.
pub struct Carrying {
    all: InFlight,
    mark: Mark,
}

impl Drop for Carrying {
    fn drop(&mut self) {
        self.all.marks().remove(&self.mark);
    }
}

impl InFlight {
    fn marks(&self) -> MutexGuard<'_, HashSet<Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: somebody carries it already.
    pub fn carry(&self, mark: Mark) -> Option<Carrying> {
        let first = self.marks().insert(mark);
        first.then(|| Carrying { all: self.clone(), mark })
    }

    pub fn len(&self) -> usize {
        self.marks().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_carries_a_word_until_it_lets_go() {
        let all = InFlight::default();
        let first = all.carry([1; 16]).unwrap();
        assert!(all.carry([1; 16]).is_none());
        let other = all.carry([2; 16]).unwrap();
        drop(first);
        assert!(all.carry([1; 16]).is_some_and(|again| again.mark == [1; 16]));
        drop(other);
        assert!(all.is_empty());
    }
}
