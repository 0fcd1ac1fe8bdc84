//! The ledger: accepted events, and the rows that are owed to each instance.

use std::sync::Arc;

use frontdesk_wire::{
    BotId, ChatId, DeskNo, EventId, InboxSeq, InstanceNo, MessageId, Seq, SessionKey, SessionNo, TenantId,
};

use super::chat::ChatWrite;
use super::inbox::InboxMessage;
use super::media::EventFile;
use super::stored::Stored;
use super::vault::SealedCapability;

/// An event for an agent: the JSON as it is sent, and the fields that the server needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub event: EventId,
    pub at_ms: u64,
    /// Sent as `passthrough_forward` instead of `inbound`.
    pub passthrough: bool,
    pub json: String,
    pub platform: String,
    pub bot: BotId,
    pub chat_id: ChatId,
    pub session_key: SessionKey,
    pub message_id: MessageId,
}

/// One event to store: dedup key, verdict, capabilities and one row per receiver, in one commit.
#[derive(Debug, Clone)]
pub struct Acceptance {
    pub tenant: TenantId,
    /// Number of this attempt to store the event; 0 is none. If the outcome is unknown and the attempt is repeated under the
    /// same number, the event is still `fresh`. Set by [`Lease::accept`](crate::lease::Lease::accept).
    pub attempt: u64,
    /// Dedup key: an event with a known key is a duplicate.
    pub dedup: Vec<u8>,
    pub delivery: Delivery,
    /// Explanation of the gate, as compact JSON.
    pub verdict: String,
    /// Instance numbers.
    pub receivers: Vec<InstanceNo>,
    /// Receivers that get another JSON than `delivery.json`.
    pub own_json: Vec<(InstanceNo, String)>,
    pub capabilities: Vec<SealedCapability>,
    /// The tenant may write to the chat from now on.
    pub reaches: bool,
    /// The message for an agent's inbox, if it goes there too.
    pub message: Option<InboxMessage>,
    /// Its line in the built-in chat. Boxed: most events have none, and acceptances are moved often.
    pub chat: Option<Box<ChatWrite>>,
    /// Files to keep while one of its rows is unsettled. Ignored for an event without receivers.
    pub files: Vec<EventFile>,
}

impl Acceptance {
    /// An event without receivers, stored for its dedup key or its verdict. Others are built from it.
    pub fn unreceived(tenant: &TenantId, dedup: Vec<u8>, delivery: Delivery, verdict: String) -> Self {
        Self {
            tenant: tenant.clone(),
            attempt: 0,
            dedup,
            delivery,
            verdict,
            receivers: Vec::new(),
            own_json: Vec::new(),
            capabilities: Vec::new(),
            reaches: false,
            message: None,
            chat: None,
            files: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub event: EventId,
    /// False: a duplicate; nothing was written.
    pub fresh: bool,
    pub rows: Vec<MadeRow>,
    /// The position in the agent's inbox, if it went into one; 0 is none.
    pub place: InboxSeq,
    /// The number of the chat line that was written with it.
    pub line: Option<u64>,
}

/// A row that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeRow {
    pub instance: InstanceNo,
    pub seq: Seq,
    /// The server that had the session of the instance when the row was written; 0 is none.
    pub served_by: DeskNo,
}

/// Settled rows of one instance's ledger: all rows up to `through`, and single rows `above` it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    pub through: Seq,
    pub above: Vec<Seq>,
    /// The highest row that was ever written to a socket.
    pub sent: Seq,
}

impl Position {
    /// Merges another position; a row settled in either is settled.
    pub fn merge(&mut self, other: &Position) {
        self.through = self.through.max(other.through);
        self.sent = self.sent.max(other.sent);
        self.above.extend_from_slice(&other.above);
        self.tidy();
    }

    pub fn settled(&self, seq: Seq) -> bool {
        seq <= self.through || self.above.binary_search(&seq).is_ok()
    }

    fn tidy(&mut self) {
        self.above.sort_unstable();
        self.above.dedup();
        let mut taken = 0;
        for &seq in &self.above {
            if seq == self.through.next() {
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

/// Unsettled mail of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub instance: InstanceNo,
    pub count: u64,
    pub oldest_ms: u64,
    pub oldest_seq: Seq,
}

/// What a session has settled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settlement {
    /// The session that reports it.
    pub session: SessionNo,
    /// Acked rows. Accepted from any session.
    pub acked: Position,
    /// Acked rows plus rows settled because the socket stayed healthy. Accepted only from the session that serves the
    /// instance, because a server that was suspended cannot tell whether a socket was healthy. `None`: only acked rows.
    pub inferred: Option<Position>,
}

impl From<Position> for Settlement {
    fn from(acked: Position) -> Self {
        Self { acked, ..Self::default() }
    }
}

/// A row as its session gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    pub row: MadeRow,
    pub delivery: Arc<Delivery>,
}

/// Called by the store after each commit, in commit order. Must not block: it runs on the writer.
pub trait RowListener: Send + Sync {
    fn rows_committed(&self, rows: &[NewRow]);
}

/// A session of an instance that got rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentTurn {
    pub session_key: SessionKey,
    pub chat_id: ChatId,
    /// When the newest of the rows was accepted.
    pub at_ms: u64,
}

/// Rows of one instance that are searched for its turns.
pub const TURN_ROWS_MAX: usize = 20_000;
/// Older rows among them that may be skipped: a replayed message is a new row with its old time.
pub const TURN_ROWS_OLD_MAX: usize = 256;
/// Sessions of one instance that are remembered.
pub const TURN_SESSIONS_MAX: usize = 4_096;

/// Unsettled rows that [`Ledger::owes`] looks through.
pub const OWED_SCANNED_MAX: usize = 10_000;

pub trait Ledger: Send + Sync {
    /// A random number created with the store, so that buffer ids of two stores differ.
    fn epoch(&self) -> u32;
    /// Each listener gets every row. There is one per server in this process.
    fn attach_listener(&self, listener: Arc<dyn RowListener>);
    /// True for a store behind a network: a commit may succeed although its answer is lost.
    fn may_lose_answers(&self) -> bool {
        false
    }
    fn accept(&self, batch: Vec<Acceptance>) -> Stored<'_, Vec<Accepted>>;
    /// Merges what was settled. A row settled once is never pending again. False: another session serves the instance
    /// now, and what was only inferred was not written.
    fn settle(&self, instance: InstanceNo, settlement: Settlement) -> Stored<'_, bool>;
    fn position(&self, instance: InstanceNo) -> Stored<'_, Position>;
    /// Unsettled rows with `seq > after`, in order.
    fn pending(&self, instance: InstanceNo, after: Seq, limit: usize) -> Stored<'_, Vec<(Seq, Arc<Delivery>)>>;
    /// Whether a row of this message is among the newest [`OWED_SCANNED_MAX`] unsettled rows of an instance.
    fn owes<'a>(&'a self, instance: InstanceNo, message_id: &'a MessageId) -> Stored<'a, bool>;
    /// The instances that this server serves, the sessions that do, and their newest rows.
    fn heads(&self, me: DeskNo) -> Stored<'_, Vec<(InstanceNo, SessionNo, Seq)>>;
    fn waiting(&self) -> Stored<'_, Vec<Waiting>>;
    /// The sessions of which rows that were accepted since then were written to a socket of this instance, newest
    /// first. Reads its last [`TURN_ROWS_MAX`] rows, up to the [`TURN_ROWS_OLD_MAX`]th that is older, and returns at
    /// most [`TURN_SESSIONS_MAX`].
    fn sent_turns(&self, instance: InstanceNo, since_ms: u64) -> Stored<'_, Vec<SentTurn>>;
}
