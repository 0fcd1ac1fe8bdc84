//! Which socket serves which instance, and what waits to go into it.
//!
//! The store rings here after each commit, in commit order. A mailbox that overflows forgets its
//! rows and says so (`gap`); its session then reads them from the ledger. Losing a ring costs time,
//! never a message.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::Close;
use tokio::sync::{Notify, Semaphore};

use crate::handed::Handed;
use crate::port::store::{Bell, Delivery, Presence};
use crate::window::Acks;

/// Rows held in memory per socket before its session has to read the ledger.
const ROWS_MAX: usize = 512;
/// Orders (results, interrupts) held per socket; a session drains them at every turn.
const ORDERS_MAX: usize = 1024;
/// Recent sends remembered per instance, to find the turn that a `/stop` means.
const TURNS_MAX: usize = 128;
/// Results kept for a gateway that dials again, and for how long: its callers wait 30 s.
const PARKED_MAX: usize = 64;
const PARKED_MS: u64 = 30_000;

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
    /// An action of this lane ended.
    ActionDone(String),
}

#[derive(Default)]
struct Waiting {
    rows: VecDeque<(u64, Arc<Delivery>)>,
    gap: bool,
    orders: VecDeque<Order>,
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
    pub handed: Handed,
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
        // An action's end is always taken: a socket has few actions, and a lost end would count for ever.
        let full = waiting.orders.len() >= ORDERS_MAX && !matches!(order, Order::ActionDone(_));
        if full || self.finished.is_closed() {
            return false;
        }
        waiting.orders.push_back(order);
        drop(waiting);
        self.bell.notify_one();
        true
    }

    pub fn take_orders(&self) -> VecDeque<Order> {
        std::mem::take(&mut lock(&self.waiting).orders)
    }

    /// Rows above `cursor`, at most `room`. `None`: there is a gap, read the ledger.
    pub fn take_rows(&self, cursor: u64, room: usize) -> Option<Vec<(u64, Arc<Delivery>)>> {
        let mut waiting = lock(&self.waiting);
        while waiting.rows.front().is_some_and(|(seq, _)| *seq <= cursor) {
            waiting.rows.pop_front();
        }
        let contiguous = waiting.rows.front().is_none_or(|(seq, _)| *seq == cursor + 1);
        if waiting.gap || !contiguous {
            return None;
        }
        let count = room.min(waiting.rows.len());
        Some(waiting.rows.drain(..count).collect())
    }

    /// Before reading the ledger: from here on rings are kept again.
    pub fn close_gap(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.gap = false;
        waiting.rows.clear();
    }

    pub fn open_gap(&self) {
        lock(&self.waiting).gap = true;
    }

    fn push_rows(&self, rows: &[(u64, u64, Arc<Delivery>)]) {
        let mut waiting = lock(&self.waiting);
        if !waiting.gap {
            if waiting.rows.len() + rows.len() > ROWS_MAX {
                waiting.gap = true;
                waiting.rows = VecDeque::new();
            } else {
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
}

#[derive(Default)]
pub struct Switchboard {
    sockets: papaya::HashMap<u64, Arc<Mailbox>>,
    memory: papaya::HashMap<u64, Arc<Mutex<Memory>>>,
    sessions: AtomicU64,
    /// Instances that got mail while no socket served them.
    unserved: Mutex<HashSet<u64>>,
    pub unserved_bell: Notify,
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
            handed: Handed::default(),
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
    pub fn note_unserved(&self, instance: u64) {
        if lock(&self.unserved).insert(instance) {
            self.unserved_bell.notify_one();
        }
    }

    pub fn take_unserved(&self) -> HashSet<u64> {
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

    pub fn acks(&self, instance: u64) -> Acks {
        lock(&self.memory(instance)).acks.unwrap_or(Acks::Assumed)
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
        if memory.parked.len() >= PARKED_MAX {
            memory.parked.pop_front();
        }
        memory.parked.push_back((now_ms, line));
    }

    pub fn take_parked(&self, instance: u64, now_ms: u64) -> Vec<String> {
        let memory = self.memory(instance);
        let parked = std::mem::take(&mut lock(&memory).parked);
        let fresh = parked.into_iter().filter(|(at_ms, _)| now_ms.saturating_sub(*at_ms) < PARKED_MS);
        fresh.map(|(_, line)| line).collect()
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
                        self.note_unserved(instance);
                    }
                }
                None => self.note_unserved(instance),
            }
        }
    }
}
