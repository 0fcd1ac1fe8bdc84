//! Letters: the inboxes of agents, and wakes that are planned.

use std::ops::Bound::{Excluded, Unbounded};

use frontdesk_core::port::letters::{Filed, Letter, Letters, PAGE_MAX_BYTES, PlannedWake};
use frontdesk_core::port::store::Stored;

use super::{MemoryStore, State, now};

impl State {
    fn last_letter(&self, agent: u64) -> u64 {
        self.letters.range((agent, 0)..=(agent, u64::MAX)).next_back().map_or(0, |((_, event), _)| *event)
    }
}

impl Letters for MemoryStore {
    fn letters(&self, agent: u64, after: u64, limit: usize) -> Stored<'_, Vec<Filed>> {
        let state = self.state();
        let rest = state.letters.range((Excluded((agent, after)), Unbounded));
        let own = rest.take_while(|((no, _), _)| *no == agent).map(|(_, (_, filed))| filed);
        let mut room = PAGE_MAX_BYTES;
        let fits = |filed: &&Filed| {
            room > 0 && {
                room = room.saturating_sub(filed.letter.size());
                true
            }
        };
        now(own.take(limit).take_while(fits).cloned().collect())
    }

    fn last_letter(&self, agent: u64) -> Stored<'_, u64> {
        now(self.state().last_letter(agent))
    }

    fn letter_of(&self, event: u64) -> Stored<'_, Option<Filed>> {
        now(self.state().letters.values().find(|(_, filed)| filed.event == event).map(|(_, filed)| filed.clone()))
    }

    fn note_receipts(&self, event: u64, it: Letter) -> Stored<'_, ()> {
        if let Some((_, filed)) = self.state().letters.get_mut(&(it.agent, event)) {
            let letter = &mut filed.letter;
            (letter.kind, letter.session_id, letter.receipts) = (it.kind, it.session_id, it.receipts);
        }
        now(())
    }

    fn tenant_letters<'a>(&'a self, tenant: &'a str, limit: usize) -> Stored<'a, Vec<Filed>> {
        let state = self.state();
        let mut found: Vec<Filed> =
            state.letters.values().filter(|(owner, _)| owner == tenant).map(|(_, filed)| filed.clone()).collect();
        found.sort_by_key(|filed| std::cmp::Reverse(filed.event));
        found.truncate(limit);
        now(found)
    }

    fn inboxes(&self) -> Stored<'_, Vec<u64>> {
        let mut found: Vec<u64> = self.state().letters.keys().map(|(agent, _)| *agent).collect();
        found.dedup();
        now(found)
    }

    fn drop_inbox(&self, agent: u64) -> Stored<'_, ()> {
        let mut state = self.state();
        state.letters.retain(|(no, _), _| *no != agent);
        state.planned_wakes.retain(|_, wake| wake.agent != agent);
        now(())
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
