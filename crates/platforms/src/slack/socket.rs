//! Socket Mode: events come over a WebSocket that this server dials.
//!
//! An envelope is acknowledged after its event is stored. Slack ends each socket after some hours and announces that:
//! then the next one is opened while the old one is still read.

use std::time::Duration;

use frontdesk_core::intake::{Receipt, Verified};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Dial, Socket, SocketMessage};
use frontdesk_core::port::platform::{Bot, Change, Gap, Inlet, ListenEnd};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::Slack;
use super::account::{Mode, WORKSPACE, mode, workspaces};
use super::api::{Api, ApiError};
use super::interactions::SlashCommand;
use super::received::{Answering, Received, not_stored, to_command};
use super::rich::text_of;

/// An envelope with the longest message.
const MESSAGE_MAX_BYTES: usize = 2 << 20;
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// Slack pings more often than this. After this silence we send a ping, and after the same time again we give up.
const QUIET: Duration = Duration::from_secs(30);
/// A socket that is to be replaced is read for as long as this.
const LEAVING: Duration = Duration::from_mins(1);
/// Concurrent answers to buttons.
const LATER_MAX: usize = 32;
/// The old one, the new one, and one more if the new one is replaced at once.
const SOCKETS_MAX: usize = 3;
const CURSOR_EVERY: Duration = Duration::from_mins(1);
/// Slack retries an event for about this long.
const REPEATED_MS: u64 = 360_000;

/// Why a socket ended.
enum End {
    /// Another socket took its place.
    Replaced,
    Lost(String),
    Refused(ListenEnd),
}

impl Slack {
    pub(super) async fn listen_as(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> ListenEnd {
        let needs_socket = matches!(mode(bot), Mode::Socket);
        if let Some(own) = workspaces(bot).into_iter().find(|it| it.team.is_none())
            && let Err(error) = self.api(bot, own).ask("auth.test", &[]).await
        {
            // If the token of one workspace has ended, the others still need the socket.
            let is_installed = bot.granted(WORKSPACE).next().is_some();
            if !needs_socket || !is_installed {
                return ended(&error, "bot_token");
            }
            tracing::warn!(
                bot = bot.id.as_str(),
                error = error.text(),
                "checking bot_token failed; workspaces that installed the app are served"
            );
        }
        match needs_socket {
            true => self.keep_sockets(bot, cursor, inlet).await,
            false => ListenEnd::Never, // events come through the doors
        }
    }

    async fn keep_sockets(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> ListenEnd {
        let now_ms = self.env.now_ms();
        if let Some(since_ms) = cursor.and_then(|cursor| cursor.parse::<u64>().ok())
            && now_ms.saturating_sub(since_ms) > REPEATED_MS
        {
            let reason = "no socket was open; Slack repeats events for some minutes only".to_owned();
            inlet.gap(Gap { since_ms, until_ms: now_ms - REPEATED_MS, reason });
        }
        let (replace, mut replacing) = mpsc::channel(SOCKETS_MAX);
        let mut running = FuturesUnordered::new();
        running.push(self.one_socket(bot, inlet, replace.clone()));
        loop {
            tokio::select! {
                Some(end) = running.next() => match end {
                    End::Refused(ended) => return ended,
                    End::Lost(why) if running.is_empty() => return ListenEnd::Lost(why),
                    End::Replaced if running.is_empty() => return ListenEnd::Lost("the next socket was not opened".into()),
                    End::Lost(_) | End::Replaced => {}
                },
                Some(()) = replacing.recv(), if running.len() < SOCKETS_MAX => {
                    running.push(self.one_socket(bot, inlet, replace.clone()));
                }
                () = tokio::time::sleep(CURSOR_EVERY) => {
                    if let Err(error) = inlet.save_cursor(self.env.now_ms().to_string()).await {
                        return ListenEnd::Lost(format!("saving the cursor failed: {error}"));
                    }
                }
            }
        }
    }

    async fn one_socket(&self, bot: &Bot, inlet: &dyn Inlet, replace: mpsc::Sender<()>) -> End {
        let Some(token) = bot.secret("app_token") else {
            return End::Refused(ListenEnd::Misconfigured("the bot has no app_token".into()));
        };
        let api = Api { outcall: &*self.outcall, own_base: bot.setting("base_url"), token };
        let response = match api.ask("apps.connections.open", &[]).await {
            Ok(response) => response,
            Err(error) => match ended(&error, "app_token") {
                ListenEnd::Lost(why) => return End::Lost(why),
                ended => return End::Refused(ended),
            },
        };
        let dial = Dial { url: text_of(&response, "url"), trusted: api.own_base, max_bytes: MESSAGE_MAX_BYTES };
        let mut socket = match self.outcall.socket(dial).await {
            Ok(socket) => socket,
            Err(error) => return End::Lost(format!("the socket was not opened: {error}")),
        };
        match timeout(HELLO_LIMIT, hello(&mut *socket)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return End::Lost(why),
            Err(_) => return End::Lost("Slack sent no hello in time".into()),
        }
        tracing::info!(bot = bot.id.as_str(), "the socket of Slack was opened");
        self.read(bot, inlet, &mut *socket, &replace).await
    }

    async fn read(&self, bot: &Bot, inlet: &dyn Inlet, socket: &mut dyn Socket, replace: &mpsc::Sender<()>) -> End {
        let mut later: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
        let (mut is_asked, mut leaves_at): (bool, Option<Instant>) = (false, None);
        loop {
            let quiet = leaves_at.map_or(QUIET, |at| at.saturating_duration_since(Instant::now()).min(QUIET));
            let message = tokio::select! {
                message = timeout(quiet, socket.next()) => message,
                Some(()) = later.next(), if !later.is_empty() => continue,
            };
            let text = match message {
                Err(_) if leaves_at.is_some_and(|at| at <= Instant::now()) => return End::Replaced,
                Err(_) if is_asked => return End::Lost("the socket was silent".into()),
                Err(_) => {
                    is_asked = true;
                    match socket.send(SocketMessage::Alive).await {
                        Ok(()) => continue,
                        Err(why) => return End::Lost(why),
                    }
                }
                Ok(Err(_)) if leaves_at.is_some() => return End::Replaced,
                Ok(Err(why)) => return End::Lost(why),
                Ok(Ok(SocketMessage::Text(text))) => text,
                Ok(Ok(_)) => {
                    is_asked = false;
                    continue;
                }
            };
            is_asked = false;
            let Ok(envelope) = serde_json::from_str::<Value>(&text) else { continue }; // nothing to acknowledge
            if text_of(&envelope, "type") == "disconnect" {
                if text_of(&envelope, "reason") == "link_disabled" {
                    let why = "Socket Mode is turned off in the settings of the app; turn it on, and repeat `bot add`";
                    return End::Refused(ListenEnd::Misconfigured(why.into()));
                }
                if leaves_at.is_none() {
                    leaves_at = Some(Instant::now() + LEAVING);
                    let _ = replace.try_send(()); // a full queue has one already
                }
                continue;
            }
            match self.take(bot, inlet, &envelope).await {
                Ok((ack, afterwards)) => {
                    if let Some(ack) = ack
                        && let Err(why) = socket.send(SocketMessage::Text(ack.to_string())).await
                    {
                        return End::Lost(why); // it comes again, and is known
                    }
                    later.extend(afterwards.filter(|_| later.len() < LATER_MAX));
                }
                Err((ack, why)) => {
                    if let Some(ack) = ack {
                        let _ = socket.send(SocketMessage::Text(ack.to_string())).await; // the socket is given up anyway
                    }
                    return End::Lost(why);
                }
            }
        }
    }

    /// Stores the content of an envelope. Returns the payload of its acknowledgement, and work for afterwards. `Err`:
    /// nothing was stored.
    #[allow(clippy::type_complexity)] // two results of one kind
    async fn take(
        &self,
        bot: &Bot,
        inlet: &dyn Inlet,
        envelope: &Value,
    ) -> Result<(Option<Value>, Option<BoxFuture<'static, ()>>), (Option<Value>, String)> {
        let id = text_of(envelope, "envelope_id");
        if id.is_empty() {
            return Ok((None, None));
        }
        let takes_answer = envelope["accepts_response_payload"].as_bool() == Some(true);
        let ack = |payload: Option<Value>| {
            let mut ack = json!({ "envelope_id": id });
            if let Some(payload) = payload.filter(|_| takes_answer) {
                ack["payload"] = payload;
            }
            Some(ack)
        };
        let (proof, payload) = (Verified::by("a socket that this server opened with its token"), &envelope["payload"]);
        let received = match text_of(envelope, "type") {
            "events_api" => {
                let received = self.events(bot, proof, payload, self.env.now_ms()).await;
                received.map_err(|why| (None, why))?
            }
            "slash_commands" => {
                let command = SlashCommand::read(|name| payload[name].as_str().map(str::to_owned));
                self.command(bot, proof, &command)
            }
            "interactive" => self.interaction(bot, proof, payload),
            _ => return Ok((ack(None), None)),
        };
        let Received { intakes, changes, gaps, answer, afterwards } = received;
        let is_command = matches!(answer, Answering::ToCommand);
        let stored = store(inlet, intakes, changes).await;
        let receipts = stored.map_err(|error| match is_command {
            // Slack does not send a command again.
            true => (ack(Some(not_stored(&error))), error.to_string()),
            false => (None, error.to_string()),
        })?;
        for gap in gaps {
            inlet.gap(gap);
        }
        let payload = match answer {
            Answering::Nothing => None,
            Answering::Fixed(value) => Some(value),
            Answering::ToCommand => to_command(receipts.first()),
        };
        Ok((ack(payload), afterwards.map(|afterwards| afterwards(&receipts))))
    }
}

/// A chat that moves takes its routes with it, so what was said in the old one is stored first.
async fn store(
    inlet: &dyn Inlet,
    intakes: Vec<frontdesk_core::intake::Intake>,
    changes: Vec<Change>,
) -> Result<Vec<Receipt>, frontdesk_core::DeskError> {
    let is_move = |change: &Change| matches!(change, Change::ChatMoved { .. });
    let (moves, others): (Vec<Change>, Vec<Change>) = changes.into_iter().partition(is_move);
    for change in others {
        inlet.changed(change).await?;
    }
    let results = match intakes.is_empty() {
        true => Vec::new(),
        false => inlet.take(intakes).await?,
    };
    for change in moves {
        inlet.changed(change).await?;
    }
    Ok(results.into_iter().filter_map(Result::ok).collect())
}

async fn hello(socket: &mut dyn Socket) -> Result<(), String> {
    loop {
        let SocketMessage::Text(text) = socket.next().await? else { continue };
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        match text_of(&message, "type") {
            "hello" => return Ok(()),
            "disconnect" => return Err(format!("Slack refused the socket: {}", text_of(&message, "reason"))),
            _ => {}
        }
    }
}

/// What an error of the Web API means for the listener.
fn ended(error: &ApiError, which: &str) -> ListenEnd {
    let is_final = error.is_of_token() || error.is(&["not_allowed_token_type", "missing_scope", "app_not_found"]);
    match is_final {
        true => ListenEnd::Misconfigured(format!("{which}: {}", error.text())),
        false => ListenEnd::Lost(format!("{which}: {}", error.text())),
    }
}
