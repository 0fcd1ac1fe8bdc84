//! Letters: the inboxes of agents, and wakes that are planned.

use std::ops::Bound::{Excluded, Unbounded};

use frontdesk_core::port::letters::{Filed, Letter, Letters, PlannedWake};
use frontdesk_core::port::store::Stored;

use super::{MemoryStore, State, now};

impl State {
    pub(super) fn file(&mut self, tenant: &str, event: u64, at_ms: u64, letter: Letter) -> u64 {
        let agent = letter.agent;
        let seq = self.last_letter(agent) + 1;
        self.letters.insert((agent, seq), (tenant.to_owned(), Filed { seq, event, at_ms, letter }));
        seq
    }

    fn last_letter(&self, agent: u64) -> u64 {
        self.letters.range((agent, 0)..=(agent, u64::MAX)).next_back().map_or(0, |((_, seq), _)| *seq)
    }
}

impl Letters for MemoryStore {
    fn letters(&self, agent: u64, after: u64, limit: usize) -> Stored<'_, Vec<Filed>> {
        let state = self.state();
        let rest = state.letters.range((Excluded((agent, after)), Unbounded));
        now(rest.take_while(|((no, _), _)| *no == agent).take(limit).map(|(_, (_, filed))| filed.clone()).collect())
    }

    fn last_letter(&self, agent: u64) -> Stored<'_, u64> {
        now(self.state().last_letter(agent))
    }

    fn letter_of(&self, event: u64) -> Stored<'_, Option<Filed>> {
        now(self.state().letters.values().find(|(_, filed)| filed.event == event).map(|(_, filed)| filed.clone()))
    }

    fn note_receipts(&self, seq: u64, it: Letter) -> Stored<'_, ()> {
        if let Some((_, filed)) = self.state().letters.get_mut(&(it.agent, seq)) {
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
