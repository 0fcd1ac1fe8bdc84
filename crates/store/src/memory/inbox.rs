//! Inboxes of agents, and planned wakes.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use frontdesk_core::port::inbox::{Inbox, InboxMessage, PAGE_MAX_BYTES, PlannedWake, StoredMessage};
use frontdesk_core::port::store::{Purged, Stored};
use frontdesk_wire::{EventId, InboxSeq, InstanceNo, TenantId};

use super::{MemoryStore, STEP_ROWS, State, now};

impl State {
    fn newest_message(&self, agent: InstanceNo) -> InboxSeq {
        self.messages
            .range((agent, InboxSeq::NONE)..=(agent, InboxSeq(u64::MAX)))
            .next_back()
            .map_or(InboxSeq::NONE, |((_, place), _)| *place)
    }

    /// Every inbox counts for itself. A new one begins above the positions of all others: none of them has more
    /// messages than there were events.
    pub(super) fn next_place(&mut self, agent: InstanceNo) -> InboxSeq {
        let place = self.places.entry(agent).or_insert(InboxSeq(self.last_event.0 + 1_000));
        *place = place.next();
        *place
    }
}

impl Inbox for MemoryStore {
    fn messages(&self, agent: InstanceNo, after: InboxSeq, limit: usize) -> Stored<'_, Vec<StoredMessage>> {
        let state = self.state();
        let rest = state.messages.range((Excluded((agent, after)), Unbounded));
        let own = rest.take_while(|((no, _), _)| *no == agent).map(|(_, (_, stored))| stored);
        let mut room = PAGE_MAX_BYTES;
        let fits = |stored: &&StoredMessage| {
            room > 0 && {
                room = room.saturating_sub(stored.message.size());
                true
            }
        };
        now(own.take(limit).take_while(fits).cloned().collect())
    }

    fn newest_message(&self, agent: InstanceNo) -> Stored<'_, InboxSeq> {
        now(self.state().newest_message(agent))
    }

    fn message_of(&self, event: EventId) -> Stored<'_, Option<StoredMessage>> {
        now(self.state().messages.values().find(|(_, stored)| stored.event == event).map(|(_, stored)| stored.clone()))
    }

    fn note_receipts(&self, event: EventId, seen: Option<String>, it: InboxMessage) -> Stored<'_, bool> {
        let mut state = self.state();
        let mut all = state.messages.values_mut().map(|(_, stored)| stored);
        let found = all.find(|stored| stored.event == event && stored.message.agent == it.agent);
        let unchanged = found.filter(|stored| seen.is_none_or(|seen| seen == stored.message.receipts));
        let is_noted = unchanged.is_some();
        if let Some(StoredMessage { message, .. }) = unchanged {
            (message.kind, message.session_id, message.receipts) = (it.kind, it.session_id, it.receipts);
        }
        now(is_noted)
    }

    fn recent_messages<'a>(&'a self, tenant: &'a TenantId, limit: usize) -> Stored<'a, Vec<StoredMessage>> {
        let state = self.state();
        let mut found: Vec<StoredMessage> =
            state.messages.values().filter(|(owner, _)| owner == tenant).map(|(_, stored)| stored.clone()).collect();
        found.sort_by_key(|stored| std::cmp::Reverse(stored.event));
        found.truncate(limit);
        now(found)
    }

    fn inboxes(&self) -> Stored<'_, Vec<InstanceNo>> {
        let state = self.state();
        let with_wakes = state.planned_wakes.values().map(|wake| wake.agent);
        let found: BTreeSet<InstanceNo> = state.messages.keys().map(|(agent, _)| *agent).chain(with_wakes).collect();
        now(found.into_iter().collect())
    }

    fn drop_inbox(&self, agent: InstanceNo) -> Stored<'_, Purged> {
        let mut state = self.state();
        let wakes = state.planned_wakes.extract_if(|_, wake| wake.agent == agent).take(STEP_ROWS).count();
        if wakes > 0 {
            return now(Purged { gone: wakes as u64, more: true });
        }
        let own = (agent, InboxSeq::NONE)..=(agent, InboxSeq(u64::MAX));
        let gone = state.messages.extract_if(own, |_, _| true).take(STEP_ROWS).count();
        now(Purged { gone: gone as u64, more: gone == STEP_ROWS })
    }

    fn plan_wake(&self, wake: PlannedWake) -> Stored<'_, ()> {
        self.state().planned_wakes.insert(wake.key.clone(), wake);
        now(())
    }

    fn planned_wake<'a>(&'a self, key: &'a str) -> Stored<'a, Option<PlannedWake>> {
        now(self.state().planned_wakes.get(key).cloned())
    }

    fn drop_planned_wake<'a>(&'a self, key: &'a str) -> Stored<'a, ()> {
        self.state().planned_wakes.remove(key);
        now(())
    }
}
