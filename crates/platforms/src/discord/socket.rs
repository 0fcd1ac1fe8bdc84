//! The listener of a bot: its shards, each with a socket and a store of its own, and what reads back what they missed.
//! All of them run until one of them says that the listener cannot go on.

use frontdesk_core::port::platform::{Bot, Ended, Inlet};
use frontdesk_wire::Secret;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::sync::{Notify, mpsc};
use twilight_gateway::{Config, ConfigBuilder, Intents};

use super::Discord;
use super::ask::Patience;
use super::backlog::{Backlog, QUEUE_MAX};
use super::callbacks::Answers;
use super::cursor::{Cursor, Progress};
use super::listening::{Failing, Listening};
use super::shard::Line;
use super::starts::{GatewayInfo, SHARDS_MAX, Starts};

const INTENTS: [Intents; 5] = [
    Intents::GUILDS,
    Intents::GUILD_MEMBERS,
    Intents::GUILD_MESSAGES,
    Intents::DIRECT_MESSAGES,
    Intents::MESSAGE_CONTENT,
];

impl Discord {
    pub(super) async fn listen_as(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
        let cursor = Cursor::read(cursor.as_deref());
        let (shards, info) = match self.shards_of(bot, &cursor).await {
            Ok(found) => found,
            Err(ended) => return ended,
        };
        let config = match config(bot, info.as_ref()) {
            Ok(config) => config,
            Err(ended) => return ended,
        };
        let mut cursor = cursor.for_shards(shards);
        // A session that is resumed does not tell who the bot is.
        if cursor.me.is_empty() && cursor.shards.iter().any(|shard| !shard.session_id.is_empty()) {
            cursor.me = match self.own_id_within(bot, Patience::FEW).await {
                Ok(me) => me,
                Err(error) => return Ended::Lost(format!("the id of the bot is not known: {}", error.text())),
            };
        }
        let listening = Listening {
            discord: self,
            bot,
            inlet,
            progress: Progress::new(cursor, inlet),
            shards,
            config,
            starts: Starts::new(self, bot, info.as_ref()),
            failing: Failing::new(shards),
            answers: Answers::new(),
            missed: Notify::new(),
        };
        let _cache = Forgotten::begin(self, &bot.id);
        let mut running: FuturesUnordered<_> = (0..shards).map(|number| listening.shard(number)).collect();
        tokio::select! {
            Some(ended) = running.next() => ended,
            why = listening.read_back() => Ended::Lost(why),
            () = self.send_answers(bot, &listening.answers) => Ended::Never, // it does not end
        }
    }

    /// How many shards to run, and what Discord said about their start.
    async fn shards_of(&self, bot: &Bot, cursor: &Cursor) -> Result<(u32, Option<GatewayInfo>), Ended> {
        let known = u32::try_from(cursor.shards.len()).unwrap_or(0);
        match self.gateway_info(bot).await {
            Ok(info) if info.shards > SHARDS_MAX => Err(Ended::Misconfigured(format!(
                "Discord wants {} connections for the guilds of this bot, and this server opens at most {SHARDS_MAX}; \
                 spread the guilds over several bots",
                info.shards
            ))),
            Ok(info) => Ok((info.shards.max(1), Some(info))),
            // The socket says more about a token that is not valid.
            Err(error) if error.status() == Some(401) => Ok((known.max(1), None)),
            Err(_) if known > 0 => Ok((known, None)),
            Err(error) => Err(Ended::Lost(format!("Discord did not say how to connect: {}", error.text()))),
        }
    }
}

impl Listening<'_> {
    async fn shard(&self, number: u32) -> Ended {
        let backlog = Backlog::default();
        let (push, frames) = mpsc::channel(QUEUE_MAX);
        let line = Line::new(self, number, &backlog);
        tokio::select! {
            ended = line.keep_open(push) => ended,
            why = self.store(number, frames, &backlog) => Ended::Lost(why),
        }
    }
}

fn config(bot: &Bot, info: Option<&GatewayInfo>) -> Result<Config, Ended> {
    let Some(token) = bot.secret("token").map(Secret::expose) else {
        return Err(Ended::Misconfigured("the bot has no token".into()));
    };
    // The library takes the provider of the process, and panics without one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // one may be there already
    // It panics too if this fails.
    if let Err(error) = rustls::ClientConfig::builder().with_platform_verifier() {
        return Err(Ended::Lost(format!(
            "the certificates of this machine cannot be read, so no connection can be checked; install the package of CA \
             certificates (often called ca-certificates): {error}"
        )));
    }
    let intents = INTENTS.into_iter().fold(Intents::empty(), |all, intent| all | intent);
    // No commands are sent, and the library panics if its limit of commands leaves no room between heartbeats.
    let mut config = ConfigBuilder::new(token.to_owned(), intents).ratelimit_messages(false);
    if let Some(info) = info {
        config = config.queue(info.queue());
    }
    if let Some(url) = bot.setting("gateway_url") {
        config = config.proxy_url(url.trim_end_matches('/').to_owned());
    }
    Ok(config.build())
}

/// What the sockets told is forgotten with them, also if the listener is dropped.
struct Forgotten<'a> {
    discord: &'a Discord,
    bot: &'a str,
}

impl<'a> Forgotten<'a> {
    fn begin(discord: &'a Discord, bot: &'a str) -> Self {
        discord.guilds.begin(bot);
        Self { discord, bot }
    }
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.discord.guilds.forget(self.bot);
    }
}
