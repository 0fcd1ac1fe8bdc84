//! What agents sent out, and how it ended.

use frontdesk_core::port::store::{Journal, JournalEntry, Outcome, Stored};

use super::{MemoryStore, now};

impl Journal for MemoryStore {
    fn open_entry(&self, entry: JournalEntry) -> Stored<'_, u64> {
        let mut state = self.state();
        let id = state.journal.last_key_value().map_or(1, |(last, _)| last + 1);
        state.journal.insert(id, JournalEntry { id, outcome: Outcome::Open, cursor: 0, note: String::new(), ..entry });
        now(id)
    }

    fn close_entry(&self, id: u64, outcome: Outcome, cursor: u32, note: String) -> Stored<'_, bool> {
        let mut state = self.state();
        let Some(entry) =
            state.journal.get_mut(&id).filter(|it| matches!(it.outcome, Outcome::Open | Outcome::Unknown))
        else {
            return now(false);
        };
        (entry.outcome, entry.cursor, entry.note) = (outcome, cursor, note);
        now(true)
    }

    fn doubt_open_entries(&self) -> Stored<'_, u64> {
        let mut doubted = 0;
        for entry in self.state().journal.values_mut().filter(|entry| entry.outcome == Outcome::Open) {
            entry.outcome = Outcome::Unknown;
            entry.note = "the desk went down before the platform answered".into();
            doubted += 1;
        }
        now(doubted)
    }

    fn entries<'a>(&'a self, tenant: Option<&'a str>, limit: usize) -> Stored<'a, Vec<JournalEntry>> {
        let state = self.state();
        let of_tenant = state.journal.values().rev().filter(|entry| tenant.is_none_or(|name| entry.tenant == name));
        now(of_tenant.take(limit).cloned().collect())
    }
}
