//! The state of the fake.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::delivery::Pending;
use super::faults::FaultPlan;

const CALLS_MAX: usize = 20_000;
const DELIVERED_MAX: usize = 20_000;

/// The app that is tested. There is one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct App {
    pub id: String,
    pub app_token: String,
    pub signing_secret: String,
    pub client_id: String,
    pub client_secret: String,
    /// Where events go; empty for Socket Mode. `/events`, `/commands` and `/interactions` follow.
    pub request_url: String,
    /// Events go to sockets as well, so that two programs get the same ones.
    pub also_sockets: bool,
    /// Scopes that its tokens have; empty is all.
    pub scopes: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Team {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) token: String,
    pub(super) bot_user: String,
    pub(super) bot_id: String,
    pub(super) is_installed: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct User {
    pub(super) team: String,
    pub(super) name: String,
    pub(super) display_name: String,
    pub(super) is_guest: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Channel {
    pub(super) team: String,
    pub(super) name: String,
    /// channel, group, im or mpim
    pub(super) kind: String,
    pub(super) members: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct File {
    pub(super) team: String,
    pub(super) name: String,
    pub(super) mime: String,
    pub(super) bytes: Bytes,
    pub(super) length: usize,
    pub(super) is_complete: bool,
    /// Channel and message.
    pub(super) shares: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallRecord {
    /// From 1; tells tests where to read on.
    pub number: u64,
    pub method: String,
    pub team: String,
    pub params: Value,
    /// Empty: it succeeded.
    pub error: String,
}

/// Where an answer to a command or a press goes.
#[derive(Debug, Clone, Default)]
pub(super) struct ResponseUrl {
    pub(super) channel: String,
    pub(super) user: String,
    /// The message with the button.
    pub(super) message: Option<String>,
    pub(super) uses: u32,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) app: App,
    pub(super) teams: BTreeMap<String, Team>,
    pub(super) users: BTreeMap<String, User>,
    pub(super) channels: BTreeMap<String, Channel>,
    /// By channel, oldest first.
    pub(super) posts: HashMap<String, Vec<Value>>,
    pub(super) files: BTreeMap<String, File>,
    pub(super) uploads: HashMap<String, String>,
    pub(super) codes: HashMap<String, String>,
    pub(super) statuses: HashMap<(String, String), String>,
    pub(super) response_urls: HashMap<String, ResponseUrl>,
    pub(super) responses: Vec<Value>,
    pub(super) calls: VecDeque<CallRecord>,
    pub(super) faults: FaultPlan,
    pub(super) pending: VecDeque<Pending>,
    /// Sent on a socket and not acknowledged: socket and event.
    pub(super) in_flight: Vec<(u64, Pending)>,
    pub(super) delivered: Vec<Value>,
    /// Open sockets, and what they are told to say next.
    pub(super) sockets: BTreeMap<u64, VecDeque<Value>>,
    tickets: u64,
    numbers: u64,
}

impl State {
    /// A number that was not used before.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn ts(&mut self, now_ms: u64) -> String {
        let number = self.number();
        format!("{}.{:06}", now_ms / 1_000, number % 1_000_000)
    }

    pub(super) fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    pub(super) fn record(&mut self, method: &str, team: &str, params: &Value, error: &str) {
        let number = self.number();
        if self.calls.len() == CALLS_MAX {
            self.calls.pop_front();
        }
        let (method, team, error) = (method.to_owned(), team.to_owned(), error.to_owned());
        self.calls.push_back(CallRecord { number, method, team, params: params.clone(), error });
    }

    pub(super) fn note_delivery(&mut self, what: Value) {
        if self.delivered.len() < DELIVERED_MAX {
            self.delivered.push(what);
        }
    }

    pub(super) fn team_of_token(&self, token: &str) -> Option<&Team> {
        self.teams.values().find(|team| team.is_installed && !token.is_empty() && team.token == token)
    }

    pub(super) fn messages(&self, channel: &str) -> Vec<Value> {
        let shown = |message: &&Value| message["deleted"].as_bool() != Some(true);
        self.posts.get(channel).map(|posts| posts.iter().filter(shown).cloned().collect()).unwrap_or_default()
    }

    pub(super) fn message(&mut self, channel: &str, ts: &str) -> Option<&mut Value> {
        let posts = self.posts.get_mut(channel)?;
        posts.iter_mut().find(|message| message["ts"] == ts && message["deleted"].as_bool() != Some(true))
    }

    pub(super) fn post(&mut self, channel: &str, message: Value) {
        self.posts.entry(channel.to_owned()).or_default().push(message);
    }

    pub(super) fn file_object(&self, id: &str, origin: &str) -> Value {
        let Some(file) = self.files.get(id) else { return Value::Null };
        let url = format!("{origin}/files/{id}/{}", file.name);
        let mut shares = json!({});
        for (channel, ts) in &file.shares {
            let kind = if channel.starts_with('C') { "public" } else { "private" };
            shares[kind][channel] = json!([{ "ts": ts, "team_id": file.team }]);
        }
        json!({
            "id": id, "name": file.name, "title": file.name, "mimetype": file.mime, "size": file.length,
            "mode": "hosted", "filetype": file.name.rsplit('.').next(), "url_private": url,
            "url_private_download": url, "shares": shares, "created": 1_700_000_000,
        })
    }
}
