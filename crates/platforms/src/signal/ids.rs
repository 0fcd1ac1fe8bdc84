//! Ids of chats and messages.
//!
//! A chat is the account id (ACI) of a person, or `group:` and the id of a group. A message is identified by its
//! time and its author: `1700000000000:ACI`, or the time alone if the bot sent it.

use std::fmt;

use serde_json::{Value, json};

pub(super) const GROUP_PREFIX: &str = "group:";

/// Of a group chat.
pub(super) fn group_of(chat_id: &str) -> Option<&str> {
    chat_id.strip_prefix(GROUP_PREFIX)
}

/// The parameters that name a chat.
pub(super) fn recipient(chat_id: &str) -> Value {
    match group_of(chat_id) {
        Some(id) => json!({ "groupId": id }),
        None => json!({ "recipient": [chat_id] }),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessageRef {
    pub(super) sent_ms: u64,
    /// `None`: the bot.
    pub(super) author: Option<String>,
}

impl MessageRef {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (sent, author) = match text.split_once(':') {
            Some((sent, author)) if !author.is_empty() => (sent, Some(author.to_owned())),
            Some(_) => return None,
            None => (text, None),
        };
        Some(Self { sent_ms: sent.parse().ok()?, author })
    }
}

impl fmt::Display for MessageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.author {
            Some(author) => write!(f, "{}:{author}", self.sent_ms),
            None => write!(f, "{}", self.sent_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_id_is_a_time_and_an_author() {
        for text in ["1700000000000", "1700000000000:0b6d7c9e"] {
            assert_eq!(MessageRef::parse(text).unwrap().to_string(), text);
        }
        assert!(["", "x", "1:", ":a", "-1"].iter().all(|text| MessageRef::parse(text).is_none()));
        assert_eq!(recipient("group:R3I="), json!({ "groupId": "R3I=" }));
        assert_eq!(recipient("0b6d"), json!({ "recipient": ["0b6d"] }));
    }
}
