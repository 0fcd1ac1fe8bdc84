//! What is known of guilds and channels: reported by the sockets, or asked for after a session was resumed, when
//! Discord does not report it again. A guild is kept only while its shard listens on this server: without its socket
//! nothing keeps it fresh, and Discord is asked each time.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_core::port::platform::Part;
use serde::Deserialize;
use serde_json::Value;

use super::permissions::{Member, Rights, Role, reads};
use super::places::{Channel, Guild, texts};
use super::snowflake::{number, shard_of};

/// Cached channels of one bot; further ones are requested when they are needed.
const CHANNELS_MAX: usize = 50_000;
/// Remembered failed look-ups. When the list is full it is cleared, and all may be tried again.
const RESTING_MAX: usize = 1_000;

/// Channels in which something was written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) readable: Vec<String>,
    /// Visible to the bot, but without permission to read the history.
    pub(super) closed: Vec<String>,
}

#[derive(Default)]
struct Known {
    guilds: HashMap<String, Guild>,
    channels: HashMap<String, Channel>,
    /// The shards that listen here, each with the change at which it began.
    parts: HashMap<Part, u64>,
    /// Number of the latest change that a socket reported, in total and per guild.
    changes: u64,
    of_guild: HashMap<String, u64>,
}

/// A look-up: the bot, and the id of a guild or a channel.
type Question = (String, String);

/// By bot.
#[derive(Default)]
pub(super) struct Guilds {
    known: Mutex<HashMap<String, Known>>,
    /// Numbers changes. No number is given twice, so that an answer that was asked for before a shard stopped is not kept
    /// after it began again.
    last_change: AtomicU64,
    /// Look-ups in progress, so that concurrent callers share one request.
    asking: Mutex<HashMap<Question, Arc<tokio::sync::Mutex<()>>>>,
    /// Look-ups that failed, and when they may be tried again.
    resting: Mutex<HashMap<Question, u64>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guilds {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        locked(&self.known)
    }

    fn next_change(&self) -> u64 {
        self.last_change.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A shard of the bot begins to listen, or a session of it: its guilds are reported anew.
    pub(super) fn begin(&self, bot: &str, part: Part) {
        let (mut bots, change) = (self.lock(), self.next_change());
        let known = bots.entry(bot.to_owned()).or_default();
        known.forget(part);
        known.changes = change;
        known.parts.insert(part, change);
        drop(bots);
        locked(&self.resting).retain(|(of, _), _| of != bot);
    }

    /// The latest change that the sockets reported. `None`: the bot does not listen here, and nothing is kept.
    pub(super) fn changes(&self, bot: &str) -> Option<u64> {
        self.lock().get(bot).map(|known| known.changes)
    }

    /// The same about one guild. `None`: its shard does not listen here.
    pub(super) fn changes_of(&self, bot: &str, guild_id: &str) -> Option<u64> {
        self.lock().get(bot)?.changes_of(guild_id)
    }

    /// Channels are left out, because there are too many.
    pub(super) fn is_full(&self, bot: &str) -> bool {
        self.lock().get(bot).is_some_and(|known| known.channels.len() >= CHANNELS_MAX)
    }

    /// The holder of this lock sends the request; others wait for its answer.
    pub(super) fn asking(&self, bot: &str, id: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut asking = locked(&self.asking);
        asking.retain(|_, lock| Arc::strong_count(lock) > 1);
        asking.entry((bot.to_owned(), id.to_owned())).or_default().clone()
    }

    /// The look-up failed and is not tried again before this time.
    pub(super) fn rest(&self, bot: &str, id: &str, until_ms: u64) {
        let mut resting = locked(&self.resting);
        if resting.len() >= RESTING_MAX {
            resting.clear();
        }
        resting.insert((bot.to_owned(), id.to_owned()), until_ms);
    }

    pub(super) fn is_paused(&self, bot: &str, id: &str, now_ms: u64) -> bool {
        locked(&self.resting).get(&(bot.to_owned(), id.to_owned())).is_some_and(|until_ms| now_ms < *until_ms)
    }

    pub(super) fn channel(&self, bot: &str, id: &str) -> Option<Channel> {
        self.lock().get(bot)?.channels.get(id).cloned()
    }

    pub(super) fn guild(&self, bot: &str, id: &str) -> Option<Guild> {
        self.lock().get(bot)?.guilds.get(id).cloned()
    }

    /// A shard of the bot does not listen here any more.
    pub(super) fn end(&self, bot: &str, part: Part) {
        let mut bots = self.lock();
        let Some(known) = bots.get_mut(bot) else { return };
        known.parts.remove(&part);
        known.forget(part);
        if known.parts.is_empty() {
            bots.remove(bot);
        }
    }

    /// Channels and threads of a guild that hold something newer than this message and that the bot sees, the one with
    /// the newest message first.
    pub(super) fn with_news(&self, bot: &str, me: &str, guild: &Guild, after: u64) -> News {
        let bots = self.lock();
        let Some(known) = bots.get(bot) else { return News::default() };
        let rights = Rights { guild_id: &guild.id, owner_id: &guild.owner_id, roles: &guild.roles };
        let member = Member { roles: guild.own_roles.clone(), ..Member::default() };
        let reads = |channel: &Channel| {
            let place = channel.parent().and_then(|parent| known.channels.get(parent)).unwrap_or(channel);
            reads(&rights, me, &member, &place.permission_overwrites, channel.is_voice())
        };
        let newest = |channel: &Channel| channel.last_message_id.as_deref().and_then(number).unwrap_or(0);
        let of_guild = known.channels.values().filter(|channel| channel.guild_id.as_deref() == Some(&guild.id));
        let mut found: Vec<_> = of_guild.filter(|it| it.has_messages() && newest(it) > after).collect();
        found.sort_unstable_by_key(|it| std::cmp::Reverse((newest(it), &it.id)));
        let mut news = News::default();
        for channel in found {
            match reads(channel) {
                (true, true) => news.readable.push(channel.id.clone()),
                (true, false) => news.closed.push(channel.id.clone()),
                (false, _) => {}
            }
        }
        news
    }

    /// Keeps a guild that was asked for, unless the sockets reported something since: it may be newer than the answer.
    pub(super) fn keep_guild(&self, bot: &str, me: &str, changes: u64, data: &Value) {
        let mut bots = self.lock();
        let guild_id = data["id"].as_str().unwrap_or_default();
        if let Some(known) = bots.get_mut(bot).filter(|known| known.changes_of(guild_id) == Some(changes)) {
            known.guild(me, data);
        }
    }

    /// The same for one channel.
    pub(super) fn keep_channel(&self, bot: &str, changes: u64, data: &Value) {
        let mut bots = self.lock();
        let listens = |known: &Known| known.listens_since(data["guild_id"].as_str()).is_some();
        if let Some(known) = bots.get_mut(bot).filter(|known| known.changes == changes && listens(known)) {
            known.put_channel(data, None);
        }
    }

    /// Takes what an event of the socket says.
    pub(super) fn take(&self, bot: &str, me: &str, kind: &str, data: &Value) {
        let mut bots = self.lock();
        let Some(known) = bots.get_mut(bot) else { return };
        known.changes = self.next_change();
        // Events about a guild itself have its id as their own.
        let own = if kind.starts_with("GUILD_") { data["id"].as_str() } else { None };
        let guild_id = data["guild_id"].as_str().or(own);
        if let Some(guild_id) = guild_id {
            known.of_guild.insert(guild_id.to_owned(), known.changes);
        }
        match kind {
            // During an outage a guild is announced without what is in it.
            "GUILD_CREATE" if data["unavailable"] == true => known.drop_guild(data["id"].as_str().unwrap_or_default()),
            "GUILD_CREATE" => known.guild(me, data),
            "GUILD_UPDATE" => known.change_guild(data),
            "GUILD_DELETE" => known.drop_guild(data["id"].as_str().unwrap_or_default()),
            "GUILD_ROLE_CREATE" | "GUILD_ROLE_UPDATE" => known.put_role(data),
            "GUILD_ROLE_DELETE" => {
                if let (Some(guild), Some(role)) = (known.guild_of(data), data["role_id"].as_str()) {
                    guild.roles.retain(|it| it.id != role);
                }
            }
            "GUILD_MEMBER_UPDATE" if data["user"]["id"] == me => {
                if let Some(guild) = known.guild_of(data) {
                    guild.set_own(data);
                }
            }
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => known.put_channel(data, None),
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                known.channels.remove(data["id"].as_str().unwrap_or_default());
            }
            "THREAD_LIST_SYNC" => {
                known.drop_threads(data);
                for thread in data["threads"].as_array().into_iter().flatten() {
                    known.put_channel(thread, data["guild_id"].as_str());
                }
            }
            _ => {}
        }
    }
}

impl Known {
    /// When the shard of a guild began to listen. Without a guild: of direct chats. `None`: it does not listen here.
    fn listens_since(&self, guild_id: Option<&str>) -> Option<u64> {
        let is_of_guild = |part: &Part| guild_id.map_or(0, |id| shard_of(id, part.count)) == part.index;
        self.parts.iter().filter(|(part, _)| is_of_guild(part)).map(|(_, began)| *began).max()
    }

    fn changes_of(&self, guild_id: &str) -> Option<u64> {
        let began = self.listens_since(Some(guild_id))?;
        Some(self.of_guild.get(guild_id).copied().unwrap_or(0).max(began))
    }

    /// Drops what only this shard's socket keeps up to date. Direct chats belong to the first shard.
    fn forget(&mut self, part: Part) {
        let is_meant = |guild: Option<&str>| guild.map_or(0, |id| shard_of(id, part.count)) == part.index;
        self.of_guild.retain(|id, _| !is_meant(Some(id)));
        self.guilds.retain(|id, _| !is_meant(Some(id)));
        self.channels.retain(|_, channel| !is_meant(channel.guild_id.as_deref()));
    }

    fn guild_of(&mut self, data: &Value) -> Option<&mut Guild> {
        self.guilds.get_mut(data["guild_id"].as_str()?)
    }

    fn guild(&mut self, me: &str, data: &Value) {
        let Some(guild) = Guild::of(me, data) else { return };
        for list in ["channels", "threads"] {
            for channel in data[list].as_array().into_iter().flatten() {
                self.put_channel(channel, Some(&guild.id));
            }
        }
        self.guilds.insert(guild.id.clone(), guild);
    }

    fn change_guild(&mut self, data: &Value) {
        let Ok(new) = Guild::deserialize(data) else { return };
        if let Some(guild) = self.guilds.get_mut(&new.id) {
            let own_roles = std::mem::take(&mut guild.own_roles);
            *guild = Guild { own_roles, joined_ms: guild.joined_ms, ..new };
        }
    }

    fn drop_guild(&mut self, id: &str) {
        self.guilds.remove(id);
        self.channels.retain(|_, channel| channel.guild_id.as_deref() != Some(id));
    }

    /// Threads of these channels, or of the whole guild: those that are still active follow.
    fn drop_threads(&mut self, data: &Value) {
        let Some(guild_id) = data["guild_id"].as_str() else { return };
        let parents: Option<HashSet<String>> =
            data["channel_ids"].is_array().then(|| texts(&data["channel_ids"]).into_iter().collect());
        let is_meant = |channel: &Channel| {
            let is_parent = |parent: &str| parents.as_ref().is_none_or(|parents| parents.contains(parent));
            channel.guild_id.as_deref() == Some(guild_id) && channel.parent().is_some_and(is_parent)
        };
        self.channels.retain(|_, channel| !is_meant(channel));
    }

    fn put_role(&mut self, data: &Value) {
        let Ok(role) = Role::deserialize(&data["role"]) else { return };
        if let Some(guild) = self.guild_of(data) {
            guild.roles.retain(|it| it.id != role.id);
            guild.roles.push(role);
        }
    }

    fn put_channel(&mut self, data: &Value, guild_id: Option<&str>) {
        let Ok(mut channel) = Channel::deserialize(data) else {
            self.channels.remove(data["id"].as_str().unwrap_or_default()); // what was known of it may be wrong
            return;
        };
        // Archived threads are many, and rarely needed again.
        if channel.thread_metadata.archived {
            self.channels.remove(&channel.id);
            return;
        }
        if channel.guild_id.is_none() {
            channel.guild_id = guild_id.map(str::to_owned);
        }
        if self.channels.len() < CHANNELS_MAX || self.channels.contains_key(&channel.id) {
            self.channels.insert(channel.id.clone(), channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guild() -> Value {
        let hidden = json!([{"id": "3", "allow": "0", "deny": "1024"}]);
        let mute = json!([{"id": "3", "allow": "0", "deny": "65536"}]);
        json!({"id": "3", "name": "g", "owner_id": "9", "roles": [{"id": "3", "permissions": "66560"}],
            "members": [{"user": {"id": "1"}, "roles": ["5"], "joined_at": "2023-11-14T22:13:20.120000+00:00"}],
            "channels": [{"id": "10", "type": 0, "last_message_id": "100"}, {"id": "11", "type": 15, "last_message_id": "110"},
                {"id": "12", "type": 0, "last_message_id": "120", "permission_overwrites": hidden},
                {"id": "13", "type": 0, "last_message_id": "130", "permission_overwrites": mute},
                {"id": "14", "type": 0, "last_message_id": "50"}, {"id": "15", "type": 4},
                {"id": "16", "type": 2, "last_message_id": "160"}],
            "threads": [{"id": "20", "type": 11, "parent_id": "11", "last_message_id": "140"},
                {"id": "21", "type": 11, "parent_id": "12", "last_message_id": "140"}]})
    }

    #[test]
    fn channels_that_can_be_read_back_are_found() {
        let guilds = Guilds::default();
        guilds.take("b", "1", "GUILD_CREATE", &guild());
        assert!(guilds.guild("b", "3").is_none(), "the bot does not listen here");
        guilds.begin("b", Part::WHOLE);
        guilds.take("b", "1", "GUILD_CREATE", &guild());
        let known = guilds.guild("b", "3").unwrap();
        assert_eq!((known.own_roles.as_slice(), known.joined_ms), (&["5".to_owned()][..], 1_700_000_000_120));
        let with_news = |after| guilds.with_news("b", "1", &known, after);
        assert_eq!((with_news(60).readable, with_news(60).closed), (vec!["20".into(), "10".into()], vec!["13".into()]));
        assert_eq!(with_news(0).readable, ["20", "10", "14"]);
        assert_eq!(with_news(130).closed, [""; 0], "nothing was written there");
    }

    #[test]
    fn an_answer_that_may_be_older_than_what_the_socket_told_is_not_kept() {
        let guilds = Guilds::default();
        guilds.keep_guild("b", "1", 0, &guild());
        assert_eq!((guilds.changes("b"), guilds.guild("b", "3").is_none()), (None, true), "it does not listen");
        guilds.begin("b", Part::WHOLE);
        let asked = guilds.changes_of("b", "3").unwrap();
        guilds.take("b", "1", "GUILD_ROLE_UPDATE", &json!({"guild_id": "3", "role": {"id": "3"}}));
        guilds.keep_guild("b", "1", asked, &guild());
        assert!(guilds.guild("b", "3").is_none());
        let asked = guilds.changes_of("b", "3").unwrap();
        guilds.take("b", "1", "CHANNEL_UPDATE", &json!({"id": "40", "guild_id": "4"})); // of another guild
        guilds.keep_guild("b", "1", asked, &guild());
        assert!(guilds.guild("b", "3").is_some() && guilds.channel("b", "20").is_some());
        guilds.take("b", "1", "GUILD_CREATE", &json!({"id": "3", "unavailable": true}));
        assert!(guilds.guild("b", "3").is_none() && guilds.channel("b", "20").is_none(), "an outage");
    }

    #[test]
    fn archived_threads_are_forgotten() {
        let guilds = Guilds::default();
        guilds.begin("b", Part::WHOLE);
        guilds.take("b", "1", "GUILD_CREATE", &guild());
        let archived =
            json!({"id": "20", "type": 11, "parent_id": "11", "guild_id": "3", "thread_metadata": {"archived": true}});
        guilds.take("b", "1", "THREAD_UPDATE", &archived);
        assert!(guilds.channel("b", "20").is_none());
        let listed =
            json!({"guild_id": "3", "channel_ids": ["12"], "threads": [{"id": "22", "type": 11, "parent_id": "12"}]});
        guilds.take("b", "1", "THREAD_LIST_SYNC", &listed);
        assert!(guilds.channel("b", "21").is_none() && guilds.channel("b", "22").is_some());
        guilds.begin("b", Part::WHOLE); // a new session
        assert!(guilds.guild("b", "3").is_none() && guilds.channel("b", "10").is_none());
    }

    #[test]
    fn only_guilds_of_shards_that_listen_here_are_kept() {
        let guilds = Guilds::default();
        let [here, other] = [0, 1].map(|index| Part { index, count: 2 });
        let of = |shard: u64| (shard << 22).to_string();
        let guild_data =
            |shard| json!({"id": of(shard), "name": "g", "channels": [{"id": format!("9{shard}"), "type": 0}]});
        let direct = json!({"id": "8", "type": 1});
        guilds.begin("b", here);
        assert_eq!((guilds.changes_of("b", &of(0)).is_some(), guilds.changes_of("b", &of(1))), (true, None));
        // The answer about another guild is not kept, whatever was noted before it was asked for.
        guilds.keep_guild("b", "1", guilds.changes("b").unwrap(), &guild_data(1));
        let channel = json!({"id": "91", "type": 0, "guild_id": of(1)});
        guilds.keep_channel("b", guilds.changes("b").unwrap(), &channel);
        guilds.keep_channel("b", guilds.changes("b").unwrap(), &direct);
        assert!(guilds.guild("b", &of(1)).is_none() && guilds.channel("b", "91").is_none());
        assert!(guilds.channel("b", "8").is_some(), "direct chats are of the first shard");
        guilds.begin("b", other);
        guilds.take("b", "1", "GUILD_CREATE", &guild_data(0));
        guilds.take("b", "1", "GUILD_CREATE", &guild_data(1));
        let asked = guilds.changes_of("b", &of(1)).unwrap();
        guilds.end("b", other);
        assert!(guilds.guild("b", &of(1)).is_none() && guilds.channel("b", "91").is_none(), "nothing keeps it fresh");
        assert!(guilds.guild("b", &of(0)).is_some() && guilds.channel("b", "90").is_some());
        guilds.begin("b", other);
        guilds.keep_guild("b", "1", asked, &guild_data(1));
        assert!(guilds.guild("b", &of(1)).is_none(), "it was asked for before the shard stopped");
        guilds.end("b", here);
        guilds.end("b", other);
        assert_eq!(guilds.changes("b"), None);
    }

    #[test]
    fn a_question_that_failed_rests() {
        let guilds = Guilds::default();
        guilds.rest("b", "3", 100);
        assert!(guilds.is_paused("b", "3", 99) && !guilds.is_paused("b", "3", 100) && !guilds.is_paused("b", "4", 99));
        guilds.begin("b", Part::WHOLE);
        assert!(!guilds.is_paused("b", "3", 99));
    }
}
