//! Messages of each robot that came and are not stored yet, and links to files that are to be kept.
//!
//! `WeCom` does not repeat a message. So they outlive the connection that they came by, and the next one stores them first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_core::port::platform::Bot;

use super::frame::Frame;

/// Limits per robot. When they are reached, its socket is not read.
const MESSAGES_MAX: usize = 64;
const BYTES_MAX: usize = 8 << 20;
/// Limit per robot. Further files are fetched when an agent asks for them.
const FILES_MAX: usize = 64;
/// How long they wait for the next listener of the robot.
const LEFT_MAX_MS: u64 = 3_600_000;

/// Bot, tenant and robot, so that messages to one do not reach a later bot of the same name.
type Key = (String, String, String);

fn key(bot: &Bot) -> Key {
    let tenant = bot.tenant.as_ref().map(ToString::to_string).unwrap_or_default();
    (bot.id.to_string(), tenant, bot.setting("bot_id").unwrap_or_default().to_owned())
}

/// A file that is to be kept.
pub(super) struct FileLink {
    pub(super) handle: String,
    /// When its message came.
    pub(super) came_ms: u64,
}

struct Message {
    frame: Arc<Frame>,
    bytes: usize,
    at_ms: u64,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    files: VecDeque<FileLink>,
    /// When the last message of the vendor was received.
    last_received_ms: u64,
    /// When the last listener ended, if there is none now.
    left_ms: Option<u64>,
}

/// Messages that are not stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) count: usize,
    pub(super) since_ms: u64,
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

    /// A listener begins. Messages that waited too long for one are dropped.
    pub(super) fn begin(&self, bot: &Bot, now_ms: u64) {
        self.with(bot, |queue| queue.left_ms = None);
        self.all().retain(|(id, ..), queue| {
            let is_kept = queue.left_ms.is_none_or(|left_ms| now_ms.saturating_sub(left_ms) < LEFT_MAX_MS);
            if !is_kept && !queue.messages.is_empty() {
                tracing::warn!(bot = id, lost = queue.messages.len(), "messages that were never stored were dropped");
            }
            is_kept
        });
    }

    /// The listener ended, for now or for good.
    pub(super) fn leave(&self, bot: &Bot, now_ms: u64) -> Option<Left> {
        self.with(bot, |queue| {
            queue.left_ms = Some(now_ms);
            let first = queue.messages.front()?;
            Some(Left { count: queue.messages.len(), since_ms: first.at_ms })
        })
    }

    pub(super) fn note_received(&self, bot: &Bot, now_ms: u64) {
        self.with(bot, |queue| queue.last_received_ms = now_ms);
    }

    /// When this server last received something from the vendor; 0 is never.
    pub(super) fn last_received_ms(&self, bot: &Bot) -> u64 {
        self.with(bot, |queue| queue.last_received_ms)
    }

    /// Everything that came before this is stored.
    pub(super) fn stored_until_ms(&self, bot: &Bot) -> u64 {
        self.with(bot, |queue| {
            queue.messages.front().map_or(queue.last_received_ms, |first| first.at_ms.min(queue.last_received_ms))
        })
    }

    pub(super) fn is_full(&self, bot: &Bot) -> bool {
        self.with(bot, |queue| queue.messages.len() >= MESSAGES_MAX || queue.bytes >= BYTES_MAX)
    }

    pub(super) fn push(&self, bot: &Bot, frame: Frame, bytes: usize, now_ms: u64) {
        self.with(bot, |queue| {
            queue.bytes += bytes;
            queue.messages.push_back(Message { frame: Arc::new(frame), bytes, at_ms: now_ms });
        });
    }

    /// The oldest. It stays until it is [stored](Self::stored).
    pub(super) fn first(&self, bot: &Bot) -> Option<Arc<Frame>> {
        self.with(bot, |queue| queue.messages.front().map(|message| message.frame.clone()))
    }

    /// The oldest was stored, with files that are to be kept.
    pub(super) fn stored(&self, bot: &Bot, files: Vec<String>) {
        self.with(bot, |queue| {
            let Some(message) = queue.messages.pop_front() else { return };
            queue.bytes -= message.bytes;
            let free = FILES_MAX - queue.files.len().min(FILES_MAX);
            if files.len() > free {
                tracing::debug!(bot = bot.id.as_str(), "files of WeCom were not kept for later: too many wait");
            }
            let link = |handle| FileLink { handle, came_ms: message.at_ms };
            queue.files.extend(files.into_iter().take(free).map(link));
        });
    }

    pub(super) fn next_file(&self, bot: &Bot) -> Option<FileLink> {
        self.with(bot, |queue| queue.files.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn bot(id: &str, tenant: &str) -> Bot {
        Bot::new(id, Some(tenant.into()), BTreeMap::new(), BTreeMap::new())
    }

    fn frame(req_id: &str) -> Frame {
        Frame::read(&format!(r#"{{"headers":{{"req_id":"{req_id}"}}}}"#)).unwrap()
    }

    #[test]
    fn it_is_bounded_and_waits_for_the_same_robot_only() {
        let (backlog, own) = (Backlog::default(), bot("b", "home"));
        backlog.begin(&own, 0);
        backlog.note_received(&own, 9);
        assert_eq!(backlog.stored_until_ms(&own), 9);
        for number in 0..MESSAGES_MAX {
            assert!(!backlog.is_full(&own));
            backlog.push(&own, frame(&number.to_string()), 10, 5);
        }
        assert!(backlog.is_full(&own) && !backlog.is_full(&bot("b", "other")));
        assert_eq!(backlog.stored_until_ms(&own), 5);
        assert!(backlog.first(&bot("b", "other")).is_none(), "it has a new tenant");
        assert_eq!(backlog.first(&own).unwrap().req_id, "0");
        backlog.stored(&own, vec!["f".into(); 2 * FILES_MAX]);
        assert_eq!((backlog.first(&own).unwrap().req_id.as_str(), backlog.is_full(&own)), ("1", false));
        assert_eq!(std::iter::from_fn(|| backlog.next_file(&own)).count(), FILES_MAX);
        backlog.push(&own, frame("long"), BYTES_MAX, 6);
        backlog.stored(&own, Vec::new());
        assert!(backlog.is_full(&own), "in bytes");
        assert_eq!(backlog.leave(&own, 10), Some(Left { count: MESSAGES_MAX - 1, since_ms: 5 }));
        backlog.begin(&own, LEFT_MAX_MS);
        assert!(backlog.first(&own).is_some());
        backlog.leave(&own, 10);
        backlog.begin(&bot("c", "home"), LEFT_MAX_MS + 10);
        assert!(backlog.first(&own).is_none());
    }
}
