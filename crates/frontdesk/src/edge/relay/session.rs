//! One socket of one gateway, from hello to close.
//!
//! A single task reads, writes, delivers and saves. Rows are never lost with it: what was not acked
//! goes to the next socket. It must never wait on one of these while another could go on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use frontdesk_core::desk::{Caller, buffer_id, parse_buffer_id};
use frontdesk_core::meters::Why;
use frontdesk_core::port::store::StoreError;
use frontdesk_core::switchboard::{Mailbox, Order};
use frontdesk_core::window::{Acks, Health, Window};
use frontdesk_wire::descriptor::{CONTRACT_VERSION, LenUnit};
use frontdesk_wire::frame::{DeskFrame, push_delivery};
use frontdesk_wire::lines::Lines;
use frontdesk_wire::{Action, ActionResult, Close, Code, Descriptor, GatewayFrame};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::lane::{Job, Lane, lane_of};
use super::outbox::Outbox;
use super::{CLOSE_TIME, close_message};
use crate::edge::App;

/// Bad frames in one minute before the socket is closed.
const BAD_MAX: u32 = 64;
const BAD_TIME: Duration = Duration::from_mins(1);
/// Actions of one socket under way at once; more are refused with `rate_limited`.
const ACTIONS_MAX: usize = 64;
/// Identities one socket may front.
const IDENTITIES_MAX: usize = 64;
/// Looks at the clock: often while something is in flight, seldom otherwise.
const BUSY_TICK: Duration = Duration::from_secs(1);
const IDLE_TICK: Duration = Duration::from_secs(30);
/// A socket that says nothing at all must say hello in this time.
const HELLO_TIME: Duration = Duration::from_secs(30);
/// The replaced socket saves its last acks before its successor reads them.
const PREDECESSOR_TIME: Duration = Duration::from_secs(3);
/// Messages read in one go before deliveries get their turn.
const READ_BURST: usize = 64;

type Saving = std::pin::Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

struct Session {
    app: App,
    caller: Caller,
    identities: Vec<(String, String)>,
    serving: Option<Serving>,
    lines: Lines,
    outbox: Outbox,
    started: Instant,
    bad: (u32, Instant),
    /// Actions wait behind others of the same chat, so that they keep their order.
    lanes: HashMap<String, Arc<Lane>>,
    actions: usize,
    ping: bool,
    closing: Option<Close>,
}

/// What exists from the first good hello on.
struct Serving {
    mailbox: Arc<Mailbox>,
    window: Window,
    deliver_at: Instant,
}

pub(super) async fn run(app: App, caller: Caller, socket: WebSocket) {
    let (sink, stream) = socket.split();
    let now = Instant::now();
    let session = Session {
        lines: Lines::new(app.desk.rules.frame_max_bytes),
        app,
        caller,
        identities: Vec::new(),
        serving: None,
        outbox: Outbox::default(),
        started: now,
        bad: (0, now),
        lanes: HashMap::new(),
        actions: 0,
        ping: false,
        closing: None,
    };
    session.live(sink, stream).await;
}

impl Session {
    async fn live(mut self, mut sink: SplitSink<WebSocket, Message>, mut stream: SplitStream<WebSocket>) {
        let stop = self.app.stop.clone();
        let mut tick = std::pin::pin!(sleep_until(self.started + HELLO_TIME));
        let mut saving: Option<Saving> = None;
        let mut flushing = false;
        let mut gone = false;
        loop {
            self.take_orders();
            self.pump().await;
            if self.closing.is_some() {
                break;
            }
            if saving.is_none() {
                saving = self.save();
            }
            if !flushing {
                flushing = match self.next_message() {
                    Some(message) => match sink.feed(message).await {
                        Ok(()) => true,
                        Err(_) => break,
                    },
                    None => false,
                };
            }
            self.set_tick(tick.as_mut());
            let bell = self.serving.as_ref().map(|serving| serving.mailbox.clone());
            tokio::select! {
                biased;
                message = stream.next() => {
                    gone = !self.take_message(message).await;
                    for _ in 0..READ_BURST {
                        if gone || self.closing.is_some() { break; }
                        let Some(message) = stream.next().now_or_never() else { break };
                        gone = !self.take_message(message).await;
                    }
                    if gone { break; }
                }
                flushed = sink.flush(), if flushing => {
                    flushing = false;
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
        Box::pin(self.end(sink, stream, gone)).await;
    }

    /// Saves the last acks, lets the next socket go on, then closes politely.
    async fn end(mut self, mut sink: SplitSink<WebSocket, Message>, mut stream: SplitStream<WebSocket>, gone: bool) {
        let desk = self.app.desk.clone();
        if let Some(mut serving) = self.serving.take() {
            if let Some(position) = serving.window.take_unsaved()
                && let Err(error) = desk.store.settle(self.caller.instance.no, position).await
            {
                tracing::error!(%error, "the last acks of a socket were not saved; their rows will come again");
            }
            serving.mailbox.finish();
            let served = desk.switchboard.detach(self.caller.instance.no, &serving.mailbox);
            for order in serving.mailbox.take_orders() {
                if let Order::Result(line) = order {
                    // It came while the acks were saved: too late for this socket, in time for the next.
                    desk.switchboard.answer(self.caller.instance.no, line, desk.env.now_ms());
                }
            }
            if served {
                desk.socket_closed(&self.caller, serving.window.acks).await;
            }
        }
        if gone {
            let _ = timeout(CLOSE_TIME, sink.close()).await; // our half, if it is there to see it
            return;
        }
        let Some(close) = self.closing else { return };
        desk.meters.sockets_closed.get_or_create(&Why { why: close.reason() }).inc();
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

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    // ---- reading -------------------------------------------------------------------------

    /// False: the peer is gone.
    async fn take_message(&mut self, message: Option<Result<Message, axum::Error>>) -> bool {
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_))) => {
                self.bad_frame("binary");
                return true;
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {
                let now_ms = self.now_ms();
                if let Some(serving) = &mut self.serving {
                    serving.window.heard(now_ms);
                }
                return true;
            }
            Some(Ok(Message::Close(_))) | None => return false,
            Some(Err(error)) => {
                // Over the message limit (or not a WebSocket any more): say so if it can still hear.
                tracing::debug!(%error, "a socket broke");
                self.app.desk.meters.frames_bad.get_or_create(&Why { why: "unreadable" }).inc();
                self.closing = Some(Close::PolicyViolation);
                return true;
            }
        };
        let now_ms = self.now_ms();
        if let Some(serving) = &mut self.serving {
            serving.window.heard(now_ms);
        }
        let mut lines = std::mem::replace(&mut self.lines, Lines::new(0));
        // A hello waits for the store, and what follows it waits for the hello.
        let mut later: Vec<String> = Vec::new();
        let whole = lines.push(&text, |line| {
            if !later.is_empty() || !self.take_frame(line) {
                later.push(line.to_owned());
            }
        });
        self.lines = lines;
        if whole.is_err() {
            self.app.desk.meters.frames_bad.get_or_create(&Why { why: "too_long" }).inc();
            self.closing = Some(Close::PolicyViolation);
        }
        for line in later {
            if !self.take_frame(&line)
                && let Ok(GatewayFrame::Hello { platform, bot_id, .. }) = GatewayFrame::parse(&line)
            {
                // Boxed: it happens once, and its room would lie idle in every socket.
                Box::pin(self.take_hello(&platform, &bot_id)).await;
            }
        }
        true
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
            Ok(GatewayFrame::Interrupt { session_key, .. }) => {
                let (desk, caller, key) = (self.app.desk.clone(), self.caller.clone(), session_key.into_owned());
                self.app.sessions.spawn(async move {
                    if let Err(error) = desk.interrupt_from(&caller, &key).await {
                        tracing::error!(%error, "an interrupt could not be routed");
                    }
                });
            }
            Ok(GatewayFrame::Unknown(_)) => {}
            Err(error) => {
                tracing::debug!(%error, gateway = self.caller.gateway, "a bad frame was skipped");
                self.bad_frame("malformed");
            }
        }
        true
    }

    fn bad_frame(&mut self, why: &'static str) {
        self.app.desk.meters.frames_bad.get_or_create(&Why { why }).inc();
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
        let row = parse_buffer_id(id, desk.store.epoch(), self.caller.instance.no);
        let acked = row.and_then(|seq| self.serving.as_mut()?.window.ack(seq));
        match acked {
            Some(delivery) => {
                desk.meters.acks.inc();
                desk.say_rows(&self.caller, "acked", std::iter::once(&*delivery));
            }
            None => drop(desk.meters.acks_unknown.inc()),
        }
    }

    fn take_going_idle(&mut self) {
        let Some(serving) = &self.serving else { return };
        if serving.mailbox.go_idle() {
            self.app.desk.switchboard.note_unserved(self.caller.instance.no);
        }
        let (desk, caller, mailbox) = (self.app.desk.clone(), self.caller.clone(), serving.mailbox.clone());
        self.app.sessions.spawn(async move {
            match desk.going_idle(&caller).await {
                Ok(()) => drop(mailbox.order(Order::Line(DeskFrame::GoingIdleAck.line()))),
                // No ack: the flip is not durable, and the client closes anyway.
                Err(error) => tracing::error!(%error, "going idle could not be written down"),
            }
        });
    }

    // ---- hello ---------------------------------------------------------------------------

    async fn take_hello(&mut self, platform: &str, bot: &str) {
        let Some(bot) = self.app.desk.resolve_bot(&self.caller.tenant, platform, bot) else {
            self.closing = Some(Close::ForeignPlatform);
            return;
        };
        if self.identities.len() >= IDENTITIES_MAX {
            return self.bad_frame("too_many_hellos");
        }
        if self.serving.is_none() {
            if self.app.desk.disproof(&self.caller).is_none() {
                match self.begin_serving().await {
                    Ok(serving) => self.serving = Some(serving),
                    Err(error) => {
                        tracing::error!(%error, "a session could not begin");
                        self.closing = Some(Close::TryLater);
                        return;
                    }
                }
            }
            // A revoke closes the sockets that it finds; this one was not among them until now.
            if let Some(why) = self.app.desk.disproof(&self.caller) {
                self.closing = Some(why);
                return;
            }
        }
        let identity = (platform.to_owned(), bot);
        if !self.identities.contains(&identity) {
            self.identities.push(identity);
        }
        let descriptor = match self.app.desk.platform(platform) {
            Some(found) => found.descriptor().clone(),
            None => bare_descriptor(platform),
        };
        self.outbox.push(&DeskFrame::Descriptor { descriptor }.line());
    }

    async fn begin_serving(&mut self) -> Result<Serving, StoreError> {
        let desk = &self.app.desk;
        let instance = self.caller.instance.no;
        let settle = Duration::from_millis(desk.settle_time_ms(instance));
        let (mailbox, old) = desk.switchboard.attach(instance, &self.caller.gateway, &self.caller.tenant);
        if let Some(old) = old {
            // Its last acks must be in the ledger before we read what is owed.
            let _ = timeout(PREDECESSOR_TIME, old.finished()).await;
        }
        let begun = async {
            desk.socket_opened(&self.caller).await?;
            desk.store.position(instance).await
        };
        let position = match begun.await {
            Ok(position) => position,
            Err(error) => {
                mailbox.finish();
                if desk.switchboard.detach(instance, &mailbox) {
                    desk.switchboard.note_unserved(instance); // mail may have come in that moment
                }
                return Err(error);
            }
        };
        let now_ms = self.now_ms();
        let window =
            Window::new(desk.rules.window, desk.rules.ack_limit_ms, position, desk.switchboard.acks(instance), now_ms);
        for line in desk.switchboard.take_parked(instance, desk.env.now_ms()) {
            mailbox.order(Order::Result(line));
        }
        Ok(Serving { mailbox, window, deliver_at: Instant::now() + settle })
    }

    // ---- actions -------------------------------------------------------------------------

    fn take_outbound(&mut self, request_id: String, raw: &str, platform: Option<&str>, bot: Option<&str>) {
        let job = match self.read_job(&request_id, raw, platform, bot) {
            Ok(job) => job,
            Err(refusal) => return self.answer(request_id, *refusal),
        };
        if let Some(serving) = &mut self.serving {
            serving.mailbox.note_traffic(self.app.desk.env.now_ms());
            match &job.action.act {
                frontdesk_wire::Act::FollowUp { session_key, .. } => serving.window.followed_up(session_key),
                act => serving.window.answered(act.chat_id().unwrap_or_default()),
            }
        }
        let name = lane_of(&job.action);
        let lane = self.lanes.entry(name.clone()).or_default().clone();
        if lane.push(job) {
            self.work(name, lane);
        }
    }

    fn read_job(
        &mut self,
        request_id: &str,
        raw: &str,
        platform: Option<&str>,
        bot: Option<&str>,
    ) -> Result<Job, Box<ActionResult>> {
        let refuse = |code, text: &str| Err(Box::new(ActionResult::refused(code, text)));
        let named = |(known, id): &&(String, String)| {
            platform.is_none_or(|asked| asked == known) && bot.is_none_or(|asked| asked.is_empty() || asked == id)
        };
        let Some(identity) = self.identities.iter().find(named).cloned() else {
            return refuse(Code::UnknownIdentity, "this socket said no hello for that platform and bot");
        };
        let action = Action::parse(raw).map_err(|error| {
            let code = match error {
                frontdesk_wire::action::ActionError::UnknownOp(_) => Code::UnsupportedOp,
                _ => Code::BadRequest,
            };
            Box::new(ActionResult::refused(code, error.to_string()))
        })?;
        if self.actions >= ACTIONS_MAX {
            return refuse(Code::RateLimited, "too many actions are under way on this socket; wait for some results");
        }
        self.actions += 1;
        Ok(Job { request_id: request_id.to_owned(), identity, identities: self.identities.clone(), action })
    }

    fn work(&self, name: String, lane: Arc<Lane>) {
        let Some(serving) = &self.serving else { return };
        let (desk, caller, mailbox) = (self.app.desk.clone(), self.caller.clone(), serving.mailbox.clone());
        self.app.sessions.spawn(async move {
            while let Some(Job { request_id, identity: (platform, bot), identities, action }) = lane.next() {
                let result = desk.act(&caller, (&platform, &bot), &identities, action).await;
                let line = DeskFrame::OutboundResult { request_id, result }.line();
                if !mailbox.order(Order::Result(line.clone())) {
                    desk.switchboard.answer(caller.instance.no, line, desk.env.now_ms());
                }
                mailbox.order(Order::ActionDone(name.clone()));
            }
        });
    }

    fn answer(&mut self, request_id: String, result: ActionResult) {
        self.outbox.push(&DeskFrame::OutboundResult { request_id, result }.line());
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
                Order::ActionDone(lane) => {
                    self.actions = self.actions.saturating_sub(1);
                    if self.lanes.get(&lane).is_some_and(|lane| lane.is_free()) {
                        self.lanes.remove(&lane);
                    }
                }
            }
        }
    }

    /// Moves rows from the mailbox (or, after a gap, from the ledger) into the outbox, as the window allows.
    async fn pump(&mut self) {
        let Some(serving) = self.serving.as_mut().filter(|_| self.closing.is_none()) else { return };
        let room = serving.window.room();
        if room == 0 || serving.mailbox.is_idle() || !self.outbox.is_empty() || Instant::now() < serving.deliver_at {
            return;
        }
        let desk = &self.app.desk;
        let (instance, cursor) = (self.caller.instance.no, serving.window.cursor());
        let rows = if let Some(rows) = serving.mailbox.take_rows(cursor, room) {
            rows
        } else {
            serving.mailbox.close_gap();
            match desk.store.pending(instance, cursor, room).await {
                Ok(rows) => {
                    if rows.len() == room {
                        serving.mailbox.open_gap(); // there may be more than fits: ask again
                    }
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
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let epoch = desk.store.epoch();
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
        desk.meters.frames_pushed.inc_by(pushed);
        let wall_ms = desk.env.now_ms();
        serving.mailbox.note_traffic(wall_ms);
        desk.switchboard.remember_turns(instance, rows.iter().map(|(_, delivery)| &**delivery), wall_ms);
        desk.say_rows(&self.caller, "sent", rows.iter().map(|(_, delivery)| &**delivery));
    }

    /// Everything that was pushed is in the socket.
    fn note_handed(&self) {
        if let Some(serving) = self.serving.as_ref().filter(|_| self.outbox.is_empty()) {
            serving.mailbox.handed.hand(serving.window.cursor());
        }
    }

    fn next_message(&mut self) -> Option<Message> {
        if std::mem::take(&mut self.ping) {
            return Some(Message::Ping(axum::body::Bytes::new()));
        }
        self.outbox.pop().map(|text| Message::Text(text.into()))
    }

    fn save(&mut self) -> Option<Saving> {
        let position = self.serving.as_mut()?.window.take_unsaved()?;
        let (store, instance) = (self.app.desk.store.clone(), self.caller.instance.no);
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
        match serving.window.health(now_ms) {
            Health::Fine => {}
            Health::Probe => self.ping = true,
            Health::Dead => {
                self.closing = Some(Close::Unresponsive);
                return;
            }
        }
        let settled = serving.window.settle_unacked(now_ms);
        if !settled.is_empty() {
            let desk = &self.app.desk;
            desk.meters.rows_settled_without_ack.inc_by(settled.len() as u64);
            desk.say_rows(&self.caller, "acked", settled.iter().map(|delivery| &**delivery));
            if serving.window.acks == Acks::Never {
                desk.switchboard.remember_acks(self.caller.instance.no, Acks::Never);
            }
        }
    }
}

/// For a bot whose platform this desk does not run: complete, and honest about doing nothing.
fn bare_descriptor(platform: &str) -> Descriptor {
    Descriptor {
        contract_version: CONTRACT_VERSION,
        platform: platform.into(),
        label: platform.into(),
        max_message_length: 4096,
        supports_draft_streaming: false,
        supports_edit: false,
        supports_threads: false,
        markdown_dialect: "plain".into(),
        len_unit: LenUnit::Chars,
        emoji: "🔌".into(),
        platform_hint: String::new(),
        pii_safe: false,
        supports_context: false,
        supports_inchannel_continuable: false,
        supports_block_formatting: false,
        supported_ops: Vec::new(),
    }
}
