//! The store: small traits named for atomic facts. Each verb is atomic by itself; no transaction
//! crosses this port. A verb that answered `Ok` is durable.

pub use frontdesk_wire::{DeskNo, EventId, InboxSeq, InstanceNo, Seq, SessionNo};

pub use super::alarms::Alarms;
pub use super::chat::{ChatAmend, ChatLog, ChatRecord, ChatRow, ChatWrite};
pub use super::claims::{Claims, Mark};
pub use super::cursors::Cursors;
pub use super::data::Data;
pub use super::desks::{ABSENT_MS, DeskRecord, Desks, LEASE_MS, Renewal};
pub use super::directory::{Applied, Change, Changes, Directory, Record};
pub use super::events::{EventRecord, Events, KEYS_PER_TURN};
pub use super::exchanges::{Exchange, Exchanges};
pub use super::fragments::{ChatGroups, Claim, Fragment, Fragments, Held};
pub use super::inbox::Inbox;
pub use super::journal::{Closing, Journal, JournalEntry, Outcome};
pub use super::ledger::{
    Acceptance, Accepted, Delivery, Ledger, MadeRow, NewRow, OWED_SCANNED_MAX, Position, RowListener, SentTurn,
    Settlement, TURN_ROWS_MAX, TURN_ROWS_OLD_MAX, TURN_SESSIONS_MAX, Waiting,
};
pub use super::mail::{Mail, MailLog, MailState};
pub use super::media::{EventFile, MediaItem, MediaStore, MediaTotal, RemoteItem, SealedMedia};
pub use super::sessions::{Attached, Presence, Sessions};
pub use super::skills::Skills;
pub use super::stored::{PAGE_MAX_BYTES, StoreError, Stored};
pub use super::upkeep::{Purged, Retention, StoreReport, Upkeep};
pub use super::vault::{SealedCapability, Vault};

/// All traits of a backend.
pub trait Store:
    Directory
    + Ledger
    + MailLog
    + Events
    + Sessions
    + Inbox
    + Vault
    + Journal
    + ChatLog
    + MediaStore
    + Alarms
    + Skills
    + Data
    + Upkeep
    + Desks
    + Cursors
    + Fragments
    + Exchanges
    + Claims
{
}
impl<T> Store for T where
    T: Directory
        + Ledger
        + MailLog
        + Events
        + Sessions
        + Inbox
        + Vault
        + Journal
        + ChatLog
        + MediaStore
        + Alarms
        + Skills
        + Data
        + Upkeep
        + Desks
        + Cursors
        + Fragments
        + Exchanges
        + Claims
{
}
