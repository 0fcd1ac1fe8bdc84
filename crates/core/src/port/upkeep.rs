//! Health, retention and backup of a store.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::stored::Stored;

/// What may be deleted, by age.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    pub now_ms: u64,
    /// Settled mail and the events behind it.
    pub events_before_ms: u64,
    pub verdicts_before_ms: u64,
    /// Messages of inboxes, read or not. 0: they are kept.
    pub inbox_before_ms: u64,
    /// Actions of agents in the journal. 0: they are kept.
    pub journal_before_ms: u64,
    /// Lines of the built-in chat. 0: they are kept.
    pub chat_before_ms: u64,
    /// Chats that were silent since then: agents can no longer write there first. 0: they are kept.
    pub reach_before_ms: u64,
    /// How long a file is kept after the last mail that refers to it was settled.
    pub media_ttl_ms: u64,
}

/// Rows that are deleted at once from an inbox, or from the alarms of an instance. Backends take fewer.
pub const STEP_MAX_ROWS: u64 = 500;

/// What one step of a deletion did. Between two steps other writers get their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    pub gone: u64,
    /// It is not over: call again.
    pub more: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    pub backend: String,
    pub rows_waiting: u64,
    pub bytes: u64,
    /// What the integrity check found; empty: no faults.
    pub faults: Vec<String>,
    /// Risks of losing accepted data although there is no fault now, each with what to do.
    pub risks: Vec<String>,
}

pub trait Upkeep: Send + Sync {
    /// A real write: it fails where an accept would fail.
    fn health(&self) -> Stored<'_, ()>;
    fn report(&self) -> Stored<'_, StoreReport>;
    /// A consistent copy, made while the server works.
    fn backup<'a>(&'a self, to: &'a Path) -> Stored<'a, u64>;
    /// One small step that deletes what is old. Call it until it says that there is no more.
    fn purge(&self, retention: Retention) -> Stored<'_, Purged>;
}
