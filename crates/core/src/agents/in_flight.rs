//! Messages that are being handed to connectors. A concurrent repetition of the same message does not call the
//! connectors again, here or at another server.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use crate::port::store::Mark;

/// Claims that wait to be released in the store. Above this number the oldest are left to expire.
const RELEASED_MAX: usize = 10_000;

#[derive(Default, Clone)]
pub struct InFlight(Arc<Mutex<Marks>>);

#[derive(Default)]
struct Marks {
    held: HashSet<Mark>,
    /// No longer held, but still claimed in the store.
    released: VecDeque<Mark>,
}

impl Marks {
    fn release(&mut self, mark: Mark) {
        self.released.push_back(mark);
        let excess = self.released.len().saturating_sub(RELEASED_MAX);
        self.released.drain(..excess);
    }
}

/// Guard held while a message is handed over. Dropping it, also by cancellation, lets the next caller proceed.
pub struct Carrying {
    all: InFlight,
    mark: Mark,
    is_claimed: bool,
}

impl Drop for Carrying {
    fn drop(&mut self) {
        self.all.with(|marks| {
            marks.held.remove(&self.mark);
            if self.is_claimed {
                marks.release(self.mark);
            }
        });
    }
}

impl Carrying {
    /// The claim in the store was refused: another server has the message.
    pub fn not_claimed(&mut self) {
        self.is_claimed = false;
    }

    /// The message was claimed in the store and must be released there.
    pub fn claimed(&mut self) {
        self.is_claimed = true;
    }
}

impl InFlight {
    fn with<T>(&self, change: impl FnOnce(&mut Marks) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `None`: another caller holds this message.
    pub fn carry(&self, mark: Mark) -> Option<Carrying> {
        let is_first = self.with(|marks| {
            let is_first = marks.held.insert(mark);
            if is_first {
                marks.released.retain(|released| *released != mark); // it is claimed again
            }
            is_first
        });
        is_first.then(|| Carrying { all: self.clone(), mark, is_claimed: false })
    }

    pub fn take_released(&self) -> Vec<Mark> {
        self.with(|marks| marks.released.drain(..).collect())
    }

    /// Keeps marks whose release in the store failed.
    pub fn put_back(&self, released: Vec<Mark>) {
        self.with(|marks| released.into_iter().for_each(|mark| marks.release(mark)));
    }

    pub fn len(&self) -> usize {
        self.with(|marks| marks.held.len())
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
        let mut other = all.carry([2; 16]).unwrap();
        other.claimed();
        drop(first);
        assert!(all.carry([1; 16]).is_some_and(|again| again.mark == [1; 16]));
        assert!(all.take_released().is_empty());
        drop(other);
        assert!(all.is_empty());
        assert_eq!((all.take_released(), all.take_released()), (vec![[2; 16]], vec![]));
    }
}
