//! The persistent connection: events come over a WebSocket that this server dials.
//!
//! A frame is answered after its event is stored. Feishu does not ping: this server does, and a socket without an answer is
//! opened again.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use frontdesk_core::intake::{Receipt, Verified};
use frontdesk_core::port::outcall::{Call, Dial, Socket, SocketMessage};
use frontdesk_core::port::platform::{Bot, Ended, Gap, Inlet};
use frontdesk_wire::Secret;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use super::Feishu;
use super::account::{Mode, app_id, base, mode};
use super::events::check_app;
use super::failure::{ApiError, no_answer, read};
use super::frame::{CONTROL, DATA, Frame, Joined, Parts};
use super::refusals::OF_APP;
use super::told::{Answering, Told, not_stored};
use super::value::text_of;

/// A frame; longer messages come in several.
const MESSAGE_MAX_BYTES: usize = 4 << 20;
const ENDPOINT_MAX_BYTES: usize = 64 << 10;
/// Feishu says how often it wants a ping; within these limits.
const PING_DEFAULT: Duration = Duration::from_mins(2);
const PING_MIN: Duration = Duration::from_secs(1);
/// An answer to a ping comes within this time.
const PONG_LIMIT: Duration = Duration::from_secs(15);
const SEND_LIMIT: Duration = Duration::from_secs(10);
const CURSOR_EVERY: Duration = Duration::from_mins(1);
/// Feishu tries to deliver an event for about this long: the last time after six hours.
const REPEATED_MS: u64 = 6 * 3_600_000;
/// Without the mark at its end Feishu tells no messages of groups, as gateways found out.
const USER_AGENT: &str = concat!("frontdesk/", env!("CARGO_PKG_VERSION"), " channel");
/// Codes of the endpoint that another attempt will not change.
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
    pub(super) async fn listen_as(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
        if let Err(error) = self.me(bot).await {
            return ended(&error);
        }
        match mode(bot) {
            Mode::Events => Ended::Never, // they come through the door
            Mode::Socket => self.keep_socket(bot, cursor, inlet).await,
        }
    }

    async fn keep_socket(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
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
            Err(error) => return Ended::Lost(format!("the socket was not opened: {error}")),
        };
        tracing::info!(bot = bot.id, "the socket of Feishu is open");
        match self.read(bot, inlet, &mut *socket, &endpoint).await {
            Ok(never) => match never {},
            Err(why) => Ended::Lost(why),
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
        let told = read(&answer).map_err(ApiError::of_question)?;
        let (url, config) = (text_of(&told["data"], "URL"), &told["data"]["ClientConfig"]);
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let service = query.split('&').find_map(|pair| pair.strip_prefix("service_id="));
        if !url.starts_with("wss://") && !url.starts_with("ws://") {
            return Err(ApiError::NoAnswer { may_be_done: false, why: "it named no address for the socket".into() });
        }
        let service = service.and_then(|text| text.parse().ok()).unwrap_or_default();
        Ok(Endpoint { url: Secret::new(url), service, ping: ping_of(config).unwrap_or(PING_DEFAULT) })
    }

    async fn read(
        &self,
        bot: &Bot,
        inlet: &dyn Inlet,
        socket: &mut dyn Socket,
        endpoint: &Endpoint,
    ) -> Result<std::convert::Infallible, String> {
        let (mut parts, mut ping) = (Parts::default(), endpoint.ping);
        let (mut ping_at, mut pong_by): (Instant, Option<Instant>) = (Instant::now(), None);
        let mut cursor_at = Instant::now() + CURSOR_EVERY;
        loop {
            let now = Instant::now();
            if pong_by.is_some_and(|by| by <= now) {
                return Err("the socket was silent: a ping was not answered".to_owned());
            }
            if ping_at <= now {
                send(socket, &Frame::ping(endpoint.service)).await?;
                (ping_at, pong_by) = (now + ping, pong_by.or(Some(now + PONG_LIMIT)));
            }
            if cursor_at <= now {
                let saved = inlet.save_cursor(self.env.now_ms().to_string()).await;
                saved.map_err(|error| format!("saving the time failed: {error}"))?;
                cursor_at = now + CURSOR_EVERY;
            }
            let wake_at = [Some(ping_at), pong_by, Some(cursor_at)].into_iter().flatten().min().unwrap_or(now);
            let message = match timeout_at(wake_at, socket.next()).await {
                Err(_) => continue,
                Ok(message) => message?,
            };
            pong_by = None;
            // The protocol has no texts.
            let SocketMessage::Binary(bytes) = message else { continue };
            let Some(frame) = Frame::read(bytes) else { continue };
            match frame.method {
                CONTROL => {
                    let config = frame.payload.as_deref().and_then(|it| serde_json::from_slice::<Value>(it).ok());
                    if let Some(told) = config.as_ref().and_then(ping_of) {
                        ping = told;
                        ping_at = ping_at.min(Instant::now() + ping);
                    }
                }
                DATA => self.take(bot, inlet, socket, &mut parts, frame).await?,
                _ => {}
            }
        }
    }

    /// Stores what a data frame tells, and answers it. `Err`: it was not stored, and the socket is given up.
    async fn take(
        &self,
        bot: &Bot,
        inlet: &dyn Inlet,
        socket: &mut dyn Socket,
        parts: &mut Parts,
        frame: Frame,
    ) -> Result<(), String> {
        let began_ms = self.env.now_ms();
        let payload = match parts.add(began_ms, &frame) {
            Joined::Waiting => return Ok(()),
            Joined::Refused => {
                tracing::warn!(bot = bot.id, "a frame of Feishu with senseless numbers was ignored");
                return Ok(());
            }
            Joined::Whole(payload) => payload,
        };
        // Cards of the old kind come as "card"; the vendor's library does not answer them either.
        let stored = match frame.header("type") {
            "event" => self.store(bot, inlet, &payload).await,
            _ => return Ok(()),
        };
        let took_ms = self.env.now_ms().saturating_sub(began_ms);
        match stored {
            Ok(answer) => send(socket, &frame.answer(response(200, answer), took_ms)).await,
            Err(Unstored { answer, why }) => {
                let code = if answer.is_some() { 200 } else { 500 };
                send(socket, &frame.answer(response(code, answer), took_ms)).await?;
                Err(why)
            }
        }
    }

    /// What is answered, if anything is.
    async fn store(&self, bot: &Bot, inlet: &dyn Inlet, payload: &Bytes) -> Result<Option<Value>, Unstored> {
        let Ok(payload) = serde_json::from_slice::<Value>(payload) else { return Ok(None) };
        if text_of(&payload, "schema") != "2.0" {
            return Ok(None);
        }
        if let Err(why) = check_app(bot, &payload) {
            tracing::warn!(bot = bot.id, why, "an event on the socket was ignored");
            return Ok(None);
        }
        let proof = Verified::by("a socket that this server opened with its secret");
        let told = self.events(bot, proof, &payload, self.env.now_ms()).await;
        let Told { intakes, changes, answer } = told.map_err(|why| Unstored { answer: None, why })?;
        let is_press = matches!(answer, Answering::ToPress(_));
        for change in changes {
            let changed = inlet.changed(change).await;
            changed.map_err(|error| Unstored { answer: None, why: error.to_string() })?;
        }
        let mut receipts: Vec<Receipt> = Vec::new();
        if !intakes.is_empty() {
            let taken = inlet.take(intakes).await.map_err(|error| Unstored {
                // Feishu does not send a press again.
                answer: is_press.then(|| not_stored(&error)),
                why: error.to_string(),
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

struct Unstored {
    answer: Option<Value>,
    why: String,
}

/// The payload of an answer.
fn response(code: u16, answer: Option<Value>) -> String {
    let data = answer.map(|answer| STANDARD.encode(answer.to_string()));
    json!({ "code": code, "headers": null, "data": data }).to_string()
}

async fn send(socket: &mut dyn Socket, frame: &Frame) -> Result<(), String> {
    match timeout(SEND_LIMIT, socket.send(SocketMessage::Binary(frame.bytes()))).await {
        Ok(sent) => sent,
        Err(_) => Err("the socket took no answer in time".to_owned()),
    }
}

/// What an error of the API means for the listener.
fn ended(error: &ApiError) -> Ended {
    match error.is_of_app() || error.is(&FINAL) || error.is(&OF_APP) {
        true => Ended::Misconfigured(error.text()),
        false => Ended::Lost(error.text()),
    }
}
