//! The chats of a robot: the requests by which they can be answered, and their kinds.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::shared::recent::Recent;

/// A message can be answered for a day.
const VALID_MS: u64 = 23 * 3_600_000;
/// Messages whose request is remembered, of all chats.
const MESSAGES_MAX: usize = 10_000;
/// People who have written in a group, newest last.
const SPEAKERS_MAX: usize = 64;

#[derive(Clone, Default)]
pub(super) struct Chat {
    /// The request of the last message, and when it came.
    last: Option<(String, u64)>,
    pub(super) is_group: bool,
    speakers: VecDeque<String>,
}

impl Chat {
    pub(super) fn has_spoken(&self, person: &str) -> bool {
        self.speakers.iter().any(|known| known == person)
    }
}

#[derive(Default)]
pub(super) struct Replies {
    chats: Recent<Chat>,
    messages: Mutex<Messages>,
}

#[derive(Default)]
struct Messages {
    requests: HashMap<(String, String), Known>,
    oldest: VecDeque<(String, String)>,
}

/// The request by which a message can be answered.
#[derive(Clone)]
struct Known {
    /// A request answers in the chat that it came from, whatever chat an action names.
    chat_id: String,
    req_id: String,
    at_ms: u64,
}

/// A received message.
pub(super) struct Came<'a> {
    pub(super) chat_id: &'a str,
    pub(super) message_id: &'a str,
    pub(super) req_id: &'a str,
    pub(super) person: &'a str,
    pub(super) is_group: bool,
}

impl Replies {
    pub(super) fn note(&self, bot: &str, came: &Came<'_>, now_ms: u64) {
        let Came { chat_id, message_id, req_id, person, is_group } = *came;
        self.chats.change(bot, chat_id, |chat| {
            let mut chat = chat.unwrap_or_default();
            chat.is_group = is_group;
            if !req_id.is_empty() {
                chat.last = Some((req_id.to_owned(), now_ms));
            }
            if is_group && !person.is_empty() {
                chat.speakers.retain(|known| known != person);
                chat.speakers.push_back(person.to_owned());
                while chat.speakers.len() > SPEAKERS_MAX {
                    chat.speakers.pop_front();
                }
            }
            Some(chat)
        });
        if req_id.is_empty() {
            return;
        }
        let key = (bot.to_owned(), message_id.to_owned());
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Known { chat_id: chat_id.to_owned(), req_id: req_id.to_owned(), at_ms: now_ms };
        if messages.requests.insert(key.clone(), known).is_none() {
            messages.oldest.push_back(key);
        }
        while messages.oldest.len() > MESSAGES_MAX {
            if let Some(oldest) = messages.oldest.pop_front() {
                messages.requests.remove(&oldest);
            }
        }
    }

    pub(super) fn chat(&self, bot: &str, chat_id: &str) -> Option<Chat> {
        self.chats.get(bot, chat_id)
    }

    /// The request by which a message of this chat is answered, else the last one of the chat.
    pub(super) fn request_for(&self, bot: &str, chat_id: &str, reply_to: Option<&str>, now_ms: u64) -> Option<String> {
        let of_message = reply_to.and_then(|id| {
            let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            let known = messages.requests.get(&(bot.to_owned(), id.to_owned()))?;
            (known.chat_id == chat_id).then(|| (known.req_id.clone(), known.at_ms))
        });
        let of_chat = || self.chats.get(bot, chat_id).and_then(|chat| chat.last);
        let is_valid = |(_, at_ms): &(String, u64)| now_ms.saturating_sub(*at_ms) < VALID_MS;
        of_message.filter(is_valid).or_else(|| of_chat().filter(is_valid)).map(|(req_id, _)| req_id)
    }

    /// It cannot be used again.
    pub(super) fn forget(&self, bot: &str, chat_id: &str, req_id: &str) {
        self.chats.change(bot, chat_id, |chat| {
            let mut chat = chat?;
            chat.last = chat.last.filter(|(known, _)| known != req_id);
            Some(chat)
        });
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let Messages { requests, oldest } = &mut *messages;
        requests.retain(|_, known| known.req_id != req_id);
        oldest.retain(|key| requests.contains_key(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came<'a>(message_id: &'a str, req_id: &'a str, person: &'a str) -> Came<'a> {
        Came { chat_id: "c", message_id, req_id, person, is_group: true }
    }

    #[test]
    fn a_message_is_answered_by_its_own_request_else_by_the_last_one() {
        let replies = Replies::default();
        assert_eq!(replies.request_for("b", "c", Some("m1"), 0), None);
        replies.note("b", &came("m1", "r1", "ann"), 0);
        replies.note("b", &came("m2", "r2", "ben"), 10);
        let find = |reply_to, now_ms| replies.request_for("b", "c", reply_to, now_ms);
        assert_eq!(find(Some("m1"), 20).as_deref(), Some("r1"));
        assert_eq!((find(None, 20).as_deref(), find(Some("absent"), 20).as_deref()), (Some("r2"), Some("r2")));
        assert_eq!(find(Some("m1"), VALID_MS).as_deref(), Some("r2"), "the first is too old");
        assert_eq!(find(None, VALID_MS + 10), None);
        assert_eq!(replies.request_for("other", "c", None, 20), None, "robots are apart");
        assert_eq!(replies.request_for("b", "elsewhere", Some("m1"), 20), None, "and so are chats");
        replies.forget("b", "c", "r2");
        assert_eq!((find(None, 20), find(Some("m2"), 20), find(Some("m1"), 20).as_deref()), (None, None, Some("r1")));
        let chat = replies.chat("b", "c").unwrap();
        assert!(chat.has_spoken("ann") && chat.has_spoken("ben") && !chat.has_spoken("eve") && chat.is_group);
    }

    #[test]
    fn it_is_bounded() {
        let replies = Replies::default();
        for number in 0..MESSAGES_MAX + 500 {
            let (id, person) = (format!("m{number}"), format!("p{number}"));
            replies.note("b", &came(&id, "r", &person), 0);
        }
        let messages = replies.messages.lock().unwrap();
        assert_eq!((messages.requests.len(), messages.oldest.len()), (MESSAGES_MAX, MESSAGES_MAX));
        assert_eq!(replies.chat("b", "c").unwrap().speakers.len(), SPEAKERS_MAX);
    }
}
