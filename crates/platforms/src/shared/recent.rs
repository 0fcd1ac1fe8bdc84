//! A bounded cache of chats of bots, of which there may be any number: the oldest are removed first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Chats that are remembered.
const CHATS_MAX: usize = 10_000;

type ChatKey = (String, String);

/// One value for a chat of a bot.
pub(crate) struct Recent<V>(Mutex<Known<V>>);

struct Known<V> {
    values: HashMap<ChatKey, V>,
    oldest: VecDeque<ChatKey>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self(Mutex::new(Known { values: HashMap::new(), oldest: VecDeque::new() }))
    }
}

impl<V: Clone> Recent<V> {
    pub(crate) fn get(&self, bot: &str, chat_id: &str) -> Option<V> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.values.get(&(bot.to_owned(), chat_id.to_owned())).cloned()
    }

    /// Changes the value of a chat; `None`: there is none.
    pub(crate) fn change(&self, bot: &str, chat_id: &str, change: impl FnOnce(Option<V>) -> Option<V>) {
        let place = (bot.to_owned(), chat_id.to_owned());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.values.remove(&place);
        let was_known = before.is_some();
        match change(before) {
            Some(value) => {
                known.values.insert(place.clone(), value);
                if !was_known {
                    known.oldest.push_back(place);
                }
            }
            None if was_known => known.oldest.retain(|other| *other != place),
            None => {}
        }
        while known.oldest.len() > CHATS_MAX {
            if let Some(place) = known.oldest.pop_front() {
                known.values.remove(&place);
            }
        }
    }

    pub(crate) fn put(&self, bot: &str, chat_id: &str, value: V) {
        self.change(bot, chat_id, |_| Some(value));
    }

    pub(crate) fn forget(&self, bot: &str, chat_id: &str) {
        self.change(bot, chat_id, |_| None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_chats_of_bots_are_apart() {
        let recent = Recent::default();
        recent.put("b", "1", 1);
        recent.put("c", "1", 2);
        recent.put("b", "1", 3);
        assert_eq!((recent.get("b", "1"), recent.get("c", "1"), recent.get("b", "2")), (Some(3), Some(2), None));
        recent.forget("b", "1");
        recent.forget("b", "9");
        assert_eq!(recent.get("b", "1"), None);
        for number in 0..2 * CHATS_MAX {
            recent.put("b", &number.to_string(), 0);
        }
        let known = recent.0.lock().unwrap();
        assert_eq!((known.values.len(), known.oldest.len()), (CHATS_MAX, CHATS_MAX));
    }
}
