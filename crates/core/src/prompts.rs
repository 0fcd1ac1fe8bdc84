//! Who asked: a pressed button answers the agent whose prompt it belongs to, and no other one. Without this, a prompt of
//! one agent in a group could make another person's agent run whatever the button says.
//!
//! In memory: after a restart, and at another server of the same store, a press goes to the agent of the person who
//! pressed, as any other message of theirs.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use frontdesk_wire::InstanceNo;

use crate::hash::short_hash;

/// Prompts that are remembered; the oldest are forgotten first.
const PROMPTS_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Prompts(Mutex<Known>);

#[derive(Default)]
struct Known {
    owners: HashMap<[u8; 16], InstanceNo>,
    oldest: VecDeque<[u8; 16]>,
}

impl Prompts {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `place`: platform, bot, chat and message.
    pub(crate) fn note(&self, place: [&str; 4], owner: InstanceNo) {
        let key = short_hash(&place);
        let mut known = self.known();
        if known.owners.insert(key, owner).is_none() {
            known.oldest.push_back(key);
        }
        while known.oldest.len() > PROMPTS_MAX {
            if let Some(key) = known.oldest.pop_front() {
                known.owners.remove(&key);
            }
        }
    }

    pub(crate) fn owner(&self, place: [&str; 4]) -> Option<InstanceNo> {
        self.known().owners.get(&short_hash(&place)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_one_owner_and_the_oldest_are_forgotten() {
        let prompts = Prompts::default();
        prompts.note(["p", "b", "c", "first"], InstanceNo(1));
        assert_eq!(prompts.owner(["p", "b", "c", "first"]), Some(InstanceNo(1)));
        assert_eq!(prompts.owner(["p", "b", "other", "first"]), None);
        for number in 0..PROMPTS_MAX {
            prompts.note(["p", "b", "c", &number.to_string()], InstanceNo(2));
        }
        assert_eq!(prompts.owner(["p", "b", "c", "first"]), None);
        assert_eq!(prompts.owner(["p", "b", "c", "0"]), Some(InstanceNo(2)));
        assert_eq!(prompts.known().owners.len(), PROMPTS_MAX);
    }
}
