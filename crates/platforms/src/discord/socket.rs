//! The listener of one shard of a bot: its socket, its store, and the task that reads back what it missed. They run
//! until one of them reports that the listener cannot continue.

use frontdesk_core::port::platform::{Bot, Inlet, ListenEnd, Part};
use frontdesk_wire::Secret;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::sync::{Notify, mpsc};
use twilight_gateway::queue::InMemoryQueue;
use twilight_gateway::{Config, ConfigBuilder, Intents};

use super::Discord;
use super::ask::RetryBudget;
use super::backlog::{Backlog, QUEUE_MAX};
use super::callbacks::Answers;
use super::cursor::{Cursor, Progress};
use super::listening::Listening;
use super::shard::Line;
use super::starts::NO_INFO;

const INTENTS: [Intents; 5] = [
    Intents::GUILDS,
    Intents::GUILD_MEMBERS,
    Intents::GUILD_MESSAGES,
    Intents::DIRECT_MESSAGES,
    Intents::MESSAGE_CONTENT,
];

impl Discord {
    pub(super) async fn listen_as(
        &self,
        bot: &Bot,
        part: Part,
        cursor: Option<String>,
        inlet: &dyn Inlet,
    ) -> ListenEnd {
        let mut cursor = Cursor::read(cursor.as_deref()).for_shards(1);
        let has_session = cursor.shards.iter().any(|shard| !shard.session_id.is_empty());
        let gateway = self.gateways.of(bot);
        let info = match gateway.info(self, bot).await {
            Ok(info) => Some(info),
            // The socket says more about a token that is not valid, and a session may be resumed without the answer.
            Err(error) if has_session || error.status() == Some(401) => None,
            Err(error) => return ListenEnd::Lost(format!("{NO_INFO}: {}", error.text())),
        };
        let config = match config(bot, gateway.queue(info.as_ref())) {
            Ok(config) => config,
            Err(ended) => return ended,
        };
        // A resumed session does not say who the bot is.
        if cursor.me.is_empty() && has_session {
            cursor.me = match self.own_id_within(bot, RetryBudget::FEW).await {
                Ok(me) => me,
                Err(error) => return ListenEnd::Lost(format!("the id of the bot is not known: {}", error.text())),
            };
        }
        let progress = Progress::new(cursor, inlet);
        let (answers, missed) = (Answers::new(), Notify::new());
        let listening = Listening { discord: self, bot, part, inlet, progress, config, gateway, answers, missed };
        let _cache = Forgotten::begin(self, &bot.id, part);
        let backlog = Backlog::default();
        let (push, frames) = mpsc::channel(QUEUE_MAX);
        tokio::select! {
            ended = Line::new(&listening, &backlog).keep_open(push) => ended,
            why = listening.store(frames, &backlog) => ListenEnd::Lost(why),
            why = listening.read_back() => ListenEnd::Lost(why),
            () = self.send_answers(bot, &listening.answers) => ListenEnd::Never, // it does not end
        }
    }
}

fn config(bot: &Bot, queue: InMemoryQueue) -> Result<Config, ListenEnd> {
    let Some(token) = bot.secret("token").map(Secret::expose) else {
        return Err(ListenEnd::Misconfigured("the bot has no token".into()));
    };
    // The library takes the provider of the process, and panics without one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // one may be there already
    // It panics too if this fails.
    if let Err(error) = rustls::ClientConfig::builder().with_platform_verifier() {
        return Err(ListenEnd::Lost(format!(
            "the certificates of this machine cannot be read, so no connection can be checked; install the package of CA \
             certificates (often called ca-certificates): {error}"
        )));
    }
    let intents = INTENTS.into_iter().fold(Intents::empty(), |all, intent| all | intent);
    // No commands are sent, and the library panics if its limit of commands leaves no room between heartbeats.
    let mut config = ConfigBuilder::new(token.to_owned(), intents).ratelimit_messages(false).queue(queue);
    if let Some(url) = bot.setting("gateway_url") {
        config = config.proxy_url(url.trim_end_matches('/').to_owned());
    }
    Ok(config.build())
}

/// Drops what the socket reported when it ends, also if the listener is dropped: without it nothing keeps this up to
/// date.
struct Forgotten<'a> {
    discord: &'a Discord,
    bot: &'a str,
    part: Part,
}

impl<'a> Forgotten<'a> {
    fn begin(discord: &'a Discord, bot: &'a str, part: Part) -> Self {
        discord.guilds.begin(bot, part);
        Self { discord, bot, part }
    }
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.discord.guilds.end(self.bot, self.part);
    }
}
