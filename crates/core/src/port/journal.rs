//! The journal of actions that agents sent.

use frontdesk_wire::{BotId, ChatId, DeskNo, InstanceId, TenantId};
use serde::{Deserialize, Serialize};

use super::stored::Stored;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Stored, not finished. After a restart it becomes `Unknown`.
    Open,
    Delivered,
    Rejected,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    pub id: u64,
    pub tenant: TenantId,
    pub instance: InstanceId,
    pub platform: String,
    pub bot: BotId,
    pub chat_id: ChatId,
    pub op: String,
    pub at_ms: u64,
    pub outcome: Outcome,
    /// Parts of a split message: how many there are, how many went.
    pub parts: u32,
    pub cursor: u32,
    pub note: String,
    /// The server that sends it.
    #[serde(default)]
    pub desk: DeskNo,
}

/// How an action ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    pub outcome: Outcome,
    pub cursor: u32,
    pub note: String,
}

impl Closing {
    pub fn new(outcome: Outcome, cursor: u32, note: impl Into<String>) -> Self {
        Self { outcome, cursor, note: note.into() }
    }
}

pub trait Journal: Send + Sync {
    /// Stores an action before it is sent, with a first receipt id if it has one already. The store gives the id.
    fn open_entry(&self, entry: JournalEntry, receipt_id: Option<String>) -> Stored<'_, u64>;
    /// Closes an entry that is still open. False: it has an outcome already, which is kept.
    fn close_entry(&self, id: u64, closing: Closing) -> Stored<'_, bool>;
    /// Stores an id by which the entry is found later: the id under which the vendor reports the outcome, or one of a prompt.
    /// An id belongs to the newest entry of the bot that has it.
    fn add_receipt(&self, id: u64, receipt_id: String) -> Stored<'_, ()>;
    /// Applies a late report of the vendor about a message of this bot. A failure overrides any outcome; a success
    /// overrides only an unknown outcome of a message with one part. The note is added, once. `None`: no such message.
    fn apply_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_id: &'a str,
        outcome: Outcome,
        note: &'a str,
    ) -> Stored<'a, Option<JournalEntry>>;
    /// The entry of the first known one of these receipt ids.
    fn entry_of_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_ids: Vec<String>,
    ) -> Stored<'a, Option<JournalEntry>>;
    /// Marks open entries of servers that are not `live` as unknown. Returns how many. The list may be some seconds old: a
    /// store that several servers share looks at their leases as well.
    fn mark_open_entries_unknown(&self, live: Vec<DeskNo>) -> Stored<'_, u64>;
    fn entries<'a>(&'a self, tenant: Option<&'a TenantId>, limit: usize) -> Stored<'a, Vec<JournalEntry>>;
}
