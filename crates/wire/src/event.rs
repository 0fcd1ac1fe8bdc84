//! Incoming messages, normalized for agents.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{ChatId, MessageId, UserId};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageEvent {
    #[serde(default)]
    pub text: String,
    #[serde(default = "text_type")]
    pub message_type: String,
    pub source: Source,
    #[serde(default)]
    pub message_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_message_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTo>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media_urls: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextLine>,
    /// Reading the nearby messages failed, which differs from an empty context.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub context_error: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_response: Option<PromptResponse>,
    /// Set if it comes from another agent or a skill: kind of message, and its envelope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Box<AgentEnvelope>>,
}

fn text_type() -> String {
    "text".into()
}

fn dm_type() -> String {
    "dm".into()
}

/// Origin of a message. `scope_id` and `guild_id` have the same value: gateways up to 0.17 read only the second, later
/// ones only the first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    pub platform: String,
    pub chat_id: ChatId,
    /// Absent means a direct message, as in the gateway; an empty one stays empty.
    #[serde(default = "dm_type")]
    pub chat_type: String,
    pub chat_name: Option<String>,
    pub user_id: Option<UserId>,
    pub user_name: Option<String>,
    pub thread_id: Option<String>,
    pub chat_topic: Option<String>,
    pub is_bot: bool,
    pub message_is_edit: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guild_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id_alt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_id_alt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_chat_id: Option<ChatId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_thread_created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_thread_initial_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prospective_thread_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_to_one_verified: Option<bool>,
}

impl Source {
    /// Sets both names of the scope, so that they never differ.
    pub fn set_scope(&mut self, scope: Option<String>) {
        self.guild_id.clone_from(&scope);
        self.scope_id = scope;
    }

    /// The channel whose rules apply: a thread inherits those of its parent.
    pub fn channel(&self) -> &ChatId {
        self.parent_chat_id.as_ref().filter(|id| !id.is_empty()).unwrap_or(&self.chat_id)
    }

    pub fn is_direct(&self) -> bool {
        self.chat_type == "dm"
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyTo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_own: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    pub url: String,
    pub kind: String,
    pub mime: String,
    pub size: u64,
    #[serde(default)]
    pub filename: Option<String>,
    #[serde(default)]
    pub caption: Option<String>,
}

/// Kind of media of a MIME type, in terms of the contract. Audio in a container that voice recorders use is a voice
/// note: agents transcribe only those.
pub fn media_kind(mime: &str) -> &'static str {
    let plain = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match (plain.split('/').next().unwrap_or_default(), plain.as_str()) {
        ("image", _) => "image",
        (_, "audio/ogg" | "audio/opus" | "audio/webm" | "audio/amr") => "voice",
        ("audio", _) => "audio",
        ("video", _) => "video",
        _ => "document",
    }
}

/// The `message_type` of a message with this media: there the contract calls an image a photo.
pub fn media_message_type(mime: &str) -> &'static str {
    match media_kind(mime) {
        "image" => "photo",
        kind => kind,
    }
}

/// A nearby message, attached read-only to an addressed turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContextLine {
    pub text: String,
    pub source: Value,
}

/// Envelope of a message from another agent, for agents that need more than the text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentEnvelope {
    /// augment, template, wake
    #[serde(rename = "type")]
    pub kind: String,
    pub delivery_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

/// A button was pressed; the author of the event is the user who pressed it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptResponse {
    pub prompt_id: String,
    pub option_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_message_id: Option<MessageId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_kinds_follow_the_contract() {
        for (mime, kind, message_type) in [
            ("image/png", "image", "photo"),
            ("audio/ogg; codecs=opus", "voice", "voice"),
            ("Audio/WebM", "voice", "voice"),
            ("audio/mpeg", "audio", "audio"),
            ("video/mp4", "video", "video"),
            ("text/plain", "document", "document"),
            ("", "document", "document"),
        ] {
            assert_eq!((media_kind(mime), media_message_type(mime)), (kind, message_type), "{mime}");
        }
    }
}
