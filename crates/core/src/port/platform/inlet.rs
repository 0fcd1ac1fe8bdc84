//! The way in for a platform that listens by itself: a socket that it dialed, or a poller.

use crate::error::DeskError;
use crate::intake::{Intake, Receipt};
use crate::port::BoxFuture;
use crate::port::store::{Outcome, StoreError};

/// Something that the desk remembers about a platform is no longer true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Who can see this chat changed, or the chat itself did.
    Chat(String),
    /// A scope (guild, team, server) changed as a whole.
    Scope(String),
    /// What this person can see changed.
    Person(String),
    /// The chat goes on under another id.
    ChatMoved { from: String, to: String },
}

/// What became of a message that was sent earlier, as the vendor says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateReceipt {
    pub vendor_id: String,
    pub outcome: Outcome,
    pub note: String,
}

/// Events that the platform cannot give us any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub since_ms: u64,
    pub until_ms: u64,
    pub reason: String,
}

/// Where one bot's events go. Everything here is bounded: `take` waits while the desk is busy.
pub trait Inlet: Send + Sync {
    /// Stores events, all or none. An event that the server refuses (too large, malformed) is recorded with its
    /// reason and counts as stored: a poller continues after it. `Err`: nothing was stored; try again.
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>>;

    fn changed(&self, change: Change);

    /// The vendor says what became of a message that was sent earlier. `false`: no such message is in the journal.
    fn receipt<'a>(&'a self, receipt: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Events were lost at the platform. It is logged and counted.
    fn gap(&self, gap: Gap);

    /// Saves where to go on after a restart. To be called after the events before it are stored.
    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// Why a listener ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// There is nothing to listen to: the bot's events come through doors, or it has none.
    Never,
    /// The connection was lost or refused for now; it is started again after a growing pause.
    Lost(String),
    /// It cannot work as it is configured. It is started again when the bot is changed.
    Misconfigured(String),
}
