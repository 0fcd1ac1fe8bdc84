//! Messages that are being handed to connectors. A concurrent repetition of the same message does not call the
//! connectors again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Dedup key of a message.
type Mark = [u8; 16];

#[derive(Default, Clone)]
pub struct InFlight {
    marks: Arc<Mutex<HashSet<Mark>>>,
}

/// Guard held while a message is handed over. Dropping it, also by cancellation, lets the next caller proceed.
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

    /// `None`: another caller holds this message.
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
    fn only_one_caller_holds_a_message() {
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
