//! The store in memory, for tests and trials. It follows all rules of the port except durability.

mod alarms;
mod chat;
mod cursors;
mod data;
mod desks;
mod directory;
mod events;
mod fragments;
mod inbox;
mod journal;
mod ledger;
mod mail;
mod media;
mod sessions;
mod skills;
mod upkeep;
mod vault;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_core::port::alarms::{Alarm, EndedAlarm};
use frontdesk_core::port::inbox::{PlannedWake, StoredMessage};
use frontdesk_core::port::store::{
    Accepted, Delivery, DeskRecord, EventRecord, JournalEntry, Position, Presence, Record, SealedCapability,
};
use frontdesk_wire::{ChatId, DeskNo, EventId, InboxSeq, InstanceNo, MessageId, Seq, SessionNo, TenantId};

use crate::claims::{LocalClaims, local_claims};
use crate::exchanges::{LocalExchanges, local_exchanges};
use crate::listeners::Listeners;
use crate::ready as now;
use crate::wakes::WakeClaims;

#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    listeners: Listeners,
    wakes: WakeClaims,
    exchanges: LocalExchanges,
    claims: LocalClaims,
    epoch: u32,
    /// Simulates a store behind a network, whose answers may be lost.
    is_lossy: bool,
    lose_answer: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Records without JSON are deleted.
    records: BTreeMap<(String, String), Record>,
    directory_version: u64,
    last_number: u64,
    events: BTreeMap<EventId, EventRecord>,
    last_event: EventId,
    by_dedup: HashMap<Vec<u8>, EventId>,
    ledgers: BTreeMap<InstanceNo, Account>,
    /// With the time of the last message.
    reach: HashMap<[String; 4], u64>,
    presences: BTreeMap<InstanceNo, Presence>,
    last_session: SessionNo,
    /// The answer to each attempt.
    attempts: HashMap<u64, Accepted>,
    capabilities: HashMap<[String; 3], SealedCapability>,
    journal: BTreeMap<u64, JournalEntry>,
    /// (platform, bot, receipt id) to the entry.
    receipts: HashMap<[String; 3], u64>,
    chats: BTreeMap<(TenantId, ChatId), Chat>,
    media: HashMap<String, media::MediaEntry>,
    /// Each with the end of its claim.
    alarms: BTreeMap<u64, (Alarm, u64)>,
    last_alarm: u64,
    alarm_ends: BTreeMap<u64, EndedAlarm>,
    last_end: u64,
    /// By agent and position, with the tenant.
    messages: BTreeMap<(InstanceNo, InboxSeq), (TenantId, StoredMessage)>,
    /// The last position in each inbox.
    places: HashMap<InstanceNo, InboxSeq>,
    planned_wakes: HashMap<String, PlannedWake>,
    /// By tenant and name.
    skills: BTreeMap<(TenantId, String), skills::Skill>,
    skill_tokens: HashMap<TenantId, String>,
    data: Option<rusqlite::Connection>,
    /// Each with the token of the duty under which it was saved.
    cursors: HashMap<(String, String), (u64, String)>,
    fragments: Vec<fragments::StoredFragment>,
    last_claim: u64,
    desks: BTreeMap<DeskNo, DeskRecord>,
    last_desk: DeskNo,
    /// The server that has each duty (0: none), and its token.
    duties: BTreeMap<String, (DeskNo, u64)>,
}

/// Rows that one step takes of an inbox, or of the alarms of an instance.
const STEP_ROWS: usize = 200;

/// Ledger of one instance.
#[derive(Default)]
struct Account {
    rows: BTreeMap<Seq, (Arc<Delivery>, Option<String>)>,
    last_seq: Seq,
    position: Position,
}

#[derive(Default)]
struct Chat {
    json: String,
    last_seq: u64,
    /// Each with the time of its writing.
    lines: BTreeMap<u64, (frontdesk_core::port::store::ChatRow, u64)>,
    seq_of: HashMap<MessageId, u64>,
}

local_exchanges!(MemoryStore);
local_claims!(MemoryStore);

impl MemoryStore {
    pub fn new(epoch: u32) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// For tests of callers: answers may get lost, as on a network.
    pub fn lossy(epoch: u32) -> Self {
        Self { epoch, is_lossy: true, ..Self::default() }
    }

    /// The next batch is accepted, but its caller gets no answer.
    pub fn lose_next_answer(&self) {
        self.lose_answer.store(true, Ordering::SeqCst);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
