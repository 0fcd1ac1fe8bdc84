//! A relay session from hello to close, as a state machine without I/O.
//!
//! The caller passes frames, store results and the time; the session returns messages to write and effects to carry
//! out ([`Session::next_message`], [`Session::next_effect`]). It never waits. At its end ([`Session::end`]) the caller
//! releases the instance that it served ([`DeliveryPlane::release`]). No rows are lost with a session: unacked ones go to the
//! next session. A peer that does not read is not read from.

mod actions;
mod effects;
mod ending;
mod hello;
mod incoming;
mod interrupts;
mod lane;
mod later;
mod outbox;

use std::collections::VecDeque;
use std::sync::Arc;

use frontdesk_wire::frame::{DeskFrame, push_delivery};
use frontdesk_wire::lines::Lines;
use frontdesk_wire::{Close, GatewayFrame, Seq};
use tokio::sync::Semaphore;

use self::actions::JOBS_MAX_BYTES;
use self::hello::Hello;
use self::incoming::Incoming;
use self::lane::Lanes;
use self::later::Later;
use self::outbox::{OUTBOX_MAX_BYTES, Outbox};
use super::DeliveryPlane;
use super::interrupt::InterruptRequest;
use super::memory::{Share, TenantMemory};
use super::sockets::{Mailbox, Order};
use super::unserved::Unserved;
use super::window::{Acks, Health, Window};
use crate::directory::Caller;
use crate::env::Env;
use crate::ids::{buffer_id, parse_buffer_id};
use crate::meters::Why;
use crate::port::platform::PlatformBot;
use crate::port::store::{Delivery, Settlement, StoreError};

pub use actions::Refused;
pub use ending::{Ending, Leftover};
pub use incoming::ARRIVING_FREE_BYTES;
pub use lane::{Job, Lane};

/// Invalid frames per minute before the session is closed.
const BAD_MAX: u32 = 64;
const BAD_MS: u64 = 60_000;
/// Longer than any session key of a gateway.
const SESSION_KEY_MAX_BYTES: usize = 1024;
/// Time limit for writing one message, however slowly the peer reads. Gateways can stall for half a minute while
/// they wait for their own actions.
const WRITE_MS: u64 = 60_000;
/// Interval of ticks while something is in flight, and otherwise.
const BUSY_TICK_MS: u64 = 1_000;
const IDLE_TICK_MS: u64 = 30_000;
/// Time limit for acks when the server stops, and the interval at which it is checked.
const LEAVE_MS: u64 = 500;
const LEAVE_TICK_MS: u64 = 50;
/// Minimum interval between two saves of acks of a session. Rows acked within this time before a crash are sent again
/// after it.
const SAVE_PAUSE_MS: u64 = 10;
/// Time limit for the first hello.
const HELLO_MS: u64 = 30_000;
/// Bytes of rows added to the outbox at once, plus one row. Rows alone do not fill the outbox, so acks are still
/// read.
const ROWS_MAX_BYTES: usize = OUTBOX_MAX_BYTES / 2;

pub type Row = (Seq, Arc<Delivery>);

/// An operation that the caller carries out for the session.
pub enum Effect {
    /// Make this the serving session: [`DeliveryPlane::begin`], then [`Session::begun`].
    Begin(Beginning),
    /// [`DeliveryPlane::read_rows`], then [`Session::read`].
    Read { after: Seq, limit: usize },
    /// [`DeliveryPlane::settle`], then [`Session::saved`].
    Save(Settlement),
    /// [`Interrupts::forward`](super::interrupt::Interrupts::forward), then `interrupt_done` on the mailbox.
    Interrupt { asked: InterruptRequest, mailbox: Arc<Mailbox> },
    /// [`DeliveryPlane::go_idle`].
    GoIdle(Arc<Mailbox>),
    /// [`DeliveryPlane::note_never_acks`].
    NeverAcks,
    /// [`DeliveryPlane::give_up_rows`].
    GiveUp { rows: Vec<Row>, mailbox: Arc<Mailbox> },
    /// Carry out the actions of a lane, then `lane_done` on the mailbox.
    Work { lane: Arc<Lane>, name: String, mailbox: Arc<Mailbox> },
    /// An action was refused; record it in the journal like any other.
    Refused(Box<Refused>),
}

/// The next message to write to the socket.
#[derive(Debug, PartialEq, Eq)]
pub enum Write {
    Text(String),
    Ping,
}

/// A session takes over an instance.
pub struct Beginning {
    pub(super) mailbox: Arc<Mailbox>,
    /// The session that served until now.
    pub(super) before: Option<Arc<Mailbox>>,
}

pub struct Session {
    delivery: Arc<DeliveryPlane>,
    caller: Caller,
    identities: Arc<Vec<PlatformBot>>,
    serving: Option<Serving>,
    /// The first valid hello, until the session serves.
    hello: Option<Hello>,
    lines: Lines,
    later: Later,
    outbox: Outbox,
    memory: Arc<TenantMemory>,
    /// Rows in flight, and what waits to be written.
    outgoing: Share,
    /// The last pump sent no row, because the memory of the tenant is used up.
    waits_for_memory: bool,
    incoming: Incoming,
    /// The part of the outbox that is counted in the gauge.
    gauged_bytes: usize,
    /// Reading from the peer is paused until it has read.
    paused: bool,
    is_reading: bool,
    saving: Saving,
    is_going_idle: bool,
    started_ms: u64,
    /// How long a peer had been silent when it was taken for dead.
    silent_ms: u64,
    tick_ms: u64,
    bad: (u32, u64),
    /// Keeps the order of actions per chat.
    lanes: Lanes,
    jobs: Arc<Semaphore>,
    /// Interrupts to look up; a look-up of the first one is running.
    interrupts: VecDeque<InterruptRequest>,
    ping: bool,
    /// When writing the current message started.
    writing_since_ms: Option<u64>,
    closing: Option<Close>,
    /// The server stops: no more rows are sent, and acks are waited for until this time.
    leave_at_ms: Option<u64>,
    /// The connection is closed.
    is_over: bool,
    effects: VecDeque<Effect>,
}

/// State from the first valid hello on.
struct Serving {
    mailbox: Arc<Mailbox>,
    window: Window,
    deliver_at_ms: u64,
    /// Rows to read from the ledger at once: as many as fitted into the outbox last time.
    fetch: usize,
}

impl Serving {
    /// Whether acks are expected: not from a gateway that never acks.
    fn is_owed_acks(&self) -> bool {
        !self.window.is_empty() && self.window.acks != Acks::Never
    }

    fn take_unsaved(&mut self) -> Option<Settlement> {
        let settlement = self.window.take_unsaved()?;
        Some(Settlement { session: self.mailbox.session(), ..settlement })
    }
}

/// What is stored for the session: acks, at most every [`SAVE_PAUSE_MS`], and that the gateway goes idle. One at a time.
#[derive(Default)]
struct Saving {
    is_running: bool,
    at_ms: u64,
    /// The gateway goes idle. Stored after its acks, so that acked rows do not wake the agent.
    then_idle: bool,
}

impl Saving {
    fn next(&mut self, serving: Option<&mut Serving>, now_ms: u64) -> Option<Effect> {
        let serving = serving.filter(|_| !self.is_running && (self.then_idle || now_ms >= self.at_ms))?;
        if let Some(settlement) = serving.take_unsaved() {
            self.is_running = true;
            self.at_ms = now_ms + SAVE_PAUSE_MS;
            return Some(Effect::Save(settlement));
        }
        std::mem::take(&mut self.then_idle).then(|| Effect::GoIdle(serving.mailbox.clone()))
    }
}

impl Session {
    /// `now_ms` is of a monotonic clock, here and in all methods.
    pub fn new(delivery: &Arc<DeliveryPlane>, caller: Caller, now_ms: u64) -> Self {
        let jobs = delivery.sockets.jobs(caller.instance.no, JOBS_MAX_BYTES);
        let memory = delivery.sockets.memory_of(&caller.tenant);
        Self {
            lines: Lines::new(delivery.rules.frame_max_bytes),
            delivery: delivery.clone(),
            caller,
            identities: Arc::default(),
            serving: None,
            hello: None,
            later: Later::default(),
            outbox: Outbox::default(),
            outgoing: Share::new(&memory.outgoing),
            waits_for_memory: false,
            incoming: Incoming::new(&memory),
            memory,
            gauged_bytes: 0,
            paused: false,
            is_reading: false,
            saving: Saving::default(),
            is_going_idle: false,
            started_ms: now_ms,
            silent_ms: 0,
            tick_ms: now_ms + HELLO_MS,
            bad: (0, now_ms),
            lanes: Lanes::default(),
            jobs,
            interrupts: VecDeque::new(),
            ping: false,
            writing_since_ms: None,
            closing: None,
            leave_at_ms: None,
            is_over: false,
            effects: VecDeque::with_capacity(1), // mostly one at a time, in each of thousands of idle sessions
        }
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Notified when there are orders or rows for this session.
    pub fn mailbox(&self) -> Option<&Arc<Mailbox>> {
        self.serving.as_ref().map(|serving| &serving.mailbox)
    }

    // ---- input ---------------------------------------------------------------------------

    /// Whether there is room for the responses to another message.
    pub fn may_read(&self) -> bool {
        self.closing.is_none() && self.hello.is_none() && self.later.is_empty() && !self.outbox.is_full()
    }

    /// A message of the peer.
    pub fn take_text(&mut self, text: &str, now_ms: u64) {
        self.note_received(now_ms, false);
        let mut lines = std::mem::replace(&mut self.lines, Lines::new(0));
        // Frames after a hello wait until it is answered; all frames wait for space in the outbox.
        let whole = lines.push(text, |line| {
            self.incoming.completed();
            if self.may_read() {
                self.take_frame(line, now_ms, now_ms);
            } else {
                self.later.push(line, now_ms);
            }
        });
        self.lines = lines;
        match whole {
            Ok(()) => self.arriving(0, now_ms),
            Err(_) => self.unreadable("too_long"),
        }
    }

    /// A sign of life of the peer. The answer to a ping proves more: that all which was written before it arrived.
    pub fn note_received(&mut self, now_ms: u64, is_pong: bool) {
        match &mut self.serving {
            Some(serving) if is_pong => serving.window.ponged(now_ms),
            Some(serving) => serving.window.received(now_ms),
            None => {}
        }
    }

    /// The peer sent something that cannot be parsed, and neither can what follows.
    pub fn unreadable(&mut self, why: &'static str) {
        self.delivery.meters.frames_bad.get_or_create(&Why { why }).inc();
        self.close(Close::PolicyViolation);
    }

    pub fn close(&mut self, why: Close) {
        self.closing = Some(why);
    }

    /// The server stops. What was sent without an ack would be sent again after the restart, so acks that are on their
    /// way are taken before the session closes.
    pub fn leave(&mut self, now_ms: u64) {
        self.leave_at_ms.get_or_insert(now_ms + LEAVE_MS);
    }

    /// The socket was closed: nothing more is written, and remaining results only lead to the end.
    pub fn hang_up(&mut self) {
        self.is_over = true;
        if self.saving.then_idle {
            self.effects.extend(self.saving.next(self.serving.as_mut(), self.saving.at_ms));
        }
    }

    fn take_frame(&mut self, line: &str, now_ms: u64, came_ms: u64) {
        match GatewayFrame::parse(line) {
            Ok(GatewayFrame::InboundAck { buffer_id }) => self.take_ack(&buffer_id),
            Ok(GatewayFrame::Outbound { request_id, action, platform, bot_id }) => {
                self.take_outbound(request_id.into_owned(), action, platform.as_deref(), bot_id.as_deref());
            }
            Ok(GatewayFrame::Hello { platform, bot_id, command_manifest, ready }) => {
                self.take_hello(&platform, &bot_id, command_manifest.as_ref(), ready, now_ms);
            }
            Ok(GatewayFrame::GoingIdle) => self.take_going_idle(),
            Ok(GatewayFrame::Interrupt { .. }) if self.serving.is_none() => self.bad_frame("before_hello", now_ms),
            Ok(GatewayFrame::Interrupt { session_key, .. }) if session_key.len() > SESSION_KEY_MAX_BYTES => {
                self.bad_frame("malformed", now_ms);
            }
            Ok(GatewayFrame::Interrupt { session_key, .. }) => {
                let at_ms = steady_ms(&*self.delivery.env, came_ms, now_ms);
                self.take_interrupt(InterruptRequest { session_key: (&*session_key).into(), at_ms });
            }
            Ok(GatewayFrame::InboundWorking { buffer_ids }) => {
                let (epoch, instance) = (self.delivery.ledger.epoch(), self.caller.instance.no);
                if let Some(serving) = &mut self.serving {
                    let rows = buffer_ids.iter().filter_map(|id| parse_buffer_id(id, epoch, instance));
                    rows.for_each(|seq| serving.window.working(seq, now_ms));
                }
            }
            Ok(GatewayFrame::Report { .. }) if self.serving.is_none() => self.bad_frame("before_hello", now_ms),
            Ok(GatewayFrame::Report { problem }) => {
                self.delivery.reports.note(&self.caller, problem.as_deref(), now_ms);
            }
            Ok(GatewayFrame::Unknown(_)) => {}
            Err(error) => {
                tracing::debug!(%error, gateway = self.caller.gateway.as_str(), "skipped an invalid frame");
                self.bad_frame("malformed", now_ms);
            }
        }
    }

    /// Counts an invalid frame. Too many of them close the session.
    pub fn bad_frame(&mut self, why: &'static str, now_ms: u64) {
        self.delivery.meters.frames_bad.get_or_create(&Why { why }).inc();
        if now_ms.saturating_sub(self.bad.1) > BAD_MS {
            self.bad = (0, now_ms);
        }
        self.bad.0 += 1;
        if self.bad.0 >= BAD_MAX {
            self.close(Close::PolicyViolation);
        }
    }

    fn take_ack(&mut self, id: &str) {
        let row = parse_buffer_id(id, self.delivery.ledger.epoch(), self.caller.instance.no);
        let acked = row.and_then(|seq| self.serving.as_mut()?.window.ack(seq));
        match acked {
            Some(delivery) => {
                self.delivery.meters.acks.inc();
                self.delivery.publish_rows(&self.caller, "acked", std::iter::once(&*delivery));
                if let Some(serving) = self.serving.as_ref().filter(|serving| serving.window.is_empty()) {
                    serving.mailbox.note_unacked(None);
                }
            }
            None => drop(self.delivery.meters.acks_unknown.inc()),
        }
    }

    fn take_going_idle(&mut self) {
        let Some(serving) = &self.serving else { return };
        serving.mailbox.go_idle();
        // One request at a time, however often the peer repeats it; one ack answers all of them.
        self.saving.then_idle |= !std::mem::replace(&mut self.is_going_idle, true);
    }

    // ---- processing ----------------------------------------------------------------------

    /// Processes orders, waiting frames and rows. Called after every input.
    pub fn turn(&mut self, now_ms: u64) {
        self.take_orders();
        while self.closing.is_none() && self.hello.is_none() && !self.outbox.is_full() {
            let Some((line, came_ms)) = self.later.next() else { break };
            self.take_frame(&line, now_ms, came_ms);
        }
        let is_owed = self.serving.as_ref().is_some_and(Serving::is_owed_acks);
        if self.leave_at_ms.is_some_and(|leave_at_ms| now_ms >= leave_at_ms || !is_owed) {
            self.closing.get_or_insert(Close::GoingAway);
        }
        self.pump(now_ms);
        if self.closing.is_none() {
            self.effects.extend(self.saving.next(self.serving.as_mut(), now_ms));
        }
        self.note_outbox();
        self.incoming.book(self.later.bytes());
    }

    fn take_orders(&mut self) {
        let Some(serving) = &self.serving else { return };
        for order in serving.mailbox.take_orders() {
            match order {
                Order::Line(line) | Order::Result(line) => self.outbox.push(&line),
                Order::Close(close) => self.closing = Some(close),
                Order::Dropped(seq) => {
                    if let Some(serving) = &mut self.serving {
                        serving.window.dropped(seq);
                    }
                }
                Order::LaneDone(lane) => {
                    self.lanes.done(&lane);
                    self.start_lanes();
                }
                Order::IdleDone(is_durable) => {
                    self.is_going_idle = false;
                    if is_durable {
                        self.outbox.push(&DeskFrame::GoingIdleAck.line());
                    }
                }
                Order::InterruptDone => {
                    self.interrupts.pop_front();
                    if let Some(next) = self.interrupts.front().cloned() {
                        self.start_interrupt(next);
                    }
                }
            }
        }
    }

    /// Moves rows from the mailbox into the outbox as the window allows; after a gap reads them from the ledger.
    fn pump(&mut self, now_ms: u64) {
        // While a revocation of the gateway may be unknown here it gets no rows.
        let is_trusted = self.delivery.directory.is_current();
        let may_send = self.closing.is_none() && self.leave_at_ms.is_none() && !self.is_reading && is_trusted;
        let Some(serving) = self.serving.as_mut().filter(|_| may_send) else {
            return;
        };
        let wanted = serving.window.room(now_ms);
        let room = self.outgoing.allow(wanted);
        self.waits_for_memory = wanted > 0 && room == 0;
        if room == 0 || serving.mailbox.is_idle() || !self.outbox.is_empty() || now_ms < serving.deliver_at_ms {
            return;
        }
        let cursor = serving.window.cursor();
        if let Some(rows) = serving.mailbox.take_rows(cursor, room, ROWS_MAX_BYTES) {
            return self.push_rows(&rows, now_ms);
        }
        serving.mailbox.close_gap();
        self.is_reading = true;
        self.effects.push_back(Effect::Read { after: cursor, limit: room.min(serving.fetch) });
    }

    /// Result of reading the ledger with this `limit`.
    pub fn read(&mut self, rows: Result<Vec<Row>, StoreError>, limit: usize, now_ms: u64) {
        self.is_reading = false;
        let Some(serving) = self.serving.as_mut() else { return };
        if self.is_over || self.closing.is_some() || self.leave_at_ms.is_some() {
            return serving.mailbox.open_gap(); // this session does not deliver any more
        }
        match rows {
            Ok(mut rows) => {
                if let Some((last, _)) = rows.last() {
                    serving.mailbox.note_newest(*last);
                }
                let fit = fitting(rows.iter().map(|(_, delivery)| delivery.json.len()));
                let is_held = !self.delivery.directory.is_current();
                let is_idle = serving.mailbox.is_idle();
                if is_held {
                    return serving.mailbox.open_gap(); // read again when it is known who may have them
                }
                if rows.len() == limit || fit < rows.len() || is_idle {
                    serving.mailbox.open_gap(); // there may be more rows: read again
                }
                let whole = (limit * 2).min(self.delivery.rules.window.max(1));
                serving.fetch = if fit < rows.len() { fit } else { whole };
                rows.truncate(fit);
                if !is_idle {
                    self.push_rows(&rows, now_ms);
                } else if !rows.is_empty() {
                    // It went idle during the read, when no waiting rows were known.
                    self.delivery.sockets.unserved().note(self.caller.instance.no, Unserved::NewMail);
                }
            }
            Err(error) => {
                tracing::error!(%error, "reading the ledger failed");
                self.close(Close::TryLater);
            }
        }
    }

    fn push_rows(&mut self, rows: &[Row], now_ms: u64) {
        let Some(serving) = self.serving.as_mut().filter(|_| !rows.is_empty()) else { return };
        let (delivery, instance) = (&self.delivery, self.caller.instance.no);
        let epoch = delivery.ledger.epoch();
        let mut pushed = 0;
        for (seq, row) in rows {
            if serving.window.settled(*seq) {
                serving.window.skip(*seq);
                continue;
            }
            let id = buffer_id(epoch, instance, *seq);
            push_delivery(self.outbox.room(row.json.len() + 128), row.passthrough, &row.json, &id);
            serving.window.sent(*seq, row.clone(), now_ms);
            pushed += 1;
        }
        delivery.meters.frames_pushed.inc_by(pushed);
        let wall_ms = delivery.env.now_ms();
        serving.mailbox.note_traffic(wall_ms);
        delivery.sockets.remember_turns(instance, rows.iter().map(|(_, row)| &**row), wall_ms);
        delivery.publish_rows(&self.caller, "sent", rows.iter().map(|(_, row)| &**row));
    }

    /// Result of saving what was settled. False: another server serves the instance now.
    pub fn saved(&mut self, saved: Result<bool, StoreError>) {
        self.saving.is_running = false;
        let Some(serving) = &mut self.serving else { return };
        match saved {
            Ok(true) => {
                serving.window.saved();
                if self.saving.then_idle {
                    self.effects.extend(self.saving.next(Some(serving), self.saving.at_ms));
                }
            }
            Ok(false) => self.close(Close::Replaced),
            Err(error) => {
                tracing::error!(%error, "saving acks failed; retrying at the end of the session");
                serving.window.save_failed();
                self.close(Close::TryLater);
            }
        }
    }

    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    // ---- output --------------------------------------------------------------------------

    /// Why the session ends, if it does.
    pub fn closing(&self) -> Option<Close> {
        self.closing
    }

    pub fn next_message(&mut self) -> Option<Write> {
        if std::mem::take(&mut self.ping) {
            return Some(Write::Ping);
        }
        self.outbox.pop().map(Write::Text)
    }

    /// Writing a message has started.
    pub fn writing(&mut self, now_ms: u64) {
        self.writing_since_ms = Some(now_ms);
    }

    /// The message was written.
    pub fn written(&mut self, now_ms: u64) {
        self.writing_since_ms = None;
        if self.paused {
            self.note_received(now_ms, false); // its pongs are not read; a completed write is a sign of life
        }
        if let Some(serving) = self.serving.as_ref().filter(|_| self.outbox.is_empty()) {
            serving.mailbox.note_delivered(serving.window.cursor());
        }
    }

    /// Updates the gauge, and counts how often reading was paused.
    fn note_outbox(&mut self) {
        let waits = !self.later.is_empty() && self.hello.is_none();
        let (bytes, is_full) = (self.outbox.bytes(), self.outbox.is_full() || waits);
        self.outgoing.set(bytes + self.serving.as_ref().map_or(0, |serving| serving.window.bytes()));
        let meters = &self.delivery.meters;
        if bytes != self.gauged_bytes {
            let (new, old) = (i64::try_from(bytes).unwrap_or(0), i64::try_from(self.gauged_bytes).unwrap_or(0));
            meters.outbox_bytes.inc_by(new - old);
            self.gauged_bytes = bytes;
        }
        if is_full && !self.paused {
            meters.reads_paused.inc();
        }
        self.paused = is_full;
    }

    // ---- time ----------------------------------------------------------------------------

    /// When [`Session::tick`] must be called next. `now_ms` is that of the last turn: what comes due after it is not missed.
    pub fn next_tick_ms(&mut self, now_ms: u64) -> u64 {
        if let Some(serving) = &self.serving {
            if !serving.window.is_empty() || serving.window.is_probing() {
                self.tick_ms = self.tick_ms.min(now_ms + BUSY_TICK_MS);
            }
            // Nothing tells a session that the other ones of its tenant hold less.
            let waits_for_memory = self.waits_for_memory && serving.mailbox.has_rows();
            if !self.delivery.directory.is_current() || waits_for_memory {
                self.tick_ms = self.tick_ms.min(now_ms + BUSY_TICK_MS);
            }
            if serving.deliver_at_ms > now_ms {
                self.tick_ms = self.tick_ms.min(serving.deliver_at_ms);
            }
            if serving.window.is_unsaved() && self.saving.at_ms > now_ms {
                self.tick_ms = self.tick_ms.min(self.saving.at_ms);
            }
        }
        if self.leave_at_ms.is_some() {
            self.tick_ms = self.tick_ms.min(now_ms + LEAVE_TICK_MS);
        }
        if let Some(since_ms) = self.writing_since_ms {
            self.tick_ms = self.tick_ms.min((since_ms + WRITE_MS).max(now_ms + BUSY_TICK_MS));
        }
        self.tick_ms
    }

    pub fn tick(&mut self, now_ms: u64) {
        self.tick_ms = now_ms + IDLE_TICK_MS;
        if self.incoming.is_overdue(now_ms, !self.may_read()) {
            return self.unreadable("too_slow");
        }
        let Some(serving) = &mut self.serving else {
            if self.hello.is_none() && now_ms.saturating_sub(self.started_ms) >= HELLO_MS {
                self.close(Close::PolicyViolation); // no hello in time
            }
            return;
        };
        if self.writing_since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= WRITE_MS) {
            return self.close(Close::Unresponsive);
        }
        match serving.window.health(now_ms, self.outbox.is_empty(), self.ping) {
            Health::Fine => {}
            Health::Probe => self.ping = true,
            Health::Dead => {
                self.silent_ms = serving.window.silence_ms(now_ms);
                return self.close(Close::Unresponsive);
            }
        }
        let env = &*self.delivery.env;
        let since_ms = serving.window.unacked_since_ms(now_ms);
        serving.mailbox.note_unacked(since_ms.map(|since_ms| steady_ms(env, since_ms, now_ms)));
        if !self.outbox.is_full() && !serving.mailbox.is_idle() && self.delivery.directory.is_current() {
            self.ask_for_acks(now_ms);
        }
        let Some(serving) = &mut self.serving else { return };
        let settled = serving.window.settle_unacked(now_ms);
        if !settled.is_empty() {
            self.delivery.meters.rows_settled_without_ack.inc_by(settled.len() as u64);
            self.delivery.publish_rows(&self.caller, "acked", settled.iter().map(|row| &**row));
            if serving.window.acks == Acks::Never {
                self.effects.push_back(Effect::NeverAcks);
            }
        }
    }

    /// Resends or gives up rows that are unacked for long.
    fn ask_for_acks(&mut self, now_ms: u64) {
        let Some(serving) = &mut self.serving else { return };
        let overdue = serving.window.overdue(now_ms);
        let (delivery, instance) = (&self.delivery, self.caller.instance.no);
        let epoch = delivery.ledger.epoch();
        for (seq, row) in &overdue.resend {
            let id = buffer_id(epoch, instance, *seq);
            push_delivery(self.outbox.room(row.json.len() + 128), row.passthrough, &row.json, &id);
        }
        delivery.meters.frames_pushed.inc_by(overdue.resend.len() as u64);
        delivery.meters.rows_resent.inc_by(overdue.resend.len() as u64);
        if !overdue.given_up.is_empty() {
            let mailbox = serving.mailbox.clone();
            self.effects.push_back(Effect::GiveUp { rows: overdue.given_up, mailbox });
        }
    }
}

/// How many rows go into the outbox at once: at least one.
fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut used = 0;
    let fits = |size: &usize| {
        let fits = used < ROWS_MAX_BYTES;
        used += size;
        fits
    };
    sizes.take_while(fits).count()
}

/// A time of a session, whose clock begins with it, by the steady clock.
fn steady_ms(env: &dyn Env, at_ms: u64, now_ms: u64) -> u64 {
    env.steady_ms().saturating_sub(now_ms.saturating_sub(at_ms))
}
