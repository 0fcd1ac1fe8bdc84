//! Which socket serves which instance, and what waits to go into it.
//!
//! The store rings here after each commit, in commit order. A mailbox that overflows forgets its
//! rows and says so (`gap`); its session then reads them from the ledger. Losing a ring costs time,
//! never a message.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::Close;
use tokio::sync::{Notify, Semaphore};

use super::delivered::Delivered;
use super::window::Acks;
use crate::port::store::{Bell, Delivery, Presence};

/// Rows held in memory per socket before its session has to read the ledger.
const ROWS_MAX: usize = 512;
const ROWS_MAX_BYTES: usize = 4 << 20;
/// Orders (results, interrupts) held per socket; a session drains them at every turn. What comes when they
/// are full is refused: a result is then kept for the next socket, an interrupt is not sent.
const ORDERS_MAX: usize = 1024;
const ORDERS_MAX_BYTES: usize = 4 << 20;
/// Recent sends remembered per instance, to find the turn that a `/stop` means.
const TURNS_MAX: usize = 128;
/// Results kept for a gateway that dials again, and for how long: its callers wait 30 s.
const PARKED_MAX: usize = 1024;
const PARKED_MAX_BYTES: usize = 1 << 20;
const PARKED_MS: u64 = 30_000;
/// Rows given up that are remembered per instance, for whoever examines the desk.
const GIVEN_UP_MAX: usize = 32;
/// A refused dial of one gateway is logged once in this time, and of so many gateways.
const REFUSED_DIAL_MS: u64 = 60_000;
const REFUSED_DIALS_MAX: usize = 256;
/// Refused actions of one instance that are written down in one second; more are only counted.
const REFUSALS_PER_S: u32 = 10;

/// What a session must do besides delivering.
#[derive(Debug)]
pub enum Order {
    /// Write this line.
    Line(String),
    /// Likewise, and it is for the next socket if this one ends first.
    Result(String),
    Close(Close),
    /// The operator ended this row.
    Dropped(u64),
    /// Nobody works on this lane any more.
    LaneDone(String),
    /// An interrupt was looked up and passed on.
    InterruptDone,
    /// That the gateway goes idle is durable, or could not be stored.
    IdleDone(bool),
}

impl Order {
    fn bytes(&self) -> usize {
        match self {
            Self::Line(text) | Self::Result(text) | Self::LaneDone(text) => text.len(),
            Self::Close(_) | Self::Dropped(_) | Self::InterruptDone | Self::IdleDone(_) => 0,
        }
    }
}

#[derive(Default)]
struct Waiting {
    rows: VecDeque<(u64, Arc<Delivery>)>,
    rows_bytes: usize,
    gap: bool,
    orders: VecDeque<Order>,
    orders_bytes: usize,
}

impl Waiting {
    fn pop_row(&mut self) -> Option<(u64, Arc<Delivery>)> {
        let row = self.rows.pop_front()?;
        self.rows_bytes -= row.1.json.len();
        Some(row)
    }
}

/// The in-tray of one socket.
pub struct Mailbox {
    pub session: u64,
    pub gateway: String,
    pub tenant: String,
    waiting: Mutex<Waiting>,
    pub bell: Notify,
    idle: AtomicBool,
    /// Rows that are in the socket.
    pub handed: Delivered,
    /// When something last went in or came out.
    traffic_ms: AtomicU64,
    /// Closed when the session has saved its last acks and is gone.
    finished: Semaphore,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    /// The session is over: whoever waits for it may go on.
    pub fn finish(&self) {
        self.finished.close();
        self.handed.end();
    }

    /// Returns when the session has saved its last acks.
    pub async fn finished(&self) {
        let _closed = self.finished.acquire().await;
    }

    pub fn note_traffic(&self, now_ms: u64) {
        self.traffic_ms.store(now_ms, Ordering::Relaxed);
    }

    pub fn traffic_ms(&self) -> u64 {
        self.traffic_ms.load(Ordering::Relaxed)
    }

    /// It said `going_idle`: rows wait for the next socket. True: some may wait already.
    pub fn go_idle(&self) -> bool {
        self.idle.store(true, Ordering::SeqCst);
        let waiting = lock(&self.waiting);
        waiting.gap || !waiting.rows.is_empty()
    }

    pub fn is_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst)
    }

    /// False: the session is over or the tray is full; the order was not taken.
    pub fn order(&self, order: Order) -> bool {
        let mut waiting = lock(&self.waiting);
        // A lane's end is always taken: a socket has few lanes, and a lost end would count for ever.
        // So is a close: it ends what fills the tray.
        let must = matches!(order, Order::LaneDone(_) | Order::InterruptDone | Order::IdleDone(_) | Order::Close(_));
        // Results have room of their own: somebody waits for each, and interrupts must not crowd them out.
        let share = if matches!(order, Order::Result(_)) { 2 } else { 1 };
        let full = waiting.orders.len() >= share * ORDERS_MAX || waiting.orders_bytes >= share * ORDERS_MAX_BYTES;
        if (full && !must) || self.finished.is_closed() {
            return false;
        }
        waiting.orders_bytes += order.bytes();
        waiting.orders.push_back(order);
        drop(waiting);
        self.bell.notify_one();
        true
    }

    pub fn interrupt_done(&self) {
        self.order(Order::InterruptDone);
    }

    /// Nobody works on this lane any more.
    pub fn lane_done(&self, name: String) {
        self.order(Order::LaneDone(name));
    }

    pub fn take_orders(&self) -> VecDeque<Order> {
        let mut waiting = lock(&self.waiting);
        waiting.orders_bytes = 0;
        std::mem::take(&mut waiting.orders)
    }

    /// Rows above `cursor`, at most `room`, and none after `bytes` are full. `None`: there is a gap, read
    /// the ledger.
    pub fn take_rows(&self, cursor: u64, room: usize, bytes: usize) -> Option<Vec<(u64, Arc<Delivery>)>> {
        let mut waiting = lock(&self.waiting);
        while waiting.rows.front().is_some_and(|(seq, _)| *seq <= cursor) {
            waiting.pop_row();
        }
        let contiguous = waiting.rows.front().is_none_or(|(seq, _)| *seq == cursor + 1);
        if waiting.gap || !contiguous {
            return None;
        }
        let (mut taken, mut used) = (Vec::new(), 0);
        while taken.len() < room && used < bytes {
            let Some(row) = waiting.pop_row() else { break };
            used += row.1.json.len();
            taken.push(row);
        }
        Some(taken)
    }

    /// Before reading the ledger: from here on rings are kept again.
    pub fn close_gap(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.gap = false;
        waiting.rows.clear();
        waiting.rows_bytes = 0;
    }

    pub fn open_gap(&self) {
        lock(&self.waiting).gap = true;
    }

    fn push_rows(&self, rows: &[(u64, u64, Arc<Delivery>)]) {
        let mut waiting = lock(&self.waiting);
        if !waiting.gap {
            let bytes: usize = rows.iter().map(|(_, _, delivery)| delivery.json.len()).sum();
            if waiting.rows.len() + rows.len() > ROWS_MAX || waiting.rows_bytes + bytes > ROWS_MAX_BYTES {
                waiting.gap = true;
                waiting.rows = VecDeque::new();
                waiting.rows_bytes = 0;
            } else {
                waiting.rows_bytes += bytes;
                waiting.rows.extend(rows.iter().map(|(_, seq, delivery)| (*seq, delivery.clone())));
            }
        }
        drop(waiting);
        self.bell.notify_one();
    }
}

/// What is remembered of an instance between its sockets. Small, and lost with the process.
#[derive(Default)]
pub struct Memory {
    pub acks: Option<Acks>,
    pub presence: Presence,
    turns: VecDeque<(Arc<str>, Arc<str>, u64)>,
    /// Results of actions whose socket ended before they did, for the next one.
    parked: VecDeque<(u64, String)>,
    /// How many sockets it has opened.
    dials: u64,
    /// Rows that it left unacked on live sockets, although they were sent several times; newest last.
    given_up: VecDeque<GivenUp>,
    /// Refused actions written down in the second that began then.
    refusals: (u64, u32),
}

/// A row that was sent several times on a live socket and never acked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    pub seq: u64,
    pub event: u64,
    pub at_ms: u64,
}

/// Why an instance is on the list of those that nobody serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// Its socket ended, or the desk began: perhaps something waits.
    Look,
    /// Mail came that no socket of it has seen.
    NewMail,
}

#[derive(Default)]
pub struct Switchboard {
    sockets: papaya::HashMap<u64, Arc<Mailbox>>,
    memory: papaya::HashMap<u64, Arc<Mutex<Memory>>>,
    sessions: AtomicU64,
    /// Instances that got mail while no socket served them.
    unserved: Mutex<HashMap<u64, Unserved>>,
    pub unserved_bell: Notify,
    /// When a refused dial of each gateway was last logged; strangers share one entry.
    refused_dials: Mutex<HashMap<String, u64>>,
}

impl Switchboard {
    /// Sockets and streams are numbered in one row: higher is later.
    pub fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The newest socket wins; the one before is told to close, and returned to be waited for.
    pub fn attach(&self, instance: u64, gateway: &str, tenant: &str) -> (Arc<Mailbox>, Option<Arc<Mailbox>>) {
        let mailbox = Arc::new(Mailbox {
            session: self.next_session(),
            gateway: gateway.into(),
            tenant: tenant.into(),
            waiting: Mutex::new(Waiting { gap: true, ..Waiting::default() }),
            bell: Notify::new(),
            idle: AtomicBool::new(false),
            handed: Delivered::default(),
            traffic_ms: AtomicU64::new(0),
            finished: Semaphore::new(0),
        });
        let sockets = self.sockets.pin();
        let old = sockets.insert(instance, mailbox.clone()).cloned();
        if let Some(old) = &old {
            old.order(Order::Close(Close::Replaced));
        }
        (mailbox, old)
    }

    /// True: this was the serving socket, and now none serves the instance.
    pub fn detach(&self, instance: u64, mailbox: &Mailbox) -> bool {
        let sockets = self.sockets.pin();
        sockets.remove_if(&instance, |_, current| current.session == mailbox.session).is_ok_and(|gone| gone.is_some())
    }

    pub fn socket(&self, instance: u64) -> Option<Arc<Mailbox>> {
        self.sockets.pin().get(&instance).cloned()
    }

    pub fn is_live(&self, instance: u64) -> bool {
        self.sockets.pin().contains_key(&instance)
    }

    /// A socket takes its rows: live, and not gone idle.
    pub fn is_served(&self, instance: u64) -> bool {
        self.sockets.pin().get(&instance).is_some_and(|mailbox| !mailbox.is_idle())
    }

    pub fn open_sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Closes every socket of a gateway, or all of them.
    pub fn close(&self, gateway: Option<&str>, why: Close) {
        for mailbox in self.sockets.pin().values() {
            if gateway.is_none_or(|id| mailbox.gateway == id) {
                mailbox.order(Order::Close(why));
            }
        }
    }

    /// Somebody should see to it that this instance gets a socket.
    pub fn note_unserved(&self, instance: u64, why: Unserved) {
        let mut unserved = lock(&self.unserved);
        let known = unserved.get(&instance).copied();
        if known != Some(Unserved::NewMail) {
            unserved.insert(instance, why);
        }
        drop(unserved);
        if known.is_none() {
            self.unserved_bell.notify_one();
        }
    }

    pub fn take_unserved(&self) -> HashMap<u64, Unserved> {
        std::mem::take(&mut lock(&self.unserved))
    }

    pub fn memory(&self, instance: u64) -> Arc<Mutex<Memory>> {
        self.memory.pin().get_or_insert_with(instance, Arc::default).clone()
    }

    pub fn presence(&self, instance: u64) -> Presence {
        self.memory.pin().get(&instance).map(|memory| lock(memory).presence.clone()).unwrap_or_default()
    }

    /// Changes what is known of an instance and returns it, to be written down.
    pub fn set_presence(&self, instance: u64, change: impl FnOnce(&mut Presence)) -> Presence {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        change(&mut memory.presence);
        memory.presence.clone()
    }

    /// What is known of its acks: from its last socket, or from before the desk was restarted.
    pub fn acks(&self, instance: u64) -> Acks {
        let memory = self.memory(instance);
        let memory = lock(&memory);
        let kept = if memory.presence.never_acks { Acks::Never } else { Acks::Assumed };
        memory.acks.unwrap_or(kept)
    }

    pub fn remember_acks(&self, instance: u64, acks: Acks) {
        lock(&self.memory(instance)).acks = Some(acks);
    }

    /// A result for whichever socket serves the instance: the present one, or the next.
    pub fn answer(&self, instance: u64, line: String, now_ms: u64) {
        if self.socket(instance).is_some_and(|mailbox| mailbox.order(Order::Result(line.clone()))) {
            return;
        }
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        memory.parked.retain(|(at_ms, _)| now_ms.saturating_sub(*at_ms) < PARKED_MS);
        memory.parked.push_back((now_ms, line));
        let bytes = |parked: &VecDeque<(u64, String)>| parked.iter().map(|(_, line)| line.len()).sum::<usize>();
        while memory.parked.len() > PARKED_MAX || (memory.parked.len() > 1 && bytes(&memory.parked) > PARKED_MAX_BYTES)
        {
            memory.parked.pop_front();
        }
    }

    pub fn take_parked(&self, instance: u64, now_ms: u64) -> Vec<String> {
        let memory = self.memory(instance);
        let parked = std::mem::take(&mut lock(&memory).parked);
        let fresh = parked.into_iter().filter(|(at_ms, _)| now_ms.saturating_sub(*at_ms) < PARKED_MS);
        fresh.map(|(_, line)| line).collect()
    }

    /// A socket of the instance was opened.
    pub fn note_dial(&self, instance: u64) {
        lock(&self.memory(instance)).dials += 1;
    }

    /// How many sockets it has opened since the desk began: whoever waits for it sees that it came.
    pub fn dials(&self, instance: u64) -> u64 {
        self.memory.pin().get(&instance).map_or(0, |memory| lock(memory).dials)
    }

    pub fn note_given_up(&self, instance: u64, row: GivenUp) {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        if memory.given_up.len() >= GIVEN_UP_MAX {
            memory.given_up.pop_front();
        }
        memory.given_up.push_back(row);
    }

    /// Instances that left rows unacked on live sockets, with the latest of those rows.
    pub fn given_up(&self) -> Vec<(u64, Vec<GivenUp>)> {
        let of = |memory: &Arc<Mutex<Memory>>| lock(memory).given_up.iter().cloned().collect::<Vec<_>>();
        let all = self.memory.pin();
        all.iter().map(|(instance, memory)| (*instance, of(memory))).filter(|(_, rows)| !rows.is_empty()).collect()
    }

    /// Whether a refused dial of this gateway is worth a line in the log: one a minute is. `None`: no gateway
    /// of ours.
    pub fn may_log_refused_dial(&self, gateway: Option<&str>, steady_ms: u64) -> bool {
        let mut logged = lock(&self.refused_dials);
        logged.retain(|_, at_ms| steady_ms.saturating_sub(*at_ms) < REFUSED_DIAL_MS);
        let gateway = gateway.unwrap_or_default();
        if logged.contains_key(gateway) || logged.len() >= REFUSED_DIALS_MAX {
            return false;
        }
        logged.insert(gateway.to_owned(), steady_ms);
        true
    }

    /// Whether one more refused action of this instance may be written down in this second.
    pub fn may_note_refusal(&self, instance: u64, now_ms: u64) -> bool {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        let second = now_ms / 1000;
        if memory.refusals.0 != second {
            memory.refusals = (second, 0);
        }
        memory.refusals.1 += 1;
        memory.refusals.1 <= REFUSALS_PER_S
    }

    /// Rows of these sessions just went to the instance.
    pub fn remember_turns<'a>(&self, instance: u64, sent: impl Iterator<Item = &'a Delivery>, now_ms: u64) {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        for delivery in sent {
            if memory.turns.back().is_some_and(|(key, ..)| *key == delivery.session_key) {
                memory.turns.pop_back();
            } else if memory.turns.len() >= TURNS_MAX {
                memory.turns.pop_front();
            }
            memory.turns.push_back((delivery.session_key.clone(), delivery.chat_id.clone(), now_ms));
        }
    }

    /// The chat of the latest turn of this session since then, as far as memory goes.
    pub fn turn_chat(&self, instance: u64, session_key: &str, since_ms: u64) -> Option<Arc<str>> {
        let memory = self.memory.pin().get(&instance).cloned()?;
        let memory = lock(&memory);
        let found = memory.turns.iter().rev().find(|(key, _, at_ms)| **key == *session_key && *at_ms >= since_ms);
        found.map(|(_, chat, _)| chat.clone())
    }
}

impl Bell for Switchboard {
    fn ring(&self, mut rows: Vec<(u64, u64, Arc<Delivery>)>) {
        rows.sort_by_key(|(instance, seq, _)| (*instance, *seq));
        let sockets = self.sockets.pin();
        for run in rows.chunk_by(|a, b| a.0 == b.0) {
            let instance = run[0].0;
            match sockets.get(&instance) {
                Some(mailbox) => {
                    mailbox.push_rows(run);
                    if mailbox.is_idle() {
                        self.note_unserved(instance, Unserved::NewMail);
                    }
                }
                None => self.note_unserved(instance, Unserved::NewMail),
            }
        }
    }
}
