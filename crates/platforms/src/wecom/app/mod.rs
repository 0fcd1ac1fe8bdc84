//! A self-built app of a company. On the wire it is `wecom_callback`.
//!
//! `frontdesk bot add wecom_callback --id BOT --set corp_id=... --set agent_id=... --secret secret=... --secret token=...
//! --secret aes_key=...`. `WeCom` calls `GET /wecom/{bot}` once to check the address, and `POST` with what members write to the
//! app. Answers go out by its API.

mod account;
mod act;
mod api;
mod door;
mod failed;
mod inspect;
mod media;
mod normalize;
pub(crate) mod sample;
#[cfg(test)]
mod tests;
mod text;
mod tokens;
pub mod xml;

use std::sync::Arc;

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Cost, Door, Inlet, ListenEnd, Look, LookFault, MediaFault, Method,
    Part, Platform, Rate, RawRequest, ReceivedRequest, RemoteMedia, Reply,
};
use frontdesk_wire::{Action, ChatId, ChatInfo, Descriptor, Secret, UserId};
use serde::Deserialize;

use self::account::member_of;
use self::text::MESSAGE_MAX_BYTES;
use self::tokens::Tokens;
use crate::shared::missing_bot;
use crate::shared::source_file::SourceFiles;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "wecom_callback";
pub const LISTED: Listed = Listed { name: PLATFORM, defaults: "", open, sample: Some(|| Box::new(sample::SampleApp)) };

const DOOR: &str = "/wecom/{bot}";
/// The longest text of a member is 2 KB; files come by their ids.
const BODY_MAX_BYTES: usize = 128 << 10;

// WeCom delivers 30 messages a minute to one member, and silently drops the rest.
const CHAT_RATE: Rate = Rate { burst: 15, every_ms: 2_100 };
const BOT_RATE: Rate = Rate { burst: 20, every_ms: 50 };

const OPS: [&str; 2] = ["send", "send_media"];

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let _: NoSettings = kit.section(PLATFORM)?;
    Ok(Arc::new(App::new(kit)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

pub struct App {
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    files: SourceFiles,
    public_url: String,
    descriptor: Descriptor,
    doors: [Door; 2],
    tokens: Tokens,
}

impl App {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            emoji: "🏢".into(),
            platform_hint: "You are talking in WeCom. Plain text only, no Markdown; be brief.".into(),
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, "WeCom", MESSAGE_MAX_BYTES)
        };
        let door = |method, summary| Door { method, path: DOOR, summary, max_bytes: BODY_MAX_BYTES };
        let doors =
            [door(Method::Get, "Check of the address by WeCom"), door(Method::Post, "Messages to an app of WeCom")];
        Self {
            env: kit.env.clone(),
            outcall: kit.outcall.clone(),
            files: SourceFiles::new(kit),
            public_url: kit.public_url.clone(),
            descriptor,
            doors,
            tokens: Tokens::default(),
        }
    }

    fn webhook_url(&self, bot: &Bot) -> String {
        format!("{}/wecom/{}", self.public_url, bot.id)
    }
}

impl Platform for App {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(account::NAMES)
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        account::check(bot)
    }

    fn account_of(&self, bot: &Bot) -> Option<String> {
        Some(format!("{}:{}", bot.setting("corp_id")?, bot.setting("agent_id")?))
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
        let received = missing_bot::or_not_found(bot).and_then(|bot| Self::handle_request(bot, request));
        Box::pin(std::future::ready(received))
    }

    fn act<'a>(&'a self, acting_as: ActingAs<'a>, action: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(self.act_once(acting_as, action))
    }

    /// The chat with a member has the id of that member in it: nothing needs to be asked.
    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        let look = member_of(acting_as.bot, chat_id).ok().map(|member| Look {
            info: ChatInfo { name: member.to_owned(), chat_type: "dm".into() },
            visible: viewer.map(|viewer| viewer == member),
            person: Some(member.into()),
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
        let chat_id = action.act.chat();
        Cost::of(action).in_bot_bucket("bot", BOT_RATE).in_bucket(format!("chat:{chat_id}"), CHAT_RATE)
    }
}
