//! Messages between agents, kept in the receiver's inbox. A message is written by `Ledger::accept`, in one commit with
//! the rows of the sockets that it goes to.

use frontdesk_wire::{EventId, InboxSeq, InstanceNo, TenantId};

use super::stored::Stored;
use super::upkeep::Purged;

/// Messages are read in pages, and may be large: a page that has this much ends.
pub const PAGE_MAX_BYTES: usize = super::store::PAGE_MAX_BYTES;

/// One message in an agent's inbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InboxMessage {
    /// Number of the agent's inbox.
    pub agent: InstanceNo,
    pub delivery_id: String,
    /// augment, template, wake, `wake_degraded`
    pub kind: String,
    pub text: String,
    /// JSON of the envelope; a wake has none.
    pub meta: Option<String>,
    /// The one session that it is for.
    pub session_id: Option<String>,
    /// The result of every connector, as JSON.
    pub receipts: String,
}

impl InboxMessage {
    pub fn size(&self) -> usize {
        self.text.len() + self.meta.as_ref().map_or(0, String::len) + self.receipts.len()
    }
}

/// A message at its position (`place`). Positions rise within an inbox in the order in which messages become readable,
/// so that a reader that continues after the last one misses none: a store with several writers draws them under the
/// inbox's lock, and not from the numbers of events. An agent that is deleted and made again gets an inbox with higher
/// positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    pub place: InboxSeq,
    pub event: EventId,
    pub at_ms: u64,
    pub message: InboxMessage,
}

/// A wake that is planned for later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedWake {
    pub key: String,
    pub agent: InstanceNo,
    pub json: String,
}

pub trait Inbox: Send + Sync {
    /// Messages of an inbox with `place > after`, in order: at most `limit`, and no more after `PAGE_MAX_BYTES`.
    fn messages(&self, agent: InstanceNo, after: InboxSeq, limit: usize) -> Stored<'_, Vec<StoredMessage>>;
    /// The position of the newest message, 0 for none.
    fn newest_message(&self, agent: InstanceNo) -> Stored<'_, InboxSeq>;
    /// The message that was stored for an event.
    fn message_of(&self, event: EventId) -> Stored<'_, Option<StoredMessage>>;
    /// Stores receipts, kind and session of the message. With `seen`, only if the stored receipts equal it, because another
    /// server may have added some. Returns whether it was stored.
    fn note_receipts(&self, event: EventId, seen: Option<String>, message: InboxMessage) -> Stored<'_, bool>;
    /// The newest messages of a tenant, newest first. At least the first 1,000 characters of each are there.
    fn recent_messages<'a>(&'a self, tenant: &'a TenantId, limit: usize) -> Stored<'a, Vec<StoredMessage>>;
    /// Numbers of the inboxes that have messages or planned wakes.
    fn inboxes(&self) -> Stored<'_, Vec<InstanceNo>>;
    /// One step of erasing an inbox: planned wakes, then messages, oldest first. Call it until `more` is false. An inbox that
    /// is only partly erased is still listed by `inboxes`.
    fn drop_inbox(&self, agent: InstanceNo) -> Stored<'_, Purged>;
    fn plan_wake(&self, wake: PlannedWake) -> Stored<'_, ()>;
    fn planned_wake<'a>(&'a self, key: &'a str) -> Stored<'a, Option<PlannedWake>>;
    fn drop_planned_wake<'a>(&'a self, key: &'a str) -> Stored<'a, ()>;
}
