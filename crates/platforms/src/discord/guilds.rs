//! What the socket tells about guilds and channels. Known only while the socket is connected: without it nothing keeps it
//! fresh, and Discord is asked instead.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use super::permissions::{Overwrite, Role};

/// Of one bot; more are asked for when they are needed.
const CHANNELS_MAX: usize = 50_000;

const DM: u8 = 1;
const GROUP_DM: u8 = 3;
pub(super) const PRIVATE_THREAD: u8 = 12;
const FORUM: u8 = 15;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Channel {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: u8,
    pub(super) guild_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) topic: Option<String>,
    pub(super) parent_id: Option<String>,
    pub(super) owner_id: Option<String>,
    pub(super) permission_overwrites: Vec<Overwrite>,
    pub(super) recipients: Vec<User>,
    pub(super) last_message_id: Option<String>,
}

impl Channel {
    pub(super) fn is_thread(&self) -> bool {
        (10..=PRIVATE_THREAD).contains(&self.kind)
    }

    pub(super) fn is_direct(&self) -> bool {
        matches!(self.kind, DM | GROUP_DM)
    }

    pub(super) fn is_forum(&self) -> bool {
        self.kind == FORUM
    }

    pub(super) fn type_name(&self) -> &'static str {
        match () {
            () if self.is_direct() => "dm",
            () if self.is_thread() => "thread",
            () => "group",
        }
    }

    /// The channel of a thread. Other channels have a category as their parent.
    pub(super) fn parent(&self) -> Option<&str> {
        self.parent_id.as_deref().filter(|_| self.is_thread())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct User {
    pub(super) id: String,
    pub(super) username: String,
    pub(super) global_name: Option<String>,
    pub(super) bot: bool,
}

impl User {
    pub(super) fn shown(&self) -> &str {
        self.global_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&self.username)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Guild {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) owner_id: String,
    pub(super) roles: Vec<Role>,
    #[serde(skip)]
    pub(super) own_roles: Vec<String>,
}

#[derive(Default)]
struct Known {
    guilds: HashMap<String, Guild>,
    channels: HashMap<String, Channel>,
}

/// By bot.
#[derive(Default)]
pub(super) struct Guilds(Mutex<HashMap<String, Known>>);

impl Guilds {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn channel(&self, bot: &str, id: &str) -> Option<Channel> {
        self.lock().get(bot)?.channels.get(id).cloned()
    }

    pub(super) fn guild(&self, bot: &str, id: &str) -> Option<Guild> {
        self.lock().get(bot)?.guilds.get(id).cloned()
    }

    /// The socket is gone, or begins anew.
    pub(super) fn forget(&self, bot: &str) {
        self.lock().remove(bot);
    }

    /// Channels of a guild with something newer than this message.
    pub(super) fn with_news(&self, bot: &str, guild_id: &str, after: u64, max: usize) -> Vec<String> {
        let known = self.lock();
        let newest = |channel: &Channel| channel.last_message_id.as_ref().and_then(|id| id.parse().ok()).unwrap_or(0);
        let channels = known.get(bot).into_iter().flat_map(|known| known.channels.values());
        let channels = channels.filter(|channel| channel.guild_id.as_deref() == Some(guild_id));
        let mut found: Vec<(u64, String)> =
            channels.map(|it| (newest(it), it.id.clone())).filter(|(newest, _)| *newest > after).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.into_iter().take(max).map(|(_, id)| id).collect()
    }

    /// Takes what an event of the socket says.
    pub(super) fn take(&self, bot: &str, me: &str, kind: &str, data: &Value) {
        let mut bots = self.lock();
        let known = bots.entry(bot.to_owned()).or_default();
        match kind {
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
                    guild.own_roles = texts(&data["roles"]);
                }
            }
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => known.put_channel(data, None),
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                known.channels.remove(data["id"].as_str().unwrap_or_default());
            }
            "THREAD_LIST_SYNC" => {
                for thread in data["threads"].as_array().into_iter().flatten() {
                    known.put_channel(thread, data["guild_id"].as_str());
                }
            }
            _ => {}
        }
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Known {
    fn guild_of(&mut self, data: &Value) -> Option<&mut Guild> {
        self.guilds.get_mut(data["guild_id"].as_str()?)
    }

    fn guild(&mut self, me: &str, data: &Value) {
        let Ok(mut guild) = Guild::deserialize(data) else { return };
        let members = data["members"].as_array().into_iter().flatten();
        guild.own_roles = members.filter(|it| it["user"]["id"] == me).flat_map(|it| texts(&it["roles"])).collect();
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
            *guild = Guild { own_roles: std::mem::take(&mut guild.own_roles), ..new };
        }
    }

    fn drop_guild(&mut self, id: &str) {
        self.guilds.remove(id);
        self.channels.retain(|_, channel| channel.guild_id.as_deref() != Some(id));
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
        if channel.guild_id.is_none() {
            channel.guild_id = guild_id.map(str::to_owned);
        }
        if self.channels.len() < CHANNELS_MAX || self.channels.contains_key(&channel.id) {
            self.channels.insert(channel.id.clone(), channel);
        }
    }
}
