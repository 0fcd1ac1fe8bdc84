//! SMS and MMS by Twilio. On the wire it is `sms`.
//!
//! `frontdesk bot add sms --id BOT --set account_sid=AC... --set from=+15551234567 --secret auth_token=file:PATH`.
//! Twilio calls `POST /twilio/{bot}` for each message, and `POST /twilio/{bot}/status` with outcomes of ours.

mod act;
mod api;
mod inspect;
mod media;
mod normalize;
pub(crate) mod sample;
pub mod signature;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::media::MediaStore;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Cost, Door, DoorAnswer, Inlet, ListenEnd, Look, LookFault, MediaFault,
    Method, Part, Platform, Rate, RawRequest, ReceivedRequest, RemoteMedia, Reply,
};
use frontdesk_core::{Env, media as files};
use frontdesk_wire::{Act, Action, ChatId, ChatInfo, Descriptor, Secret, UserId};
use serde::Deserialize;

use self::act::is_number;
use self::api::tokens_of;
use self::normalize::{Fields, Said};
use self::signature::{Forged, Signed, verify};
use self::text::{Keyword, MESSAGE_MAX};
use crate::shared::form::{fields_of, first};
use crate::shared::missing_bot;
use crate::shared::recent::Recent;
use crate::shared::source_file::SourceFiles;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "sms";
pub const LISTED: Listed =
    Listed { name: PLATFORM, defaults: "", open, sample: Some(|| Box::new(sample::SampleNumber)) };

const MESSAGES: &str = "/twilio/{bot}";
const STATUSES: &str = "/twilio/{bot}/status";
const FILES: &str = "/twilio/{bot}/media/{token}";
/// A form with the longest text and ten files.
const FORM_MAX_BYTES: usize = 64 << 10;
/// The setting `from` is then a messaging service, which chooses the number.
const SERVICE_PREFIX: &str = "MG";
/// Twilio queues what a number cannot send at once; this is for its API.
const BOT_RATE: Rate = Rate { burst: 20, every_ms: 50 };
/// Nothing is answered here: agents answer by the API.
const EMPTY_TWIML: &str = r#"<?xml version="1.0" encoding="UTF-8"?><Response></Response>"#;

const OPS: [&str; 2] = ["send", "send_media"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let _: NoSettings = kit.section(PLATFORM)?;
    Ok(Arc::new(Sms::new(kit)))
}

pub struct Sms {
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    media: Arc<dyn MediaStore>,
    files: SourceFiles,
    public_url: String,
    /// What the URLs of this server's files begin with.
    own_files: String,
    descriptor: Descriptor,
    doors: [Door; 3],
    /// Numbers that sent STOP, and when. Twilio knows them too, and for good.
    opted_out: Recent<u64>,
}

fn twiml() -> Reply {
    Reply { content_type: "text/xml", ..Reply::text(200, EMPTY_TWIML) }
}

impl Sms {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            emoji: "📱".into(),
            platform_hint: "You are texting by SMS. Plain text only, no Markdown; be brief.".into(),
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, "SMS", MESSAGE_MAX)
        };
        let door = |method, path, summary| Door { method, path, summary, max_bytes: FORM_MAX_BYTES };
        let doors = [
            door(Method::Post, MESSAGES, "Messages to a number at Twilio"),
            door(Method::Post, STATUSES, "Status of messages that were sent by Twilio"),
            door(Method::Get, FILES, "A file that Twilio sends, by a link that expires"),
        ];
        Self {
            env: kit.env.clone(),
            outcall: kit.outcall.clone(),
            media: kit.media.clone(),
            files: SourceFiles::new(kit),
            public_url: kit.public_url.clone(),
            own_files: files::url(&kit.public_url, ""),
            descriptor,
            doors,
            opted_out: Recent::default(),
        }
    }

    fn webhook_url(&self, bot: &Bot) -> String {
        format!("{}/twilio/{}", self.public_url, bot.id)
    }

    /// With the key of the action, which comes back in the status.
    fn status_url(&self, bot: &Bot, key: Option<&str>) -> String {
        let url = format!("{}/status", self.webhook_url(bot));
        key.map_or_else(|| url.clone(), |key| format!("{url}?key={key}"))
    }

    /// The fields of a genuine request. The URL is that of the configuration: headers of proxies are not used.
    fn verified(bot: &Bot, request: &RawRequest, url: String) -> Result<Fields, Reply> {
        let url = if request.query.is_empty() { url } else { format!("{url}?{}", request.query) };
        let signed = Signed {
            url: &url,
            content_type: request.header("content-type"),
            signature: request.only_header("x-twilio-signature"),
            body: &request.body,
        };
        let mut verdict = Err(Forged::Wrong);
        for auth_token in tokens_of(bot) {
            verdict = verdict.or_else(|_| verify(auth_token, signed));
        }
        let fields = verdict.map_err(|forged| {
            let status = if forged == Forged::NotAForm { 400 } else { 403 };
            Reply::text(status, forged.to_string())
        })?;
        let fields = Fields(fields);
        let account = bot.setting("account_sid");
        match fields.account() {
            Some(other) if account.is_some_and(|account| account != other) => {
                Err(Reply::text(403, "AccountSid is another account than account_sid of the bot"))
            }
            _ => Ok(fields),
        }
    }

    fn handle_request(&self, bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let fields = Self::verified(bot, request, self.webhook_url(bot))?;
        let said = normalize::said(&fields, bot).map_err(|why| Reply::text(400, why))?;
        let Some(Said { intake, from, keyword }) = said else { return Ok(ReceivedRequest::nothing(twiml())) };
        match keyword {
            Some(Keyword::Stop) => self.opted_out.put(&bot.id, &from, self.env.steady_ms()),
            Some(Keyword::Start) => self.opted_out.forget(&bot.id, &from),
            Some(Keyword::Help) | None => {}
        }
        Ok(ReceivedRequest::events(vec![intake], DoorAnswer::Fixed(twiml())))
    }

    fn note_status(&self, bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let fields = Self::verified(bot, request, self.status_url(bot, None))?;
        let query = fields_of(request.query.as_bytes()).unwrap_or_default();
        let receipt = normalize::status(&fields, first(&query, "key")).map_err(|why| Reply::text(400, why))?;
        Ok(ReceivedRequest { receipts: receipt.into_iter().collect(), ..ReceivedRequest::nothing(twiml()) })
    }
}

impl Platform for Sms {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(BotNames {
            settings: &["base_url", "account_sid", "from"],
            required: &["account_sid", "from", "auth_token"],
            secrets: &["auth_token"],
        })
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        let sid = bot.setting("account_sid").unwrap_or_default();
        if !sid.starts_with("AC") || !plain(sid) {
            return Err("account_sid must begin with AC, as the console of Twilio shows it".into());
        }
        let from = bot.setting("from").unwrap_or_default();
        let is_service = from.starts_with(SERVICE_PREFIX) && plain(from);
        if !is_number(from) && !is_service {
            return Err(format!(
                "from must be a number like +15551234567, or a messaging service (MG...), not {from:?}"
            ));
        }
        if tokens_of(bot).next().is_none() {
            return Err("the auth_token is empty".into());
        }
        match bot.setting("base_url") {
            Some(base) if !base.starts_with("https://") && !base.starts_with("http://") => {
                Err(format!("base_url {base:?} must begin with https:// or http://"))
            }
            _ => Ok(()),
        }
    }

    fn account_of(&self, bot: &Bot) -> Option<String> {
        bot.setting("account_sid").map(str::to_owned)
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
        Box::pin(async move {
            let bot = missing_bot::or_not_found(bot)?;
            match request.door {
                STATUSES => self.note_status(bot, request),
                FILES => {
                    let token = request.parameters.get("token").map(String::as_str).unwrap_or_default();
                    self.show_file(bot, token, request.now_ms).await
                }
                _ => self.handle_request(bot, request),
            }
        })
    }

    fn act<'a>(&'a self, acting_as: ActingAs<'a>, action: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(self.act_once(acting_as, action))
    }

    /// The chat with a person has the number of that person: nothing needs to be asked.
    fn look<'a>(
        &'a self,
        _: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        let look = is_number(chat_id).then(|| Look {
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
        match &action.act {
            Act::GetChatInfo { .. } => Cost::of(action),
            _ => Cost::of(action).in_bot_bucket("bot", BOT_RATE),
        }
    }
}
