//! The socket of a robot: messages in, and what actions send.
//!
//! `WeCom` does not repeat what it has reported, and has no acknowledgements. So a message is held until it is stored. Meanwhile
//! the socket is still read, up to a limit, and its pings go out.

use std::collections::VecDeque;
use std::time::Duration;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Dial, Socket, SocketMessage};
use frontdesk_core::port::platform::{Bot, Ended, Gap, Inlet};
use frontdesk_wire::Source;
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
use crate::wecom::errors::told;

/// A frame with the longest message.
const MESSAGE_MAX_BYTES: usize = 1 << 20;
const GREETING_LIMIT: Duration = Duration::from_secs(15);
const PING_EVERY: Duration = Duration::from_secs(30);
/// Two pings were not answered, and nothing else came.
const SILENCE_MAX: Duration = Duration::from_secs(75);
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Between attempts to store a message.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// Messages that wait to be stored. Then the socket is not read.
const UNSTORED_MAX: usize = 64;
/// Files that are being fetched, to be kept. Others are fetched when an agent asks.
const HOLDING_MAX: usize = 4;
/// Somebody else has opened a socket of the robot. Two who open it in turn would both lose messages.
const TAKEN_OVER_PAUSE: Duration = Duration::from_mins(1);
const CURSOR_EVERY: Duration = Duration::from_mins(1);
/// Shorter absences are not told as a gap.
const ABSENCE_MIN_MS: u64 = 5_000;

/// Numbers that mean the credentials, and not the moment.
const CREDENTIALS: [i64; 6] = [40_001, 40_013, 40_014, 41_001, 41_004, 853_000];

/// Why a socket ended.
enum End {
    Lost(String),
    TakenOver,
}

impl Robot {
    pub(super) async fn keep_socket(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
        let mut socket = match self.dial(bot).await {
            Ok(socket) => socket,
            Err(ended) => {
                if let Ended::Lost(why) | Ended::Misconfigured(why) = &ended {
                    self.note_end(bot, why);
                }
                return ended;
            }
        };
        self.note_gap(cursor, inlet);
        let (open, requests) = self.links.open(&bot.id);
        tracing::info!(bot = bot.id, "the socket of WeCom is open");
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
        if let End::TakenOver = end {
            tokio::time::sleep(TAKEN_OVER_PAUSE).await;
        }
        Ended::Lost(why)
    }

    /// A socket that the vendor has accepted.
    async fn dial(&self, bot: &Bot) -> Result<Box<dyn Socket>, Ended> {
        let (Some(bot_id), Some(secret)) = (bot.setting("bot_id"), bot.secret("secret")) else {
            return Err(Ended::Misconfigured("the bot has no bot_id or secret".into()));
        };
        let trusted = own_base(bot);
        let dial = Dial { url: socket_url(bot), trusted: trusted.as_deref(), max_bytes: MESSAGE_MAX_BYTES };
        let opened = timeout(GREETING_LIMIT, self.outcall.socket(dial)).await;
        let mut socket = match opened {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return Err(Ended::Lost(format!("the socket was not opened: {error}"))),
            Err(_) => return Err(Ended::Lost("the socket was not opened in time".into())),
        };
        let req_id = self.new_req_id(SUBSCRIBE);
        let hello = written(SUBSCRIBE, &req_id, &json!({ "bot_id": bot_id, "secret": secret.expose() }));
        match timeout(GREETING_LIMIT, greet(&mut *socket, hello, &req_id)).await {
            Ok(Ok(Frame { errcode: 0, .. })) => Ok(socket),
            Ok(Ok(Frame { errcode, errmsg, .. })) => {
                let why = told(errcode, &errmsg.replace(secret.expose(), "***"));
                let text =
                    format!("WeCom did not accept the robot: {why}; check bot_id and secret, and repeat `bot add`");
                Err(if CREDENTIALS.contains(&errcode) { Ended::Misconfigured(text) } else { Ended::Lost(text) })
            }
            Ok(Err(why)) => Err(Ended::Lost(why)),
            Err(_) => Err(Ended::Lost("WeCom did not answer to the robot in time".into())),
        }
    }

    /// What was written while no socket was open is not reported.
    fn note_gap(&self, cursor: Option<String>, inlet: &dyn Inlet) {
        let now_ms = self.env.now_ms();
        if let Some(since_ms) = cursor.and_then(|cursor| cursor.parse::<u64>().ok())
            && now_ms.saturating_sub(since_ms) > ABSENCE_MIN_MS
        {
            let reason = "no socket of the robot was open; WeCom does not repeat what was written meanwhile".to_owned();
            inlet.gap(Gap { since_ms, until_ms: now_ms, reason });
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
        let mut unstored: VecDeque<Frame> = VecDeque::new();
        let mut storing: Option<BoxFuture<'_, Vec<String>>> = None;
        let mut holding: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let (mut heard_at, mut ping_at, mut cursor_at) =
            (Instant::now(), Instant::now() + PING_EVERY, Instant::now() + CURSOR_EVERY);
        loop {
            if storing.is_none()
                && let Some(frame) = unstored.pop_front()
            {
                storing = Some(Box::pin(self.store(bot, inlet, frame)));
            }
            let next = tokio::select! {
                message = socket.next(), if unstored.len() < UNSTORED_MAX => Next::Message(message),
                Some(request) = requests.recv() => Next::Request(request),
                files = stored(&mut storing), if storing.is_some() => Next::Stored(files),
                Some(()) = holding.next(), if !holding.is_empty() => continue,
                () = tokio::time::sleep_until(ping_at.min(cursor_at)) => Next::Tick,
            };
            let text = match next {
                Next::Message(Err(why)) => return End::Lost(why),
                Next::Message(Ok(message)) => {
                    heard_at = Instant::now();
                    let SocketMessage::Text(text) = message else { continue };
                    let Some(frame) = Frame::read(&text) else { continue };
                    if is_farewell(&frame) {
                        return End::TakenOver;
                    }
                    match frame.is_of_vendor() {
                        true => {
                            unstored.push_back(frame);
                            None
                        }
                        false => outbox.answered(frame),
                    }
                }
                Next::Request(request) => outbox.push(request),
                Next::Stored(files) => {
                    storing = None;
                    for handle in files.into_iter().take(HOLDING_MAX - holding.len().min(HOLDING_MAX)) {
                        holding.push(Box::pin(async move { self.hold(bot, &handle).await }));
                    }
                    None
                }
                Next::Tick => {
                    let now = Instant::now();
                    if now >= cursor_at {
                        cursor_at = now + CURSOR_EVERY;
                        if let Err(error) = inlet.save_cursor(self.env.now_ms().to_string()).await {
                            tracing::warn!(%error, bot = bot.id, "saving the time failed");
                        }
                    }
                    if now < ping_at {
                        continue;
                    }
                    // While messages wait to be stored, the socket is not read.
                    if now - heard_at > SILENCE_MAX && unstored.len() < UNSTORED_MAX {
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
                    Err(_) => return End::Lost("the socket took nothing more".into()),
                }
            }
        }
    }

    /// Until it is stored: nobody would report it again. Returns the handles of its files.
    async fn store(&self, bot: &Bot, inlet: &dyn Inlet, frame: Frame) -> Vec<String> {
        while let Some(intake) = intake_of(&frame, bot) {
            // Before it is stored: whoever is told of it may answer at once.
            self.note_came(bot, &intake.event.source, &frame.req_id);
            let files = intake.remote_media.iter().map(|file| file.handle.expose().to_owned()).collect();
            match inlet.take(vec![intake]).await {
                Ok(_) => return files,
                Err(error) => {
                    tracing::warn!(%error, bot = bot.id, "a message could not be stored; trying again");
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        }
        Vec::new()
    }

    fn note_came(&self, bot: &Bot, source: &Source, req_id: &str) {
        let came = Came {
            chat_id: &source.chat_id,
            message_id: source.message_id.as_deref().unwrap_or_default(),
            req_id,
            person: source.user_id.as_deref().unwrap_or_default(),
            is_group: !source.is_direct(),
        };
        self.replies.note(&bot.id, &came, self.env.now_ms());
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

fn is_farewell(frame: &Frame) -> bool {
    frame.cmd == EVENT && frame.body["event"]["eventtype"] == "disconnected_event"
}

async fn greet(socket: &mut dyn Socket, hello: String, req_id: &str) -> Result<Frame, String> {
    socket.send(SocketMessage::Text(hello)).await?;
    loop {
        let SocketMessage::Text(text) = socket.next().await? else { continue };
        if let Some(frame) = Frame::read(&text).filter(|frame| frame.req_id == req_id && !frame.is_of_vendor()) {
            return Ok(frame);
        }
    }
}
