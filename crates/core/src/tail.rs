//! Live stream of what the server does, for the `tail` command and the timeline of the chat page.
//!
//! Best effort: a slow watcher loses notices and is told how many. The ledger is authoritative. Without watchers no
//! notice is built.

use std::sync::Arc;

use frontdesk_wire::{ChatId, InstanceId, TenantId};
use serde::Serialize;
use tokio::sync::broadcast;

use crate::env::Env;

/// A watcher that falls this far behind loses the oldest notices, and is told so.
const BACKLOG: usize = 4096;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Notice {
    pub at: u64,
    pub tenant: TenantId,
    /// accepted, withheld, duplicate, sent, acked, waking, `wake_failed`, awake, asleep, notice, interrupted, action,
    /// fired, `fire_failed`, dead, skipped
    pub step: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub instance: InstanceId,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub event_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub chat_id: ChatId,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message_id: String,
    pub text: String,
}

pub struct Tail {
    env: Arc<dyn Env>,
    watchers: broadcast::Sender<Arc<Notice>>,
}

impl Tail {
    pub fn new(env: Arc<dyn Env>) -> Self {
        Self { env, watchers: broadcast::channel(BACKLOG).0 }
    }

    pub fn watch(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.watchers.subscribe()
    }

    pub fn is_watched(&self) -> bool {
        self.watchers.receiver_count() > 0
    }

    /// Fills in the notice only if somebody watches.
    pub fn say(&self, tenant: &str, step: &'static str, fill: impl FnOnce(&mut Notice)) {
        if self.is_watched() {
            let mut notice = Notice { at: self.env.now_ms(), tenant: tenant.into(), step, ..Notice::default() };
            fill(&mut notice);
            let _ = self.watchers.send(Arc::new(notice)); // the last watcher may just have left
        }
    }
}
