//! Slack: the Events API or Socket Mode in, the Web API out.
//!
//! * `scope_id` is the workspace, `chat_id` the channel, `thread_id` the first message of a thread; a message outside of threads
//!   has none.
//! * Direct chats of several people are direct chats.
//! * One bot is one app. It may be installed in many workspaces, each of which grants a token.

mod account;
mod act;
mod api;
mod door;
mod draft;
mod emoji;
mod form;
mod inspect;
mod install;
mod interactions;
mod look;
mod media;
mod normalize;
mod people;
mod prompts;
mod received;
mod rich;
pub(crate) mod sample;
pub mod signature;
mod socket;
#[cfg(test)]
mod tests;
mod text;

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

use self::draft::{Draft, DraftKey};
use self::normalize::Me;
use self::text::MESSAGE_MAX;
use crate::shared::bounded_cache::BoundedCache;
use crate::shared::missing_bot;
use crate::shared::source_file::SourceFiles;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "slack";
pub const LISTED: Listed = Listed { name: PLATFORM, defaults: "", open, sample: Some(|| Box::new(sample::SampleApp)) };

const CAPABILITY_KIND: &str = "slack.response_url";
/// Slack takes the status line away after two minutes.
const TYPING_LASTS_MS: u64 = 110_000;

// What Slack permits, with a margin: one message a second in a channel, with short bursts, and some hundred a minute in a
// workspace; about 50 a minute of each other kind.
const BOT_RATE: Rate = Rate { burst: 20, every_ms: 150 };
const CHAT_RATE: Rate = Rate { burst: 3, every_ms: 1_050 };
const OTHER_RATE: Rate = Rate { burst: 15, every_ms: 1_250 };

const HOUR_MS: u64 = 3_600_000;
const BOTS_MAX: usize = 2_000;
const NAMES_MAX: usize = 20_000;
const PLACES_MAX: usize = 50_000;
const DRAFTS_MAX: usize = 1_000;

const OPS: [&str; 11] = [
    "send",
    "edit",
    "delete",
    "typing",
    "follow_up",
    "get_chat_info",
    "send_media",
    "prompt",
    "react",
    "thread_create",
    "draft",
];

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let _: NoSettings = kit.section(PLATFORM)?;
    Ok(Arc::new(Slack::new(kit)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

pub struct Slack {
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    files: SourceFiles,
    public_url: String,
    descriptor: Descriptor,
    /// Who each bot is, by its id, its account and the workspace.
    known: BoundedCache<(BotId, String, String), Me>,
    /// What people are called, by bot, workspace and user. `None`: Slack does not say.
    names: BoundedCache<(BotId, String, String), Option<String>>,
    /// The workspace of a chat, by bot and chat.
    places: BoundedCache<(BotId, String), String>,
    /// What kind of chat it is, by bot and chat.
    kinds: BoundedCache<(BotId, String), &'static str>,
    drafts: BoundedCache<DraftKey, Draft>,
}

impl Slack {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            supports_draft_streaming: true,
            supports_edit: true,
            supports_threads: true,
            supports_block_formatting: true,
            markdown_dialect: "mrkdwn".into(),
            emoji: "💼".into(),
            platform_hint: "You are talking on Slack. Write Markdown; it is converted. Name people as <@U...>. In \
                            threads people type commands with ! instead of /."
                .into(),
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, "Slack", MESSAGE_MAX)
        };
        Self {
            env: kit.env.clone(),
            outcall: kit.outcall.clone(),
            files: SourceFiles::new(kit),
            public_url: kit.public_url.clone(),
            descriptor,
            known: BoundedCache::new(BOTS_MAX, 24 * HOUR_MS),
            names: BoundedCache::new(NAMES_MAX, HOUR_MS),
            places: BoundedCache::new(PLACES_MAX, 24 * HOUR_MS),
            kinds: BoundedCache::new(PLACES_MAX, 24 * HOUR_MS),
            drafts: BoundedCache::new(DRAFTS_MAX, HOUR_MS),
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
        Act::FollowUp { .. } => None,
        Act::Draft { .. } => Some(("edit".to_owned(), OTHER_RATE)),
        act => Some((act.op().to_owned(), OTHER_RATE)),
    }
}

impl Platform for Slack {
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
        account::account_of(bot)
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

    fn act<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        action: &'a Action,
        capability: Option<&'a Secret>,
    ) -> BoxFuture<'a, Acted> {
        Box::pin(self.act_once(acting_as, action, capability))
    }

    fn answers_with(&self) -> Option<&'static str> {
        Some(CAPABILITY_KIND)
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

    fn fetch_media<'a>(&'a self, bot: &'a Bot, handle: &'a Secret) -> BoxFuture<'a, Result<RemoteMedia, MediaFault>> {
        Box::pin(self.fetch(bot, handle))
    }

    fn split(&self, text: &str) -> Vec<String> {
        text::parts(text)
    }

    fn cost(&self, _: ActingAs<'_>, action: &Action) -> Cost {
        let cost = Cost::of(action);
        match bucket(action) {
            None => cost,
            Some((name, rate)) if name.starts_with("chat:") => {
                cost.in_bot_bucket("bot", BOT_RATE).in_bucket(name, rate)
            }
            Some((name, rate)) => cost.in_bot_bucket(name, rate),
        }
    }
}
