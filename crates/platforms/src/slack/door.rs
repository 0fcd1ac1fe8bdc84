//! Requests of Slack: verified, then read.

use std::borrow::Cow;

use frontdesk_core::intake::Verified;
use frontdesk_core::port::platform::{Bot, Change, Door, Gap, Method, RawRequest, ReceivedRequest, Reply};
use serde_json::{Value, json};

use super::account::{WORKSPACE, Workspace};
use super::api::ApiError;
use super::form::field;
use super::interactions::SlashCommand;
use super::normalize::{Me, Meaning, Scene, meaning_of, team_of};
use super::people::ASK_LIMIT;
use super::received::Received;
use super::rich::{list_of, text_of};
use super::{Slack, signature};

/// An event with the longest text and its blocks, or a button with the message that has it.
const REQUEST_MAX_BYTES: usize = 1 << 20;

pub(super) const EVENTS: &str = "/slack/{bot}/events";
pub(super) const COMMANDS: &str = "/slack/{bot}/commands";
pub(super) const INTERACTIONS: &str = "/slack/{bot}/interactions";
pub(super) const INSTALL: &str = "/slack/{bot}/install";
pub(super) const OAUTH: &str = "/slack/{bot}/oauth";

pub(super) const DOORS: [Door; 5] = [
    door(Method::Post, EVENTS, "Events of a Slack app"),
    door(Method::Post, COMMANDS, "Slash commands of a Slack app"),
    door(Method::Post, INTERACTIONS, "Buttons, menus and forms of a Slack app"),
    door(Method::Get, INSTALL, "Begin to install a Slack app in a workspace"),
    door(Method::Get, OAUTH, "Finish to install a Slack app in a workspace"),
];

const fn door(method: Method, path: &'static str, summary: &'static str) -> Door {
    Door { method, path, summary, max_bytes: REQUEST_MAX_BYTES }
}

/// The author of a message this recent sees its chat.
const JUST_WRITTEN_MS: u64 = 60_000;

/// The id of a message contains the time at which it was written.
fn is_recent(ts: Option<&str>, now_ms: u64) -> bool {
    let seconds = ts.and_then(|ts| ts.split('.').next()).and_then(|seconds| seconds.parse::<u64>().ok());
    seconds.is_some_and(|seconds| seconds.saturating_mul(1_000).abs_diff(now_ms) < JUST_WRITTEN_MS)
}

impl Slack {
    pub(super) async fn handle_request(&self, bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        match request.door {
            INSTALL => return self.begin_install(bot, request),
            OAUTH => return self.finish_install(bot, request).await,
            _ => {}
        }
        let absent =
            || Reply::text(404, "this bot takes no requests: it was added without --secret signing_secret=...");
        let key = bot.secret("signing_secret").ok_or_else(absent)?;
        signature::verify(key, &request.headers, &request.body, request.now_ms / 1_000)
            .map_err(|forged| Reply::text(401, forged.to_string()))?;
        let proof = || Verified::by("v0 signature over the raw body");
        match request.door {
            COMMANDS => {
                if field(&request.body, "ssl_check").is_some() {
                    return Ok(ReceivedRequest::nothing(Reply::text(200, "")));
                }
                let command = SlashCommand::read(|name| field(&request.body, name));
                Ok(self.command(bot, proof(), &command).into_request())
            }
            INTERACTIONS => {
                let payload =
                    field(&request.body, "payload").and_then(|text| serde_json::from_str::<Value>(&text).ok());
                let payload = payload.ok_or_else(|| Reply::text(400, "the form has no payload that is valid JSON"))?;
                Ok(self.interaction(bot, proof(), &payload).into_request())
            }
            _ => {
                let payload: Value = serde_json::from_slice(&request.body)
                    .map_err(|_| Reply::text(400, "the body is not valid JSON"))?;
                let received = self.events(bot, proof(), &payload, request.now_ms).await;
                received.map(Received::into_request).map_err(|why| Reply::text(503, why))
            }
        }
    }

    /// One request of the Events API, or one envelope of the socket. `Err`: Slack should send it again.
    pub(super) async fn events(
        &self,
        bot: &Bot,
        proof: Verified,
        payload: &Value,
        now_ms: u64,
    ) -> Result<Received, String> {
        match text_of(payload, "type") {
            "url_verification" => return Ok(Received::answer(json!({ "challenge": text_of(payload, "challenge") }))),
            "event_callback" => {}
            "app_rate_limited" => {
                let since_ms = payload["minute_rate_limited"].as_u64().unwrap_or(now_ms / 1_000).saturating_mul(1_000);
                let reason =
                    "Slack sent no more than 30,000 events in an hour, and left out those of this minute".into();
                let gap = Gap { since_ms, until_ms: since_ms.saturating_add(60_000), reason };
                return Ok(Received { gaps: vec![gap], ..Received::default() });
            }
            _ => return Ok(Received::default()),
        }
        let (team, event) = (team_of(payload), &payload["event"]);
        let event = &self.with_kind(bot, team, event).await;
        let is_message = matches!(text_of(event, "type"), "message" | "app_mention");
        let me = match is_message {
            true => self.me_of(bot, team, payload).await?,
            false => Me::default(),
        };
        let scene = Scene { bot, team, app_id: text_of(payload, "api_app_id"), me: &me };
        let Meaning { intake, changes, is_uninstalled } = meaning_of(&scene, proof, event);
        let mut received = Received { changes, ..Received::default() };
        if is_uninstalled {
            self.known.forget(&(bot.id.clone(), bot.account().to_owned(), team.to_owned()));
            received.changes.extend(self.ended_grant(bot, team).await?);
        }
        if let Some(Change::Person(user)) = received.changes.first() {
            self.names.forget(&(bot.id.clone(), team.to_owned(), user.to_string()));
        }
        if let Some(mut intake) = intake {
            intake.author_sees = is_recent(intake.event.message_id.as_deref(), now_ms);
            let source = &mut intake.event.source;
            self.note_place(bot, &source.chat_id, team);
            if let (None, Some(user)) = (&source.user_name, source.user_id.clone()) {
                // As gateways do: an id is better than no name.
                source.user_name = Some(self.name_of(bot, team, &user).await.unwrap_or_else(|| user.to_string()));
            }
            received.intakes.push(*intake);
        }
        Ok(received)
    }

    /// A mention is sent twice, once without the kind of its chat: both must become the same event.
    async fn with_kind<'a>(&self, bot: &Bot, team: &str, event: &'a Value) -> Cow<'a, Value> {
        let (channel, kind) = (text_of(event, "channel"), text_of(event, "channel_type"));
        if !kind.is_empty() {
            self.note_kind(bot, channel, kind);
        }
        if text_of(event, "type") != "app_mention" || !kind.is_empty() {
            return Cow::Borrowed(event);
        }
        let mut whole = event.clone();
        whole["channel_type"] = self.kind_of(bot, team, channel).await.into();
        Cow::Owned(whole)
    }

    /// The app was removed from a workspace. The report may come while or after it is installed again, and must not take the new
    /// token with it.
    async fn ended_grant(&self, bot: &Bot, team: &str) -> Result<Option<Change>, String> {
        let name = format!("{WORKSPACE}{team}");
        let Some(token) = bot.secret(&name) else { return Ok(None) };
        let api = self.api(bot, Workspace { team: Some(team), token });
        let unknown = |why: &str| Err(format!("checking whether the app was removed failed: {why}"));
        match tokio::time::timeout(ASK_LIMIT, api.ask("auth.test", &[])).await {
            Ok(Ok(_)) => Ok(None),
            Ok(Err(error)) if error.is_of_token() => Ok(Some(Change::grant_ended(name, token))),
            Ok(Err(error @ ApiError::Refused { .. })) => {
                tracing::warn!(
                    bot = bot.id.as_str(),
                    team,
                    error = error.text(),
                    "it is not known whether the app was removed; its token is kept"
                );
                Ok(None)
            }
            Ok(Err(error)) => unknown(&error.text()),
            Err(_) => unknown("Slack did not answer in time"),
        }
    }

    /// Slack sends with each event as which user the app is installed; of old apps it must be asked. What comes from a
    /// workspace whose token has ended is taken without it: the socket is shared with other workspaces. That a token is not
    /// known may be a matter of moments, so Slack shall send the event again.
    async fn me_of(&self, bot: &Bot, team: &str, payload: &Value) -> Result<Me, String> {
        let installed = list_of(payload, "authorizations").first();
        let user_id =
            installed.filter(|it| it["is_bot"].as_bool() == Some(true)).map_or("", |it| text_of(it, "user_id"));
        if !user_id.is_empty() {
            return Ok(Me { user: user_id.to_owned(), bot: String::new(), team: team.to_owned() });
        }
        match tokio::time::timeout(ASK_LIMIT, self.me(bot, team)).await {
            Ok(Err(error)) if error.is_of_token() => {
                tracing::warn!(bot = bot.id.as_str(), team, error = error.text(), "the token of a workspace has ended");
                Ok(Me { team: team.to_owned(), ..Me::default() })
            }
            Ok(asked) => asked.map_err(|error| format!("reading the identity of the bot failed: {}", error.text())),
            Err(_) => Err("reading the identity of the bot failed: Slack did not answer in time".to_owned()),
        }
    }
}
