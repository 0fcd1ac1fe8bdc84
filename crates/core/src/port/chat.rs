//! Storage of the built-in chat.

use frontdesk_wire::{ChatId, MessageId, TenantId};

use super::stored::Stored;

/// A line of the built-in chat that is written in one commit with its event. A line of that message id that is there
/// already stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatWrite {
    pub chat_id: ChatId,
    pub message_id: MessageId,
    pub json: String,
    pub at_ms: u64,
    /// The line that it answers changes too.
    pub amend: Option<ChatAmend>,
}

/// A change of a line at this revision. Another revision is a conflict, and nothing is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatAmend {
    pub message_id: MessageId,
    pub rev: u64,
    pub json: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatRow {
    pub seq: u64,
    pub message_id: MessageId,
    pub rev: u64,
    pub json: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatRecord {
    pub chat_id: ChatId,
    pub json: String,
    pub last_seq: u64,
}

pub trait ChatLog: Send + Sync {
    /// Appends once per message id; for a known id it returns the seq of the first line and `false`.
    fn chat_append<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
        json: String,
        at_ms: u64,
    ) -> Stored<'a, (u64, bool)>;
    /// Replaces a line that is still at revision `rev`.
    fn chat_amend<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
        rev: u64,
        json: String,
    ) -> Stored<'a, ()>;
    fn chat_line<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
    ) -> Stored<'a, Option<ChatRow>>;
    /// Lines after this one, in order: at most `limit`, and no more after `PAGE_MAX_BYTES`.
    fn chat_since<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        after: u64,
        limit: usize,
    ) -> Stored<'a, Vec<ChatRow>>;
    /// The last lines of a chat, in order.
    fn chat_latest<'a>(&'a self, tenant: &'a TenantId, chat_id: &'a ChatId, limit: usize) -> Stored<'a, Vec<ChatRow>>;
    /// Replaces what is kept of a chat, if that is still `before`: what `chat_get` showed, or nothing where it showed no chat.
    fn chat_put<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        before: &'a str,
        json: String,
    ) -> Stored<'a, ()>;
    fn chat_get<'a>(&'a self, tenant: &'a TenantId, chat_id: &'a ChatId) -> Stored<'a, Option<ChatRecord>>;
    /// Chats whose id comes after this one, in the order of their ids.
    fn chats<'a>(&'a self, tenant: &'a TenantId, after: &'a str, limit: usize) -> Stored<'a, Vec<ChatRecord>>;
}
