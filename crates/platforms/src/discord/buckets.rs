//! Rate limits of routes. Discord says with each response which requests share one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use frontdesk_wire::{Act, Action, ChatId};

/// The longest name of a limit that is remembered.
const NAME_MAX: usize = 64;

/// By bot and kind of request: the limit that it counts for.
#[derive(Default)]
pub(super) struct Buckets(Mutex<HashMap<(String, &'static str), String>>);

impl Buckets {
    /// The limit of an action, by name. Until it is known, each kind of request is taken for one of its own: a thread that
    /// was renamed too often must not silence its channel. Limits are counted for each channel.
    pub(super) fn of(&self, bot: &str, action: &Action) -> String {
        let (route, place) = route(action);
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(bot.to_owned(), route)).cloned();
        format!("{}:{place}", known.as_deref().unwrap_or(route))
    }

    pub(super) fn learn(&self, bot: &str, action: &Action, name: &str) {
        if name.is_empty() || name.len() > NAME_MAX {
            return;
        }
        let (route, _) = route(action);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((bot.to_owned(), route), name.to_owned());
    }
}

fn route(action: &Action) -> (&'static str, &str) {
    let thread = action.meta("thread_id").filter(|id| !id.is_empty());
    let channel = thread.or(action.act.chat_id().map(ChatId::as_str)).unwrap_or_default();
    match &action.act {
        Act::ThreadRename { message_id, .. } => ("thread_rename", message_id),
        Act::FollowUp { session_key, .. } => ("follow_up", session_key),
        Act::Send { .. } | Act::SendMedia { .. } | Act::Prompt { .. } => ("send", channel),
        act => (act.op(), channel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(act: Act) -> Action {
        act.into()
    }

    #[test]
    fn what_shares_a_limit_is_learned_from_answers() {
        let buckets = Buckets::default();
        let send = |chat: &str| action(Act::Send { chat_id: chat.into(), content: "x".into(), reply_to: None });
        let delete = |chat: &str| action(Act::Delete { chat_id: chat.into(), message_id: "1".into() });
        assert_ne!(buckets.of("b", &send("7")), buckets.of("b", &delete("7")));
        buckets.learn("b", &send("7"), "abc");
        buckets.learn("b", &delete("8"), "abc");
        assert_eq!(buckets.of("b", &send("7")), buckets.of("b", &delete("7")), "they count together");
        assert_ne!(buckets.of("b", &send("7")), buckets.of("b", &send("8")), "in each channel");
        assert_ne!(buckets.of("other", &send("7")), buckets.of("b", &send("7")), "each bot learns by itself");
        buckets.learn("b", &send("7"), &"x".repeat(65));
        assert_eq!(buckets.of("b", &send("7")), "abc:7");
    }
}
