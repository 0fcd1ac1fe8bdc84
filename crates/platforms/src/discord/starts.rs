//! How many shards a bot has, and how often it may begin a session: Discord counts that by the day, and revokes the token
//! of a bot that exceeds it.

use std::time::Duration;

use frontdesk_core::port::platform::Bot;
use serde::Deserialize;
use tokio::sync::Mutex;
use twilight_gateway::queue::InMemoryQueue;

use super::Discord;
use super::api::ApiError;
use super::ask::Patience;

/// Connections of one bot. One more shard for each 1,000 guilds or so.
pub(super) const SHARDS_MAX: u32 = 64;
/// What Discord said is believed so long.
const FRESH_MS: u64 = 5_000;

/// `GET /gateway/bot`
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct GatewayInfo {
    pub(super) shards: u32,
    #[serde(rename = "session_start_limit")]
    limit: StartLimit,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct StartLimit {
    remaining: u32,
    /// In milliseconds.
    reset_after: u64,
    /// Shards that may identify at the same time.
    max_concurrency: u16,
}

impl GatewayInfo {
    /// Lets shards identify one after another, as far as Discord demands it. The day's count is not its matter: it would
    /// wait for the next day without a word.
    pub(super) fn queue(&self) -> InMemoryQueue {
        InMemoryQueue::new(self.limit.max_concurrency, u32::MAX, Duration::ZERO, u32::MAX)
    }
}

struct Known {
    at_ms: u64,
    remaining: u32,
    reset_at_ms: u64,
}

/// Sessions that may begin now. Without an answer of Discord nothing is known, and it is tried.
pub(super) struct Starts<'a> {
    discord: &'a Discord,
    bot: &'a Bot,
    known: Mutex<Option<Known>>,
}

impl<'a> Starts<'a> {
    pub(super) fn new(discord: &'a Discord, bot: &'a Bot, info: Option<&GatewayInfo>) -> Self {
        let known = info.map(|info| known(info, discord.env.now_ms()));
        Self { discord, bot, known: Mutex::new(known) }
    }

    /// Before a session begins. `Err`: why it may not.
    pub(super) async fn permit(&self) -> Result<(), String> {
        let mut known = self.known.lock().await;
        let now_ms = self.discord.env.now_ms();
        if known.as_ref().is_none_or(|it| now_ms.saturating_sub(it.at_ms) > FRESH_MS) {
            match self.discord.gateway_info(self.bot).await {
                Ok(info) => *known = Some(self::known(&info, now_ms)),
                Err(error) => tracing::debug!(bot = self.bot.id, error = error.text(), "GET /gateway/bot failed"),
            }
        }
        let Some(known) = known.as_mut().filter(|known| now_ms < known.reset_at_ms || known.remaining > 0) else {
            return Ok(());
        };
        if known.remaining == 0 {
            let minutes = (known.reset_at_ms - now_ms).div_ceil(60_000);
            return Err(format!(
                "Discord permits this bot no further session today; the count is reset in {minutes} min"
            ));
        }
        known.remaining -= 1;
        Ok(())
    }
}

fn known(info: &GatewayInfo, now_ms: u64) -> Known {
    Known { at_ms: now_ms, remaining: info.limit.remaining, reset_at_ms: now_ms + info.limit.reset_after }
}

impl Discord {
    pub(super) async fn gateway_info(&self, bot: &Bot) -> Result<GatewayInfo, ApiError> {
        self.ask(bot, "/gateway/bot", Patience::FEW).await
    }
}
