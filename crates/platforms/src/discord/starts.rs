//! How many shards a bot has, and how often it may begin a session: Discord counts that by the day, and revokes the token
//! of a bot that exceeds it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Bot, ListenEnd, Partitioned};
use frontdesk_wire::BotId;
use serde::Deserialize;
use tokio::sync::{MappedMutexGuard, MutexGuard};
use twilight_gateway::queue::InMemoryQueue;

use super::Discord;
use super::api::ApiError;
use super::ask::RetryBudget;
use super::cursor::Cursor;

/// Connections of one bot. One more shard for each 1,000 guilds or so.
const SHARDS_MAX: u32 = 64;
/// How long an answer of Discord is used.
const FRESH_MS: u64 = 5_000;
pub(super) const NO_INFO: &str = "Discord did not return the address of its gateway";

/// `GET /gateway/bot`
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct GatewayInfo {
    shards: u32,
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

struct Answer {
    at_ms: u64,
    outcome: Result<Known, ApiError>,
}

struct Known {
    info: GatewayInfo,
    remaining: u32,
    reset_at_ms: u64,
}

/// What the shards of one account share on this server: how they begin sessions, and how fast they read back.
pub(super) struct Gateway {
    account: String,
    /// Held while Discord is asked, so that it is asked once for all shards.
    answer: tokio::sync::Mutex<Option<Answer>>,
    /// The queue, and the number of shards that may identify at the same time.
    queue: Mutex<Option<(u16, InMemoryQueue)>>,
    /// Held while a page of messages is read: Discord counts the requests of a bot, not those of a shard.
    pub(super) page: tokio::sync::Mutex<()>,
}

/// By bot.
#[derive(Default)]
pub(super) struct Gateways(Mutex<HashMap<BotId, Arc<Gateway>>>);

impl Gateways {
    pub(super) fn of(&self, bot: &Bot) -> Arc<Gateway> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&bot.id).filter(|it| it.account == bot.account()) {
            return known.clone();
        }
        let (answer, queue, page) = (tokio::sync::Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        let gateway = Arc::new(Gateway { account: bot.account().to_owned(), answer, queue, page });
        all.insert(bot.id.clone(), gateway.clone());
        gateway
    }
}

impl Gateway {
    /// What Discord says, or said no longer ago than this. So is a failure: each shard would wait for the next one.
    async fn answer(&self, discord: &Discord, bot: &Bot, age_ms: Option<u64>) -> MappedMutexGuard<'_, Answer> {
        let mut held = self.answer.lock().await;
        let now_ms = discord.env.now_ms();
        let is_fresh = |it: &Answer| age_ms.is_some_and(|age_ms| now_ms.saturating_sub(it.at_ms) <= age_ms);
        let answer = if let Some(answer) = held.take().filter(is_fresh) {
            answer
        } else {
            let asked = discord.ask::<GatewayInfo>(bot, "/gateway/bot", RetryBudget::FEW).await;
            let at_ms = discord.env.now_ms();
            Answer { at_ms, outcome: asked.map(|info| Known::new(info, at_ms)) }
        };
        MutexGuard::map(held, |held| held.insert(answer))
    }

    async fn ask(&self, discord: &Discord, bot: &Bot) -> Result<GatewayInfo, ApiError> {
        self.answer(discord, bot, None).await.info()
    }

    /// Also accepts an answer that is `FRESH_MS` old.
    pub(super) async fn info(&self, discord: &Discord, bot: &Bot) -> Result<GatewayInfo, ApiError> {
        self.answer(discord, bot, Some(FRESH_MS)).await.info()
    }

    /// Lets shards identify one after another, as far as Discord demands it. Shards on other servers are not known
    /// here: one that is too early is refused and tries again. The daily limit is not counted here: the queue would
    /// silently wait for the next day.
    pub(super) fn queue(&self, info: Option<&GatewayInfo>) -> InMemoryQueue {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let at_once = match (info, &*queue) {
            (Some(info), _) => info.limit.max_concurrency,
            (None, Some((at_once, _))) => *at_once,
            (None, None) => 1,
        };
        match &*queue {
            Some((of, queue)) if *of == at_once => queue.clone(),
            _ => {
                let new = InMemoryQueue::new(at_once, u32::MAX, Duration::ZERO, u32::MAX);
                queue.insert((at_once, new)).1.clone()
            }
        }
    }

    /// Before a session begins. `Err`: why it may not. Without an answer of Discord nothing is known, and it is tried.
    pub(super) async fn permit(&self, discord: &Discord, bot: &Bot) -> Result<(), String> {
        let mut answer = self.answer(discord, bot, Some(FRESH_MS)).await;
        let now_ms = discord.env.now_ms();
        let known = match &mut answer.outcome {
            Ok(known) if now_ms < known.reset_at_ms || known.remaining > 0 => known,
            Ok(_) => return Ok(()),
            Err(error) => {
                tracing::debug!(bot = bot.id.as_str(), error = error.text(), "GET /gateway/bot failed");
                return Ok(());
            }
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

impl Answer {
    fn info(&self) -> Result<GatewayInfo, ApiError> {
        self.outcome.as_ref().map(|known| known.info.clone()).map_err(Clone::clone)
    }
}

impl Known {
    fn new(info: GatewayInfo, now_ms: u64) -> Self {
        let StartLimit { remaining, reset_after, .. } = info.limit;
        Self { info, remaining, reset_at_ms: now_ms + reset_after }
    }
}

impl Partitioned for Discord {
    fn count<'a>(&'a self, bot: &'a Bot, now: u32, cursor: Option<&'a str>) -> BoxFuture<'a, Result<u32, ListenEnd>> {
        Box::pin(async move {
            if bot.setting("socket") == Some("off") {
                return Ok(1);
            }
            // Until this version one cursor had all shards.
            let had = if now > 1 { now } else { Cursor::read(cursor).shard_count() };
            match self.gateways.of(bot).ask(self, bot).await {
                Ok(info) if info.shards > SHARDS_MAX => Err(ListenEnd::Misconfigured(format!(
                    "Discord wants {} connections for the guilds of this bot, and this server opens at most \
                     {SHARDS_MAX}; spread the guilds over several bots",
                    info.shards
                ))),
                Ok(info) => Ok(settled(had, info.shards.max(1))),
                // The socket says more about a token that is not valid.
                Err(error) if error.status() == Some(401) => Ok(had.max(1)),
                Err(_) if had > 0 => Ok(had),
                Err(error) => Err(ListenEnd::Lost(format!("{NO_INFO}: {}", error.text()))),
            }
        })
    }

    fn divide(&self, cursors: &[Option<String>], count: u32) -> Vec<String> {
        let parts = Cursor::divide(cursors, count).into_iter();
        parts.map(|part| serde_json::to_string(&part).unwrap_or_default()).collect()
    }
}

/// A bot near a limit must not lose its sessions again and again, so it gets fewer shards only if it needs less than half.
fn settled(had: u32, wanted: u32) -> u32 {
    if wanted >= had || wanted * 2 < had { wanted } else { had }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_shards_rises_at_once_and_falls_late() {
        let all = [(0, 1), (1, 1), (1, 2), (2, 1), (4, 5), (4, 3), (4, 2), (4, 1), (9, 4)];
        assert_eq!(all.map(|(had, wanted)| settled(had, wanted)), [1, 1, 2, 2, 5, 4, 4, 1, 4]);
    }
}
