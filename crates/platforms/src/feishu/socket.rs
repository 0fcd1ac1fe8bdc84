//! The persistent connection: events come over a WebSocket that this server dials.
//!
//! A frame is answered after its event is stored. Events are stored one after another, so that messages keep their order; presses
//! are stored beside them, because Feishu waits three seconds for the answer to one. Feishu does not ping: this server does, and a
//! socket without an answer is opened again.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_core::intake::{Receipt, Verified};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, Dial, Socket, SocketMessage};
use frontdesk_core::port::platform::{Bot, Gap, Inlet, ListenEnd};
use frontdesk_wire::Secret;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::account::{Mode, app_id, base, mode};
use super::events::check_app;
use super::failure::{ApiError, no_answer, read};
use super::frame::{CONTROL, DATA, Frame, Joined, Parts};
use super::received::{Answering, Received, not_stored};
use super::refusals::OF_APP;
use super::value::text_of;
use super::work::{Event, Handled, Ignored, Unstored, Work};
use super::{Feishu, PLATFORM};

/// A frame; longer messages come in several.
const MESSAGE_MAX_BYTES: usize = 4 << 20;
const ENDPOINT_MAX_BYTES: usize = 64 << 10;
/// Feishu says how often it wants a ping; within these limits.
const PING_DEFAULT: Duration = Duration::from_mins(2);
const PING_MIN: Duration = Duration::from_secs(1);
/// An answer to a ping comes within this time.
const PONG_LIMIT: Duration = Duration::from_secs(15);
const SEND_LIMIT: Duration = Duration::from_secs(10);
/// Time to finish storing events after the socket has ended.
const FINISH_LIMIT: Duration = Duration::from_secs(10);
const CURSOR_EVERY: Duration = Duration::from_mins(1);
/// Feishu tries to deliver an event for about this long: the last time after six hours.
const REPEATED_MS: u64 = 6 * 3_600_000;
/// Feishu sends no group messages unless the name ends with "channel"; gateways found this out.
const USER_AGENT: &str = concat!("frontdesk/", env!("CARGO_PKG_VERSION"), " channel");
/// Error codes of the endpoint for which a retry does not help.
const FINAL: [i64; 3] = [403, 514, 1_000_040_344];
/// Where the socket is, and how it is kept.
pub(super) struct Endpoint {
    url: Secret,
    service: i32,
    ping: Duration,
}

fn ping_of(config: &Value) -> Option<Duration> {
    let seconds = config["PingInterval"].as_u64().filter(|seconds| *seconds > 0)?;
    Some(Duration::from_secs(seconds).clamp(PING_MIN, PING_DEFAULT))
}

impl Feishu {
    pub(super) async fn listen_as(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> ListenEnd {
        if let Err(error) = self.me(bot).await {
            return ended(&error);
        }
        match mode(bot) {
            Mode::Events => ListenEnd::Never, // they come through the door
            Mode::Socket => self.keep_socket(bot, cursor, inlet).await,
        }
    }

    async fn keep_socket(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> ListenEnd {
        let now_ms = self.env.now_ms();
        if let Some(since_ms) = cursor.and_then(|cursor| cursor.parse::<u64>().ok())
            && now_ms.saturating_sub(since_ms) > REPEATED_MS
        {
            let reason = "no socket was open; Feishu repeats events for some hours only".to_owned();
            inlet.gap(Gap { since_ms, until_ms: now_ms - REPEATED_MS, reason });
        }
        let endpoint = match self.endpoint(bot).await {
            Ok(endpoint) => endpoint,
            Err(error) => return ended(&error),
        };
        let trusted = bot.setting("base_url");
        let dial = Dial { url: endpoint.url.expose(), trusted, max_bytes: MESSAGE_MAX_BYTES };
        let mut socket = match self.outcall.socket(dial).await {
            Ok(socket) => socket,
            Err(error) => return ListenEnd::Lost(format!("the socket was not opened: {error}")),
        };
        tracing::info!(bot = bot.id.as_str(), "the socket of Feishu was opened");
        match self.read(bot, inlet, &mut *socket, &endpoint).await {
            Ok(never) => match never {},
            Err(why) => ListenEnd::Lost(why),
        }
    }

    /// Asks where the socket is. The address has a ticket in it.
    pub(super) async fn endpoint(&self, bot: &Bot) -> Result<Endpoint, ApiError> {
        let secret = bot.secret("app_secret").map(Secret::expose).unwrap_or_default();
        let url = format!("{}/callback/ws/endpoint", base(bot));
        let json = json!({ "AppID": app_id(bot), "AppSecret": secret }).to_string();
        let headers = [("locale", "en"), ("user-agent", USER_AGENT)];
        let trusted = bot.setting("base_url");
        let call = Call { trusted, headers: &headers, ..Call::post(&url, &json, ENDPOINT_MAX_BYTES) };
        let answer = self.outcall.call(call).await.map_err(|error| no_answer(&error).of_question())?;
        let response = read(&answer).map_err(ApiError::of_question)?;
        let (url, config) = (text_of(&response["data"], "URL"), &response["data"]["ClientConfig"]);
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let service = query.split('&').find_map(|pair| pair.strip_prefix("service_id="));
        if !url.starts_with("wss://") && !url.starts_with("ws://") {
            return Err(ApiError::unusable(false, "it returned no address for the socket"));
        }
        let service = service.and_then(|text| text.parse().ok()).unwrap_or_default();
        Ok(Endpoint { url: Secret::new(url), service, ping: ping_of(config).unwrap_or(PING_DEFAULT) })
    }

    /// Events that are being stored when the socket ends are stored completely, and answered if that is still possible.
    async fn read(
        &self,
        bot: &Bot,
        inlet: &dyn Inlet,
        socket: &mut dyn Socket,
        endpoint: &Endpoint,
    ) -> Result<std::convert::Infallible, String> {
        let mut work = Work::default();
        let ended = self.read_on(bot, inlet, socket, endpoint, &mut work).await;
        let rest = async {
            let mut is_open = true;
            while let Some(handled) = work.running.next().await {
                is_open = is_open && answer(bot, socket, handled, self.env.now_ms()).await.is_ok();
            }
        };
        if timeout(FINISH_LIMIT, rest).await.is_err() {
            tracing::warn!(
                platform = PLATFORM,
                bot = bot.id.as_str(),
                "events were not stored in time; Feishu sends them again"
            );
        }
        ended
    }

    async fn read_on<'a>(
        &'a self,
        bot: &'a Bot,
        inlet: &'a dyn Inlet,
        socket: &mut dyn Socket,
        endpoint: &Endpoint,
        work: &mut Work<'a>,
    ) -> Result<std::convert::Infallible, String> {
        let (mut parts, mut ping) = (Parts::default(), endpoint.ping);
        let (mut ping_at, mut pong_by): (Instant, Option<Instant>) = (Instant::now(), None);
        let mut cursor_at = Instant::now() + CURSOR_EVERY;
        let mut ignored = Ignored::default();
        let start = |event: Event, is_press| -> BoxFuture<'a, Handled> {
            Box::pin(async move {
                let Event { frame, payload, began_ms, .. } = event;
                let stored = self.store(bot, inlet, &payload).await;
                Handled { frame, began_ms, stored, is_press }
            })
        };
        loop {
            let now = Instant::now();
            let is_full = work.is_full();
            if is_full {
                pong_by = pong_by.map(|_| now + PONG_LIMIT); // an answer may be there, and is not read yet
            }
            if pong_by.is_some_and(|by| by <= now) {
                return Err("the socket was silent: a ping was not answered".to_owned());
            }
            if ping_at <= now {
                send(socket, &Frame::ping(endpoint.service)).await?;
                (ping_at, pong_by) = (now + ping, pong_by.or(Some(now + PONG_LIMIT)));
            }
            if cursor_at <= now {
                let saved = inlet.save_cursor(self.env.now_ms().to_string()).await;
                saved.map_err(|error| format!("saving the cursor failed: {error}"))?;
                cursor_at = now + CURSOR_EVERY;
            }
            let wake_at = [Some(ping_at), pong_by, Some(cursor_at)].into_iter().flatten().min().unwrap_or(now);
            let message = tokio::select! {
                Some(handled) = work.running.next(), if !work.running.is_empty() => {
                    let is_press = handled.is_press;
                    // What comes after an event that the store did not take is not stored before it.
                    answer(bot, socket, handled, self.env.now_ms()).await?;
                    work.finished(is_press, start);
                    continue;
                }
                message = timeout_at(wake_at, socket.next()), if !is_full => match message {
                    Err(_) => continue,
                    Ok(message) => message?,
                },
                () = sleep_until(wake_at), if is_full => continue,
            };
            pong_by = None;
            // The protocol has no texts.
            let SocketMessage::Binary(bytes) = message else { continue };
            let Some(frame) = Frame::read(bytes) else { continue };
            match frame.method {
                CONTROL => {
                    let config = frame.payload.as_deref().and_then(|it| serde_json::from_slice::<Value>(it).ok());
                    if let Some(interval) = config.as_ref().and_then(ping_of) {
                        ping = interval;
                        ping_at = ping_at.min(Instant::now() + ping);
                    }
                }
                DATA => match event(bot, &mut parts, frame, self.env.now_ms()) {
                    Came::Nothing => {}
                    Came::Event(event) => work.add(event, start),
                    Came::Ignored(why, frame) => {
                        ignored.note(bot, &why);
                        if let Some(frame) = frame {
                            send(socket, &frame.answer(response(200, None), 0)).await?;
                        }
                    }
                },
                _ => {}
            }
        }
    }

    /// What is answered, if anything is.
    async fn store(&self, bot: &Bot, inlet: &dyn Inlet, payload: &Value) -> Result<Option<Value>, Unstored> {
        let proof = Verified::by("a socket that this server opened with its secret");
        let received = self.events(bot, proof, payload, self.env.now_ms()).await;
        let Received { intakes, changes, answer } =
            received.map_err(|why| Unstored { answer: None, why, is_of_store: false })?;
        let is_press = matches!(answer, Answering::ToPress(_));
        for change in changes {
            let changed = inlet.changed(change).await;
            changed.map_err(|error| Unstored { answer: None, why: error.to_string(), is_of_store: true })?;
        }
        let mut receipts: Vec<Receipt> = Vec::new();
        if !intakes.is_empty() {
            let taken = inlet.take(intakes).await.map_err(|error| Unstored {
                // Feishu does not send a press again.
                answer: is_press.then(|| not_stored(&error)),
                why: error.to_string(),
                is_of_store: true,
            })?;
            receipts.extend(taken.into_iter().filter_map(Result::ok));
        }
        Ok(match answer {
            Answering::Nothing => None,
            Answering::Fixed(value) => Some(value),
            Answering::ToPress(make) => Some(make(&receipts)),
        })
    }
}

/// The event that a data frame completes.
fn event(bot: &Bot, parts: &mut Parts, frame: Frame, began_ms: u64) -> Came {
    let payload = match parts.add(began_ms, &frame) {
        Joined::Waiting => return Came::Nothing,
        Joined::Refused => return Came::Ignored("a frame has invalid part numbers".to_owned(), None),
        Joined::Whole(payload) => payload,
    };
    // Cards of the old kind come as "card"; the vendor's library does not answer them either.
    if frame.header("type") != "event" {
        return Came::Nothing;
    }
    let bytes = payload.len();
    let Ok(payload) = serde_json::from_slice::<Value>(&payload) else {
        return Came::Ignored("it is not JSON".to_owned(), Some(frame));
    };
    if text_of(&payload, "schema") != "2.0" {
        return Came::Ignored("it is of an old schema; choose v2.0 events".to_owned(), Some(frame));
    }
    match check_app(bot, &payload) {
        Ok(()) => Came::Event(Event { frame, payload, bytes, began_ms }),
        Err(why) => Came::Ignored(why, Some(frame)),
    }
}

/// Answers a frame. `Err`: the socket is given up, because it is lost or the store takes nothing.
async fn answer(bot: &Bot, socket: &mut dyn Socket, handled: Handled, now_ms: u64) -> Result<(), String> {
    let Handled { frame, began_ms, stored, .. } = handled;
    let took_ms = now_ms.saturating_sub(began_ms);
    match stored {
        Ok(answer) => send(socket, &frame.answer(response(200, answer), took_ms)).await,
        Err(Unstored { answer, why, is_of_store }) => {
            let code = if answer.is_some() { 200 } else { 500 };
            send(socket, &frame.answer(response(code, answer), took_ms)).await?;
            if is_of_store {
                return Err(why);
            }
            tracing::warn!(
                platform = PLATFORM,
                bot = bot.id.as_str(),
                why,
                "handling an event failed; Feishu sends it again"
            );
            Ok(())
        }
    }
}

/// What a data frame brought.
enum Came {
    Nothing,
    Event(Event),
    /// The reason, and the frame if it must be acknowledged so that Feishu does not send it again.
    Ignored(String, Option<Frame>),
}

/// The payload of an answer.
fn response(code: u16, answer: Option<Value>) -> String {
    let data = answer.map(|answer| STANDARD.encode(answer.to_string()));
    json!({ "code": code, "headers": null, "data": data }).to_string()
}

async fn send(socket: &mut dyn Socket, frame: &Frame) -> Result<(), String> {
    match timeout(SEND_LIMIT, socket.send(SocketMessage::Binary(frame.bytes()))).await {
        Ok(sent) => sent,
        Err(_) => Err("the socket accepted no data in time".to_owned()),
    }
}

/// What an error of the API means for the listener.
fn ended(error: &ApiError) -> ListenEnd {
    match error.is_of_app() || error.is(&FINAL) || error.is(&OF_APP) {
        true => ListenEnd::Misconfigured(error.text()),
        false => ListenEnd::Lost(error.text()),
    }
}
