//! What agents sent out.

use frontdesk_wire::{ChatId, DeskNo, InstanceId, TenantId};
use serde::{Deserialize, Serialize};

use super::stored::Stored;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Written down, not finished. Found after a restart it becomes `Unknown`.
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
    pub bot: String,
    pub chat_id: ChatId,
    pub op: String,
    pub at_ms: u64,
    pub outcome: Outcome,
    /// Parts of a split message: how many there are, how many went.
    pub parts: u32,
    pub cursor: u32,
    pub note: String,
    /// The desk that does it.
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
    /// Writes down what is about to be tried; the id is given by the store.
    fn open_entry(&self, entry: JournalEntry) -> Stored<'_, u64>;
    /// Closes an entry whose outcome is not known yet; one that is known stays as it is. False: it was known.
    fn close_entry(&self, id: u64, closing: Closing) -> Stored<'_, bool>;
    /// The vendor will say later, under this id, what became of a part of this entry.
    fn add_receipt(&self, id: u64, receipt_id: String) -> Stored<'_, ()>;
    /// What the vendor said later about a message of this bot. A failure counts whatever was known before; a success
    /// counts where the outcome of a message of one part was unknown. The note is added. `None`: no such message.
    fn apply_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a str,
        receipt_id: &'a str,
        outcome: Outcome,
        note: &'a str,
    ) -> Stored<'a, Option<JournalEntry>>;
    /// Open entries of desks that are not `live` any more: nobody knows what became of them. Returns how many.
    fn doubt_open_entries(&self, live: Vec<DeskNo>) -> Stored<'_, u64>;
    fn entries<'a>(&'a self, tenant: Option<&'a str>, limit: usize) -> Stored<'a, Vec<JournalEntry>>;
}
