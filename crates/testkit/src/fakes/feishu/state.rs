//! What the fake knows.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::delivery::Pending;
use super::faults::FaultPlan;

const CALLS_MAX: usize = 20_000;
const DELIVERED_MAX: usize = 20_000;

/// The app that is tested. There is one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct App {
    pub id: String,
    pub secret: String,
    pub name: String,
    pub open_id: String,
    pub verification_token: String,
    pub encrypt_key: String,
    /// Where events go; empty for the socket.
    pub request_url: String,
    /// Events go to sockets as well, so that two programs get the same ones.
    pub also_sockets: bool,
    /// Seconds between two pings; 0 is that of the real one.
    pub ping_s: u64,
    /// Longer payloads come in several frames; 0: never.
    pub part_bytes: usize,
}

#[allow(clippy::struct_field_names)] // as the vendor calls them
#[derive(Debug, Clone, Default)]
pub(super) struct User {
    pub(super) user_id: String,
    pub(super) union_id: String,
    pub(super) name: String,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Chat {
    pub(super) name: String,
    /// p2p, group or topic
    pub(super) mode: String,
    /// As `GET chats` tells it: private or public.
    pub(super) kind: String,
    pub(super) has_bot: bool,
    /// By `open_id`.
    pub(super) members: Vec<String>,
}

/// A message that is there.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Message {
    pub message_id: String,
    pub chat_id: String,
    pub thread_id: String,
    pub root_id: String,
    pub parent_id: String,
    pub msg_type: String,
    /// Parsed, for tests.
    pub content: Value,
    /// `open_id` of a person, or the id of the app
    pub sender: String,
    pub mentions: Value,
    pub edits: u32,
    pub is_deleted: bool,
    /// Reaction, its name, and who it is of.
    pub reactions: Vec<(String, String, String)>,
    #[serde(skip)]
    pub(super) create_ms: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) mime: String,
    pub(super) bytes: Bytes,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallRecord {
    /// From 1; tells tests where to read on.
    pub number: u64,
    /// Method and path behind `/open-apis`, with `:id` for ids.
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: Value,
    /// 0: it succeeded.
    pub code: i64,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) app: App,
    pub(super) users: BTreeMap<String, User>,
    pub(super) chats: BTreeMap<String, Chat>,
    /// Oldest first.
    pub(super) messages: Vec<Message>,
    pub(super) files: HashMap<String, File>,
    /// Message of each mark of a send.
    pub(super) marks: HashMap<String, String>,
    pub(super) tokens: Vec<String>,
    pub(super) calls: VecDeque<CallRecord>,
    pub(super) faults: FaultPlan,
    pub(super) pending: VecDeque<Pending>,
    /// Sent on a socket and not acknowledged: socket and event.
    pub(super) in_flight: Vec<(u64, Pending)>,
    pub(super) delivered: Vec<Value>,
    /// Open sockets, and whether they are to be closed.
    pub(super) sockets: BTreeMap<u64, bool>,
    /// Sockets do not answer pings.
    pub(super) is_silent: bool,
    numbers: u64,
}

impl State {
    /// A number that was not used before.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn record(&mut self, mut call: CallRecord) {
        call.number = self.number();
        if self.calls.len() == CALLS_MAX {
            self.calls.pop_front();
        }
        self.calls.push_back(call);
    }

    pub(super) fn note_delivery(&mut self, what: Value) {
        if self.delivered.len() < DELIVERED_MAX {
            self.delivered.push(what);
        }
    }

    pub(super) fn message(&mut self, id: &str) -> Option<&mut Message> {
        self.messages.iter_mut().find(|message| message.message_id == id)
    }

    /// The messages of a chat as people see them.
    pub(super) fn shown(&self, chat: &str) -> Vec<Message> {
        let is_shown = |message: &&Message| message.chat_id == chat && !message.is_deleted;
        self.messages.iter().filter(is_shown).cloned().collect()
    }

    /// `open_id` of a user by any of their ids.
    pub(super) fn person(&self, id: &str) -> Option<&String> {
        let is = |(open_id, user): &(&String, &User)| *open_id == id || user.user_id == id || user.union_id == id;
        self.users.iter().find(is).map(|(open_id, _)| open_id)
    }
}
