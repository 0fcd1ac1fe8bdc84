//! What agents sent out.

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
    pub tenant: String,
    pub instance: String,
    pub platform: String,
    pub bot: String,
    pub chat_id: String,
    pub op: String,
    pub at_ms: u64,
    pub outcome: Outcome,
    /// Parts of a split message: how many there are, how many went.
    pub parts: u32,
    pub cursor: u32,
    pub note: String,
}

pub trait Journal: Send + Sync {
    /// Writes down what is about to be tried; the id is given by the store.
    fn open_entry(&self, entry: JournalEntry) -> Stored<'_, u64>;
    /// Closes an entry whose outcome is not known yet; one that is known stays as it is. False: it was known.
    fn close_entry(&self, id: u64, outcome: Outcome, cursor: u32, note: String) -> Stored<'_, bool>;
    /// What was open when the desk went down: nobody knows what became of it. Returns how many.
    fn doubt_open_entries(&self) -> Stored<'_, u64>;
    fn entries<'a>(&'a self, tenant: Option<&'a str>, limit: usize) -> Stored<'a, Vec<JournalEntry>>;
}
