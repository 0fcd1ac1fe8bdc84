//! Repeats typing indicators. Vendors show one for some seconds, and agents rarely repeat it: the server does until the
//! agent has written, has cleared it, or has not asked again for a minute.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use frontdesk_wire::{Act, Action, BotId, ChatId, TenantId};

use crate::directory::Caller;

/// An agent that asks for an indicator and then is silent may have failed.
const REPEATED_FOR_MS: u64 = 60_000;
/// It is repeated this long before the vendor would remove it.
const EARLY_MS: u64 = 1_000;
/// Further ones of the tenant are shown once, and not repeated.
const TENANT_MAX: usize = 256;
/// Of chat and thread together; ids of vendors are shorter.
const PLACE_MAX_BYTES: usize = 1_024;

/// An indicator that is to be shown again.
#[derive(Clone)]
pub struct TypingAgain {
    pub(super) caller: Caller,
    pub(super) platform: String,
    pub(super) bot: BotId,
    pub(super) action: Action,
}

struct Shown {
    again: TypingAgain,
    every_ms: u64,
    next_ms: u64,
    until_ms: u64,
}

/// Where an indicator is shown: platform, bot, chat and thread.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct TypingKey {
    platform: String,
    bot: BotId,
    chat_id: ChatId,
    thread_id: String,
}

impl TypingKey {
    pub(super) fn of(platform: &str, bot: &BotId, action: &Action) -> Self {
        Self {
            platform: platform.to_owned(),
            bot: bot.clone(),
            chat_id: action.act.chat_id().cloned().unwrap_or_default(),
            thread_id: action.meta("thread_id").unwrap_or_default().to_owned(),
        }
    }
}

#[derive(Default)]
pub(super) struct Typing {
    by_tenant: Mutex<HashMap<TenantId, HashMap<TypingKey, Shown>>>,
}

impl Typing {
    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, HashMap<TypingKey, Shown>>> {
        self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An indicator was shown, which the vendor removes after `lasts_ms`.
    pub(super) fn show(&self, again: TypingAgain, lasts_ms: u64, now_ms: u64) {
        let place = TypingKey::of(&again.platform, &again.bot, &again.action);
        let mut tenants = self.lock();
        let shown = tenants.entry(again.caller.tenant.clone()).or_default();
        if shown.len() >= TENANT_MAX && !shown.contains_key(&place) {
            return;
        }
        let every_ms = lasts_ms.saturating_sub(EARLY_MS).max(EARLY_MS);
        shown.insert(place, Shown { again, every_ms, next_ms: now_ms + every_ms, until_ms: now_ms + REPEATED_FOR_MS });
    }

    pub(super) fn end(&self, tenant: &TenantId, place: &TypingKey) {
        let mut tenants = self.lock();
        let Some(shown) = tenants.get_mut(tenant) else { return };
        shown.remove(place);
        if shown.is_empty() {
            tenants.remove(tenant);
        }
    }

    /// Indicators that are due.
    pub(super) fn due(&self, now_ms: u64) -> Vec<TypingAgain> {
        let mut due = Vec::new();
        self.lock().retain(|_, shown| {
            shown.retain(|_, it| it.until_ms > now_ms);
            for it in shown.values_mut().filter(|it| it.next_ms <= now_ms) {
                it.next_ms = now_ms + it.every_ms;
                due.push(it.again.clone());
            }
            !shown.is_empty()
        });
        due
    }
}

/// The place of an indicator, which is all that is kept of it. `None`: the action is not an indicator, ends one, or has
/// ids longer than those of any vendor.
pub(super) fn to_repeat(action: &Action) -> Option<Action> {
    let Act::Typing { chat_id, .. } = &action.act else { return None };
    let thread_id = action.meta("thread_id");
    let is_short = chat_id.len() + thread_id.map_or(0, str::len) <= PLACE_MAX_BYTES;
    if ends_typing(&action.act) || !is_short {
        return None;
    }
    let mut kept = Action::from(Act::Typing { chat_id: chat_id.clone(), content: None });
    kept.metadata.extend(thread_id.map(|thread_id| ("thread_id".to_owned(), thread_id.into())));
    Some(kept)
}

/// Whether users see an answer instead of the indicator from this action on. An edit does not change it.
pub(super) fn ends_typing(act: &Act) -> bool {
    match act {
        Act::Typing { content, .. } => content.as_deref() == Some(""),
        Act::Send { .. } | Act::SendMedia { .. } | Act::Prompt { .. } | Act::Draft { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_place_of_an_indicator_is_kept() {
        let parse = |text: &str| Action::parse(text).unwrap();
        let large = "x".repeat(100_000);
        let typing = format!(
            r#"{{"op":"typing","chat_id":"c","content":"{large}","metadata":{{"thread_id":"7","more":"{large}"}}}}"#
        );
        let kept = to_repeat(&parse(&typing)).unwrap();
        assert_eq!(
            (kept.act.chat_id().map(ChatId::as_str), kept.meta("thread_id"), kept.metadata.len()),
            (Some("c"), Some("7"), 1)
        );
        assert_eq!(kept.act, Act::Typing { chat_id: "c".into(), content: None });
        let long = format!(r#"{{"op":"typing","chat_id":"c","metadata":{{"thread_id":"{large}"}}}}"#);
        for none in [long.as_str(), r#"{"op":"typing","chat_id":"c","content":""}"#, r#"{"op":"send","chat_id":"c"}"#] {
            assert_eq!(to_repeat(&parse(none)), None);
        }
    }
}
