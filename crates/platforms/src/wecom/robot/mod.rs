//! An intelligent robot of a company. On the wire it is `wecom`.
//!
//! `frontdesk bot add wecom --id BOT --set bot_id=... --secret secret=...`. This server dials a socket for messages and
//! answers. A robot has one socket: opening another one ends it.

mod act;
mod backlog;
mod draft;
pub mod frame;
mod held;
mod inspect;
mod link;
mod listen;
mod media;
pub mod normalize;
mod replies;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Cost, Inlet, ListenEnd, Look, LookFault, MediaFault, Part, Platform,
    Rate, RemoteMedia,
};
use frontdesk_wire::{Act, Action, ActionResult, BotId, ChatId, ChatInfo, Descriptor, Secret, UserId};
use serde::Deserialize;

use self::backlog::Backlog;
use self::draft::Drafts;
use self::held::Held;
use self::link::Links;
use self::replies::Replies;
use crate::shared::source_file::SourceFiles;
use crate::shared::transfers::Transfers;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "wecom";
pub const LISTED: Listed = Listed { name: PLATFORM, defaults: "", open, sample: None };

const SOCKET_URL: &str = "wss://openws.work.weixin.qq.com";
/// Of one message, in characters.
const MESSAGE_MAX: usize = 4_000;

// What WeCom takes: 30 messages a minute in one chat.
const CHAT_RATE: Rate = Rate { burst: 15, every_ms: 2_100 };
const DRAFT_RATE: Rate = Rate { burst: 3, every_ms: 700 };
const BOT_RATE: Rate = Rate { burst: 20, every_ms: 50 };

/// Files that are fetched to be kept at a time: for all robots, and for those of one tenant or one shared robot.
const HOLDS_MAX: usize = 4;
const HOLDS_PER_OWNER: usize = 2;
/// Files that go out at a time. Each is in memory as a whole, and read from where the agent chose.
const UPLOADS_MAX: usize = 4;
const UPLOADS_PER_TENANT: usize = 1;

const OPS: [&str; 3] = ["send", "send_media", "draft"];

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let _: NoSettings = kit.section(PLATFORM)?;
    Ok(Arc::new(Robot::new(kit)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

pub struct Robot {
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    files: SourceFiles,
    descriptor: Descriptor,
    links: Links,
    replies: Replies,
    drafts: Drafts,
    uploads: Transfers,
    backlog: Backlog,
    held: Held,
    /// For files that are fetched to be kept: each is in memory as a whole.
    holds: Transfers,
    /// Why the socket of a bot is not open, for `bot check` and the log.
    ended: Mutex<HashMap<BotId, String>>,
}

impl Robot {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            supports_draft_streaming: true,
            markdown_dialect: "markdown".into(),
            emoji: "🤖".into(),
            platform_hint: "You are talking in WeCom. Write Markdown; it is shown as it is.".into(),
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, "WeCom", MESSAGE_MAX)
        };
        Self {
            env: kit.env.clone(),
            outcall: kit.outcall.clone(),
            files: SourceFiles::new(kit),
            descriptor,
            links: Links::default(),
            replies: Replies::default(),
            drafts: Drafts::default(),
            uploads: Transfers::new(UPLOADS_MAX, UPLOADS_PER_TENANT),
            backlog: Backlog::default(),
            held: Held::default(),
            holds: Transfers::new(HOLDS_MAX, HOLDS_PER_OWNER),
            ended: Mutex::default(),
        }
    }

    fn new_req_id(&self, cmd: &str) -> String {
        format!("{cmd}_{}_{}", self.env.now_ms(), self.env.random_hex(8))
    }

    /// Members of a group are not reported: only those are known who have written.
    fn look_at(&self, bot: &Bot, chat_id: &str, viewer: Option<&str>) -> Option<Look> {
        if chat_id.is_empty() {
            return None;
        }
        let chat = self.replies.chat(&bot.id, chat_id);
        let info = |kind: &str| ChatInfo { name: chat_id.to_owned(), chat_type: kind.into() };
        if let Some(chat) = chat.filter(|chat| chat.is_group) {
            let visible = viewer.filter(|viewer| chat.has_spoken(viewer)).map(|_| true);
            return Some(Look { info: info("group"), visible, ..Look::default() });
        }
        let visible = viewer.map(|viewer| viewer == chat_id);
        Some(Look { info: info("dm"), visible, person: Some(chat_id.into()), ..Look::default() })
    }
}

/// Where the socket is dialed.
fn socket_url(bot: &Bot) -> &str {
    bot.setting("socket_url").unwrap_or(SOCKET_URL)
}

/// The same address for HTTP, if the operator gave it: it may be private.
fn own_base(bot: &Bot) -> Option<String> {
    let url = bot.setting("socket_url")?;
    let rest = url.strip_prefix("wss://").map(|rest| ("https", rest));
    let (scheme, rest) = rest.or_else(|| url.strip_prefix("ws://").map(|rest| ("http", rest)))?;
    Some(format!("{scheme}://{}", rest.split('/').next().unwrap_or_default()))
}

/// Each chat has a pace of its own.
fn bucket(action: &Action) -> (String, Rate) {
    let chat_id = action.act.chat();
    match &action.act {
        Act::Draft { sealed: false, .. } => (format!("draft:{chat_id}"), DRAFT_RATE),
        _ => (format!("chat:{chat_id}"), CHAT_RATE),
    }
}

impl Platform for Robot {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(BotNames { settings: &["socket_url", "bot_id"], required: &["bot_id", "secret"], secrets: &["secret"] })
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        let bot_id = bot.setting("bot_id").unwrap_or_default();
        if bot_id.is_empty() || bot_id.len() > 128 || bot_id.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(
                "bot_id must be the BotID that the settings of the robot show, in the mode with a long connection"
                    .into(),
            );
        }
        if bot.secret("secret").is_none_or(|secret| secret.expose().trim().is_empty()) {
            return Err("the secret is empty".into());
        }
        match bot.setting("socket_url") {
            Some(url) if !url.starts_with("wss://") && !url.starts_with("ws://") => {
                Err(format!("socket_url {url:?} must begin with wss:// or ws://"))
            }
            _ => Ok(()),
        }
    }

    fn clash(&self, bot: &Bot, others: &[Arc<Bot>]) -> Result<(), String> {
        match others.iter().find(|it| it.id != bot.id && it.setting("bot_id") == bot.setting("bot_id")) {
            Some(other) => Err(format!("bot {:?} is the same robot, and a robot has only one connection", other.id)),
            None => Ok(()),
        }
    }

    fn account_of(&self, bot: &Bot) -> Option<String> {
        bot.setting("bot_id").map(str::to_owned)
    }

    fn inspect<'a>(&'a self, bot: &'a Bot) -> BoxFuture<'a, Vec<BotFinding>> {
        Box::pin(std::future::ready(self.findings(bot)))
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
        Box::pin(self.keep_socket(bot, cursor, inlet))
    }

    fn act<'a>(&'a self, acting_as: ActingAs<'a>, action: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(self.act_once(acting_as, action))
    }

    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        Box::pin(std::future::ready(Ok(self.look_at(acting_as.bot, chat_id, viewer.map(UserId::as_str)))))
    }

    /// It is not the answer of the agent, whose draft continues.
    fn notice<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        text: &'a str,
    ) -> BoxFuture<'a, ActionResult> {
        Box::pin(async move { self.send_whole(acting_as.bot, chat_id, None, text).await.result })
    }

    fn fetch_media<'a>(&'a self, bot: &'a Bot, handle: &'a Secret) -> BoxFuture<'a, Result<RemoteMedia, MediaFault>> {
        Box::pin(self.fetch(bot, handle))
    }

    fn cost(&self, _: ActingAs<'_>, action: &Action) -> Cost {
        let (name, rate) = bucket(action);
        Cost::of(action).in_bot_bucket("bot", BOT_RATE).in_bucket(name, rate)
    }
}
