//! The store: small traits named for atomic facts. Each verb is atomic by itself; no transaction
//! crosses this port. A verb that answered `Ok` is durable.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Soon;
use super::alarms::Alarms;
use super::data::Data;
use super::letters::{Letter, Letters};
pub use super::media::{MediaItem, MediaShelf};
use super::skills::Skills;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Disk full, locked, closed: nothing was written, and it may work again later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// Somebody else changed the record in between.
    #[error("the record was changed by somebody else")]
    Conflict,
}

pub type Stored<'a, T> = Soon<'a, Result<T, StoreError>>;

/// Everything that a backend is.
pub trait Store:
    Directory + Ledger + Letters + Vault + Journal + ChatLog + MediaShelf + Alarms + Skills + Data + Upkeep
{
}
impl<T: Directory + Ledger + Letters + Vault + Journal + ChatLog + MediaShelf + Alarms + Skills + Data + Upkeep> Store
    for T
{
}

/// What people and agents wrote is read in pages: one that has this many bytes ends, however few rows it has. Somebody
/// who asks for pages and does not read them holds no more than this.
pub const PAGE_MAX_BYTES: usize = 512 << 10;

// ---- directory: who is who ------------------------------------------------------------------

/// One record of the directory: JSON under (kind, key), with a version for compare-and-set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub kind: String,
    pub key: String,
    pub version: u64,
    pub json: String,
}

/// A change of one record. `expect` is the version that the writer saw, 0 for "not there".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub kind: String,
    pub key: String,
    pub expect: u64,
    pub json: Option<String>,
}

/// What follows from a commit, in memory.
pub type Applied = Box<dyn FnOnce() + Send>;

pub trait Directory: Send + Sync {
    fn load(&self) -> Stored<'_, Vec<Record>>;
    /// All changes or none; the new version of each is `expect + 1`. Two records of instances or agents with the
    /// same number (`no`) are a conflict, whatever their keys.
    ///
    /// `applied` is called where the commit is made, before anybody hears of it: a caller that is dropped while it
    /// waits leaves both done or neither. It must not block.
    fn amend(&self, changes: Vec<Change>, applied: Applied) -> Stored<'_, ()>;
    /// Draws this many numbers for ledgers of instances: the first of a run. A number is never given twice, also
    /// if it was not used.
    fn draw_numbers(&self, count: u64) -> Stored<'_, u64>;
}

// ---- ledger: what is owed to whom -----------------------------------------------------------

/// What is handed to an agent: the JSON as it will be sent, and what the desk must know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub event: u64,
    pub at_ms: u64,
    /// Sent as `passthrough_forward` instead of `inbound`.
    pub passthrough: bool,
    pub json: String,
    pub platform: String,
    pub bot: String,
    pub chat_id: Arc<str>,
    pub session_key: Arc<str>,
    pub message_id: String,
}

/// One event to write down: dedup mark, verdict, capabilities and one row per receiver, in one commit.
#[derive(Debug, Clone)]
pub struct Acceptance {
    pub tenant: Arc<str>,
    /// Names the message; seen before means the same one.
    pub dedup: Vec<u8>,
    pub delivery: Delivery,
    /// Explanation of the gate, as compact JSON.
    pub verdict: String,
    /// Instance numbers.
    pub receivers: Vec<u64>,
    /// Those of them who get another form of the event than `delivery.json`.
    pub own_json: Vec<(u64, String)>,
    pub capabilities: Vec<SealedCapability>,
    /// The chat becomes one that the tenant may answer in.
    pub reaches: bool,
    /// It goes into an agent's inbox as well.
    pub letter: Option<Letter>,
    /// It stands in the built-in chat as well. Boxed: most events have none, and all are moved about.
    pub chat: Option<Box<ChatWrite>>,
}

/// A line of the built-in chat that is written in one commit with its event. A line of that message id that is there
/// already stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatWrite {
    pub chat_id: String,
    pub message_id: String,
    pub json: String,
    pub at_ms: u64,
    /// The line that it answers changes too.
    pub amend: Option<ChatAmend>,
}

/// A change of a line that must still be at this revision: otherwise it is a conflict, and nothing at all is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatAmend {
    pub message_id: String,
    pub rev: u64,
    pub json: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub event: u64,
    /// False: this was here before; nothing was written.
    pub fresh: bool,
    /// (instance, seq) of each row made.
    pub rows: Vec<(u64, u64)>,
    /// The number of the chat line that was written with it.
    pub line: Option<u64>,
}

/// What has been settled of one instance's ledger: all up to `through`, and the few `above` it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    pub through: u64,
    pub above: Vec<u64>,
    /// The highest row that was ever written to a socket.
    pub sent: u64,
}

impl Position {
    /// Joins what another view knows; a row settled anywhere stays settled.
    pub fn merge(&mut self, other: &Position) {
        self.through = self.through.max(other.through);
        self.sent = self.sent.max(other.sent);
        self.above.extend_from_slice(&other.above);
        self.tidy();
    }

    pub fn settled(&self, seq: u64) -> bool {
        seq <= self.through || self.above.binary_search(&seq).is_ok()
    }

    fn tidy(&mut self) {
        self.above.sort_unstable();
        self.above.dedup();
        let mut taken = 0;
        for &seq in &self.above {
            if seq == self.through + 1 {
                self.through = seq;
            }
            if seq > self.through {
                break;
            }
            taken += 1;
        }
        self.above.drain(..taken);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MailState {
    Accepted,
    Sent,
    Acked,
    Dead,
}

/// One row as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    pub instance: u64,
    pub seq: u64,
    pub state: MailState,
    pub reason: Option<String>,
    pub delivery: Arc<Delivery>,
}

/// Unsettled mail of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub instance: u64,
    pub count: u64,
    pub oldest_ms: u64,
    pub oldest_seq: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    pub event: u64,
    pub tenant: String,
    pub at_ms: u64,
    pub chat_id: String,
    pub message_id: String,
    pub verdict: String,
}

/// What is known of an instance's sockets. Written blindly: the latest word counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// It said `going_idle` and has not dialed since.
    pub idle: bool,
    /// A socket was open when this was written; after a crash that means "just gone".
    pub live: bool,
    pub seen_ms: u64,
    /// People were told that rows up to this one wait.
    #[serde(default)]
    pub noticed_through: u64,
    /// Its gateway was proven not to ack; an ack ends that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_acks: bool,
}

/// Rung by the store after each commit, in commit order. Must not block: it runs where rows are written.
pub trait Bell: Send + Sync {
    fn ring(&self, rows: Vec<(u64, u64, Arc<Delivery>)>);
}

/// Rows of one instance that a search for a turn looks through.
pub const LAST_SENT_ROWS: usize = 200;
/// Rows of all instances together that it looks through.
pub const LAST_SENT_ROWS_ALL: usize = 2_000;

pub trait Ledger: Send + Sync {
    /// A random number made with the store: buffer ids of two stores never look alike.
    fn epoch(&self) -> u32;
    fn attach_bell(&self, bell: Arc<dyn Bell>);
    fn accept(&self, batch: Vec<Acceptance>) -> Stored<'_, Vec<Accepted>>;
    /// Merges what was settled. A row settled once is never pending again.
    fn settle(&self, instance: u64, position: Position) -> Stored<'_, ()>;
    fn position(&self, instance: u64) -> Stored<'_, Position>;
    fn mark_presence(&self, instance: u64, presence: Presence) -> Stored<'_, ()>;
    fn presences(&self) -> Stored<'_, Vec<(u64, Presence)>>;
    /// Unsettled rows with `seq > after`, in order.
    fn pending(&self, instance: u64, after: u64, limit: usize) -> Stored<'_, Vec<(u64, Arc<Delivery>)>>;
    /// Whether a row of this message is still owed to an instance.
    fn owes<'a>(&'a self, instance: u64, message_id: &'a str) -> Stored<'a, bool>;
    fn waiting(&self) -> Stored<'_, Vec<Waiting>>;
    /// Newest first, rows below `before` (0 = from the top).
    fn mail(&self, instance: u64, state: Option<MailState>, before: u64, limit: usize) -> Stored<'_, Vec<Mail>>;
    fn mail_row(&self, instance: u64, seq: u64) -> Stored<'_, Option<Mail>>;
    /// Ends an unsettled row. False: it was settled already, or is not there.
    fn drop_mail(&self, instance: u64, seq: u64, reason: String) -> Stored<'_, bool>;
    /// Puts the same delivery at the end of the ledger again.
    fn replay_mail(&self, instance: u64, seq: u64) -> Stored<'_, Option<u64>>;
    /// The newest row kept under one of these session keys that was written to a socket of the first of
    /// these instances that has one, if it was accepted since then. Looks through the last
    /// [`LAST_SENT_ROWS`] rows of each, and [`LAST_SENT_ROWS_ALL`] in all.
    fn last_sent(
        &self,
        instances: Vec<u64>,
        session_keys: Vec<String>,
        since_ms: u64,
    ) -> Stored<'_, Option<(u64, Arc<Delivery>)>>;
    fn event(&self, event: u64) -> Stored<'_, Option<EventRecord>>;
    /// The newest event of this tenant that carries this message id and was marked under a dedup key
    /// beginning so; in this chat, if one is named.
    fn event_named<'a>(
        &'a self,
        tenant: &'a str,
        dedup_prefix: Vec<u8>,
        message_id: &'a str,
        chat_id: Option<&'a str>,
    ) -> Stored<'a, Option<EventRecord>>;
    /// The events marked under these dedup keys, in the same order.
    fn events_marked(&self, dedups: Vec<Vec<u8>>) -> Stored<'_, Vec<Option<EventRecord>>>;
    /// Whether something from this chat was ever accepted for this tenant.
    fn reached<'a>(&'a self, tenant: &'a str, platform: &'a str, bot: &'a str, chat_id: &'a str) -> Stored<'a, bool>;
}

// ---- vault: capabilities that never leave the desk ------------------------------------------

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedCapability {
    pub id: String,
    pub tenant: String,
    pub kind: String,
    /// Every session key that a supported gateway might name.
    pub session_keys: Vec<String>,
    pub platform: String,
    pub bot: String,
    pub chat_id: String,
    pub sealed: Vec<u8>,
    pub expires_ms: u64,
}

pub trait Vault: Send + Sync {
    /// The newest one of this tenant under this key and kind that is still good at `now_ms`.
    fn capability<'a>(
        &'a self,
        tenant: &'a str,
        session_key: &'a str,
        kind: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<SealedCapability>>;
}

// ---- journal: what agents sent out ----------------------------------------------------------

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
    fn close_entry(&self, id: u64, outcome: Outcome, cursor: u32, note: String) -> Stored<'_, ()>;
    /// What was open when the desk went down: nobody knows what became of it. Returns how many.
    fn doubt_open_entries(&self) -> Stored<'_, u64>;
    fn entries<'a>(&'a self, tenant: Option<&'a str>, limit: usize) -> Stored<'a, Vec<JournalEntry>>;
}

// ---- chat log: the built-in chat's own memory -----------------------------------------------

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatRow {
    pub seq: u64,
    pub message_id: String,
    pub rev: u64,
    pub json: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatRecord {
    pub chat_id: String,
    pub json: String,
    pub last_seq: u64,
}

pub trait ChatLog: Send + Sync {
    /// Appends once per message id; the second time tells the first one's seq and `false`.
    fn chat_append<'a>(
        &'a self,
        tenant: &'a str,
        chat_id: &'a str,
        message_id: &'a str,
        json: String,
        at_ms: u64,
    ) -> Stored<'a, (u64, bool)>;
    /// Replaces a line that is still at revision `rev`.
    fn chat_amend<'a>(
        &'a self,
        tenant: &'a str,
        chat_id: &'a str,
        message_id: &'a str,
        rev: u64,
        json: String,
    ) -> Stored<'a, ()>;
    fn chat_line<'a>(&'a self, tenant: &'a str, chat_id: &'a str, message_id: &'a str) -> Stored<'a, Option<ChatRow>>;
    /// Lines after this one, in order: at most `limit`, and no more after `PAGE_MAX_BYTES`.
    fn chat_since<'a>(
        &'a self,
        tenant: &'a str,
        chat_id: &'a str,
        after: u64,
        limit: usize,
    ) -> Stored<'a, Vec<ChatRow>>;
    /// The last lines of a chat, in order.
    fn chat_latest<'a>(&'a self, tenant: &'a str, chat_id: &'a str, limit: usize) -> Stored<'a, Vec<ChatRow>>;
    /// Replaces what is kept of a chat, if that is still `before`: what `chat_get` showed, or nothing where it showed no chat.
    fn chat_put<'a>(&'a self, tenant: &'a str, chat_id: &'a str, before: &'a str, json: String) -> Stored<'a, ()>;
    fn chat_get<'a>(&'a self, tenant: &'a str, chat_id: &'a str) -> Stored<'a, Option<ChatRecord>>;
    /// Chats whose id comes after this one, in the order of their ids.
    fn chats<'a>(&'a self, tenant: &'a str, after: &'a str, limit: usize) -> Stored<'a, Vec<ChatRecord>>;
}

// ---- upkeep ---------------------------------------------------------------------------------

/// What may be forgotten, and from when on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    pub now_ms: u64,
    /// Settled mail and the events behind it.
    pub events_before_ms: u64,
    pub verdicts_before_ms: u64,
    /// What agents were told, read or not. 0: it is kept.
    pub letters_before_ms: u64,
    /// What agents sent out. 0: it is kept.
    pub journal_before_ms: u64,
    /// Lines of the built-in chat. 0: they are kept.
    pub chat_before_ms: u64,
    /// Chats that were silent since then: agents can no longer write there first. 0: they are kept.
    pub reach_before_ms: u64,
}

/// What one step of a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    pub gone: u64,
    /// The round is not over: call again.
    pub more: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    pub backend: String,
    pub rows_waiting: u64,
    pub bytes: u64,
    /// What the integrity check found; empty is well.
    pub faults: Vec<String>,
}

pub trait Upkeep: Send + Sync {
    /// A real write: it fails where an accept would fail.
    fn health(&self) -> Stored<'_, ()>;
    fn report(&self) -> Stored<'_, StoreReport>;
    /// A consistent copy, made while the desk works.
    fn backup<'a>(&'a self, to: &'a Path) -> Stored<'a, u64>;
    /// One small step of forgetting what is old. Call it until it says that there is no more.
    fn purge(&self, retention: Retention) -> Stored<'_, Purged>;
}
