//! The socket of a robot: messages in, actions out.
//!
//! `WeCom` does not repeat what it has reported, and has no acknowledgements. So a message is held until it is stored, also if the
//! socket ends before. Meanwhile the socket is still read, up to a limit, and its pings go out.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::DeskError;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Dial, Socket, SocketMessage};
use frontdesk_core::port::platform::{Bot, Gap, Inlet, ListenEnd};
use frontdesk_wire::{Code, Source};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::frame::{EVENT, Frame, PING, SUBSCRIBE, written};
use super::link::{Outbox, Request};
use super::normalize::intake_of;
use super::replies::Came;
use super::{Robot, own_base, socket_url};
use crate::wecom::errors::{code_of, error_text};

/// A frame with the longest message.
const MESSAGE_MAX_BYTES: usize = 1 << 20;
const GREETING_LIMIT: Duration = Duration::from_secs(15);
const PING_EVERY: Duration = Duration::from_secs(30);
/// Two pings were not answered, and nothing else came.
const SILENCE_MAX: Duration = Duration::from_secs(75);
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Between attempts to store a message.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// For one attempt to store a message while no socket is open, and to save the time.
const STORE_LIMIT: Duration = Duration::from_secs(5);
/// Files of one robot that are being fetched, to be kept.
const HOLDING_MAX: usize = 2;
/// Another client has opened a socket of the robot. Two that open it in turn would both lose messages.
const TAKEN_OVER_PAUSE: Duration = Duration::from_mins(1);
const CURSOR_EVERY: Duration = Duration::from_mins(1);
/// Shorter absences are not reported as a gap.
const ABSENCE_MIN_MS: u64 = 5_000;

/// Numbers that mean the credentials, and not the moment.
const CREDENTIALS: [i64; 6] = [40_001, 40_013, 40_014, 41_001, 41_004, 853_000];

/// Why a socket ended.
enum End {
    Lost(String),
    TakenOver,
}

/// A listener. One that is stopped may be the last: the server stops, the bot is removed, or another server listens.
struct Listening<'a> {
    robot: &'a Robot,
    bot: &'a Bot,
    inlet: &'a dyn Inlet,
    /// It is started again.
    is_over: bool,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let now_ms = self.robot.env.now_ms();
        let Some(left) = self.robot.backlog.leave(self.bot, now_ms) else { return };
        tracing::warn!(
            bot = self.bot.id.as_str(),
            messages = left.count,
            "a listener ended before its messages were stored"
        );
        if !self.is_over {
            let reason = format!(
                "the listener was stopped before {} messages were stored; they are lost unless this server listens to the \
                 robot again within an hour",
                left.count
            );
            self.inlet.gap(Gap { since_ms: left.since_ms, until_ms: now_ms, reason });
        }
    }
}

impl Robot {
    pub(super) async fn keep_socket(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> ListenEnd {
        self.backlog.begin(bot, self.env.now_ms());
        let mut listening = Listening { robot: self, bot, inlet, is_over: false };
        let ended = self.keep_one(bot, cursor, inlet).await;
        listening.is_over = true;
        ended
    }

    async fn keep_one(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> ListenEnd {
        self.store_left(bot, inlet).await;
        let opened = match self.backlog.is_full(bot) {
            true => Err(ListenEnd::Lost("received messages could not be stored, and the buffer is full".into())),
            false => self.dial(bot).await,
        };
        let mut socket = match opened {
            Ok(socket) => socket,
            Err(ended) => {
                if let ListenEnd::Lost(why) | ListenEnd::Misconfigured(why) = &ended {
                    self.note_end(bot, why);
                }
                return ended;
            }
        };
        self.note_gap(bot, cursor, inlet);
        self.backlog.note_received(bot, self.env.now_ms());
        self.save_time(bot, inlet).await;
        let (open, requests) = self.links.open(&bot.id);
        tracing::info!(bot = bot.id.as_str(), "the socket of WeCom was opened");
        let mut outbox = Outbox::default();
        let end = self.converse(bot, inlet, &mut *socket, requests, &mut outbox).await;
        drop(open);
        let why = match &end {
            End::Lost(why) => why.clone(),
            End::TakenOver => {
                "another program or server opened a connection as this robot, which ended this one; a robot has \
                               only one"
                    .to_owned()
            }
        };
        outbox.lose(&why);
        self.note_end(bot, &why);
        self.store_left(bot, inlet).await;
        self.save_time(bot, inlet).await;
        if let End::TakenOver = end {
            tokio::time::sleep(TAKEN_OVER_PAUSE).await;
        }
        ListenEnd::Lost(why)
    }

    /// A socket that the vendor has accepted.
    async fn dial(&self, bot: &Bot) -> Result<Box<dyn Socket>, ListenEnd> {
        let (Some(bot_id), Some(secret)) = (bot.setting("bot_id"), bot.secret("secret")) else {
            return Err(ListenEnd::Misconfigured("the bot has no bot_id or secret".into()));
        };
        let trusted = own_base(bot);
        let dial = Dial { url: socket_url(bot), trusted: trusted.as_deref(), max_bytes: MESSAGE_MAX_BYTES };
        let opened = timeout(GREETING_LIMIT, self.outcall.socket(dial)).await;
        let mut socket = match opened {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return Err(ListenEnd::Lost(format!("the socket was not opened: {error}"))),
            Err(_) => return Err(ListenEnd::Lost("the socket was not opened in time".into())),
        };
        let req_id = self.new_req_id(SUBSCRIBE);
        let hello = written(SUBSCRIBE, &req_id, &json!({ "bot_id": bot_id, "secret": secret.expose() }));
        match timeout(GREETING_LIMIT, self.subscribe(bot, &mut *socket, hello, &req_id)).await {
            Ok(Ok(Frame { errcode: Some(0), .. })) => Ok(socket),
            Ok(Ok(Frame { errcode: Some(errcode), errmsg, .. })) => {
                let why = error_text(errcode, &errmsg.replace(secret.expose(), "***"));
                let remedy = match code_of(errcode) {
                    Code::Unavailable | Code::RateLimited => "this server tries again by itself",
                    _ => "check bot_id and secret, and repeat `bot add`",
                };
                let text = format!("WeCom did not accept the robot: {why}; {remedy}");
                Err(if CREDENTIALS.contains(&errcode) { ListenEnd::Misconfigured(text) } else { ListenEnd::Lost(text) })
            }
            Ok(Ok(_)) => Err(ListenEnd::Lost("WeCom did not say whether it accepts the robot".into())),
            Ok(Err(why)) => Err(ListenEnd::Lost(why)),
            Err(_) => Err(ListenEnd::Lost("WeCom did not answer to the robot in time".into())),
        }
    }

    async fn subscribe(
        &self,
        bot: &Bot,
        socket: &mut dyn Socket,
        hello: String,
        req_id: &str,
    ) -> Result<Frame, String> {
        socket.send(SocketMessage::Text(hello)).await?;
        loop {
            let SocketMessage::Text(text) = socket.next().await? else { continue };
            let Some(frame) = Frame::read(&text) else { continue };
            match frame.is_of_vendor() {
                false if frame.req_id == req_id => return Ok(frame),
                true if self.backlog.is_full(bot) => return Err("too many messages came before the answer".into()),
                // Messages may come before the answer.
                true => self.backlog.push(bot, frame, text.len(), self.env.now_ms()),
                false => {}
            }
        }
    }

    /// What was written while no socket was open is not reported. The cursor may be older than the end of the last socket.
    fn note_gap(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) {
        let now_ms = self.env.now_ms();
        let cursor = cursor.and_then(|cursor| cursor.parse::<u64>().ok());
        if let Some(since_ms) = cursor.map(|cursor| cursor.max(self.backlog.last_received_ms(bot)))
            && now_ms.saturating_sub(since_ms) > ABSENCE_MIN_MS
        {
            let reason = "no socket of the robot was open; WeCom does not repeat what was written meanwhile".to_owned();
            inlet.gap(Gap { since_ms, until_ms: now_ms, reason });
        }
    }

    async fn save_time(&self, bot: &Bot, inlet: &dyn Inlet) {
        let saving = inlet.save_cursor(self.backlog.stored_until_ms(bot).to_string());
        match timeout(STORE_LIMIT, saving).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, bot = bot.id.as_str(), "saving the cursor failed"),
            Err(_) => tracing::warn!(bot = bot.id.as_str(), "saving the cursor took too long"),
        }
    }

    async fn converse(
        &self,
        bot: &Bot,
        inlet: &dyn Inlet,
        socket: &mut dyn Socket,
        mut requests: mpsc::Receiver<Request>,
        outbox: &mut Outbox,
    ) -> End {
        let mut storing: Option<BoxFuture<'_, Vec<String>>> = None;
        let mut holding: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let (mut received_at, mut ping_at, mut cursor_at) =
            (Instant::now(), Instant::now() + PING_EVERY, Instant::now() + CURSOR_EVERY);
        loop {
            if storing.is_none()
                && let Some(frame) = self.backlog.first(bot)
            {
                storing = Some(Box::pin(self.store(bot, inlet, frame)));
            }
            while holding.len() < HOLDING_MAX
                && let Some(link) = self.backlog.next_file(bot)
            {
                holding.push(Box::pin(self.hold(bot, link)));
            }
            let has_room = !self.backlog.is_full(bot);
            let next = tokio::select! {
                message = socket.next(), if has_room => Next::Message(message),
                Some(request) = requests.recv() => Next::Request(request),
                files = stored(&mut storing), if storing.is_some() => Next::Stored(files),
                Some(()) = holding.next(), if !holding.is_empty() => continue,
                () = tokio::time::sleep_until(ping_at.min(cursor_at)) => Next::Tick,
            };
            let text = match next {
                Next::Message(Err(why)) => return End::Lost(why),
                Next::Message(Ok(message)) => {
                    received_at = Instant::now();
                    self.backlog.note_received(bot, self.env.now_ms());
                    let SocketMessage::Text(text) = message else { continue };
                    let Some(frame) = Frame::read(&text) else { continue };
                    if is_last_frame(&frame) {
                        return End::TakenOver;
                    }
                    match frame.is_of_vendor() {
                        true => {
                            self.backlog.push(bot, frame, text.len(), self.env.now_ms());
                            None
                        }
                        false => outbox.answered(frame),
                    }
                }
                Next::Request(request) => outbox.push(request),
                Next::Stored(files) => {
                    storing = None;
                    self.backlog.stored(bot, files);
                    None
                }
                Next::Tick => {
                    let now = Instant::now();
                    if now >= cursor_at {
                        cursor_at = now + CURSOR_EVERY;
                        self.save_time(bot, inlet).await;
                    }
                    if now < ping_at {
                        continue;
                    }
                    // While messages wait to be stored, the socket is not read.
                    if now - received_at > SILENCE_MAX && has_room {
                        return End::Lost("the socket was silent: no ping was answered".into());
                    }
                    ping_at = now + PING_EVERY;
                    outbox.forget_abandoned();
                    Some(written(PING, &self.new_req_id(PING), &Value::Null))
                }
            };
            if let Some(text) = text {
                match timeout(WRITE_LIMIT, socket.send(SocketMessage::Text(text))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(why)) => return End::Lost(why),
                    Err(_) => return End::Lost("the socket accepted no more data".into()),
                }
            }
        }
    }

    /// Until it is stored: it would not be reported again. Returns the handles of files that are to be kept.
    async fn store(&self, bot: &Bot, inlet: &dyn Inlet, frame: Arc<Frame>) -> Vec<String> {
        loop {
            match self.try_store(bot, inlet, &frame).await {
                Ok(files) => return files,
                Err(error) => {
                    tracing::warn!(%error, bot = bot.id.as_str(), "a message could not be stored; trying again");
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        }
    }

    async fn try_store(&self, bot: &Bot, inlet: &dyn Inlet, frame: &Frame) -> Result<Vec<String>, DeskError> {
        let Some(intake) = intake_of(frame, bot) else { return Ok(Vec::new()) };
        // Before it is stored: the receiver may answer at once.
        self.note_came(bot, &intake.event.source, &frame.req_id);
        let files = intake.remote_media.iter().map(|file| file.handle.expose().to_owned()).collect();
        let receipts = inlet.take(vec![intake]).await?;
        // No agent fetches the files of a message without receivers.
        let is_delivered = receipts.iter().flatten().any(|receipt| receipt.verdict.outcome == "delivered");
        Ok(if is_delivered { files } else { Vec::new() })
    }

    /// Stores what the last socket has left, as far as it can be stored now.
    async fn store_left(&self, bot: &Bot, inlet: &dyn Inlet) {
        while let Some(frame) = self.backlog.first(bot) {
            match timeout(STORE_LIMIT, self.try_store(bot, inlet, &frame)).await {
                Ok(Ok(files)) => self.backlog.stored(bot, files),
                _ => return,
            }
        }
    }

    fn note_came(&self, bot: &Bot, source: &Source, req_id: &str) {
        let came = Came {
            chat_id: &source.chat_id,
            message_id: source.message_id.as_deref().unwrap_or_default(),
            req_id,
            person: source.user_id.as_deref().unwrap_or_default(),
            is_group: !source.is_direct(),
        };
        self.replies.note(&bot.id, &came, self.env.steady_ms());
    }
}

/// Waits for nothing if nothing is being stored.
async fn stored(storing: &mut Option<BoxFuture<'_, Vec<String>>>) -> Vec<String> {
    match storing {
        Some(storing) => storing.await,
        None => Vec::new(),
    }
}

enum Next {
    Message(Result<SocketMessage, String>),
    Request(Request),
    Stored(Vec<String>),
    Tick,
}

fn is_last_frame(frame: &Frame) -> bool {
    frame.cmd == EVENT && frame.body["event"]["eventtype"] == "disconnected_event"
}
