//! Live stream of what the server does, for the `tail` command and the timeline of the chat page.
//!
//! Best effort: a slow watcher loses notices and is sent their number. The ledger is authoritative. Without watchers no
//! notice is built.

mod elsewhere;

use std::sync::Arc;

use frontdesk_wire::{ChatId, DeskNo, EventId, InstanceId, MessageId, TenantId};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::env::Env;
use crate::port::bus::TailPart;
use elsewhere::Elsewhere;

/// A watcher that falls this far behind loses the oldest notices, and is told so.
const BACKLOG: usize = 4096;
/// Longer texts of a notice are shortened.
const TEXT_MAX_BYTES: usize = 2048;

#[derive(Debug, Clone, Default, Serialize)]
pub struct Notice {
    pub at: u64,
    pub tenant: TenantId,
    /// accepted, withheld, duplicate, sent, acked, waking, `wake_failed`, awake, asleep, notice, interrupted,
    /// `not_interrupted`, action, fired, `fire_failed`, dead, skipped, `given_up`
    pub step: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub instance: InstanceId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub chat_id: ChatId,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message_id: MessageId,
    pub text: String,
}

impl Notice {
    /// Each watcher may make the server keep `BACKLOG` notices.
    fn shorten(&mut self) {
        fn too_long(text: &str) -> Option<&str> {
            (text.len() > TEXT_MAX_BYTES).then(|| &text[..text.floor_char_boundary(TEXT_MAX_BYTES)])
        }
        for text in [&mut self.text, &mut self.platform] {
            text.truncate(text.floor_char_boundary(TEXT_MAX_BYTES));
        }
        if let Some(short) = too_long(&self.chat_id) {
            self.chat_id = short.into();
        }
        if let Some(short) = too_long(&self.message_id) {
            self.message_id = short.into();
        }
    }
}

pub struct Tail {
    env: Arc<dyn Env>,
    watchers: broadcast::Sender<Arc<Notice>>,
    elsewhere: Elsewhere,
}

impl Tail {
    pub fn new(env: Arc<dyn Env>) -> Self {
        Self { env, watchers: broadcast::channel(BACKLOG).0, elsewhere: Elsewhere::new() }
    }

    pub fn watch(&self) -> broadcast::Receiver<Arc<Notice>> {
        self.watchers.subscribe()
    }

    /// What other servers on the store do, each with the name of its server (`desk`).
    pub fn watch_others(&self) -> broadcast::Receiver<Arc<Value>> {
        self.elsewhere.watch()
    }

    pub fn is_watched(&self) -> bool {
        self.watchers.receiver_count() > 0 || self.elsewhere.is_asked()
    }

    pub(crate) fn asks_others(&self) -> bool {
        self.elsewhere.is_watched()
    }

    /// Another server has watchers.
    pub(crate) fn asked(&self, by: DeskNo) {
        self.elsewhere.asked(by, self.env.steady_ms());
    }

    /// What is to be sent to servers that have watchers.
    pub(crate) fn parts(&self, me: DeskNo, name: &str) -> Vec<(DeskNo, TailPart)> {
        self.elsewhere.parts(me, name, self.env.steady_ms())
    }

    pub(crate) fn received(&self, part: TailPart) {
        self.elsewhere.received(part);
    }

    /// Hints of other servers do not arrive.
    pub(crate) fn note_cut_off(&self) {
        let text = "the bus does not deliver: events of other servers are not shown";
        self.elsewhere.publish(json!({ "step": "missed", "text": text }));
    }

    /// Builds the notice only if there is a watcher.
    pub fn publish(&self, tenant: &TenantId, step: &'static str, fill: impl FnOnce(&mut Notice)) {
        if self.is_watched() {
            let mut notice = Notice { at: self.env.now_ms(), tenant: tenant.clone(), step, ..Notice::default() };
            fill(&mut notice);
            notice.shorten();
            if self.elsewhere.is_asked() {
                self.elsewhere.add(&notice);
            }
            let _ = self.watchers.send(Arc::new(notice)); // the last watcher may just have left
        }
    }
}
