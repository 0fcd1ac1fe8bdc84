//! Channels, users and guilds, as Discord describes them.

use serde::Deserialize;
use serde_json::Value;

use super::permissions::{Overwrite, Role};
use super::snowflake::time_ms;

const DM: u8 = 1;
const VOICE: u8 = 2;
const STAGE: u8 = 13;
const GROUP_DM: u8 = 3;
pub(super) const PRIVATE_THREAD: u8 = 12;
const CATEGORY: u8 = 4;
const FORUM: u8 = 15;
const MEDIA_FORUM: u8 = 16;

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
    pub(super) thread_metadata: ThreadMetadata,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ThreadMetadata {
    pub(super) archived: bool,
}

impl Channel {
    pub(super) fn is_thread(&self) -> bool {
        (10..=PRIVATE_THREAD).contains(&self.kind)
    }

    pub(super) fn is_direct(&self) -> bool {
        matches!(self.kind, DM | GROUP_DM)
    }

    pub(super) fn is_forum(&self) -> bool {
        matches!(self.kind, FORUM | MEDIA_FORUM)
    }

    pub(super) fn is_voice(&self) -> bool {
        matches!(self.kind, VOICE | STAGE)
    }

    /// Posts of a forum are threads, and have their own messages.
    pub(super) fn has_messages(&self) -> bool {
        !self.is_forum() && self.kind != CATEGORY
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
    /// When the bot came into it; 0 if that is not known.
    #[serde(skip)]
    pub(super) joined_ms: u64,
}

impl Guild {
    /// With what it says about the bot.
    pub(super) fn of(me: &str, data: &Value) -> Option<Self> {
        let mut guild = Self::deserialize(data).ok()?;
        let mut members = data["members"].as_array().into_iter().flatten();
        if let Some(own) = members.find(|it| it["user"]["id"] == me) {
            guild.set_own(own);
        }
        Some(guild)
    }

    pub(super) fn set_own(&mut self, member: &Value) {
        self.own_roles = texts(&member["roles"]);
        self.joined_ms = member["joined_at"].as_str().and_then(time_ms).unwrap_or(self.joined_ms);
    }
}

pub(super) fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
