//! Requests that Discord refused. More than 10,000 of them in ten minutes ban the address of the server; calls stop long
//! before that, and the calls of one bot before those of all.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

const WINDOW_MS: u64 = 600_000;
const STOP_BOT_AT: u32 = 200;
/// Limit for visibility look-ups and for answers to waiting users, so that one agent cannot stop them for all others.
const STOP_VITAL_AT: u32 = 400;
const STOP_ALL_AT: u32 = 4_000;

/// Counted in windows of ten minutes.
#[derive(Default)]
struct Window {
    since_ms: u64,
    by_bot: HashMap<String, u32>,
    all: u32,
}

#[derive(Default)]
pub(super) struct InvalidRequests(Mutex<Window>);

impl InvalidRequests {
    pub(super) fn note(&self, bot: &str, now_ms: u64) {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ms.saturating_sub(window.since_ms) >= WINDOW_MS {
            *window = Window { since_ms: now_ms, ..Window::default() };
        }
        window.all += 1;
        let count = window.by_bot.entry(bot.to_owned()).or_default();
        *count += 1;
        if *count == STOP_BOT_AT {
            tracing::error!(
                bot,
                "Discord refused {STOP_BOT_AT} requests of a bot; its calls stop for up to ten minutes"
            );
        }
    }

    pub(super) fn may_call(&self, bot: &str, is_vital: bool, now_ms: u64) -> bool {
        let window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = now_ms.saturating_sub(window.since_ms) >= WINDOW_MS;
        let stop_at = if is_vital { STOP_VITAL_AT } else { STOP_BOT_AT };
        let is_few = window.all < STOP_ALL_AT && window.by_bot.get(bot).is_none_or(|count| *count < stop_at);
        is_over || is_few
    }
}

/// Channels in which Discord recently refused a request for lack of permission.
#[derive(Default)]
pub(super) struct Forbidden(Mutex<HashMap<(String, String), u64>>);

const FORBIDDEN_MS: u64 = 30_000;
const FORBIDDEN_MAX: usize = 1_000;

impl Forbidden {
    pub(super) fn note(&self, bot: &str, place: &str, now_ms: u64) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= FORBIDDEN_MAX {
            places.clear(); // each channel is tried once more
        }
        places.insert((bot.to_owned(), place.to_owned()), now_ms);
    }

    pub(super) fn is(&self, bot: &str, place: &str, now_ms: u64) -> bool {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = places.get(&(bot.to_owned(), place.to_owned()));
        noted.is_some_and(|noted_ms| now_ms.saturating_sub(*noted_ms) < FORBIDDEN_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_bot_stop_first_and_go_on_later() {
        let invalid = InvalidRequests::default();
        for _ in 0..STOP_BOT_AT {
            assert!(invalid.may_call("a", false, WINDOW_MS));
            invalid.note("a", WINDOW_MS);
        }
        assert!(!invalid.may_call("a", false, WINDOW_MS + 1) && invalid.may_call("b", false, WINDOW_MS + 1));
        assert!(invalid.may_call("a", true, WINDOW_MS + 1), "questions and answers go on");
        for bot in 0..STOP_ALL_AT / 100 {
            (0..100).for_each(|_| invalid.note(&format!("b{bot}"), WINDOW_MS + 1));
        }
        assert!(!invalid.may_call("b", false, WINDOW_MS + 2), "all of them together");
        assert!(invalid.may_call("a", false, 2 * WINDOW_MS) && invalid.may_call("b", false, 2 * WINDOW_MS));
    }

    #[test]
    fn a_place_that_was_forbidden_is_not_tried_again_at_once() {
        let forbidden = Forbidden::default();
        assert!(!forbidden.is("b", "send:1", 0));
        forbidden.note("b", "send:1", 1_000);
        assert!(forbidden.is("b", "send:1", 1_000 + FORBIDDEN_MS - 1) && !forbidden.is("b", "send:2", 1_000));
        assert!(!forbidden.is("b", "send:1", 1_000 + FORBIDDEN_MS));
        (0..FORBIDDEN_MAX * 2).for_each(|number| forbidden.note("b", &number.to_string(), 2_000));
        assert!(forbidden.0.lock().unwrap().len() <= FORBIDDEN_MAX);
    }
}
