//! Telegram: the Bot API, by long polling or by webhook.
//!
//! `frontdesk bot add telegram --id BOT --secret token=file:PATH` is all that a bot needs. With `--set mode=webhook`
//! Telegram calls `POST /telegram/{bot}` instead, and proves itself with the secret `webhook_secret`.

mod act;
mod api;
mod inspect;
mod media;
mod normalize;
mod poll;
pub(crate) mod sample;
mod text;
mod update;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_core::intake::Intake;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Command, Cost, Door, DoorAnswer, Inlet, ListenEnd, Look, LookFault,
    MediaFault, Method, Part, Platform, Rate, RawRequest, ReceivedFragment, ReceivedRequest, RemoteMedia, Reply,
};
use frontdesk_wire::descriptor::LenUnit;
use frontdesk_wire::secret::same_bytes;
use frontdesk_wire::{Act, Action, BotId, ChatId, ChatInfo, Descriptor, Secret, UserId};
use serde::Deserialize;
use serde_json::{Value, json};

use self::act::{chat_bucket, info, press_answer};
use self::api::{Api, ApiError};
use self::normalize::{Meaning, merge, unreadable};
use self::poll::Read;
use self::text::MESSAGE_MAX;
use self::update::{ALLOWED_UPDATES, Chat, User};
use crate::shared::missing_bot;
use crate::shared::source_file::SourceFiles;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "telegram";
pub const LISTED: Listed = Listed { name: PLATFORM, defaults: "", open, sample: Some(|| Box::new(sample::SampleBot)) };

/// The topic that every forum has. Its messages come without an id and are sent without one; only typing names it.
const GENERAL_TOPIC: &str = "1";
/// One update with the longest texts and entities.
const UPDATE_MAX_BYTES: usize = 512 << 10;
/// The Bot API gives out no larger files.
const DOWNLOAD_MAX_BYTES: usize = 20 << 20;

/// Of the list that clients show.
const COMMANDS_MAX: usize = 100;
const TYPING_LASTS_MS: u64 = 5_000;

// What Telegram permits, with a margin of 2 to 5 %: 30 messages a second in all, one a second in a chat, 20 a minute in
// a group. A larger burst would be more than that in some minute, unless the rate were lower.
const BOT_RATE: Rate = Rate { burst: 1, every_ms: 35 };
const CHAT_RATE: Rate = Rate { burst: 2, every_ms: 1_020 };
const GROUP_RATE: Rate = Rate { burst: 1, every_ms: 3_100 };

const OPS: [&str; 11] = [
    "send",
    "edit",
    "delete",
    "typing",
    "get_chat_info",
    "send_media",
    "prompt",
    "react",
    "thread_create",
    "thread_rename",
    "draft",
];

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let _: NoSettings = kit.section(PLATFORM)?;
    Ok(Arc::new(Telegram::new(kit)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

pub struct Telegram {
    outcall: Arc<dyn Outcall>,
    files: SourceFiles,
    public_url: String,
    descriptor: Descriptor,
    doors: [Door; 1],
    /// Who each bot is, as Telegram said, beside the account that was asked about.
    known: Mutex<HashMap<BotId, (String, User)>>,
}

impl Telegram {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            supports_draft_streaming: true,
            supports_edit: true,
            supports_threads: true,
            markdown_dialect: "markdown_v2".into(),
            len_unit: LenUnit::Utf16,
            emoji: "✈️".into(),
            platform_hint: "You are talking on Telegram. Write Markdown; tables become monospace text.".into(),
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, "Telegram", MESSAGE_MAX)
        };
        let door = Door {
            method: Method::Post,
            path: "/telegram/{bot}",
            summary: "Updates of a Telegram bot in webhook mode",
            max_bytes: UPDATE_MAX_BYTES,
        };
        Self {
            outcall: kit.outcall.clone(),
            files: SourceFiles::new(kit),
            public_url: kit.public_url.clone(),
            descriptor,
            doors: [door],
            known: Mutex::default(),
        }
    }

    /// Who the bot is. Asked once: the name of a bot changes rarely, and a changed token is another account.
    async fn me(&self, api: &Api<'_>, bot: &Bot) -> Result<User, ApiError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, me)) = known().get(&bot.id).filter(|(account, _)| account == bot.account()) {
            return Ok(me.clone());
        }
        let me = api.me().await?;
        known().insert(bot.id.clone(), (bot.account().to_owned(), me.clone()));
        Ok(me)
    }

    fn webhook_url(&self, bot: &Bot) -> String {
        format!("{}/telegram/{}", self.public_url, bot.id)
    }

    /// Tells Telegram where to send updates, and then waits: they come through the door.
    async fn set_webhook(&self, bot: &Bot) -> ListenEnd {
        let Some(api) = Api::of(&*self.outcall, bot) else {
            return ListenEnd::Misconfigured("the bot has no token".into());
        };
        let secret = bot.secret("webhook_secret").map_or("", Secret::expose);
        let webhook = json!({
            "url": self.webhook_url(bot),
            "secret_token": secret,
            "allowed_updates": ALLOWED_UPDATES,
        });
        match api.call::<Value>("setWebhook", &webhook).await {
            Ok(_) => ListenEnd::Never,
            Err(error) if error.code() == Some(400) => ListenEnd::Lost(format!(
                "Telegram does not accept the webhook ({}); it must be able to reach public_url by https",
                error.text()
            )),
            Err(error) => poll::ended(&error),
        }
    }

    async fn handle_request(&self, bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let given = request.only_header("x-telegram-bot-api-secret-token").unwrap_or_default();
        let expected = bot.secret("webhook_secret").ok_or_else(|| Reply::text(404, "this bot has no webhook"))?;
        if bot.setting("mode") != Some("webhook") || !same_bytes(given.as_bytes(), expected.expose().as_bytes()) {
            return Err(Reply::text(401, "the secret token of the webhook is missing or wrong"));
        }
        let api = Api::of(&*self.outcall, bot).ok_or_else(|| Reply::text(404, "the bot has no token"))?;
        let me = self.me(&api, bot).await.map_err(|error| Reply::text(503, error.text()))?;
        let value: Value =
            serde_json::from_slice(&request.body).map_err(|_| Reply::text(400, "the body is not valid JSON"))?;
        let read = Read::of(value, &me, bot);
        let Read { id, meaning } =
            read.ok_or_else(|| Reply::text(400, "the body is not an update: it has no update_id"))?;
        let done = || DoorAnswer::Fixed(Reply::json(200, &json!({})));
        let meaning = match meaning {
            Ok(meaning) => meaning,
            // Answered with success: Telegram would send it again and again.
            Err(why) => return Ok(ReceivedRequest::events(vec![unreadable(bot, &me, id, &why)], done())),
        };
        let chat_id = meaning.chat();
        if let Some(fragment) = fragment_of(&meaning, &me, &request.body) {
            return Ok(ReceivedRequest {
                fragment: Some(fragment),
                chat_id,
                ..ReceivedRequest::events(Vec::new(), done())
            });
        }
        let Meaning { intake, changes, pressed, .. } = meaning;
        let events = intake.map(|intake| *intake).into_iter().collect();
        // The answer may carry a call: the button stops spinning without another request.
        let answer = match pressed {
            None => done(),
            Some(pressed) => DoorAnswer::FromReceipts(Box::new(move |receipts| {
                let mut call = press_answer(&pressed, receipts.first());
                call["method"] = "answerCallbackQuery".into();
                Reply::json(200, &call)
            })),
        };
        Ok(ReceivedRequest { changes, chat_id, ..ReceivedRequest::events(events, answer) })
    }

    /// The event of an album whose updates came one by one.
    async fn join_album(&self, bot: &Bot, updates: &[Secret]) -> Result<Vec<Intake>, String> {
        let api = Api::of(&*self.outcall, bot).ok_or("the bot has no token")?;
        let me = self.me(&api, bot).await.map_err(|error| error.text())?;
        let read = |update: &Secret| Read::of(serde_json::from_str(update.expose()).ok()?, &me, bot);
        let mut read: Vec<Read> = updates.iter().filter_map(read).collect();
        read.sort_by_key(|update| update.id);
        let mut joined: Vec<Intake> = Vec::new();
        for intake in read.into_iter().filter_map(|update| update.meaning.ok()?.intake) {
            match joined.first_mut() {
                Some(first) => merge(first, *intake),
                None => joined.push(*intake),
            }
        }
        Ok(joined)
    }

    async fn look_at(&self, bot: &Bot, chat_id: &str, viewer: Option<&str>) -> Result<Option<Look>, LookFault> {
        // The chat with a person has the id of that person: nothing needs to be asked.
        if chat_id.parse::<i64>().is_ok_and(|id| id > 0) {
            let info = ChatInfo { name: chat_id.to_owned(), chat_type: "dm".into() };
            let visible = viewer.map(|viewer| viewer == chat_id);
            return Ok(Some(Look { info, visible, person: Some(chat_id.into()), ..Look::default() }));
        }
        let unknown = |error: ApiError| LookFault::Platform(error.text());
        let Some(api) = Api::of(&*self.outcall, bot) else { return Ok(None) };
        // Who can see it is one question, what it is another.
        if let Some(viewer) = viewer {
            let visible = match viewer == chat_id {
                true => Some(true), // a channel, or an anonymous administrator, speaks in the name of the chat
                false => self.is_member(&api, chat_id, viewer).await,
            };
            let info = ChatInfo { name: chat_id.to_owned(), chat_type: "group".into() };
            return Ok(Some(Look { info, visible, ..Look::default() }));
        }
        let found: Chat = match api.call("getChat", &json!({ "chat_id": chat_id })).await {
            Ok(found) => found,
            Err(error) if matches!(error.code(), Some(400 | 403)) => return Ok(None),
            Err(error) => return Err(unknown(error)),
        };
        Ok(Some(Look { info: info(&found), ..Look::default() }))
    }

    /// `None`: Telegram does not say. That counts as no.
    async fn is_member(&self, api: &Api<'_>, chat_id: &str, viewer: &str) -> Option<bool> {
        let user: i64 = viewer.parse().ok()?;
        let asked = json!({ "chat_id": chat_id, "user_id": user });
        match api.call::<Member>("getChatMember", &asked).await {
            Ok(member) => Some(match member.status.as_str() {
                "creator" | "administrator" | "member" => true,
                "restricted" => member.is_member,
                _ => false,
            }),
            Err(error) if error.says(&["user not found", "participant_id_invalid", "member not found"]) => Some(false),
            Err(_) => None,
        }
    }

    async fn declare(&self, bot: &Bot, commands: &[Command]) -> Result<(), String> {
        let api = Api::of(&*self.outcall, bot).ok_or("the bot has no token")?;
        let shown = |command: &Command| {
            // Telegram knows no hyphens in names; gateways take an underscore for one.
            let name = command.name.replace('-', "_");
            let is_plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            let text: String = command.description.chars().take(256).collect();
            let text = if text.trim().is_empty() { name.clone() } else { text };
            ((1..=32).contains(&name.len()) && is_plain).then(|| json!({ "command": name, "description": text }))
        };
        let wanted: Vec<Value> = commands.iter().filter_map(shown).take(COMMANDS_MAX).collect();
        let current: Vec<Value> = api.call("getMyCommands", &json!({})).await.map_err(|error| error.text())?;
        if current == wanted {
            return Ok(());
        }
        let set: Result<Value, ApiError> = api.call("setMyCommands", &json!({ "commands": wanted })).await;
        set.map(drop).map_err(|error| error.text())
    }
}

/// Telegram sends the next photo of an album after the last was answered.
fn fragment_of(meaning: &Meaning, me: &User, body: &[u8]) -> Option<ReceivedFragment> {
    let album = meaning.album.as_ref()?;
    let event = &meaning.intake.as_ref()?.event;
    let chat_id = event.source.chat_id.to_string();
    let message_id = event.message_id.as_deref()?;
    Some(ReceivedFragment {
        group: format!("{chat_id}:{album}"),
        id: format!("{}:{chat_id}:{message_id}", me.id),
        chat_id: chat_id.into(),
        body: Secret::new(std::str::from_utf8(body).ok()?),
    })
}

#[derive(Deserialize)]
struct Member {
    #[serde(default)]
    status: String,
    #[serde(default)]
    is_member: bool,
}

/// Ids of groups and channels are negative.
fn is_group(chat_id: &str) -> bool {
    chat_id.starts_with('-') || chat_id.starts_with('@')
}

impl Platform for Telegram {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(BotNames { settings: &["base_url", "mode"], required: &["token"], secrets: &["token", "webhook_secret"] })
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        let token = bot.secret("token").map_or("", Secret::expose);
        let is_token = token.split_once(':').is_some_and(|(id, rest)| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            id.parse::<u64>().is_ok() && rest.len() >= 20 && rest.chars().all(plain)
        });
        if !is_token {
            return Err("the token must look like 123456:ABC-DEF..., as @BotFather shows it".into());
        }
        if let Some(base) = bot.setting("base_url") {
            let is_url = base.starts_with("https://") || base.starts_with("http://");
            if !is_url {
                return Err(format!("base_url {base:?} must begin with https:// or http://"));
            }
        }
        match bot.setting("mode").unwrap_or("poll") {
            "poll" => Ok(()),
            "webhook" => {
                let secret = bot.secret("webhook_secret").map_or("", Secret::expose);
                let plain = secret.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                match (16..=256).contains(&secret.len()) && plain {
                    true => Ok(()),
                    false => Err("mode webhook needs --secret webhook_secret=...: 16 to 256 of A-Z a-z 0-9 _ -".into()),
                }
            }
            other => Err(format!("mode must be poll or webhook, not {other:?}")),
        }
    }

    fn account_of(&self, bot: &Bot) -> Option<String> {
        bot.secret("token")?.expose().split_once(':').map(|(id, _)| id.to_owned())
    }

    fn inspect<'a>(&'a self, bot: &'a Bot) -> BoxFuture<'a, Vec<BotFinding>> {
        Box::pin(self.findings(bot))
    }

    fn listens(&self) -> bool {
        true
    }

    fn listen<'a>(
        &'a self,
        bot: &'a Bot,
        _: Part,
        cursor: Option<String>,
        inlet: &'a dyn Inlet,
    ) -> BoxFuture<'a, ListenEnd> {
        Box::pin(async move {
            match bot.setting("mode") {
                Some("webhook") => self.set_webhook(bot).await,
                _ => self.poll(bot, cursor, inlet).await,
            }
        })
    }

    fn doors(&self) -> &[Door] {
        &self.doors
    }

    fn receive<'a>(
        &'a self,
        bot: Option<&'a Bot>,
        request: &'a RawRequest,
    ) -> BoxFuture<'a, Result<ReceivedRequest, Reply>> {
        Box::pin(async move { self.handle_request(missing_bot::or_not_found(bot)?, request).await })
    }

    fn join<'a>(&'a self, bot: &'a Bot, fragments: &'a [Secret]) -> BoxFuture<'a, Result<Vec<Intake>, String>> {
        Box::pin(self.join_album(bot, fragments))
    }

    fn act<'a>(&'a self, acting_as: ActingAs<'a>, action: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(self.act_once(acting_as, action))
    }

    fn typing_lasts_ms(&self) -> Option<u64> {
        Some(TYPING_LASTS_MS)
    }

    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        Box::pin(self.look_at(acting_as.bot, chat_id, viewer.map(UserId::as_str)))
    }

    fn declares_commands(&self) -> bool {
        true
    }

    fn declare_commands<'a>(&'a self, bot: &'a Bot, commands: &'a [Command]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.declare(bot, commands))
    }

    fn fetch_media<'a>(&'a self, bot: &'a Bot, handle: &'a Secret) -> BoxFuture<'a, Result<RemoteMedia, MediaFault>> {
        Box::pin(self.fetch(bot, handle))
    }

    fn split(&self, text: &str) -> Vec<String> {
        text::parts(text)
    }

    fn cost(&self, _: ActingAs<'_>, action: &Action) -> Cost {
        let cost = Cost::of(action);
        let chat_id = action.act.chat();
        match &action.act {
            // Not counted by Telegram like messages.
            Act::Typing { .. } | Act::GetChatInfo { .. } | Act::Draft { sealed: false, .. } => {
                cost.in_bot_bucket("bot", BOT_RATE)
            }
            _ => {
                let rate = if is_group(chat_id) { GROUP_RATE } else { CHAT_RATE };
                cost.in_bot_bucket("bot", BOT_RATE).in_bucket(chat_bucket(chat_id), rate)
            }
        }
    }
}
