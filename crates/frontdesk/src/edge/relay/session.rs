//! One socket of one gateway, from hello to close.
//!
//! A single task reads, writes, delivers and saves. Rows are never lost with it: what was not acked
//! goes to the next socket. It must never wait on one of these while another could go on, with one
//! exception: a peer that does not read what it was sent is not read from.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use frontdesk_core::delivery::switchboard::{Mailbox, Order, Unserved};
use frontdesk_core::delivery::window::{Acks, Health, Window};
use frontdesk_core::directory::Caller;
use frontdesk_core::meters::Why;
use frontdesk_core::port::store::StoreError;
use frontdesk_core::{buffer_id, parse_buffer_id};
use frontdesk_wire::frame::{DeskFrame, push_delivery};
use frontdesk_wire::lines::Lines;
use frontdesk_wire::{Close, GatewayFrame};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tungstenite::error::ProtocolError;

use super::actions::JOBS_MAX_BYTES;
use super::lane::Lane;
use super::later::Later;
use super::outbox::{OUTBOX_MAX_BYTES, Outbox};
use super::{CLOSE_TIME, close_message};
use crate::edge::{App, Place};

/// Bad frames in one minute before the socket is closed.
const BAD_MAX: u32 = 64;
const BAD_TIME: Duration = Duration::from_mins(1);
/// Interrupts of one socket that wait while one is looked up; more are dropped and counted.
const INTERRUPTS_MAX: usize = 16;
/// No session key of a gateway is longer.
const SESSION_KEY_MAX_BYTES: usize = 1024;
/// A message that is not written in this time ends the socket.
const WRITE_TIME: Duration = Duration::from_mins(1);
/// Looks at the clock: often while something is in flight, seldom otherwise.
const BUSY_TICK: Duration = Duration::from_secs(1);
const IDLE_TICK: Duration = Duration::from_secs(30);
/// A socket that says nothing at all must say hello in this time.
const HELLO_TIME: Duration = Duration::from_secs(30);
/// Rows that go into the outbox at once, and one more: they alone do not fill it, so acks are still read.
const ROWS_MAX_BYTES: usize = OUTBOX_MAX_BYTES / 2;
/// Messages read in one go before deliveries get their turn.
const READ_BURST: usize = 64;

type Saving = std::pin::Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

pub(super) struct Session {
    pub(super) app: App,
    pub(super) caller: Caller,
    _place: Place,
    pub(super) identities: Arc<Vec<(String, String)>>,
    pub(super) serving: Option<Serving>,
    lines: Lines,
    later: Later,
    pub(super) outbox: Outbox,
    /// What of the outbox is in the gauge.
    gauged_bytes: usize,
    /// Nothing is read from the peer until it has read.
    paused: bool,
    /// Since when a message is being written.
    writing: Option<Instant>,
    started: Instant,
    bad: (u32, Instant),
    /// Actions wait behind others of the same chat, so that they keep their order.
    pub(super) lanes: HashMap<String, Arc<Lane>>,
    /// Lanes with work that nobody has begun.
    pub(super) idle_lanes: VecDeque<String>,
    pub(super) busy_lanes: usize,
    pub(super) jobs: Arc<Semaphore>,
    /// To the task that looks up interrupts, once there was one.
    interrupts: Option<mpsc::Sender<String>>,
    ping: bool,
    pub(super) closing: Option<Close>,
}

/// What exists from the first good hello on.
pub(super) struct Serving {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) window: Window,
    pub(super) deliver_at: Instant,
    /// Rows to ask the ledger for at once: as many as fitted into the outbox last time.
    pub(super) fetch: usize,
}

/// What a session begins with. On the heap, because it waits in the upgrade and then moves through several futures,
/// each of which would keep room for it.
pub(super) struct Begin {
    pub(super) app: App,
    pub(super) caller: Caller,
    pub(super) place: Place,
}

pub(super) async fn run(begin: Box<Begin>, socket: WebSocket) {
    let (sink, stream) = socket.split();
    let now = Instant::now();
    let Begin { app, caller, place } = *begin;
    let session = Box::new(Session {
        lines: Lines::new(app.desk.rules().frame_max_bytes),
        app,
        caller,
        _place: place,
        identities: Arc::default(),
        serving: None,
        later: Later::default(),
        outbox: Outbox::default(),
        gauged_bytes: 0,
        paused: false,
        writing: None,
        started: now,
        bad: (0, now),
        lanes: HashMap::new(),
        idle_lanes: VecDeque::new(),
        busy_lanes: 0,
        jobs: Arc::new(Semaphore::new(JOBS_MAX_BYTES)),
        interrupts: None,
        ping: false,
        closing: None,
    });
    session.live(sink, stream).await;
}

impl Session {
    async fn live(mut self: Box<Self>, mut sink: SplitSink<WebSocket, Message>, mut stream: SplitStream<WebSocket>) {
        let stop = self.app.stop.clone();
        let mut tick = std::pin::pin!(sleep_until(self.started + HELLO_TIME));
        let mut saving: Option<Saving> = None;
        let mut gone = false;
        loop {
            self.take_orders();
            self.take_later().await;
            self.pump().await;
            if self.closing.is_some() {
                break;
            }
            if saving.is_none() {
                saving = self.save();
            }
            if self.writing.is_none()
                && let Some(message) = self.next_message()
            {
                if sink.feed(message).await.is_err() {
                    break;
                }
                self.writing = Some(Instant::now());
            }
            self.note_outbox();
            self.set_tick(tick.as_mut());
            let bell = self.serving.as_ref().map(|serving| serving.mailbox.clone());
            tokio::select! {
                biased;
                message = stream.next(), if !self.paused => {
                    gone = !self.take_message(message);
                    for _ in 0..READ_BURST {
                        if gone || self.closing.is_some() || !self.may_read() { break; }
                        let Some(message) = stream.next().now_or_never() else { break };
                        gone = !self.take_message(message);
                    }
                    if gone { break; }
                }
                flushed = sink.flush(), if self.writing.is_some() => {
                    self.writing = None;
                    if flushed.is_err() { break; }
                    self.note_handed();
                }
                saved = async { match saving.as_mut() { Some(saving) => saving.await, None => std::future::pending().await } } => {
                    saving = None;
                    if let Err(error) = saved {
                        tracing::error!(%error, "acks could not be saved; they will be tried again");
                        if let Some(serving) = &mut self.serving { serving.window.save_failed(); }
                        self.closing = Some(Close::TryLater);
                    }
                }
                () = async { match &bell { Some(mailbox) => mailbox.bell.notified().await, None => std::future::pending().await } } => {}
                () = tick.as_mut() => self.look_at_clock(tick.as_mut()),
                () = stop.cancelled() => self.closing = Some(Close::GoingAway),
            }
        }
        if let Some(saving) = saving {
            let _ = saving.await; // a failure shows again in the save below
        }
        self.app.desk.meters().outbox_bytes.dec_by(i64::try_from(self.gauged_bytes).unwrap_or(0));
        Box::pin(self.end(sink, stream, gone)).await;
    }

    /// Saves the last acks, lets the next socket go on, then closes politely.
    async fn end(
        mut self: Box<Self>,
        mut sink: SplitSink<WebSocket, Message>,
        mut stream: SplitStream<WebSocket>,
        gone: bool,
    ) {
        let desk = self.app.desk.clone();
        if let Some(mut serving) = self.serving.take() {
            if let Some(position) = serving.window.take_unsaved()
                && let Err(error) = desk.stores().ledger.settle(self.caller.instance.no, position).await
            {
                tracing::error!(%error, "the last acks of a socket were not saved; their rows will come again");
            }
            serving.mailbox.finish();
            self.leave_lanes(&serving.mailbox);
            let served = desk.delivery().switchboard().detach(self.caller.instance.no, &serving.mailbox);
            for order in serving.mailbox.take_orders() {
                if let Order::Result(line) = order {
                    // It came while the acks were saved: too late for this socket, in time for the next.
                    desk.delivery().switchboard().answer(self.caller.instance.no, line, desk.env().now_ms());
                }
            }
            if served {
                desk.delivery().socket_closed(&self.caller, serving.window.acks).await;
            }
        }
        if gone {
            let _ = timeout(CLOSE_TIME, sink.close()).await; // our half, if it is there to see it
            return;
        }
        let Some(close) = self.closing else { return };
        desk.meters().sockets_closed.get_or_create(&Why { why: close.reason() }).inc();
        let polite = async {
            while let Some(message) = self.outbox.pop() {
                sink.send(Message::Text(message.into())).await?;
            }
            sink.send(close_message(close)).await?;
            while let Some(Ok(_)) = stream.next().await {}
            Ok::<_, axum::Error>(())
        };
        let _ = timeout(CLOSE_TIME, polite).await; // a peer that does not answer is let go
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    // ---- reading -------------------------------------------------------------------------

    /// There is room for whatever the next message makes us say.
    fn may_read(&self) -> bool {
        self.later.is_empty() && !self.outbox.is_full()
    }

    /// False: the peer is gone.
    fn take_message(&mut self, message: Option<Result<Message, axum::Error>>) -> bool {
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_))) => {
                self.bad_frame("binary");
                return true;
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {
                self.note_heard();
                return true;
            }
            Some(Ok(Message::Close(_))) | None => return false,
            Some(Err(error)) => {
                tracing::debug!(%error, "a socket broke");
                if is_gone(error) {
                    return false;
                }
                // Over the message limit, or not a WebSocket any more: say so, it may still hear.
                self.app.desk.meters().frames_bad.get_or_create(&Why { why: "unreadable" }).inc();
                self.closing = Some(Close::PolicyViolation);
                return true;
            }
        };
        self.note_heard();
        let mut lines = std::mem::replace(&mut self.lines, Lines::new(0));
        // A hello waits for the store, and what follows it waits for the hello; everything waits for room.
        let whole = lines.push(&text, |line| {
            if self.closing.is_none() && (!self.may_read() || !self.take_frame(line)) {
                self.later.push(line);
            }
        });
        self.lines = lines;
        if whole.is_err() {
            self.app.desk.meters().frames_bad.get_or_create(&Why { why: "too_long" }).inc();
            self.closing = Some(Close::PolicyViolation);
        }
        true
    }

    /// Deals with frames that had to wait, as long as there is room for what they make us say.
    async fn take_later(&mut self) {
        while self.closing.is_none() && !self.outbox.is_full() {
            let Some(line) = self.later.next() else { return };
            if !self.take_frame(&line)
                && let Ok(GatewayFrame::Hello { platform, bot_id, ready, .. }) = GatewayFrame::parse(&line)
            {
                // Boxed: it happens once, and its room would lie idle in every socket.
                Box::pin(self.take_hello(&platform, &bot_id, ready)).await;
            }
        }
    }

    fn note_heard(&mut self) {
        let now_ms = self.now_ms();
        if let Some(serving) = &mut self.serving {
            serving.window.heard(now_ms);
        }
    }

    /// Deals with everything but a hello, for which it says false.
    fn take_frame(&mut self, line: &str) -> bool {
        match GatewayFrame::parse(line) {
            Ok(GatewayFrame::InboundAck { buffer_id }) => self.take_ack(&buffer_id),
            Ok(GatewayFrame::Outbound { request_id, action, platform, bot_id }) => {
                self.take_outbound(request_id.into_owned(), action, platform.as_deref(), bot_id.as_deref());
            }
            Ok(GatewayFrame::Hello { .. }) => return false,
            Ok(GatewayFrame::GoingIdle) => self.take_going_idle(),
            Ok(GatewayFrame::Interrupt { .. }) if self.serving.is_none() => self.bad_frame("before_hello"),
            Ok(GatewayFrame::Interrupt { session_key, .. }) if session_key.len() > SESSION_KEY_MAX_BYTES => {
                self.bad_frame("malformed");
            }
            Ok(GatewayFrame::Interrupt { session_key, .. }) => self.take_interrupt(session_key.into_owned()),
            Ok(GatewayFrame::Unknown(_)) => {}
            Err(error) => {
                tracing::debug!(%error, gateway = self.caller.gateway, "a bad frame was skipped");
                self.bad_frame("malformed");
            }
        }
        true
    }

    /// One at a time is looked up, some wait, and a flood is dropped.
    fn take_interrupt(&mut self, session_key: String) {
        let (app, caller) = (&self.app, &self.caller);
        let queue = self.interrupts.get_or_insert_with(|| {
            let (queue, mut asked) = mpsc::channel::<String>(INTERRUPTS_MAX);
            let (desk, caller) = (app.desk.clone(), caller.clone());
            app.sessions.spawn(async move {
                while let Some(key) = asked.recv().await {
                    if let Err(error) = desk.delivery().interrupt_from(&caller, &key).await {
                        tracing::error!(%error, "an interrupt could not be routed");
                    }
                }
            });
            queue
        });
        if queue.try_send(session_key).is_err() {
            self.app.desk.meters().frames_bad.get_or_create(&Why { why: "interrupt_flood" }).inc();
        }
    }

    pub(super) fn bad_frame(&mut self, why: &'static str) {
        self.app.desk.meters().frames_bad.get_or_create(&Why { why }).inc();
        if self.bad.1.elapsed() > BAD_TIME {
            self.bad = (0, Instant::now());
        }
        self.bad.0 += 1;
        if self.bad.0 >= BAD_MAX {
            self.closing = Some(Close::PolicyViolation);
        }
    }

    fn take_ack(&mut self, id: &str) {
        let desk = &self.app.desk;
        let row = parse_buffer_id(id, desk.stores().ledger.epoch(), self.caller.instance.no);
        let acked = row.and_then(|seq| self.serving.as_mut()?.window.ack(seq));
        match acked {
            Some(delivery) => {
                desk.meters().acks.inc();
                desk.delivery().say_rows(&self.caller, "acked", std::iter::once(&*delivery));
            }
            None => drop(desk.meters().acks_unknown.inc()),
        }
    }

    fn take_going_idle(&mut self) {
        let Some(serving) = &self.serving else { return };
        if serving.mailbox.go_idle() {
            self.app.desk.delivery().switchboard().note_unserved(self.caller.instance.no, Unserved::NewMail);
        }
        let (desk, caller, mailbox) = (self.app.desk.clone(), self.caller.clone(), serving.mailbox.clone());
        self.app.sessions.spawn(async move {
            match desk.delivery().going_idle(&caller).await {
                Ok(()) => drop(mailbox.order(Order::Line(DeskFrame::GoingIdleAck.line()))),
                // No ack: the flip is not durable, and the client closes anyway.
                Err(error) => tracing::error!(%error, "going idle could not be written down"),
            }
        });
    }

    // ---- writing -------------------------------------------------------------------------

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
                Order::LaneDone(lane) => self.lane_done(&lane),
            }
        }
    }

    /// Moves rows from the mailbox (or, after a gap, from the ledger) into the outbox, as the window allows.
    async fn pump(&mut self) {
        let Some(serving) = self.serving.as_mut().filter(|_| self.closing.is_none()) else { return };
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let room = serving.window.room(now_ms);
        if room == 0 || serving.mailbox.is_idle() || !self.outbox.is_empty() || Instant::now() < serving.deliver_at {
            return;
        }
        let desk = &self.app.desk;
        let (instance, cursor) = (self.caller.instance.no, serving.window.cursor());
        let rows = if let Some(rows) = serving.mailbox.take_rows(cursor, room, ROWS_MAX_BYTES) {
            rows
        } else {
            serving.mailbox.close_gap();
            let asked = room.min(serving.fetch);
            match desk.stores().ledger.pending(instance, cursor, asked).await {
                Ok(mut rows) => {
                    let fit = fitting(rows.iter().map(|(_, delivery)| delivery.json.len()));
                    if rows.len() == asked || fit < rows.len() {
                        serving.mailbox.open_gap(); // there may be more than fits: ask again
                    }
                    serving.fetch = if fit < rows.len() { fit } else { (asked * 2).min(desk.rules().window.max(1)) };
                    rows.truncate(fit);
                    rows
                }
                Err(error) => {
                    tracing::error!(%error, "the ledger could not be read");
                    self.closing = Some(Close::TryLater);
                    return;
                }
            }
        };
        if rows.is_empty() {
            return;
        }
        let epoch = desk.stores().ledger.epoch();
        let mut pushed = 0;
        for (seq, delivery) in &rows {
            if serving.window.settled(*seq) {
                serving.window.skip(*seq);
                continue;
            }
            let id = buffer_id(epoch, instance, *seq);
            push_delivery(self.outbox.room(delivery.json.len() + 128), delivery.passthrough, &delivery.json, &id);
            serving.window.sent(*seq, delivery.clone(), now_ms);
            pushed += 1;
        }
        desk.meters().frames_pushed.inc_by(pushed);
        let wall_ms = desk.env().now_ms();
        serving.mailbox.note_traffic(wall_ms);
        desk.delivery().switchboard().remember_turns(instance, rows.iter().map(|(_, delivery)| &**delivery), wall_ms);
        desk.delivery().say_rows(&self.caller, "sent", rows.iter().map(|(_, delivery)| &**delivery));
    }

    /// A message is in the socket.
    fn note_handed(&mut self) {
        if self.paused {
            self.note_heard(); // its pongs are not read; that it takes what is written shows that it lives
        }
        if let Some(serving) = self.serving.as_ref().filter(|_| self.outbox.is_empty()) {
            serving.mailbox.handed.hand(serving.window.cursor());
        }
    }

    /// Decides whether the peer is read from, and keeps the gauge.
    fn note_outbox(&mut self) {
        let (bytes, may_read) = (self.outbox.bytes(), self.may_read());
        let meters = &self.app.desk.meters();
        if bytes != self.gauged_bytes {
            let (new, old) = (i64::try_from(bytes).unwrap_or(0), i64::try_from(self.gauged_bytes).unwrap_or(0));
            meters.outbox_bytes.inc_by(new - old);
            self.gauged_bytes = bytes;
        }
        if !may_read && !self.paused {
            meters.reads_paused.inc();
        }
        self.paused = !may_read;
    }

    fn next_message(&mut self) -> Option<Message> {
        if std::mem::take(&mut self.ping) {
            return Some(Message::Ping(axum::body::Bytes::new()));
        }
        self.outbox.pop().map(|text| Message::Text(text.into()))
    }

    fn save(&mut self) -> Option<Saving> {
        let position = self.serving.as_mut()?.window.take_unsaved()?;
        let (store, instance) = (self.app.desk.delivery().ledger().clone(), self.caller.instance.no);
        Some(Box::pin(async move { store.settle(instance, position).await }))
    }

    // ---- time ----------------------------------------------------------------------------

    /// Makes the timer fire early enough for whatever waits.
    fn set_tick(&self, tick: std::pin::Pin<&mut Sleep>) {
        let Some(serving) = &self.serving else { return };
        let now = Instant::now();
        let mut wanted = tick.deadline();
        if !serving.window.is_empty() || serving.window.is_probing() {
            wanted = wanted.min(now + BUSY_TICK);
        }
        if serving.deliver_at > now {
            wanted = wanted.min(serving.deliver_at);
        }
        if let Some(since) = self.writing {
            wanted = wanted.min((since + WRITE_TIME).max(now + BUSY_TICK));
        }
        if wanted < tick.deadline() {
            tick.reset(wanted);
        }
    }

    fn look_at_clock(&mut self, tick: std::pin::Pin<&mut Sleep>) {
        tick.reset(Instant::now() + IDLE_TICK);
        let now_ms = self.now_ms();
        let Some(serving) = &mut self.serving else {
            self.closing = Some(Close::PolicyViolation); // no hello in time
            return;
        };
        if self.writing.is_some_and(|since| since.elapsed() >= WRITE_TIME) {
            self.closing = Some(Close::Unresponsive);
            return;
        }
        match serving.window.health(now_ms) {
            Health::Fine => {}
            Health::Probe => self.ping = true,
            Health::Dead => {
                self.closing = Some(Close::Unresponsive);
                return;
            }
        }
        if !self.outbox.is_full() && !serving.mailbox.is_idle() {
            self.ask_for_acks(now_ms);
        }
        let Some(serving) = &mut self.serving else { return };
        let settled = serving.window.settle_unacked(now_ms);
        if !settled.is_empty() {
            let desk = &self.app.desk;
            desk.meters().rows_settled_without_ack.inc_by(settled.len() as u64);
            desk.delivery().say_rows(&self.caller, "acked", settled.iter().map(|delivery| &**delivery));
            if serving.window.acks == Acks::Never {
                let (desk, caller) = (desk.clone(), self.caller.clone());
                self.app.sessions.spawn(async move { desk.delivery().note_never_acks(&caller).await });
            }
        }
    }

    /// Rows whose ack stays away although later ones were acked: sent again, or given up.
    fn ask_for_acks(&mut self, now_ms: u64) {
        let Some(serving) = &mut self.serving else { return };
        let overdue = serving.window.overdue(now_ms);
        let (desk, instance) = (&self.app.desk, self.caller.instance.no);
        let epoch = desk.stores().ledger.epoch();
        for (seq, delivery) in &overdue.resend {
            let id = buffer_id(epoch, instance, *seq);
            push_delivery(self.outbox.room(delivery.json.len() + 128), delivery.passthrough, &delivery.json, &id);
        }
        desk.meters().frames_pushed.inc_by(overdue.resend.len() as u64);
        desk.meters().rows_resent.inc_by(overdue.resend.len() as u64);
        if !overdue.given_up.is_empty() {
            let (desk, caller) = (desk.clone(), self.caller.clone());
            self.app.sessions.spawn(async move { desk.delivery().give_up_rows(&caller, &overdue.given_up).await });
        }
    }
}

/// How many of these go into the outbox at once: at least one.
fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut used = 0;
    let fits = |size: &usize| {
        let fits = used < ROWS_MAX_BYTES;
        used += size;
        fits
    };
    sizes.take_while(fits).count()
}

/// Whether the peer hung up or vanished. Everything else is something that it said and must not.
fn is_gone(error: axum::Error) -> bool {
    use tungstenite::Error;
    let error = error.into_inner().downcast::<Error>();
    error.is_ok_and(|error| match *error {
        Error::ConnectionClosed | Error::AlreadyClosed | Error::Io(_) => true,
        Error::Protocol(why) => why == ProtocolError::ResetWithoutClosingHandshake,
        _ => false,
    })
}
