//! `WhatsApp` by Meta's Cloud API. On the wire it is `whatsapp_cloud`.
//!
//! `frontdesk bot add whatsapp_cloud --id BOT --set phone_number_id=... --secret access_token=... --secret
//! app_secret=... --secret verify_token=...`. Meta calls `GET /whatsapp/{bot}` once to check the address, and `POST`
//! with messages of users and outcomes of ours.

mod act;
mod api;
mod inspect;
mod media;
mod normalize;
mod payload;
mod prompts;
pub(crate) mod sample;
pub mod signature;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Cost, Door, DoorAnswer, Inlet, ListenEnd, Look, LookFault, MediaFault,
    Method, Part, Platform, Rate, RawRequest, ReceivedRequest, RemoteMedia, Reply,
};
use frontdesk_wire::secret::same_bytes;
use frontdesk_wire::{Act, Action, ChatId, ChatInfo, Descriptor, Secret, UserId};
use serde::Deserialize;
use serde_json::json;

use self::normalize::{Meaning, meaning_of, payload_of};
use self::signature::verify;
use self::text::MESSAGE_MAX;
use crate::shared::form::{fields_of, first};
use crate::shared::missing_bot;
use crate::shared::recent::Recent;
use crate::shared::source_file::SourceFiles;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "whatsapp_cloud";
pub const LISTED: Listed =
    Listed { name: PLATFORM, defaults: "", open, sample: Some(|| Box::new(sample::SampleNumber)) };
const LABEL: &str = "WhatsApp";

const DOOR: &str = "/whatsapp/{bot}";
/// The longest body that Meta sends.
const BODY_MAX_BYTES: usize = 3 << 20;
/// Meta's number for a text to a user who has not written for 24 hours.
const WINDOW_CLOSED: i64 = 131_047;
const CHALLENGE_MAX_BYTES: usize = 256;
/// Meta removes the indicator then.
const TYPING_LASTS_MS: u64 = 25_000;

// Limits of Meta, with a margin: 80 messages a second in all, and one in 6 s to a person after a burst of 45.
const BOT_RATE: Rate = Rate { burst: 20, every_ms: 14 };
const CHAT_RATE: Rate = Rate { burst: 40, every_ms: 6_100 };

const OPS: [&str; 5] = ["send", "typing", "send_media", "prompt", "react"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let _: NoSettings = kit.section(PLATFORM)?;
    Ok(Arc::new(WhatsApp::new(kit)))
}

/// What is known of the chat with a person.
#[derive(Clone, Default)]
struct Chat {
    /// Typing is shown below it.
    last_message: Option<String>,
    /// When Meta said that nothing but a template can be sent.
    closed_ms: Option<u64>,
}

pub struct WhatsApp {
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    files: SourceFiles,
    public_url: String,
    descriptor: Descriptor,
    doors: [Door; 2],
    chats: Recent<Chat>,
}

/// The rate limit of a chat, by name.
fn chat_bucket(chat_id: &str) -> String {
    format!("chat:{chat_id}")
}

/// A phone number with its country, as Meta writes it.
fn is_number(chat_id: &str) -> bool {
    (5..=20).contains(&chat_id.len()) && chat_id.bytes().all(|b| b.is_ascii_digit())
}

/// The id of a user with a user name for this business: `US.1234`.
fn is_user_id(chat_id: &str) -> bool {
    let is_id = |(country, rest): (&str, &str)| {
        let is_country = country.len() == 2 && country.bytes().all(|b| b.is_ascii_uppercase());
        is_country && (1..=128).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    chat_id.split_once('.').is_some_and(is_id)
}

impl WhatsApp {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            markdown_dialect: "whatsapp".into(),
            emoji: "💬".into(),
            platform_hint: "You are talking on WhatsApp. Write Markdown; tables become text.".into(),
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, LABEL, MESSAGE_MAX)
        };
        let door = |method, summary| Door { method, path: DOOR, summary, max_bytes: BODY_MAX_BYTES };
        let doors = [
            door(Method::Get, "Check of the address by Meta"),
            door(Method::Post, "Messages to a number of WhatsApp, and statuses of messages that were sent"),
        ];
        Self {
            env: kit.env.clone(),
            outcall: kit.outcall.clone(),
            files: SourceFiles::new(kit),
            public_url: kit.public_url.clone(),
            descriptor,
            doors,
            chats: Recent::default(),
        }
    }

    fn webhook_url(&self, bot: &Bot) -> String {
        format!("{}/whatsapp/{}", self.public_url, bot.id)
    }

    /// Meta asks once whether the address is ours.
    fn answer_challenge(bot: &Bot, query: &[(String, String)]) -> Result<ReceivedRequest, Reply> {
        let expected = bot.secret("verify_token").ok_or_else(|| Reply::text(404, "this bot has no verify_token"))?;
        let given = first(query, "hub.verify_token").unwrap_or_default();
        let is_ours = same_bytes(given.as_bytes(), expected.expose().as_bytes());
        if first(query, "hub.mode") != Some("subscribe") || !is_ours {
            return Err(Reply::text(
                403,
                "hub.verify_token is not the verify_token of the bot, or hub.mode is not subscribe",
            ));
        }
        match first(query, "hub.challenge").filter(|text| (1..=CHALLENGE_MAX_BYTES).contains(&text.len())) {
            Some(challenge) => Ok(ReceivedRequest::nothing(Reply::text(200, challenge))),
            None => Err(Reply::text(400, "hub.challenge is missing or too long")),
        }
    }

    fn handle_request(&self, bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let query = fields_of(request.query.as_bytes()).unwrap_or_default();
        if request.body.is_empty() && first(&query, "hub.mode").is_some() {
            return Self::answer_challenge(bot, &query);
        }
        let app_secret = bot.secret("app_secret").ok_or_else(|| Reply::text(404, "this bot has no app_secret"))?;
        let header = request.only_header("x-hub-signature-256");
        verify(app_secret.expose(), header, &request.body).map_err(|forged| Reply::text(401, forged.to_string()))?;
        let unreadable = || Reply::text(400, "the body is not a webhook of WhatsApp");
        let payload = payload_of(&request.body).ok_or_else(unreadable)?;
        let done = || Reply::json(200, &json!({}));
        let Some(meaning) = meaning_of(payload, bot) else { return Ok(ReceivedRequest::nothing(done())) };
        let Meaning { intakes, receipts, closed, incoming, foreign } = meaning;
        if foreign > 0 {
            tracing::debug!(bot = bot.id.as_str(), foreign, "changes of another phone number were skipped");
        }
        for (chat_id, message_id) in incoming {
            self.chats.put(&bot.id, &chat_id, Chat { last_message: Some(message_id), closed_ms: None });
        }
        for chat_id in closed {
            self.note_closed(bot, &chat_id);
        }
        Ok(ReceivedRequest { receipts, ..ReceivedRequest::events(intakes, DoorAnswer::Fixed(done())) })
    }
}

impl Platform for WhatsApp {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(BotNames {
            settings: &["base_url", "phone_number_id", "template", "template_language"],
            required: &["phone_number_id", "access_token", "app_secret", "verify_token"],
            secrets: &["access_token", "app_secret", "verify_token"],
        })
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        let id = bot.setting("phone_number_id").unwrap_or_default();
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_digit()) {
            return Err("phone_number_id must be the number that the app shows as \"Phone number ID\"; it is not the phone number".into());
        }
        for name in ["access_token", "app_secret", "verify_token"] {
            if bot.secret(name).is_none_or(|secret| secret.expose().trim().is_empty()) {
                return Err(format!("the {name} is empty"));
            }
        }
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if let Some(name) = ["template", "template_language"].iter().find(|name| !bot.setting(name).is_none_or(plain)) {
            return Err(format!("{name} must be letters, digits and underscores"));
        }
        match bot.setting("base_url") {
            Some(base) if !base.starts_with("https://") && !base.starts_with("http://") => {
                Err(format!("base_url {base:?} must begin with https:// or http://"))
            }
            _ => Ok(()),
        }
    }

    fn account_of(&self, bot: &Bot) -> Option<String> {
        bot.setting("phone_number_id").map(str::to_owned)
    }

    fn inspect<'a>(&'a self, bot: &'a Bot) -> BoxFuture<'a, Vec<BotFinding>> {
        Box::pin(self.findings(bot))
    }

    fn listens(&self) -> bool {
        true
    }

    fn listen<'a>(&'a self, bot: &'a Bot, _: Part, _: Option<String>, _: &'a dyn Inlet) -> BoxFuture<'a, ListenEnd> {
        Box::pin(self.check_credentials(bot))
    }

    fn doors(&self) -> &[Door] {
        &self.doors
    }

    fn receive<'a>(
        &'a self,
        bot: Option<&'a Bot>,
        request: &'a RawRequest,
    ) -> BoxFuture<'a, Result<ReceivedRequest, Reply>> {
        let received = missing_bot::or_not_found(bot).and_then(|bot| self.handle_request(bot, request));
        Box::pin(std::future::ready(received))
    }

    fn act<'a>(&'a self, acting_as: ActingAs<'a>, action: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(self.act_once(acting_as, action))
    }

    fn typing_lasts_ms(&self) -> Option<u64> {
        Some(TYPING_LASTS_MS)
    }

    /// The chat with a person has the number of that person: nothing needs to be asked.
    fn look<'a>(
        &'a self,
        _: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        let look = (is_number(chat_id) || is_user_id(chat_id)).then(|| Look {
            info: ChatInfo { name: chat_id.to_string(), chat_type: "dm".into() },
            visible: viewer.map(|viewer| viewer.as_str() == chat_id.as_str()),
            person: Some(chat_id.as_str().into()),
            ..Look::default()
        });
        Box::pin(std::future::ready(Ok(look)))
    }

    fn fetch_media<'a>(&'a self, bot: &'a Bot, handle: &'a Secret) -> BoxFuture<'a, Result<RemoteMedia, MediaFault>> {
        Box::pin(self.fetch(bot, handle))
    }

    fn split(&self, text: &str) -> Vec<String> {
        text::parts(text)
    }

    fn cost(&self, _: ActingAs<'_>, action: &Action) -> Cost {
        let cost = Cost::of(action);
        match &action.act {
            Act::GetChatInfo { .. } => cost,
            Act::Typing { .. } => cost.in_bot_bucket("bot", BOT_RATE),
            _ => {
                let chat_id = action.act.chat();
                cost.in_bot_bucket("bot", BOT_RATE).in_bucket(chat_bucket(chat_id), CHAT_RATE)
            }
        }
    }
}
