//! Events of the socket that are being stored: presses at once, all others in their order.

use std::collections::VecDeque;
use std::time::Duration;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::Bot;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::time::Instant;

use super::PLATFORM;
use super::events::PRESS;
use super::frame::Frame;
use super::value::text_of;

/// Events that wait for earlier ones. If there are as many, the socket is not read until one is stored.
const WAITING_MAX: usize = 64;
const WAITING_MAX_BYTES: usize = 4 << 20;
/// Presses that are stored at once. Further ones wait as other events do.
const PRESSES_MAX: usize = 16;
/// What is ignored is logged at most this often.
const IGNORED_EVERY: Duration = Duration::from_mins(1);

pub(super) struct Unstored {
    pub(super) answer: Option<Value>,
    pub(super) why: String,
    /// True if the store failed; false if a look-up at Feishu failed.
    pub(super) is_of_store: bool,
}

pub(super) struct Event {
    pub(super) frame: Frame,
    pub(super) payload: Value,
    pub(super) bytes: usize,
    pub(super) began_ms: u64,
}

/// An event that was stored or not.
pub(super) struct Handled {
    pub(super) frame: Frame,
    pub(super) began_ms: u64,
    pub(super) stored: Result<Option<Value>, Unstored>,
    pub(super) is_press: bool,
}

/// Events that are being stored: presses immediately, all others in order.
#[derive(Default)]
pub(super) struct Work<'a> {
    pub(super) running: FuturesUnordered<BoxFuture<'a, Handled>>,
    presses: usize,
    /// Whether an event that is not a press is among the running ones.
    is_storing: bool,
    waiting: VecDeque<Event>,
    waiting_bytes: usize,
}

impl<'a> Work<'a> {
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || self.waiting_bytes >= WAITING_MAX_BYTES
    }

    pub(super) fn add(&mut self, event: Event, start: impl Fn(Event, bool) -> BoxFuture<'a, Handled>) {
        let is_press = text_of(&event.payload["header"], "event_type") == PRESS;
        if is_press && self.presses < PRESSES_MAX {
            self.presses += 1;
            self.running.push(start(event, true));
        } else if self.is_storing {
            self.waiting_bytes += event.bytes;
            self.waiting.push_back(event);
        } else {
            self.is_storing = true;
            self.running.push(start(event, false));
        }
    }

    pub(super) fn finished(&mut self, is_press: bool, start: impl Fn(Event, bool) -> BoxFuture<'a, Handled>) {
        if is_press {
            self.presses -= 1;
            return;
        }
        let next = self.waiting.pop_front();
        self.is_storing = next.is_some();
        if let Some(event) = next {
            self.waiting_bytes -= event.bytes;
            self.running.push(start(event, false));
        }
    }
}

/// Logs what is ignored, but not each time.
#[derive(Default)]
pub(super) struct Ignored {
    logged_at: Option<Instant>,
    left_out: u64,
}

impl Ignored {
    /// Whether it was logged.
    pub(super) fn note(&mut self, bot: &Bot, why: &str) -> bool {
        let now = Instant::now();
        if self.logged_at.is_some_and(|at| now < at + IGNORED_EVERY) {
            self.left_out += 1;
            return false;
        }
        let left_out = std::mem::take(&mut self.left_out);
        tracing::warn!(platform = PLATFORM, bot = bot.id.as_str(), why, left_out, "an event on the socket was ignored");
        self.logged_at = Some(now);
        true
    }
}
