//! A fake of `WeCom`: the API of a self-built app with the members of a company behind it, and the socket of a robot.

mod app;
mod robot;
mod seal;
mod server;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

pub use server::Server;

use super::serving::faults::Fault;

pub const CORP: &str = "ww1234567890abcdef";
pub const AGENT: u32 = 1_000_002;
pub const SECRET: &str = "app-secret-0123456789abcdefghijklmnopqrstuvw";
pub const TOKEN: &str = "callbackToken7";
pub const AES_KEY: &str = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C";
pub const ROBOT: &str = "aibot-0123456789";
pub const ROBOT_SECRET: &str = "robot-secret-0123456789abcdefghijklmnopqrst";
const RECORDS_MAX: usize = 20_000;

/// A message that was sent by the API, or over the socket.
#[derive(Debug, Clone, Serialize)]
pub struct Sent {
    pub id: String,
    /// A member, or the chat of a robot.
    pub to: String,
    pub message: Value,
}

#[derive(Debug, Clone, Serialize)]
pub struct CallRecord {
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub body: Value,
    pub status: u16,
}

#[derive(Debug, Clone)]
pub struct File {
    pub mime: String,
    pub filename: String,
    pub bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    count: u64,
    webhook: Option<String>,
    /// The token that is valid now, by its number.
    token: u64,
    /// Members outside the visible range of the app.
    hidden: HashSet<String>,
    sent: Vec<Sent>,
    files: HashMap<String, File>,
    calls: Vec<CallRecord>,
    faults: VecDeque<Fault>,
    robot: robot::Robot,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

/// A handle; clones share one state.
#[derive(Clone, Default)]
pub struct FakeWeCom {
    shared: Arc<Shared>,
}

/// Why a call is refused.
struct Refused(i64, &'static str);

impl Refused {
    fn shown(&self) -> Value {
        let hint =
            "hint: [1700000000123456789012345], from ip: 203.0.113.9, more info at https://open.work.weixin.qq.com";
        json!({ "errcode": self.0, "errmsg": format!("{}, {hint}", self.1) })
    }
}

impl FakeWeCom {
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        let result = with(&mut self.state());
        self.shared.changes.send_modify(|count| *count += 1);
        result
    }

    pub fn set_webhook(&self, url: &str) {
        self.change(|state| state.webhook = Some(url.to_owned()));
    }

    pub fn fault(&self, fault: Fault) {
        self.change(|state| state.faults.push_back(fault));
    }

    /// The token that was given out is no longer valid.
    pub fn expire_token(&self) {
        self.change(|state| state.token += 1);
    }

    pub fn hide(&self, member: &str) {
        self.change(|state| state.hidden.insert(member.to_owned()));
    }

    pub fn calls(&self) -> Vec<CallRecord> {
        self.state().calls.clone()
    }

    pub fn sent(&self) -> Vec<Sent> {
        self.state().sent.clone()
    }

    pub fn file(&self, id: &str) -> Option<File> {
        self.state().files.get(id).cloned()
    }

    /// Returns the first value that `probe` finds, now or after a change.
    pub async fn wait_for<T>(&self, mut probe: impl FnMut(&Self) -> Option<T>) -> T {
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(found) = probe(self) {
                return found;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn fresh(&self) -> u64 {
        self.change(|state| {
            state.count += 1;
            state.count
        })
    }

    /// A file of a member: its id, for a message.
    pub fn attach(&self, mime: &str, filename: &str, bytes: &[u8]) -> String {
        let id = format!("MEDIA{:027}", self.fresh());
        let file = File { mime: mime.to_owned(), filename: filename.to_owned(), bytes: bytes.to_vec() };
        self.change(|state| state.files.insert(id.clone(), file));
        id
    }
}

/// What the socket of the robot writes.
enum Out {
    Text(String),
    /// The connection ends.
    Close,
}

type Line = mpsc::UnboundedSender<Out>;
