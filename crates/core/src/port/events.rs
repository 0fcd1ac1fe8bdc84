//! Accepted events: what was decided about them, and the chats that they came from.

use frontdesk_wire::{BotId, ChatId, EventId, MessageId, TenantId};

use super::stored::Stored;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    pub event: EventId,
    pub tenant: TenantId,
    pub at_ms: u64,
    pub chat_id: ChatId,
    pub message_id: MessageId,
    pub verdict: String,
}

/// Keys that one turn of a look-up by message id reads. They are not kept by tenant, and a short id is the beginning of many.
pub const KEYS_PER_TURN: usize = 5_000;

pub trait Events: Send + Sync {
    fn event(&self, event: EventId) -> Stored<'_, Option<EventRecord>>;
    /// The newest event of this tenant that carries this message id and was marked under a dedup key beginning so; in this
    /// chat, if one is named. It takes as many turns at reading as there are such keys.
    fn event_named<'a>(
        &'a self,
        tenant: &'a TenantId,
        dedup_prefix: Vec<u8>,
        message_id: &'a MessageId,
        chat_id: Option<&'a ChatId>,
    ) -> Stored<'a, Option<EventRecord>>;
    /// The events marked under these dedup keys, in the same order, of any tenant. This tenant asks.
    fn events_marked<'a>(&'a self, tenant: &'a TenantId, dedups: Vec<Vec<u8>>) -> Stored<'a, Vec<Option<EventRecord>>>;
    /// Whether something from this chat was ever accepted for this tenant.
    fn reached<'a>(
        &'a self,
        tenant: &'a TenantId,
        platform: &'a str,
        bot: &'a BotId,
        chat_id: &'a ChatId,
    ) -> Stored<'a, bool>;
}
