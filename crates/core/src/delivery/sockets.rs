//! Which socket serves which instance, and what waits to be written to it.
//!
//! The store notifies it after each commit, in commit order. A mailbox that overflows drops its rows and sets `gap`;
//! its session then reads them from the ledger. A lost notification delays a message, but never loses it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::{ChatId, Close, DeskNo, EventId, GatewayId, InstanceNo, Seq, SessionKey, TenantId};
use tokio::sync::{Notify, Semaphore};

use super::delivered::Delivered;
use super::memory::{Share, TenantMemory};
use super::turns::RunningTurns;
use super::unserved::{Unserved, UnservedInstances};
use super::window::Acks;
use crate::port::claims::{PARKED_MAX, PARKED_MAX_BYTES, PARKED_MS};
use crate::port::store::{Delivery, MadeRow, NewRow, Presence, SentTurn, SessionNo};

/// Rows in memory per socket; after an overflow the session reads the ledger.
const ROWS_MAX: usize = 512;
const ROWS_MAX_BYTES: usize = 4 << 20;
/// Orders (results, interrupts) per socket; a session takes all of them at every turn. When full, a result is kept
/// for the next socket, and an interrupt is refused.
const ORDERS_MAX: usize = 1024;
const ORDERS_MAX_BYTES: usize = 4 << 20;
/// Memory that a socket has even if that of its tenant is used up.
const ORDERS_FREE_BYTES: usize = 64 << 10;
/// Rows given up that are remembered per instance, for `frontdesk doctor`.
const GIVEN_UP_MAX: usize = 32;
/// Refused connections are logged once per gateway in this time, for at most this many gateways.
const REFUSED_DIAL_MS: u64 = 60_000;
const REFUSED_DIALS_MAX: usize = 256;
/// Refused actions per instance and second that are recorded; more are only counted.
const REFUSALS_PER_S: u32 = 10;

/// A request to a session, besides delivering rows.
#[derive(Debug)]
pub enum Order {
    /// Write this line.
    Line(String),
    /// Like `Line`, but goes to the next socket if this one closes first.
    Result(String),
    Close(Close),
    /// The operator dropped this row.
    Dropped(Seq),
    /// The task of this lane has ended.
    LaneDone(String),
    /// An interrupt was forwarded.
    InterruptDone,
    /// Result of storing that the gateway goes idle.
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

struct Waiting {
    rows: VecDeque<(Seq, Arc<Delivery>)>,
    rows_bytes: usize,
    gap: bool,
    orders: VecDeque<Order>,
    orders_bytes: usize,
    /// The part of the tenant's memory that rows and orders take.
    share: Share,
}

impl Waiting {
    fn pop_row(&mut self) -> Option<(Seq, Arc<Delivery>)> {
        let row = self.rows.pop_front()?;
        self.rows_bytes -= row.1.json.len();
        Some(row)
    }

    fn drop_rows(&mut self) {
        self.rows = VecDeque::new();
        self.rows_bytes = 0;
        self.book();
    }

    fn book(&mut self) {
        self.share.set(self.rows_bytes + self.orders_bytes);
    }
}

/// Queue of one socket.
pub struct Mailbox {
    number: u64,
    /// Given by the store when the session began; 0 before.
    session: AtomicU64,
    gateway: GatewayId,
    waiting: Mutex<Waiting>,
    notify: Notify,
    idle: AtomicBool,
    /// The highest row that was queued or read from the ledger.
    newest: AtomicU64,
    /// Rows that were written to the socket.
    delivered: Delivered<Seq>,
    /// Time of the last frame in either direction.
    traffic_ms: AtomicU64,
    /// Since when a row is unacked, by the steady clock; 0: none is.
    unacked_since_ms: AtomicU64,
    /// Closed when the session has saved its last acks.
    finished: Semaphore,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    /// Higher is newer, across sockets and streams of this server.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn gateway(&self) -> &GatewayId {
        &self.gateway
    }

    pub fn session(&self) -> SessionNo {
        SessionNo(self.session.load(Ordering::Acquire))
    }

    pub fn begin(&self, session: SessionNo) {
        self.session.store(session.0, Ordering::Release);
    }

    /// Marks the session as finished and releases all waiters.
    pub fn finish(&self) {
        self.finished.close();
        self.delivered.end();
        lock(&self.waiting).drop_rows(); // they are in the ledger; actions that still run keep the mailbox
    }

    /// Returns when the session has saved its last acks.
    pub async fn finished(&self) {
        let _closed = self.finished.acquire().await;
    }

    /// Rows up to this one were written to the socket.
    pub fn note_delivered(&self, seq: Seq) {
        self.delivered.advance(seq);
    }

    /// Returns when this row was written to the socket; false: the session ended before.
    pub async fn delivered(&self, seq: Seq) -> bool {
        self.delivered.reached(seq).await
    }

    pub fn note_traffic(&self, now_ms: u64) {
        self.traffic_ms.store(now_ms, Ordering::Relaxed);
    }

    pub fn traffic_ms(&self) -> u64 {
        self.traffic_ms.load(Ordering::Relaxed)
    }

    pub fn note_unacked(&self, since_ms: Option<u64>) {
        self.unacked_since_ms.store(since_ms.map_or(0, |at_ms| at_ms.max(1)), Ordering::Relaxed);
    }

    /// Since when a gateway that acks has left a row unacked, by the steady clock.
    pub fn unacked_since_ms(&self) -> Option<u64> {
        Some(self.unacked_since_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0)
    }

    /// The gateway sent `going_idle`: rows wait for the next socket. True: some may be waiting already.
    pub fn go_idle(&self) -> bool {
        self.idle.store(true, Ordering::SeqCst);
        self.has_rows()
    }

    /// Whether rows may be waiting, here or in the ledger.
    pub fn has_rows(&self) -> bool {
        let waiting = lock(&self.waiting);
        waiting.gap || !waiting.rows.is_empty()
    }

    pub fn is_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst)
    }

    /// False: the session is finished or the queue is full; the order was not accepted.
    pub fn order(&self, order: Order) -> bool {
        let mut waiting = lock(&self.waiting);
        // These are always accepted: completions are bounded by the number of lanes and must not get lost, and a close
        // ends what fills the queue.
        let must = matches!(order, Order::LaneDone(_) | Order::InterruptDone | Order::IdleDone(_) | Order::Close(_));
        // Results have extra space: a caller waits for each, so interrupts must not displace them.
        let share = if matches!(order, Order::Result(_)) { 2 } else { 1 };
        let full = waiting.orders.len() >= share * ORDERS_MAX
            || waiting.orders_bytes >= share * ORDERS_MAX_BYTES
            || (waiting.orders_bytes >= ORDERS_FREE_BYTES && waiting.share.is_full())
            || (matches!(order, Order::Line(_)) && waiting.share.is_over());
        if (full && !must) || self.finished.is_closed() {
            return false;
        }
        waiting.orders_bytes += order.bytes();
        waiting.orders.push_back(order);
        waiting.book();
        drop(waiting);
        self.notify.notify_one();
        true
    }

    /// Returns when there may be something for the session.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }

    /// The row was dropped: the session must stop waiting for its ack. If its order queue is full, the session is closed,
    /// and the next one does not read the row.
    pub fn row_dropped(&self, seq: Seq) {
        if !self.order(Order::Dropped(seq)) {
            self.order(Order::Close(Close::TryLater));
        }
    }

    pub fn interrupt_done(&self) {
        self.order(Order::InterruptDone);
    }

    /// The task of this lane has ended.
    pub fn lane_done(&self, name: String) {
        self.order(Order::LaneDone(name));
    }

    pub fn take_orders(&self) -> VecDeque<Order> {
        let mut waiting = lock(&self.waiting);
        waiting.orders_bytes = 0;
        waiting.book();
        std::mem::take(&mut waiting.orders)
    }

    /// Rows above `cursor`, up to `room` rows and about `bytes`. `None`: there is a gap, read the ledger.
    pub fn take_rows(&self, cursor: Seq, room: usize, bytes: usize) -> Option<Vec<(Seq, Arc<Delivery>)>> {
        let mut waiting = lock(&self.waiting);
        while waiting.rows.front().is_some_and(|(seq, _)| *seq <= cursor) {
            waiting.pop_row();
        }
        let contiguous = waiting.rows.front().is_none_or(|(seq, _)| *seq == cursor.next());
        if waiting.gap || !contiguous {
            return None;
        }
        let (mut taken, mut used) = (Vec::new(), 0);
        while taken.len() < room && used < bytes {
            let Some(row) = waiting.pop_row() else { break };
            used += row.1.json.len();
            taken.push(row);
        }
        waiting.book();
        Some(taken)
    }

    /// Called before reading the ledger: from now on rows are queued again.
    pub fn close_gap(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.gap = false;
        waiting.drop_rows();
    }

    pub fn open_gap(&self) {
        lock(&self.waiting).gap = true;
    }

    /// There may be rows in the ledger that were not queued here: the session reads it.
    pub fn look(&self) {
        self.open_gap();
        self.notify.notify_one();
    }

    pub fn newest(&self) -> Seq {
        Seq(self.newest.load(Ordering::Relaxed))
    }

    pub fn note_newest(&self, seq: Seq) {
        self.newest.fetch_max(seq.0, Ordering::Relaxed);
    }

    fn push_rows(&self, rows: &[&NewRow]) {
        if let Some(last) = rows.last() {
            self.note_newest(last.row.seq);
        }
        let mut waiting = lock(&self.waiting);
        if !waiting.gap {
            let bytes: usize = rows.iter().map(|row| row.delivery.json.len()).sum();
            // Rows between were written by another server.
            let mut before = waiting.rows.back().map(|(seq, _)| *seq);
            let is_whole = rows.iter().all(|new| {
                let follows = before.is_none_or(|before| new.row.seq == before.next());
                before = Some(new.row.seq);
                follows
            });
            let is_full = waiting.rows.len() + rows.len() > ROWS_MAX
                || waiting.rows_bytes + bytes > ROWS_MAX_BYTES
                || waiting.share.is_full();
            if is_full || !is_whole {
                waiting.gap = true;
                waiting.drop_rows();
            } else {
                waiting.rows_bytes += bytes;
                waiting.rows.extend(rows.iter().map(|new| (new.row.seq, new.delivery.clone())));
                waiting.book();
            }
        }
        drop(waiting);
        self.notify.notify_one();
    }
}

/// State of an instance between its sockets. Small, and lost at a restart.
#[derive(Default)]
struct InstanceMemory {
    acks: Option<Acks>,
    presence: Presence,
    turns: RunningTurns,
    /// Results that came after their socket had closed, for the next one, with the time by the steady clock.
    parked: VecDeque<(u64, String)>,
    /// Number of sockets it has opened.
    dials: u64,
    /// Rows left unacked on live sockets after several attempts; newest last.
    given_up: VecDeque<GivenUp>,
    /// Start of the current second, and refused actions recorded in it.
    refusals: (u64, u32),
    /// Bytes of its actions that wait or are carried out. They outlive the socket on which they came.
    jobs: Option<Arc<Semaphore>>,
}

impl InstanceMemory {
    fn drop_late_results(&mut self, steady_ms: u64) {
        self.parked.retain(|(at_ms, _)| steady_ms.saturating_sub(*at_ms) < PARKED_MS);
        if self.parked.is_empty() {
            self.parked = VecDeque::new();
        }
    }
}

/// A row that was sent several times on a live socket without an ack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    pub seq: Seq,
    pub event: EventId,
    pub at_ms: u64,
}

pub struct Sockets {
    mailboxes: papaya::HashMap<InstanceNo, Arc<Mailbox>>,
    memory: papaya::HashMap<InstanceNo, Arc<Mutex<InstanceMemory>>>,
    /// One per known tenant, so it is bounded.
    tenants: papaya::HashMap<TenantId, Arc<TenantMemory>>,
    /// Limit for the memory of a tenant, in bytes; 0: none.
    tenant_max: usize,
    orders: AtomicU64,
    unserved: UnservedInstances,
    /// When a refused connection of each gateway was last logged; unknown gateways share one entry.
    refused_dials: Mutex<HashMap<GatewayId, u64>>,
}

impl Default for Sockets {
    /// Without a limit for the memory of a tenant.
    fn default() -> Self {
        Self::new(0)
    }
}

impl Sockets {
    /// `tenant_max`: bytes in memory per tenant.
    pub fn new(tenant_max: usize) -> Self {
        Self {
            mailboxes: papaya::HashMap::default(),
            memory: papaya::HashMap::default(),
            tenants: papaya::HashMap::default(),
            tenant_max,
            orders: AtomicU64::new(0),
            unserved: UnservedInstances::default(),
            refused_dials: Mutex::default(),
        }
    }

    /// Sockets and streams share one sequence: higher is newer.
    pub fn next_order(&self) -> u64 {
        self.orders.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The newest socket wins; the previous one is told to close, and returned so that the caller can wait for it.
    pub fn attach(
        &self,
        instance: InstanceNo,
        gateway: &GatewayId,
        tenant: &TenantId,
    ) -> (Arc<Mailbox>, Option<Arc<Mailbox>>) {
        let waiting = Waiting {
            rows: VecDeque::new(),
            rows_bytes: 0,
            gap: true,
            orders: VecDeque::new(),
            orders_bytes: 0,
            share: Share::new(&self.memory_of(tenant).outgoing),
        };
        let mailbox = Arc::new(Mailbox {
            number: self.next_order(),
            session: AtomicU64::new(0),
            gateway: gateway.clone(),
            waiting: Mutex::new(waiting),
            notify: Notify::new(),
            idle: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            delivered: Delivered::default(),
            traffic_ms: AtomicU64::new(0),
            unacked_since_ms: AtomicU64::new(0),
            finished: Semaphore::new(0),
        });
        let sockets = self.mailboxes.pin();
        let old = sockets.insert(instance, mailbox.clone()).cloned();
        if let Some(old) = &old {
            old.order(Order::Close(Close::Replaced));
        }
        (mailbox, old)
    }

    /// True: this was the serving socket, and now the instance has none.
    pub fn detach(&self, instance: InstanceNo, mailbox: &Mailbox) -> bool {
        let sockets = self.mailboxes.pin();
        if sockets.get(&instance).is_some_and(|current| current.number == mailbox.number) {
            lock(&self.memory(instance)).turns.shrink(0); // it may not return
        }
        sockets.remove_if(&instance, |_, current| current.number == mailbox.number).is_ok_and(|gone| gone.is_some())
    }

    /// What agents without a socket do not need any more: finished turns, and results that nobody waits for.
    pub fn forget_finished(&self, now_ms: u64, steady_ms: u64) {
        for (instance, memory) in &self.memory.pin() {
            if !self.is_live(*instance) {
                let mut memory = lock(memory);
                memory.turns.shrink(now_ms);
                memory.drop_late_results(steady_ms);
            }
        }
    }

    pub fn socket(&self, instance: InstanceNo) -> Option<Arc<Mailbox>> {
        self.mailboxes.pin().get(&instance).cloned()
    }

    /// Whether this is still the socket of the instance.
    pub fn is_serving(&self, instance: InstanceNo, mailbox: &Mailbox) -> bool {
        self.mailboxes.pin().get(&instance).is_some_and(|current| current.number == mailbox.number)
    }

    pub fn is_live(&self, instance: InstanceNo) -> bool {
        self.mailboxes.pin().contains_key(&instance)
    }

    /// Whether a socket takes its rows: connected and not idle.
    pub fn is_served(&self, instance: InstanceNo) -> bool {
        self.mailboxes.pin().get(&instance).is_some_and(|mailbox| !mailbox.is_idle())
    }

    /// All sessions that have begun, by instance.
    pub fn sessions(&self) -> Vec<(InstanceNo, SessionNo)> {
        let sockets = self.mailboxes.pin();
        let begun = sockets.iter().map(|(instance, mailbox)| (*instance, mailbox.session()));
        let mut begun: Vec<_> = begun.filter(|(_, session)| !session.is_none()).collect();
        begun.sort_unstable();
        begun
    }

    pub fn open_sockets(&self) -> usize {
        self.mailboxes.len()
    }

    /// Closes every socket of a gateway, or all of them.
    pub fn close(&self, gateway: Option<&GatewayId>, why: Close) {
        for mailbox in self.mailboxes.pin().values() {
            if gateway.is_none_or(|id| mailbox.gateway == *id) {
                mailbox.order(Order::Close(why));
            }
        }
    }

    /// Closes the socket of an instance if it has this session.
    pub fn close_session(&self, instance: InstanceNo, session: SessionNo, why: Close) {
        if let Some(mailbox) = self.socket(instance).filter(|mailbox| mailbox.session() == session) {
            mailbox.order(Order::Close(why));
        }
    }

    /// Instances to be checked for waiting mail.
    pub fn unserved(&self) -> &UnservedInstances {
        &self.unserved
    }

    fn memory(&self, instance: InstanceNo) -> Arc<Mutex<InstanceMemory>> {
        self.memory.pin().get_or_insert_with(instance, Arc::default).clone()
    }

    /// Room for the actions of an instance, `max` bytes.
    pub fn jobs(&self, instance: InstanceNo, max: usize) -> Arc<Semaphore> {
        let memory = self.memory(instance);
        lock(&memory).jobs.get_or_insert_with(|| Arc::new(Semaphore::new(max))).clone()
    }

    pub(super) fn memory_of(&self, tenant: &TenantId) -> Arc<TenantMemory> {
        let new = || Arc::new(TenantMemory::new(self.tenant_max));
        self.tenants.pin().get_or_insert_with(tenant.clone(), new).clone()
    }

    pub fn presence(&self, instance: InstanceNo) -> Presence {
        self.memory.pin().get(&instance).map(|memory| lock(memory).presence.clone()).unwrap_or_default()
    }

    pub fn presences(&self) -> HashMap<InstanceNo, Presence> {
        let all = self.memory.pin();
        all.iter().map(|(instance, memory)| (*instance, lock(memory).presence.clone())).collect()
    }

    /// Changes the presence of an instance and returns it, so that the caller can store it.
    pub fn set_presence(&self, instance: InstanceNo, change: impl FnOnce(&mut Presence)) -> Presence {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        change(&mut memory.presence);
        memory.presence.clone()
    }

    /// What is known of its acks, from its last socket or from before the restart.
    pub fn acks(&self, instance: InstanceNo) -> Acks {
        let memory = self.memory(instance);
        let memory = lock(&memory);
        let kept = if memory.presence.never_acks { Acks::Never } else { Acks::Assumed };
        memory.acks.unwrap_or(kept)
    }

    pub fn remember_acks(&self, instance: InstanceNo, acks: Acks) {
        lock(&self.memory(instance)).acks = Some(acks);
    }

    /// Passes a result to the current socket of the instance, or back.
    pub fn answer(&self, instance: InstanceNo, line: String) -> Result<(), String> {
        let is_taken = self.socket(instance).is_some_and(|mailbox| mailbox.order(Order::Result(line.clone())));
        if is_taken { Ok(()) } else { Err(line) }
    }

    /// Keeps a result for the next socket of the instance at this server.
    pub fn park(&self, instance: InstanceNo, line: String, steady_ms: u64) {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        memory.drop_late_results(steady_ms);
        memory.parked.push_back((steady_ms, line));
        let bytes = |parked: &VecDeque<(u64, String)>| parked.iter().map(|(_, line)| line.len()).sum::<usize>();
        while memory.parked.len() > PARKED_MAX || (memory.parked.len() > 1 && bytes(&memory.parked) > PARKED_MAX_BYTES)
        {
            memory.parked.pop_front();
            tracing::warn!(
                instance = instance.0,
                "too many results wait for a socket of this agent: the oldest was dropped"
            );
        }
    }

    /// With the time at which each was parked.
    pub fn take_parked(&self, instance: InstanceNo, steady_ms: u64) -> VecDeque<(u64, String)> {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        memory.drop_late_results(steady_ms);
        std::mem::take(&mut memory.parked)
    }

    /// Counts a new socket of the instance.
    pub fn note_dial(&self, instance: InstanceNo) {
        lock(&self.memory(instance)).dials += 1;
    }

    /// Number of sockets it has opened since the start; a change shows that it connected.
    pub fn dials(&self, instance: InstanceNo) -> u64 {
        self.memory.pin().get(&instance).map_or(0, |memory| lock(memory).dials)
    }

    pub fn note_given_up(&self, instance: InstanceNo, row: GivenUp) {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        if memory.given_up.len() >= GIVEN_UP_MAX {
            memory.given_up.pop_front();
        }
        memory.given_up.push_back(row);
    }

    /// Instances that left rows unacked on live sockets, with the newest of these rows.
    pub fn given_up(&self) -> Vec<(InstanceNo, Vec<GivenUp>)> {
        let of = |memory: &Arc<Mutex<InstanceMemory>>| lock(memory).given_up.iter().cloned().collect::<Vec<_>>();
        let all = self.memory.pin();
        all.iter().map(|(instance, memory)| (*instance, of(memory))).filter(|(_, rows)| !rows.is_empty()).collect()
    }

    /// Whether to log a refused connection of this gateway: once a minute. `None`: unknown gateway.
    pub fn may_log_refused_dial(&self, gateway: Option<&GatewayId>, steady_ms: u64) -> bool {
        let mut logged = lock(&self.refused_dials);
        logged.retain(|_, at_ms| steady_ms.saturating_sub(*at_ms) < REFUSED_DIAL_MS);
        let gateway = gateway.cloned().unwrap_or_default();
        if logged.contains_key(&gateway) || logged.len() >= REFUSED_DIALS_MAX {
            return false;
        }
        logged.insert(gateway, steady_ms);
        true
    }

    /// Whether another refused action of this instance may be recorded in this second.
    pub fn may_note_refusal(&self, instance: InstanceNo, now_ms: u64) -> bool {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        let second = now_ms / 1000;
        if memory.refusals.0 != second {
            memory.refusals = (second, 0);
        }
        memory.refusals.1 += 1;
        memory.refusals.1 <= REFUSALS_PER_S
    }

    /// Remembers that rows of these sessions were sent to the instance.
    pub fn remember_turns<'a>(&self, instance: InstanceNo, sent: impl Iterator<Item = &'a Delivery>, now_ms: u64) {
        let memory = self.memory(instance);
        let mut memory = lock(&memory);
        for delivery in sent {
            memory.turns.note(&delivery.session_key, &delivery.chat_id, now_ms);
        }
    }

    /// The chat of a turn under the first of these names that has one since then, if the instance has a socket here.
    pub fn turn_chat(&self, instance: InstanceNo, names: &[SessionKey], since_ms: u64) -> Option<ChatId> {
        let memory = self.memory.pin().get(&instance).cloned().filter(|_| self.is_live(instance))?;
        let memory = lock(&memory);
        names.iter().find_map(|name| memory.turns.chat(name, since_ms)).cloned()
    }

    /// The socket of the instance, if turns from before it are not known yet.
    pub fn lacks_turns(&self, instance: InstanceNo) -> Option<u64> {
        let socket = self.socket(instance)?.number;
        let memory = self.memory(instance);
        let is_complete = lock(&memory).turns.is_complete_for(socket);
        (!is_complete).then_some(socket)
    }

    /// Adds what the ledger has of the time before this socket.
    pub fn complete_turns(&self, instance: InstanceNo, socket: u64, stored: Vec<SentTurn>) {
        lock(&self.memory(instance)).turns.complete(socket, stored);
    }

    /// New rows: those of local sockets are queued there. Instances without a socket are checked, unless the server that
    /// serves them `is_other` and live.
    pub fn take_rows(&self, rows: &[NewRow], is_other: impl Fn(DeskNo) -> bool) {
        let mut rows: Vec<&NewRow> = rows.iter().collect();
        rows.sort_by_key(|new| (new.row.instance, new.row.seq));
        let sockets = self.mailboxes.pin();
        for run in rows.chunk_by(|a, b| a.row.instance == b.row.instance) {
            let MadeRow { instance, served_by, .. } = run[0].row;
            match sockets.get(&instance) {
                Some(mailbox) => {
                    mailbox.push_rows(run);
                    if mailbox.is_idle() {
                        self.unserved.note(instance, Unserved::NewMail);
                    }
                }
                None if is_other(served_by) => {}
                None => self.unserved.note(instance, Unserved::NewMail),
            }
        }
    }
}
