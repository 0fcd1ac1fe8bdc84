//! Actions of agents, and their results.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::code::Code;
use crate::ids::{ChatId, MessageId, SessionKey};

/// An action of a gateway. Unknown fields are ignored, unknown ops have their own error.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    pub act: Act,
    pub metadata: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Act {
    Send {
        chat_id: ChatId,
        #[serde(default)]
        content: String,
        #[serde(default)]
        reply_to: Option<MessageId>,
    },
    Edit {
        chat_id: ChatId,
        message_id: MessageId,
        #[serde(default)]
        content: String,
    },
    Delete {
        chat_id: ChatId,
        message_id: MessageId,
    },
    /// `content: ""` clears a standing indicator; absent or other content shows it.
    Typing {
        chat_id: ChatId,
        #[serde(default)]
        content: Option<String>,
    },
    FollowUp {
        session_key: SessionKey,
        kind: String,
        #[serde(default)]
        content: String,
    },
    GetChatInfo {
        chat_id: ChatId,
    },
    SendMedia {
        chat_id: ChatId,
        media_kind: String,
        source_url: String,
        #[serde(default)]
        content: Option<String>,
        #[serde(default)]
        filename: Option<String>,
        #[serde(default)]
        reply_to: Option<MessageId>,
    },
    Prompt {
        chat_id: ChatId,
        #[serde(default)]
        prompt_kind: String,
        prompt_id: String,
        #[serde(default)]
        content: String,
        options: Vec<PromptOption>,
        #[serde(default)]
        timeout_s: Option<f64>,
        #[serde(default)]
        reply_to: Option<MessageId>,
    },
    React {
        chat_id: ChatId,
        message_id: MessageId,
        emoji: String,
        #[serde(default)]
        remove: bool,
    },
    ThreadCreate {
        chat_id: ChatId,
        thread_name: String,
        #[serde(default)]
        message_id: Option<MessageId>,
    },
    ThreadRename {
        chat_id: ChatId,
        message_id: MessageId,
        thread_name: String,
        #[serde(default)]
        only_if_current_name: Option<String>,
        /// Rename only a thread that was created by `thread_create`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        only_if_connector_created: bool,
    },
    Draft {
        chat_id: ChatId,
        /// An integer or a string on the wire; both forms name the same draft.
        #[serde(deserialize_with = "string_or_integer")]
        draft_id: String,
        #[serde(default)]
        content: String,
        #[serde(default, rename = "final")]
        sealed: bool,
    },
}

fn string_or_integer<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) if number.is_u64() || number.is_i64() => Ok(number.to_string()),
        _ => Err(serde::de::Error::custom("a string or an integer is expected")),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptOption {
    pub id: String,
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    #[error("the action is not a JSON object with an op")]
    NoOp,
    #[error("unsupported op: {0}")]
    UnknownOp(String),
    #[error("the action is malformed: {0}")]
    Malformed(String),
}

const OPS: [&str; 12] = [
    "send",
    "edit",
    "delete",
    "typing",
    "follow_up",
    "get_chat_info",
    "send_media",
    "prompt",
    "react",
    "thread_create",
    "thread_rename",
    "draft",
];

impl Action {
    pub fn parse(raw: &str) -> Result<Self, ActionError> {
        let Ok(Value::Object(mut fields)) = serde_json::from_str(raw) else { return Err(ActionError::NoOp) };
        let op = fields.get("op").and_then(Value::as_str).ok_or(ActionError::NoOp)?;
        if !OPS.contains(&op) {
            return Err(ActionError::UnknownOp(op.chars().take(64).collect()));
        }
        let metadata = match fields.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        let act = serde_json::from_value(Value::Object(fields)).map_err(|e| ActionError::Malformed(e.to_string()))?;
        Ok(Self { act, metadata })
    }

    pub fn to_value(&self) -> Value {
        let mut value = serde_json::to_value(&self.act).unwrap_or_default();
        if let (Value::Object(fields), false) = (&mut value, self.metadata.is_empty()) {
            fields.insert("metadata".into(), Value::Object(self.metadata.clone()));
        }
        value
    }

    pub fn meta(&self, name: &str) -> Option<&str> {
        self.metadata.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }
}

impl From<Act> for Action {
    fn from(act: Act) -> Self {
        Self { act, metadata: Map::new() }
    }
}

impl Act {
    pub fn op(&self) -> &'static str {
        match self {
            Self::Send { .. } => "send",
            Self::Edit { .. } => "edit",
            Self::Delete { .. } => "delete",
            Self::Typing { .. } => "typing",
            Self::FollowUp { .. } => "follow_up",
            Self::GetChatInfo { .. } => "get_chat_info",
            Self::SendMedia { .. } => "send_media",
            Self::Prompt { .. } => "prompt",
            Self::React { .. } => "react",
            Self::ThreadCreate { .. } => "thread_create",
            Self::ThreadRename { .. } => "thread_rename",
            Self::Draft { .. } => "draft",
        }
    }

    /// The chat of the action; a follow-up names a session instead.
    pub fn chat_id(&self) -> Option<&ChatId> {
        match self {
            Self::Send { chat_id, .. }
            | Self::Edit { chat_id, .. }
            | Self::Delete { chat_id, .. }
            | Self::Typing { chat_id, .. }
            | Self::GetChatInfo { chat_id }
            | Self::SendMedia { chat_id, .. }
            | Self::Prompt { chat_id, .. }
            | Self::React { chat_id, .. }
            | Self::ThreadCreate { chat_id, .. }
            | Self::ThreadRename { chat_id, .. }
            | Self::Draft { chat_id, .. } => Some(chat_id),
            Self::FollowUp { .. } => None,
        }
    }

    /// The chat id as text; empty for a follow-up.
    pub fn chat(&self) -> &str {
        self.chat_id().map_or("", ChatId::as_str)
    }

    /// The text that the action carries.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Send { content, .. }
            | Self::Edit { content, .. }
            | Self::FollowUp { content, .. }
            | Self::Draft { content, .. }
            | Self::Prompt { content, .. } => Some(content),
            Self::Typing { content, .. } | Self::SendMedia { content, .. } => content.as_deref(),
            _ => None,
        }
    }

    /// Temporary or read-only actions, which are not journaled.
    pub fn is_fleeting(&self) -> bool {
        matches!(self, Self::Typing { .. } | Self::GetChatInfo { .. } | Self::Draft { sealed: false, .. })
    }
}

/// Words that gateways take for a network failure, and their replacements.
const NETWORK_WORDS: [(&str, &str); 9] = [
    ("connecterror", "connect error"),
    ("connectionerror", "connection error"),
    ("connectionreset", "connection reset"),
    ("connectionrefused", "connection refused"),
    ("connecttimeout", "connect timeout"),
    ("network", "line"),
    ("broken pipe", "closed pipe"),
    ("remotedisconnected", "remote disconnected"),
    ("eoferror", "EOF error"),
];

fn without_network_words(mut text: String) -> String {
    for (word, instead) in NETWORK_WORDS {
        // ASCII only, so that offsets are the same in both cases.
        while let Some(at) = text.to_ascii_lowercase().find(word) {
            text.replace_range(at..at + word.len(), instead);
        }
    }
    text
}

/// Callback token of a prompt button, as platforms carry it.
pub fn prompt_token(prompt_id: &str, option_id: &str) -> String {
    format!("hp1:{prompt_id}:{option_id}")
}

/// Checks of the contract, before any platform sees the prompt.
pub fn check_prompt(prompt_id: &str, options: &[PromptOption]) -> Result<(), String> {
    if prompt_id.is_empty() {
        return Err("a prompt needs a prompt_id".into());
    }
    if options.is_empty() {
        return Err("a prompt needs at least one option".into());
    }
    for option in options {
        let plain = option.id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if option.id.is_empty() || option.id.len() > 32 || !plain {
            return Err(format!("option id {:?} is not 1 to 32 of A-Z a-z 0-9 _ . -", option.id));
        }
        if prompt_token(prompt_id, &option.id).len() > 64 {
            return Err(format!("hp1:{prompt_id}:{} is over 64 bytes", option.id));
        }
    }
    Ok(())
}

/// Longer error texts are shortened.
const ERROR_MAX_BYTES: usize = 1024;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionResult {
    pub success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Name of a thread that was created for this message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_thread_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_info: Option<ChatInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// It is unknown whether the action happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatInfo {
    pub name: String,
    #[serde(rename = "type")]
    pub chat_type: String,
}

impl ActionResult {
    pub fn done() -> Self {
        Self { success: true, ..Self::default() }
    }

    pub fn sent(message_id: impl Into<MessageId>) -> Self {
        Self { success: true, message_id: Some(message_id.into()), ..Self::default() }
    }

    pub fn refused(code: Code, error: impl Into<String>) -> Self {
        Self { code: Some(code), error: Some(error.into()), ..Self::default() }.worded()
    }

    /// Rewords the error for gateways that read the text instead of the code.
    ///
    /// Versions up to 0.19 resend a failed answer as plain text, unless the text contains "timed out" (then they do
    /// nothing) or names a network failure (then they retry after some seconds). So if the message may have been sent,
    /// the text contains "timed out" and no network words; if a retry makes sense, it names the network.
    #[must_use]
    pub fn worded(mut self) -> Self {
        let Some(mut error) = self.error.take().filter(|_| !self.success) else { return self };
        // The text may quote what the agent sent. It is stored in the journal and shown in the event stream.
        if error.len() > ERROR_MAX_BYTES {
            error.truncate(error.floor_char_boundary(ERROR_MAX_BYTES));
            error.push_str(" (shortened)");
        }
        let is_in = |word: &str, text: &str| text.to_lowercase().contains(word);
        let may_have_been_sent = self.ambiguous
            || matches!(self.code, Some(Code::Partial | Code::Unknown | Code::Timeout | Code::Internal) | None);
        self.error = Some(if may_have_been_sent {
            let error = without_network_words(error);
            if is_in("timed out", &error) { error } else { format!("timed out: {error}") }
        } else if matches!(self.code, Some(Code::RateLimited | Code::Unavailable)) && !is_in("network", &error) {
            format!("network: {error}")
        } else {
            error
        });
        self
    }

    /// The same text for all refusals, so that it does not disclose whether the chat exists.
    pub fn egress_declined(platform: &str) -> Self {
        Self::refused(
            Code::EgressDeclined,
            format!("{platform} egress declined: target is not an approved destination for this connection"),
        )
    }

    /// The same text for a capability that is absent, expired, or of another tenant.
    pub fn capability_unavailable() -> Self {
        Self::refused(Code::CapabilityUnavailable, "no such capability is bound to this session")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_results_say_timed_out_and_have_no_network_words() {
        for code in [Code::Partial, Code::Unknown, Code::Timeout, Code::Internal] {
            for text in ["it broke", "Network is down", "NETWORK, network", "ConnectionReset by peer", "Broken pipe"] {
                let error = ActionResult::refused(code, text).error.unwrap().to_lowercase();
                assert!(error.contains("timed out"), "{error}");
                assert!(NETWORK_WORDS.iter().all(|(word, _)| !error.contains(word)), "{error}");
            }
        }
        let error = ActionResult::refused(Code::Unknown, "it Timed Out").error.unwrap();
        assert_eq!(error, "it Timed Out", "not added twice");
        let result = ActionResult { ambiguous: true, ..ActionResult::refused(Code::PlatformFailed, "no answer") };
        assert_eq!(result.worded().error.unwrap(), "timed out: no answer");
    }

    #[test]
    fn temporary_refusals_name_the_network_and_others_are_unchanged() {
        for code in [Code::RateLimited, Code::Unavailable] {
            assert_eq!(ActionResult::refused(code, "not now").error.unwrap(), "network: not now");
        }
        assert_eq!(ActionResult::refused(Code::BadRequest, "no").error.unwrap(), "no");
        assert_eq!(ActionResult::done().worded(), ActionResult::done());
    }

    #[test]
    fn a_draft_id_is_a_string_or_an_integer() {
        let draft = |id: &str| Action::parse(&format!(r#"{{"op":"draft","chat_id":"c","draft_id":{id}}}"#));
        let id_of = |id: &str| match draft(id).unwrap().act {
            Act::Draft { draft_id, .. } => draft_id,
            other => panic!("{other:?}"),
        };
        assert_eq!((id_of("17"), id_of("\"17\""), id_of("-1")), ("17".into(), "17".into(), "-1".into()));
        for bad in ["1.5", "null", "true", "[]"] {
            assert!(draft(bad).is_err(), "{bad}");
        }
    }
}
