//! Receives the events of platforms that connect to their vendor: by a socket or by polling.

use frontdesk_wire::{ChatId, MessageEvent, Secret, UserId};

use crate::error::DeskError;
use crate::hash::short_hash;
use crate::intake::{Intake, Receipt};
use crate::port::BoxFuture;
use crate::port::store::{Outcome, StoreError};

/// Cached facts about a platform that are no longer valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The chat, or the set of users who can see it, changed.
    Chat(ChatId),
    /// Whether this user can see this chat changed.
    Member { chat_id: ChatId, user_id: UserId },
    /// A scope (guild, team, server) changed as a whole.
    Scope(String),
    /// What this person can see changed.
    Person(UserId),
    /// The chat has a new id.
    ChatMoved { from: ChatId, to: ChatId },
    /// A secret that the platform was granted for the bot is invalid now. A newer one under the same name is kept.
    GrantEnded { name: String, hash: [u8; 16] },
}

impl Change {
    pub fn grant_ended(name: String, secret: &Secret) -> Self {
        Self::GrantEnded { name, hash: short_hash(&[secret.expose()]) }
    }
}

/// A late report of the vendor about a message that was sent earlier.
#[derive(Debug, Clone, PartialEq)]
pub struct LateReceipt {
    pub vendor_id: String,
    /// The idempotency key of the action, if the vendor returns it. It identifies the message even if the answer with its id
    /// was lost.
    pub key: Option<String>,
    pub outcome: Outcome,
    pub note: String,
    /// The event that reports a failure to the sending agent. The server assigns its id.
    pub event: Option<Box<MessageEvent>>,
}

/// Events that were lost at the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub since_ms: u64,
    pub until_ms: u64,
    pub reason: String,
}

/// Receives the events of one bot. Bounded: `take` waits while the server is busy.
pub trait Inlet: Send + Sync {
    /// Stores events, all or none. An event that the server refuses (too large, malformed) is recorded with its
    /// reason and counts as stored: a poller continues after it. `Err`: nothing was stored; try again.
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>>;

    /// `Err`: it was not recorded; try again.
    fn changed(&self, change: Change) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Reports the outcome of a message that was sent earlier. `false`: no such message is in the journal.
    fn receipt<'a>(&'a self, receipt: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Events were lost at the platform. It is logged and counted.
    fn gap(&self, gap: Gap);

    /// Saves where to continue after a restart. Call it after the events before it are stored.
    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// Why a listener ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenEnd {
    /// There is nothing to listen to: the bot's events come by HTTP, or it has none.
    Never,
    /// The connection was lost or refused for now; it is started again after a growing pause.
    Lost(String),
    /// It cannot work as it is configured. It is started again when the bot is changed.
    Misconfigured(String),
}
