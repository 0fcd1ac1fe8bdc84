//! Updates of the Bot API, as far as they are read. Everything else in them is ignored, so that a new field or a new
//! kind of message stops nothing.

#![allow(clippy::struct_field_names, reason = "the names of the Bot API")]

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Update {
    #[serde(default)]
    pub(super) message: Option<Box<Message>>,
    #[serde(default)]
    pub(super) edited_message: Option<Box<Message>>,
    #[serde(default)]
    pub(super) channel_post: Option<Box<Message>>,
    #[serde(default)]
    pub(super) edited_channel_post: Option<Box<Message>>,
    #[serde(default)]
    pub(super) callback_query: Option<Box<CallbackQuery>>,
    #[serde(default)]
    pub(super) my_chat_member: Option<MemberChange>,
    #[serde(default)]
    pub(super) chat_member: Option<MemberChange>,
}

/// The kinds of updates that are asked for. Members are sent only to bots that are administrators.
pub(super) const ALLOWED_UPDATES: [&str; 7] = [
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "my_chat_member",
    "chat_member",
];

#[derive(Debug, Deserialize)]
pub(super) struct MemberChange {
    pub(super) chat: Chat,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct User {
    pub(super) id: i64,
    #[serde(default)]
    pub(super) is_bot: bool,
    #[serde(default)]
    pub(super) first_name: String,
    #[serde(default)]
    pub(super) last_name: Option<String>,
    #[serde(default)]
    pub(super) username: Option<String>,
}

impl User {
    pub(super) fn full_name(&self) -> String {
        joined(&self.first_name, self.last_name.as_deref())
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Chat {
    pub(super) id: i64,
    #[serde(default, rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) first_name: Option<String>,
    #[serde(default)]
    pub(super) last_name: Option<String>,
    #[serde(default)]
    pub(super) is_forum: bool,
}

impl Chat {
    /// The title of a group or channel, the name of the person in a private chat.
    pub(super) fn name(&self) -> Option<String> {
        let person = || joined(self.first_name.as_deref().unwrap_or_default(), self.last_name.as_deref());
        self.title.clone().or_else(|| Some(person()).filter(|name| !name.is_empty()))
    }

    /// As the contract calls it. A forum is a group whose messages have threads.
    pub(super) fn type_name(&self) -> &'static str {
        match self.kind.as_str() {
            "group" | "supergroup" => "group",
            "channel" => "channel",
            _ => "dm",
        }
    }
}

fn joined(first: &str, last: Option<&str>) -> String {
    [first, last.unwrap_or_default()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Message {
    pub(super) message_id: i64,
    #[serde(default)]
    pub(super) message_thread_id: Option<i64>,
    #[serde(default)]
    pub(super) is_topic_message: bool,
    #[serde(default)]
    pub(super) from: Option<User>,
    pub(super) chat: Chat,
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) caption: Option<String>,
    #[serde(default)]
    pub(super) entities: Vec<Entity>,
    #[serde(default)]
    pub(super) caption_entities: Vec<Entity>,
    #[serde(default)]
    pub(super) reply_to_message: Option<Box<Message>>,
    #[serde(default)]
    pub(super) quote: Option<Quote>,
    #[serde(default)]
    pub(super) media_group_id: Option<String>,
    #[serde(default)]
    pub(super) photo: Vec<File>,
    #[serde(default)]
    pub(super) voice: Option<File>,
    #[serde(default)]
    pub(super) audio: Option<File>,
    #[serde(default)]
    pub(super) video: Option<File>,
    #[serde(default)]
    pub(super) video_note: Option<File>,
    #[serde(default)]
    pub(super) animation: Option<File>,
    #[serde(default)]
    pub(super) document: Option<File>,
    #[serde(default)]
    pub(super) sticker: Option<Sticker>,
    #[serde(default)]
    pub(super) location: Option<Location>,
    #[serde(default)]
    pub(super) venue: Option<Venue>,
    #[serde(default)]
    pub(super) forum_topic_created: Option<serde_json::Value>,
    #[serde(default)]
    pub(super) new_chat_members: Vec<User>,
    #[serde(default)]
    pub(super) left_chat_member: Option<User>,
    #[serde(default)]
    pub(super) migrate_to_chat_id: Option<i64>,
    #[serde(default)]
    pub(super) reply_markup: Option<Keyboard>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Entity {
    #[serde(default, rename = "type")]
    pub(super) kind: String,
    /// In UTF-16 units, like the length.
    #[serde(default)]
    pub(super) offset: usize,
    #[serde(default)]
    pub(super) length: usize,
    #[serde(default)]
    pub(super) user: Option<User>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Quote {
    #[serde(default)]
    pub(super) text: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct File {
    #[serde(default)]
    pub(super) file_id: String,
    #[serde(default)]
    pub(super) file_size: Option<u64>,
    #[serde(default)]
    pub(super) mime_type: Option<String>,
    #[serde(default)]
    pub(super) file_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Sticker {
    #[serde(default)]
    pub(super) file_id: String,
    #[serde(default)]
    pub(super) file_size: Option<u64>,
    #[serde(default)]
    pub(super) emoji: Option<String>,
    #[serde(default)]
    pub(super) set_name: Option<String>,
    #[serde(default)]
    pub(super) is_animated: bool,
    #[serde(default)]
    pub(super) is_video: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Location {
    pub(super) latitude: f64,
    pub(super) longitude: f64,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Venue {
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) address: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Keyboard {
    #[serde(default)]
    pub(super) inline_keyboard: Vec<Vec<Button>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Button {
    #[serde(default)]
    pub(super) text: String,
    #[serde(default)]
    pub(super) callback_data: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallbackQuery {
    pub(super) id: String,
    pub(super) from: User,
    /// Absent for messages that are too old, and for those of inline mode.
    #[serde(default)]
    pub(super) message: Option<Box<Message>>,
    #[serde(default)]
    pub(super) data: Option<String>,
}
