//! Accepted events, and the chats that they came from.

use frontdesk_core::port::store::{EventRecord, Events, Stored};
use frontdesk_wire::{BotId, ChatId, EventId, MessageId, TenantId};

use super::{MemoryStore, now};

impl Events for MemoryStore {
    fn event(&self, event: EventId) -> Stored<'_, Option<EventRecord>> {
        now(self.state().events.get(&event).cloned())
    }

    fn event_named<'a>(
        &'a self,
        tenant: &'a TenantId,
        dedup_prefix: Vec<u8>,
        message_id: &'a MessageId,
        chat_id: Option<&'a ChatId>,
    ) -> Stored<'a, Option<EventRecord>> {
        let state = self.state();
        let marked = state.by_dedup.iter().filter(|(key, _)| key.starts_with(&dedup_prefix));
        let records = marked.filter_map(|(_, event)| state.events.get(event));
        let named = |it: &&EventRecord| {
            it.tenant == *tenant && it.message_id == *message_id && chat_id.is_none_or(|chat| it.chat_id == *chat)
        };
        now(records.filter(named).max_by_key(|it| it.event).cloned())
    }

    fn events_marked<'a>(&'a self, _: &'a TenantId, dedups: Vec<Vec<u8>>) -> Stored<'a, Vec<Option<EventRecord>>> {
        let state = self.state();
        now(dedups.iter().map(|key| state.events.get(state.by_dedup.get(key)?).cloned()).collect())
    }

    fn reached<'a>(
        &'a self,
        tenant: &'a TenantId,
        platform: &'a str,
        bot: &'a BotId,
        chat_id: &'a ChatId,
    ) -> Stored<'a, bool> {
        now(self
            .state()
            .reach
            .contains_key(&[tenant.as_str(), platform, bot.as_str(), chat_id.as_str()].map(str::to_owned)))
    }
}
