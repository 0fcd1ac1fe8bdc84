//! Events that were received and are not stored yet.
//!
//! `signal-cli` does not repeat them. So they outlive the stream that they came by, and the next listener stores them first.
//! Nothing is read while some wait, so they are never more than what one piece of the stream held.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_core::port::platform::Bot;

/// How long they wait for the next listener of the bot.
const LEFT_MAX_MS: u64 = 3_600_000;

/// Bot, tenant and account, so that messages to one do not reach a later bot of the same name.
type Key = (String, String, String);

fn key(bot: &Bot) -> Key {
    let tenant = bot.tenant.as_ref().map(ToString::to_string).unwrap_or_default();
    (bot.id.to_string(), tenant, bot.setting("account").unwrap_or_default().to_owned())
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Arc<str>>,
    /// The account id of the bot, if it is known.
    aci: Option<Arc<str>>,
    /// When the stream ended, until it is read again.
    ended_ms: Option<u64>,
}

#[derive(Default)]
pub(super) struct Backlog(Mutex<HashMap<Key, Queue>>);

impl Backlog {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, bot: &Bot, change: impl FnOnce(&mut Queue) -> T) -> T {
        change(self.all().entry(key(bot)).or_default())
    }

    /// The stream is open. Returns when the last one ended. Events that waited too long for a listener are dropped.
    pub(super) fn begin(&self, bot: &Bot, aci: Option<String>, now_ms: u64) -> Option<u64> {
        let ended_ms = self.with(bot, |queue| {
            queue.aci = aci.map(Into::into);
            queue.ended_ms.take()
        });
        self.all().retain(|(id, ..), queue| {
            let is_kept = queue.ended_ms.is_none_or(|ended_ms| now_ms.saturating_sub(ended_ms) < LEFT_MAX_MS);
            if !is_kept && !queue.events.is_empty() {
                tracing::warn!(bot = id, lost = queue.events.len(), "messages that were never stored were dropped");
            }
            is_kept
        });
        ended_ms
    }

    /// The stream ended. Returns how many events are left.
    pub(super) fn end(&self, bot: &Bot, now_ms: u64) -> usize {
        self.with(bot, |queue| {
            queue.ended_ms = Some(now_ms);
            queue.events.len()
        })
    }

    pub(super) fn push(&self, bot: &Bot, event: &str) {
        self.with(bot, |queue| queue.events.push_back(event.into()));
    }

    /// The oldest, and the account id of the bot. It stays until it is [stored](Self::stored).
    pub(super) fn first(&self, bot: &Bot) -> Option<(Arc<str>, Option<Arc<str>>)> {
        self.with(bot, |queue| Some((queue.events.front()?.clone(), queue.aci.clone())))
    }

    pub(super) fn stored(&self, bot: &Bot) {
        self.with(bot, |queue| queue.events.pop_front());
    }
}
