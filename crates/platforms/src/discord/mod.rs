//! Discord: the gateway socket and interactions in, REST out.
//!
//! * `scope_id` is the guild, `chat_id` the channel; in a thread `chat_id` and `thread_id` are the thread, and
//!   `parent_chat_id` its channel.
//! * Who sees a channel follows from roles and overwrites. What Discord does not say counts as no.

mod act;
mod api;
mod ask;
mod backfill;
mod backlog;
mod body;
mod buckets;
mod callbacks;
mod commands;
mod cursor;
mod follow_up;
mod forward;
mod guilds;
mod inspect;
mod interactions;
mod invalid;
mod listening;
mod look;
mod normalize;
mod permissions;
mod places;
mod prompts;
pub(crate) mod sample;
mod shard;
pub mod signature;
mod snowflake;
mod socket;
mod starts;
mod store;
mod text;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Command, Cost, Door, Inlet, ListenEnd, Look, LookFault, MediaFault,
    Method, Part, Partitioned, Platform, Rate, RawRequest, ReceivedRequest, RemoteMedia, Reply,
};
use frontdesk_wire::descriptor::LenUnit;
use frontdesk_wire::{Act, Action, BotId, ChatId, Descriptor, Secret, UserId};
use serde::Deserialize;

use self::buckets::Buckets;
use self::callbacks::RefusedInteractions;
use self::commands::CommandBudget;
use self::follow_up::Begun;
use self::guilds::Guilds;
use self::interactions::CAPABILITY_KIND;
use self::invalid::{Forbidden, InvalidRequests};
use self::places::User;
use self::starts::Gateways;
use self::text::MESSAGE_MAX;
use crate::shared::missing_bot;
use crate::shared::source_file::SourceFiles;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "discord";
pub const LISTED: Listed = Listed {
    name: PLATFORM,
    defaults: include_str!("default.toml"),
    open,
    sample: Some(|| Box::new(sample::SampleBot::new())),
};

const TYPING_LASTS_MS: u64 = 10_000;
/// A form with the longest texts, or a command for the longest message.
const INTERACTION_MAX_BYTES: usize = 256 << 10;

// What Discord permits, with a margin: 50 requests a second in all, 5 messages in 5 s in a channel. Limits of routes that
// its answers tell are obeyed beside these.
const BOT_RATE: Rate = Rate { burst: 5, every_ms: 23 };
const CHANNEL_RATE: Rate = Rate { burst: 4, every_ms: 1_050 };

/// Of follow-ups, by the token of their interaction: 5 in 2 s. They do not count for the bot.
const TOKEN_RATE: Rate = Rate { burst: 4, every_ms: 450 };

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
    "thread_rename",
];

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let Settings { commands } = kit.section(PLATFORM)?;
    let forwards_interactions = commands == Commands::Forward;
    Ok(Arc::new(Discord { forwards_interactions, ..Discord::new(kit) }))
}

/// In which form agents get commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Commands {
    /// As the interaction, without its token.
    #[default]
    Forward,
    /// As a message of the person, for agents that know no forwards.
    Event,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Settings {
    commands: Commands,
}

pub struct Discord {
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    files: SourceFiles,
    public_url: String,
    descriptor: Descriptor,
    guilds: Guilds,
    gateways: Gateways,
    invalid: InvalidRequests,
    buckets: Buckets,
    forbidden: Forbidden,
    /// Who each bot is, as Discord said, beside the account that was asked about.
    known: Mutex<HashMap<BotId, (String, User)>>,
    doors: [Door; 1],
    forwards_interactions: bool,
    begun: Begun,
    refused: RefusedInteractions,
    /// The application of each bot, beside the account that was asked about.
    applications: Mutex<HashMap<BotId, (String, String)>>,
    command_budget: CommandBudget,
}

impl Discord {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            supports_edit: true,
            supports_threads: true,
            markdown_dialect: "discord".into(),
            len_unit: LenUnit::Chars,
            emoji: "💬".into(),
            platform_hint: "You are talking on Discord. Write Markdown; tables become monospace text.".into(),
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, "Discord", MESSAGE_MAX)
        };
        Self {
            env: kit.env.clone(),
            outcall: kit.outcall.clone(),
            files: SourceFiles::new(kit),
            public_url: kit.public_url.clone(),
            descriptor,
            guilds: Guilds::default(),
            gateways: Gateways::default(),
            invalid: InvalidRequests::default(),
            buckets: Buckets::default(),
            forbidden: Forbidden::default(),
            known: Mutex::default(),
            doors: [Door {
                method: Method::Post,
                path: "/interactions/{bot}",
                summary: "Interactions of a Discord bot: commands, buttons, menus and forms",
                max_bytes: INTERACTION_MAX_BYTES,
            }],
            forwards_interactions: true,
            begun: Begun::default(),
            refused: RefusedInteractions::default(),
            applications: Mutex::default(),
            command_budget: CommandBudget::default(),
        }
    }
}

impl Platform for Discord {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(BotNames {
            settings: &["base_url", "gateway_url", "application_id", "public_key", "socket"],
            required: &["token"],
            secrets: &["token"],
        })
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        let token = bot.secret("token").map_or("", Secret::expose);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if token.len() < 20 || !token.chars().all(plain) {
            return Err("the token must be that of the bot, as the developer portal shows it, without \"Bot \"".into());
        }
        let is_plain = |url: &str| url.bytes().all(|byte| byte.is_ascii_graphic());
        for (name, schemes) in [("base_url", ["https://", "http://"]), ("gateway_url", ["wss://", "ws://"])] {
            if let Some(url) = bot.setting(name)
                && !(is_plain(url) && schemes.iter().any(|scheme| url.starts_with(scheme) && url.len() > scheme.len()))
            {
                return Err(format!("{name} {url:?} must begin with {} or {}", schemes[0], schemes[1]));
            }
        }
        if let Some(key) = bot.setting("public_key").filter(|key| !signature::is_public_key(key)) {
            return Err(format!("public_key {key:?} must be 64 hexadecimal digits, as the developer portal shows it"));
        }
        if let Some(id) = bot.setting("application_id").filter(|id| !snowflake::is_id(id)) {
            return Err(format!("application_id {id:?} must be a number, as the developer portal shows it"));
        }
        match bot.setting("socket").unwrap_or("on") {
            "on" | "off" => Ok(()),
            other => Err(format!("socket must be on or off, not {other:?}")),
        }
    }

    /// A token begins with the id of its bot.
    fn account_of(&self, bot: &Bot) -> Option<String> {
        bot.secret("token")?.expose().split_once('.').map(|(id, _)| id.to_owned())
    }

    fn inspect<'a>(&'a self, bot: &'a Bot) -> BoxFuture<'a, Vec<BotFinding>> {
        Box::pin(self.findings(bot))
    }

    fn listens(&self) -> bool {
        true
    }

    fn partitioned(&self) -> Option<&dyn Partitioned> {
        Some(self)
    }

    fn listen<'a>(
        &'a self,
        bot: &'a Bot,
        part: Part,
        cursor: Option<String>,
        inlet: &'a dyn Inlet,
    ) -> BoxFuture<'a, ListenEnd> {
        match bot.setting("socket") {
            Some("off") => Box::pin(std::future::ready(ListenEnd::Never)),
            _ => Box::pin(self.listen_as(bot, part, cursor, inlet)),
        }
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

    fn declares_commands(&self) -> bool {
        true
    }

    fn declare_commands<'a>(&'a self, bot: &'a Bot, commands: &'a [Command]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.declare(bot, commands))
    }

    fn split(&self, text: &str) -> Vec<String> {
        text::parts(text)
    }

    fn cost(&self, acting_as: ActingAs<'_>, action: &Action) -> Cost {
        if matches!(action.act, Act::FollowUp { .. }) {
            return Cost::of(action).in_bucket(self.buckets.of(&acting_as.bot.id, action), TOKEN_RATE);
        }
        let cost = Cost::of(action).in_bot_bucket("bot", BOT_RATE);
        cost.in_bucket(self.buckets.of(&acting_as.bot.id, action), CHANNEL_RATE)
    }
}
