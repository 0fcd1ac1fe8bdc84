//! Reads back messages that were written while a session was lost. Places that are still to be read are part of the
//! cursor, and leave it only after their messages were stored: after a restart reading continues with them. What is not
//! read in the end is reported. It runs beside the sockets, so that new messages do not wait for old ones. A message
//! that comes both ways is stored once.

use std::collections::{BTreeMap, HashSet};
use std::mem::take;
use std::time::Duration;

use frontdesk_core::port::platform::Gap;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::api::ApiError;
use super::ask::RetryBudget;
use super::cursor::{Cursor, Missed, Spent};
use super::listening::Listening;
use super::look::unreadable;
use super::normalize::read;
use super::snowflake::{first_at, ms_of, number};
use super::store;

/// Messages of one page, and of one channel.
const PAGE: usize = 100;
const CHANNEL_MAX: usize = 1_000;
/// What is read after one lost session: for one guild, for all guilds of a shard, and for all direct chats. Guilds have a
/// limit of their own because they belong to different tenants.
const GUILD_MAX: Spent = Spent { requests: 200, messages: 2_000 };
const GUILDS_MAX: Spent = Spent { requests: 1_000, messages: 10_000 };
const DIRECTS_MAX: Spent = Spent { requests: 400, messages: 4_000 };
/// After Discord refused this many channels of a guild, its other channels are skipped: refusals count towards a ban.
const REFUSED_MAX: u32 = 5;
const TOO_MUCH: &str = "too many messages were missed to read all of them";
/// Between two requests of all shards of a bot here, so that answers of agents are not delayed.
const REQUEST_EVERY: Duration = Duration::from_millis(50);
/// How long to wait for guilds from the socket before they are asked for.
const GRACE: Duration = Duration::from_secs(5);
/// Consecutive failed attempts before reading is given up: about twenty minutes.
const ATTEMPTS_MAX: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// Places that a report names.
const NAMED_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Guild(String),
    Direct(String),
}

impl Target {
    fn named(&self) -> String {
        match self {
            Self::Guild(id) => format!("guild {id}"),
            Self::Direct(id) => format!("direct chat {id}"),
        }
    }

    fn id(&self) -> &str {
        let (Self::Guild(id) | Self::Direct(id)) = self;
        id
    }
}

enum Trouble {
    /// A later attempt may succeed.
    Passing(String),
    /// The events could not be stored: the listener ends.
    Store(String),
}

/// What was done for one place, also over several attempts.
#[derive(Default)]
struct Reading {
    place: Option<Target>,
    /// Consecutive attempts that failed temporarily.
    attempts: u32,
    is_asked: bool,
    spent: Spent,
    /// Channels that Discord refused.
    refused: u32,
    /// Channels that were read, or cannot be.
    done: HashSet<String>,
    /// Channels that were not read to the end, and why.
    unread: Vec<String>,
}

impl Listening<'_> {
    /// Returns only if the listener cannot continue, with the reason.
    pub(super) async fn read_back(&self) -> String {
        let mut reading = Reading::default();
        // Resumed sessions do not list their guilds.
        let mut has_waited = self.progress.read(|cursor| cursor.shards.iter().all(|it| !it.session_id.is_empty()));
        loop {
            if let Err(why) = self.give_up_if_spent().await {
                return why;
            }
            let Some((place, after)) = self.next_place(has_waited) else {
                let is_waiting = self.progress.read(|cursor| !cursor.missed.is_empty());
                if is_waiting {
                    has_waited = timeout(GRACE, self.missed.notified()).await.is_err();
                } else {
                    has_waited = false;
                    self.missed.notified().await;
                }
                continue;
            };
            if reading.place.as_ref() != Some(&place) {
                reading = Reading { place: Some(place.clone()), ..Reading::default() };
                self.progress.change(|cursor| cursor.missed.begin(place.id()));
            }
            let fault = match self.read_place(&place, after, &mut reading).await {
                Ok(()) => None,
                Err(Trouble::Store(why)) => return why,
                Err(Trouble::Passing(why)) if reading.attempts + 1 < ATTEMPTS_MAX => {
                    let (bot, place, attempts) = (&self.bot.id, place.named(), reading.attempts);
                    tracing::warn!(
                        bot = bot.as_str(),
                        place,
                        why,
                        attempts,
                        "reading missed messages failed; trying again"
                    );
                    sleep(pause(attempts)).await;
                    reading.attempts += 1;
                    continue;
                }
                Err(Trouble::Passing(why)) => Some(format!("{}: {why}", place.named())),
            };
            let Reading { is_asked, mut unread, .. } = take(&mut reading);
            unread.extend(fault);
            self.report(after, unread);
            if let Err(why) = self.finish(&place, is_asked).await {
                return why;
            }
        }
    }

    /// Direct chats first: people wait there. Then guilds that are known, then those that must be asked for.
    fn next_place(&self, may_ask: bool) -> Option<(Target, u64)> {
        self.progress.read(|cursor| {
            let Missed { guilds, directs, .. } = &cursor.missed;
            if let Some((channel, after)) = directs.first_key_value() {
                return Some((Target::Direct(channel.clone()), *after));
            }
            let is_known = |id: &&String| self.discord.guilds.guild(&self.bot.id, id).is_some();
            let known = guilds.keys().find(is_known);
            let guild = known.or_else(|| guilds.keys().next().filter(|_| may_ask))?;
            Some((Target::Guild(guild.clone()), guilds[guild]))
        })
    }

    async fn finish(&self, place: &Target, is_asked: bool) -> Result<(), String> {
        let is_last = self.progress.change(|cursor| {
            cursor.missed.finish(place.id());
            cursor.missed.is_empty()
        });
        // Places without news are saved with the next one that has some.
        if is_asked || is_last { self.progress.save().await } else { Ok(()) }
    }

    async fn read_place(&self, place: &Target, after: u64, reading: &mut Reading) -> Result<(), Trouble> {
        match place {
            Target::Direct(channel) => self.read_channel(None, channel, after, reading).await,
            Target::Guild(id) => {
                let found = self.discord.guild_within(self.bot, id, RetryBudget::LONG).await;
                // `None`: the bot is not in it any more.
                let Some(guild) = found.map_err(|error| Trouble::Passing(error.text()))? else { return Ok(()) };
                if self.discord.guilds.guild(&self.bot.id, id).is_none() {
                    return Err(Trouble::Passing("the guild changed while its channels were being read".into()));
                }
                let after = after.max(first_at(guild.joined_ms));
                let me = self.progress.read(|cursor| cursor.me.clone());
                let news = self.discord.guilds.with_news(&self.bot.id, &me, &guild, after);
                for channel in &news.readable {
                    self.read_channel(Some(id), channel, after, reading).await?;
                }
                for channel in &news.closed {
                    let why = "the bot may not read the message history";
                    reading.unread.push(format!("channel {channel} of guild {id}: {why}"));
                }
                if self.discord.guilds.is_full(&self.bot.id) {
                    reading.unread.push(format!("guild {id}: it may have more channels than are known here"));
                }
                Ok(())
            }
        }
    }

    /// Page by page, oldest first.
    async fn read_channel(
        &self,
        guild: Option<&str>,
        channel: &str,
        mut after: u64,
        reading: &mut Reading,
    ) -> Result<(), Trouble> {
        if reading.done.contains(channel) {
            return Ok(());
        }
        let place = guild.map_or_else(|| "a direct chat".to_owned(), |guild| format!("guild {guild}"));
        let mut left = CHANNEL_MAX;
        loop {
            let why = match self.bound(left, reading) {
                Some(why) => why,
                None => match self.page(channel, after, reading).await {
                    Ok(page) => {
                        let count = page.len();
                        after = page.iter().filter_map(|it| number(it["id"].as_str()?)).fold(after, u64::max);
                        self.take_page(guild, page).await.map_err(Trouble::Store)?;
                        left = left.saturating_sub(count);
                        if count < PAGE {
                            break;
                        }
                        continue;
                    }
                    Err(error) if error.is_passing() => return Err(Trouble::Passing(error.text())),
                    Err(error) if error.status() == Some(404) => break, // it was deleted
                    Err(error) => {
                        reading.refused += 1;
                        error.text()
                    }
                },
            };
            reading.unread.push(format!("channel {channel} of {place} after message {after}: {why}"));
            break;
        }
        reading.done.insert(channel.to_owned());
        Ok(())
    }

    /// Why a channel is not read further, of which so many messages may still be read.
    fn bound(&self, left: usize, reading: &Reading) -> Option<String> {
        let is_direct = matches!(reading.place, Some(Target::Direct(_)));
        let is_spent = self.progress.read(|cursor| match is_direct {
            true => cursor.missed.spent_directly.reaches(DIRECTS_MAX),
            false => cursor.missed.spent.reaches(GUILDS_MAX),
        });
        match () {
            () if left == 0 => Some(format!("more than {CHANNEL_MAX} messages")),
            () if is_spent => Some(TOO_MUCH.to_owned()),
            () if reading.spent.reaches(GUILD_MAX) => {
                Some(format!("more than {} messages or {} requests", GUILD_MAX.messages, GUILD_MAX.requests))
            }
            () if reading.refused >= REFUSED_MAX => {
                Some(format!("Discord refused {REFUSED_MAX} channels, so this one was not read"))
            }
            () => None,
        }
    }

    /// What is left when the bounds are reached is reported as a whole.
    async fn give_up_if_spent(&self) -> Result<(), String> {
        let left: Vec<(Target, u64)> = self.progress.change(|cursor| {
            let Missed { guilds, directs, spent, spent_directly, .. } = &mut cursor.missed;
            let guilds = if spent.reaches(GUILDS_MAX) { take(guilds) } else { BTreeMap::new() };
            let directs = if spent_directly.reaches(DIRECTS_MAX) { take(directs) } else { BTreeMap::new() };
            let guilds = guilds.into_iter().map(|(id, after)| (Target::Guild(id), after));
            guilds.chain(directs.into_iter().map(|(id, after)| (Target::Direct(id), after))).collect()
        });
        let Some(after) = left.iter().map(|(_, after)| *after).min() else { return Ok(()) };
        self.report(after, left.iter().map(|(place, _)| format!("{}: {TOO_MUCH}", place.named())).collect());
        self.progress.save().await
    }

    fn spend(&self, reading: &mut Reading, more: Spent) {
        reading.spent.add(more);
        let is_direct = matches!(reading.place, Some(Target::Direct(_)));
        self.progress.change(|Cursor { missed, .. }| {
            if is_direct { &mut missed.spent_directly } else { &mut missed.spent }.add(more);
        });
    }

    async fn page(&self, channel: &str, after: u64, reading: &mut Reading) -> Result<Vec<Value>, ApiError> {
        reading.is_asked = true;
        let _turn = self.gateway.page.lock().await;
        self.spend(reading, Spent { requests: 1, messages: 0 });
        let path = format!("/channels/{channel}/messages?after={after}&limit={PAGE}");
        let asked = self.discord.ask_paced::<Vec<Value>>(self.bot, &path, RetryBudget::LONG).await?;
        sleep(asked.pause_ms.map_or(REQUEST_EVERY, Duration::from_millis).max(REQUEST_EVERY)).await;
        let mut page = asked.value;
        page.reverse(); // they come newest first
        self.spend(reading, Spent { requests: 0, messages: u32::try_from(page.len()).unwrap_or(u32::MAX) });
        Ok(page)
    }

    async fn take_page(&self, guild: Option<&str>, page: Vec<Value>) -> Result<(), String> {
        let me = self.progress.read(|cursor| cursor.me.clone());
        let mut intakes = Vec::new();
        for mut data in page {
            if let Some(guild) = guild {
                data["guild_id"] = guild.into();
            }
            match read(&data) {
                Ok(message) => intakes.extend(self.discord.intake(self.bot, &me, &message, false).await),
                Err(why) => intakes.push(unreadable(self.bot, &data, &why)),
            }
        }
        store::take(&mut intakes, self.inlet).await.map(drop)
    }

    fn report(&self, after: u64, unread: Vec<String>) {
        if unread.is_empty() {
            return;
        }
        let (count, mut named) = (unread.len(), unread);
        named.truncate(NAMED_MAX);
        let more = if count > NAMED_MAX { format!(" and {} more", count - NAMED_MAX) } else { String::new() };
        let reason =
            format!("messages sent while the session was lost were not fetched from: {}{more}", named.join("; "));
        self.inlet.gap(Gap { since_ms: ms_of(after), until_ms: self.discord.env.now_ms(), reason });
    }
}

fn pause(attempts: u32) -> Duration {
    Duration::from_secs(1 << attempts.min(16)).min(PAUSE_MAX)
}
