//! Limits how often agents are notified of messages that failed late. An agent may answer such a report in the same
//! chat, and that message fails as well: without a limit this would never end.
//!
//! In memory and per server: it only has to slow down a loop.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use frontdesk_wire::{BotId, ChatId};

use crate::hash::short_hash;

/// Reports about one chat in a window.
const REPORTS_MAX: u32 = 5;
const WINDOW_MS: u64 = 10 * 60 * 1_000;
/// Chats that are remembered. Above this number, those whose window has ended are removed, then all.
const CHATS_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct Reports(Mutex<HashMap<[u8; 16], Window>>);

struct Window {
    began_ms: u64,
    count: u32,
}

impl Reports {
    pub(super) fn may_report(&self, platform: &str, bot: &BotId, chat_id: &ChatId, now_ms: u64) -> bool {
        let mut chats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if chats.len() >= CHATS_MAX {
            chats.retain(|_, window| now_ms.saturating_sub(window.began_ms) < WINDOW_MS);
        }
        if chats.len() >= CHATS_MAX {
            chats.clear();
        }
        let window =
            chats.entry(short_hash(&[platform, bot, chat_id])).or_insert(Window { began_ms: now_ms, count: 0 });
        if now_ms.saturating_sub(window.began_ms) >= WINDOW_MS {
            *window = Window { began_ms: now_ms, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        window.count <= REPORTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_has_few_reports_in_a_window_and_the_memory_is_bounded() {
        let reports = Reports::default();
        let may_report = |chat: &str, now_ms| reports.may_report("p", &"b".into(), &chat.into(), now_ms);
        let allowed = (0..20).filter(|_| may_report("c", 1_000)).count();
        assert_eq!(allowed, REPORTS_MAX as usize);
        assert!(may_report("other", 1_000));
        assert!(may_report("c", 1_000 + WINDOW_MS));
        for number in 0..3 * CHATS_MAX {
            may_report(&number.to_string(), 2_000);
        }
        assert!(reports.0.lock().unwrap().len() <= CHATS_MAX);
    }
}
