//! Everything that the fake knows: bots, users, guilds, channels with their messages, interactions, sockets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::calls::CallLog;
use super::faults::FaultPlan;
use super::files::Files;
use super::gateway::Gateway;
use super::interactions::Interactions;
use super::limits::{Limits, Meter};
use super::snowflake::{Id, Snowflakes};

pub(super) const MAX_MESSAGES: usize = 5_000;
pub(super) const MAX_TYPING: usize = 1_000;

#[derive(Debug, Clone, Default)]
pub(super) struct User {
    pub(super) id: Id,
    pub(super) username: String,
    pub(super) global_name: Option<String>,
    pub(super) bot: bool,
    /// The user does not accept direct messages.
    pub(super) closed_dm: bool,
}

#[derive(Debug)]
pub(super) struct Bot {
    /// Of the application, and of its user.
    pub(super) id: Id,
    pub(super) token: String,
    /// Privileged intents that are switched on in the portal.
    pub(super) privileged: u64,
    pub(super) endpoint: Option<String>,
    /// When commands were created, for the limit of a day; by guild, 0 being the global ones.
    pub(super) creates_ms: BTreeMap<Id, VecDeque<u64>>,
    /// Nonces that were sent with `enforce_nonce`, and the messages that they made.
    pub(super) nonces: VecDeque<(u64, String, Id, Id)>,
}

#[derive(Debug, Clone)]
pub(super) struct Role {
    pub(super) id: Id,
    pub(super) name: String,
    pub(super) permissions: u64,
    pub(super) position: i64,
    pub(super) color: u32,
    pub(super) mentionable: bool,
    /// The role that belongs to this bot.
    pub(super) of_bot: Option<Id>,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) nick: Option<String>,
    pub(super) roles: BTreeSet<Id>,
    pub(super) joined_ms: u64,
}

#[derive(Debug)]
pub(super) struct Guild {
    pub(super) id: Id,
    pub(super) name: String,
    pub(super) owner: Id,
    pub(super) roles: BTreeMap<Id, Role>,
    pub(super) members: BTreeMap<Id, Member>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overwrite {
    /// Of a role or a member.
    pub(super) id: Id,
    pub(super) is_member: bool,
    pub(super) allow: u64,
    pub(super) deny: u64,
}

/// The numbers of the API.
pub(super) mod kind {
    pub(in super::super) const TEXT: u8 = 0;
    pub(in super::super) const DM: u8 = 1;
    pub(in super::super) const CATEGORY: u8 = 4;
    pub(in super::super) const NEWS: u8 = 5;
    pub(in super::super) const NEWS_THREAD: u8 = 10;
    pub(in super::super) const PUBLIC_THREAD: u8 = 11;
    pub(in super::super) const PRIVATE_THREAD: u8 = 12;
    pub(in super::super) const FORUM: u8 = 15;
}

#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub(super) owner: Id,
    pub(super) archived: bool,
    pub(super) locked: bool,
    pub(super) auto_archive_min: u64,
    pub(super) changed_ms: u64,
    /// When each of them joined.
    pub(super) members: BTreeMap<Id, u64>,
    pub(super) sent: u64,
    pub(super) tags: Vec<Id>,
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) id: Id,
    pub(super) kind: u8,
    pub(super) guild: Option<Id>,
    pub(super) name: String,
    pub(super) topic: Option<String>,
    pub(super) parent: Option<Id>,
    pub(super) position: i64,
    pub(super) overwrites: Vec<Overwrite>,
    /// Of a direct message: both sides.
    pub(super) recipients: Vec<Id>,
    pub(super) thread: Option<Thread>,
    /// Tags of a forum.
    pub(super) tags: Vec<(Id, String)>,
    /// The latest, at most `MAX_MESSAGES`.
    pub(super) messages: BTreeMap<Id, Message>,
    pub(super) last_message: Option<Id>,
    /// The latest typing notices, at most `MAX_TYPING`: when and who.
    pub(super) typing: VecDeque<(u64, Id)>,
}

impl Channel {
    pub(super) fn new(id: Id, kind: u8, guild: Option<Id>, name: impl Into<String>) -> Self {
        Self {
            id,
            kind,
            guild,
            name: name.into(),
            topic: None,
            parent: None,
            position: 0,
            overwrites: Vec::new(),
            recipients: Vec::new(),
            thread: None,
            tags: Vec::new(),
            messages: BTreeMap::new(),
            last_message: None,
            typing: VecDeque::new(),
        }
    }

    pub(super) fn is_dm(&self) -> bool {
        self.kind == kind::DM
    }

    /// Forums and categories hold no messages themselves.
    pub(super) fn has_messages(&self) -> bool {
        !matches!(self.kind, kind::FORUM | kind::CATEGORY)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Message {
    pub(super) id: Id,
    pub(super) author: Id,
    /// 0 is a plain message, 19 a reply, 18 a created thread, 21 the start of a thread, 20 the answer to a command.
    pub(super) kind: u8,
    pub(super) content: String,
    pub(super) edited_ms: Option<u64>,
    pub(super) mentions: Vec<Id>,
    pub(super) mention_roles: Vec<Id>,
    pub(super) mention_everyone: bool,
    pub(super) attachments: Vec<Value>,
    pub(super) embeds: Vec<Value>,
    pub(super) stickers: Vec<Value>,
    pub(super) components: Vec<Value>,
    pub(super) reactions: Vec<Reaction>,
    pub(super) nonce: Option<Value>,
    /// Channel and message of a reply or a forwarded message.
    pub(super) reference: Option<(Id, Id)>,
    pub(super) snapshot: Option<Value>,
    pub(super) flags: u64,
    pub(super) tts: bool,
    /// The thread that was opened on it.
    pub(super) thread: Option<Id>,
    pub(super) interaction: Option<Value>,
    /// Sent by the webhook of an interaction.
    pub(super) webhook: Option<Id>,
    /// Only this user sees it.
    pub(super) only_for: Option<Id>,
}

#[derive(Debug, Clone)]
pub(super) struct Reaction {
    /// A unicode emoji, or `name:id`.
    pub(super) emoji: String,
    pub(super) users: BTreeSet<Id>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) ids: Snowflakes,
    pub(super) bots: BTreeMap<Id, Bot>,
    pub(super) users: BTreeMap<Id, User>,
    pub(super) guilds: BTreeMap<Id, Guild>,
    pub(super) channels: BTreeMap<Id, Channel>,
    /// By bot and guild; guild 0 holds the global ones.
    pub(super) commands: BTreeMap<(Id, Id), Vec<Value>>,
    pub(super) files: Files,
    pub(super) gateway: Gateway,
    pub(super) interactions: Interactions,
    pub(super) limits: Limits,
    pub(super) meter: Meter,
    pub(super) faults: FaultPlan,
    pub(super) calls: CallLog,
    /// Scheme and host that a server has told, for the addresses of sockets and files.
    pub(super) host: String,
    /// The latest that it was told.
    pub(super) now_ms: u64,
}

impl State {
    pub(super) fn message(&self, channel: Id, message: Id) -> Option<&Message> {
        self.channels.get(&channel)?.messages.get(&message)
    }

    pub(super) fn message_mut(&mut self, channel: Id, message: Id) -> Option<&mut Message> {
        self.channels.get_mut(&channel)?.messages.get_mut(&message)
    }

    /// The bots that are members of it.
    pub(super) fn bots_of(&self, guild: Id) -> Vec<Id> {
        let Some(guild) = self.guilds.get(&guild) else { return Vec::new() };
        self.bots.keys().copied().filter(|bot| guild.members.contains_key(bot)).collect()
    }

    pub(super) fn threads_of(&self, guild: Id) -> impl Iterator<Item = (&Channel, &Thread)> {
        let of_guild = self.channels.values().filter(move |channel| channel.guild == Some(guild));
        of_guild.filter_map(|channel| Some((channel, channel.thread.as_ref()?)))
    }

    /// The direct messages between a user and a bot; opened if they are not there.
    pub(super) fn dm_of(&mut self, now_ms: u64, bot: Id, user: Id) -> Id {
        let is_it = |channel: &&Channel| {
            channel.is_dm() && channel.recipients.contains(&bot) && channel.recipients.contains(&user)
        };
        if let Some(found) = self.channels.values().find(is_it) {
            return found.id;
        }
        let id = self.ids.next(now_ms);
        let mut channel = Channel::new(id, kind::DM, None, "");
        channel.recipients = vec![bot, user];
        self.channels.insert(id, channel);
        id
    }
}
