//! Feishu and Lark: event subscription or a persistent connection in, the open API out.
//!
//! * `chat_id` is the chat, `thread_id` the topic, or the first message of a chain of answers; there is no scope.
//! * A person is known by the id of the organization where the app may know it, else by the id that the app has for them.
//! * One bot is one app.

mod account;
mod act;
mod api;
mod content;
mod door;
mod draft;
mod emoji;
pub mod envelope;
mod events;
mod failure;
mod files;
pub mod frame;
mod inspect;
mod look;
mod media;
mod mentions;
mod normalize;
mod people;
mod post;
mod prompts;
mod received;
mod refusals;
pub(crate) mod sample;
mod send;
pub mod signature;
mod socket;
mod structured;
#[cfg(test)]
mod tests;
mod text;
mod value;
mod work;

use std::sync::Arc;

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Cost, Door, Inlet, ListenEnd, Look, LookFault, MediaFault, Part,
    Platform, Rate, RawRequest, ReceivedRequest, RemoteMedia, Reply,
};
use frontdesk_wire::{Act, Action, BotId, ChatId, Descriptor, Secret, UserId};
use serde::Deserialize;

use self::api::no_tokens;
use self::draft::Cards;
use self::failure::ApiError;
use self::mentions::Me;
use self::normalize::{Chat, Parent};
use self::text::MESSAGE_MAX;
use crate::shared::bounded_cache::BoundedCache;
use crate::shared::missing_bot;
use crate::shared::source_file::SourceFiles;
use crate::shared::tokens::Tokens;
use crate::shared::transfers::Transfers;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "feishu";
pub const LISTED: Listed = Listed { name: PLATFORM, defaults: "", open, sample: Some(|| Box::new(sample::SampleApp)) };

// What Feishu permits, with a margin: 50 requests a second of an app, and five messages a second in a chat.
const BOT_RATE: Rate = Rate { burst: 20, every_ms: 25 };
const CHAT_RATE: Rate = Rate { burst: 4, every_ms: 220 };
/// Of one card that is changed.
const DRAFT_RATE: Rate = Rate { burst: 3, every_ms: 250 };

const HOUR_MS: u64 = 3_600_000;
const BOTS_MAX: usize = 2_000;
const NAMES_MAX: usize = 20_000;
const CHATS_MAX: usize = 20_000;
const PARENTS_MAX: usize = 1_000;
const PLACES_MAX: usize = 50_000;
const ANCHORS_MAX: usize = 20_000;

const OPS: [&str; 9] =
    ["send", "edit", "delete", "get_chat_info", "send_media", "prompt", "react", "thread_create", "draft"];

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let _: NoSettings = kit.section(PLATFORM)?;
    Ok(Arc::new(Feishu::new(kit)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

/// A cache by bot and an id within the bot.
type OfBot<V> = BoundedCache<(BotId, String), V>;

pub struct Feishu {
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    sources: SourceFiles,
    public_url: String,
    descriptor: Descriptor,
    tokens: Tokens<ApiError>,
    /// The identity of each bot, by app id.
    known: OfBot<Me>,
    /// Display names of users. `None`: Feishu returned none.
    names: OfBot<Option<String>>,
    chats: OfBot<Chat>,
    /// Messages that other messages reply to.
    parents: OfBot<Parent>,
    /// The ids of the person of a direct chat.
    persons: OfBot<Vec<String>>,
    /// The chat of a message or topic.
    places: OfBot<String>,
    /// The latest known message of a topic; replies into the topic are attached to it.
    anchors: OfBot<String>,
    cards: Cards,
    /// Files of unknown length that are being sent.
    held_files: Transfers,
}

impl Feishu {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            supports_draft_streaming: true,
            supports_edit: true,
            supports_threads: true,
            markdown_dialect: "post".into(),
            emoji: "🪽".into(),
            platform_hint: "You are talking on Feishu (Lark). Write Markdown; it is converted. Name people as <at \
                            user_id=\"ou_...\">Name</at>, with the open_id."
                .into(),
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, "Feishu", MESSAGE_MAX)
        };
        Self {
            env: kit.env.clone(),
            outcall: kit.outcall.clone(),
            sources: SourceFiles::new(kit),
            public_url: kit.public_url.clone(),
            descriptor,
            tokens: no_tokens(),
            known: BoundedCache::new(BOTS_MAX, 24 * HOUR_MS),
            names: BoundedCache::new(NAMES_MAX, HOUR_MS),
            chats: BoundedCache::new(CHATS_MAX, HOUR_MS),
            parents: BoundedCache::new(PARENTS_MAX, HOUR_MS),
            persons: BoundedCache::new(CHATS_MAX, 24 * HOUR_MS),
            places: BoundedCache::new(PLACES_MAX, 24 * HOUR_MS),
            anchors: BoundedCache::new(ANCHORS_MAX, 24 * HOUR_MS),
            cards: Cards::new(),
            held_files: Transfers::new(media::HELD_MAX, media::HELD_PER_TENANT),
        }
    }
}

/// The limit that an action counts for, by name.
fn bucket(action: &Action) -> Option<(String, Rate)> {
    let chat = action.act.chat();
    match &action.act {
        Act::Send { .. } | Act::Prompt { .. } | Act::SendMedia { .. } | Act::ThreadCreate { .. } => {
            Some((format!("chat:{chat}"), CHAT_RATE))
        }
        Act::Draft { .. } | Act::Edit { .. } => Some((format!("card:{chat}"), DRAFT_RATE)),
        _ => None,
    }
}

impl Platform for Feishu {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(account::NAMES)
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        account::check(bot)
    }

    fn clash(&self, bot: &Bot, others: &[Arc<Bot>]) -> Result<(), String> {
        account::clash(bot, others)
    }

    fn account_of(&self, bot: &Bot) -> Option<String> {
        bot.setting("app_id").map(|id| format!("{} {id}", account::base(bot)))
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
        Box::pin(self.listen_as(bot, cursor, inlet))
    }

    fn doors(&self) -> &[Door] {
        &door::DOORS
    }

    fn receive<'a>(
        &'a self,
        bot: Option<&'a Bot>,
        request: &'a RawRequest,
    ) -> BoxFuture<'a, Result<ReceivedRequest, Reply>> {
        Box::pin(async move { self.handle_request(missing_bot::or_not_found(bot)?, request).await })
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
        Box::pin(self.look_at(acting_as.bot, chat_id, viewer.map(UserId::as_str)))
    }

    fn fetch_media<'a>(&'a self, bot: &'a Bot, handle: &'a Secret) -> BoxFuture<'a, Result<RemoteMedia, MediaFault>> {
        Box::pin(self.fetch(bot, handle))
    }

    fn split(&self, text: &str) -> Vec<String> {
        text::parts(text)
    }

    fn cost(&self, _: ActingAs<'_>, action: &Action) -> Cost {
        let cost = Cost::of(action).in_bot_bucket("bot", BOT_RATE);
        match bucket(action) {
            None => cost,
            Some((name, rate)) => cost.in_bucket(name, rate),
        }
    }
}
