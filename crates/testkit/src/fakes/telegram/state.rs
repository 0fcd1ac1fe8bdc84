//! The state of the fake: bots, users, chats with their messages, and files.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value};

use super::calls::CallLog;
use super::faults::FaultPlan;
use super::files::Files;
use super::limits::{Limits, Meter};
use super::queue::Queue;

#[derive(Debug, Clone, Default)]
pub(super) struct User {
    pub(super) id: i64,
    pub(super) is_bot: bool,
    pub(super) first_name: String,
    pub(super) last_name: Option<String>,
    pub(super) username: Option<String>,
    pub(super) language_code: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Webhook {
    pub(super) url: String,
    pub(super) secret: Option<String>,
    pub(super) max_connections: i64,
    pub(super) last_error: Option<(u64, String)>,
    pub(super) failures: u32,
    pub(super) not_before_ms: u64,
    pub(super) in_flight: bool,
}

#[derive(Debug)]
pub(super) struct Bot {
    pub(super) id: i64,
    pub(super) token: String,
    /// Privacy mode is off: it sees all messages of its groups.
    pub(super) reads_all: bool,
    pub(super) queue: Queue,
    pub(super) webhook: Option<Webhook>,
    /// By scope and language.
    pub(super) commands: BTreeMap<(String, String), Value>,
    /// Messages of all private chats of a bot have one series of ids.
    pub(super) last_private_id: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChatKind {
    Private,
    Group,
    Supergroup,
    Channel,
}

impl ChatKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Group => "group",
            Self::Supergroup => "supergroup",
            Self::Channel => "channel",
        }
    }

    pub(super) fn is_group(self) -> bool {
        matches!(self, Self::Group | Self::Supergroup)
    }
}

/// The id of a chat, and for private chats the bot: each bot has its own with a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChatKey {
    pub(super) id: i64,
    pub(super) bot: i64,
}

impl ChatKey {
    pub(super) fn shared(id: i64) -> Self {
        Self { id, bot: 0 }
    }

    /// As seen by a bot: users have positive ids.
    pub(super) fn seen_by(id: i64, bot: i64) -> Self {
        Self { id, bot: if id > 0 { bot } else { 0 } }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) icon_color: i64,
    pub(super) closed: bool,
}

#[derive(Debug)]
pub(super) struct Stored {
    /// As the API shows it, without the message that it replies to.
    pub(super) json: Map<String, Value>,
    pub(super) reply_to: Option<i64>,
    /// By actor.
    pub(super) reactions: BTreeMap<i64, Value>,
    pub(super) deleted: bool,
    /// The bot that sent it.
    pub(super) by_bot: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Chat {
    pub(super) id: i64,
    pub(super) kind: ChatKind,
    pub(super) title: String,
    pub(super) username: Option<String>,
    pub(super) is_forum: bool,
    /// Status by user: creator, administrator, member, restricted, left, kicked.
    pub(super) members: BTreeMap<i64, String>,
    /// The latest, at most `MAX_MESSAGES`.
    pub(super) messages: BTreeMap<i64, Stored>,
    pub(super) last_id: i64,
    /// By the id of the message that created it. General is not listed.
    pub(super) topics: BTreeMap<i64, Topic>,
    pub(super) migrated_to: Option<i64>,
    /// A private chat whose user blocked the bot.
    pub(super) blocked: bool,
    /// Drafts by id, as the user sees them at the moment.
    pub(super) drafts: BTreeMap<i64, Value>,
    /// The latest chat actions, at most `MAX_ACTIONS`.
    pub(super) actions: VecDeque<Value>,
}

pub(super) const MAX_ACTIONS: usize = 1_000;
pub(super) const MAX_MESSAGES: usize = 5_000;

impl Chat {
    pub(super) fn new(id: i64, kind: ChatKind) -> Self {
        Self {
            id,
            kind,
            title: String::new(),
            username: None,
            is_forum: false,
            members: BTreeMap::new(),
            messages: BTreeMap::new(),
            // Message 1 is the one that says that the chat was created.
            last_id: i64::from(matches!(kind, ChatKind::Supergroup | ChatKind::Channel)),
            topics: BTreeMap::new(),
            migrated_to: None,
            blocked: false,
            drafts: BTreeMap::new(),
            actions: VecDeque::new(),
        }
    }

    pub(super) fn message(&self, id: i64) -> Option<&Stored> {
        self.messages.get(&id).filter(|stored| !stored.deleted)
    }

    pub(super) fn status_of(&self, user: i64) -> &str {
        self.members.get(&user).map_or("left", String::as_str)
    }

    pub(super) fn has(&self, user: i64) -> bool {
        !matches!(self.status_of(user), "left" | "kicked")
    }

    pub(super) fn is_admin(&self, user: i64) -> bool {
        matches!(self.status_of(user), "creator" | "administrator")
    }
}

#[derive(Debug)]
pub(super) struct Callback {
    pub(super) bot: i64,
    pub(super) answer: Option<Value>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) bots: BTreeMap<i64, Bot>,
    pub(super) users: BTreeMap<i64, User>,
    pub(super) chats: BTreeMap<ChatKey, Chat>,
    pub(super) files: Files,
    pub(super) callbacks: BTreeMap<String, Callback>,
    pub(super) limits: Limits,
    pub(super) meter: Meter,
    pub(super) faults: FaultPlan,
    pub(super) calls: CallLog,
    pub(super) last_number: u64,
}

impl State {
    /// A number that was not given before: for ids of albums, callbacks and the like.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn chat(&self, key: ChatKey) -> Option<&Chat> {
        self.chats.get(&key)
    }

    pub(super) fn by_username(&self, name: &str) -> Option<ChatKey> {
        let is_named = |chat: &Chat| chat.username.as_deref().is_some_and(|it| it.eq_ignore_ascii_case(name));
        self.chats.iter().find(|(_, chat)| is_named(chat)).map(|(key, _)| *key)
    }

    /// Bots that are in the chat.
    pub(super) fn bots_in(&self, key: ChatKey) -> Vec<i64> {
        match self.chat(key) {
            Some(chat) if chat.kind == ChatKind::Private => vec![key.bot],
            Some(chat) => self.bots.keys().copied().filter(|bot| chat.has(*bot)).collect(),
            None => Vec::new(),
        }
    }
}
