//! Actions of agents and their results.

use frontdesk_core::port::store::{Closing, DeskNo, Journal, JournalEntry, Outcome, Stored};

use super::{MemoryStore, now};

impl Journal for MemoryStore {
    fn open_entry(&self, entry: JournalEntry) -> Stored<'_, u64> {
        let mut state = self.state();
        let id = state.journal.last_key_value().map_or(1, |(last, _)| last + 1);
        state.journal.insert(id, JournalEntry { id, outcome: Outcome::Open, cursor: 0, note: String::new(), ..entry });
        now(id)
    }

    fn close_entry(&self, id: u64, closing: Closing) -> Stored<'_, bool> {
        let mut state = self.state();
        let Some(entry) =
            state.journal.get_mut(&id).filter(|it| matches!(it.outcome, Outcome::Open | Outcome::Unknown))
        else {
            return now(false);
        };
        let Closing { outcome, cursor, note, receipt_id } = closing;
        (entry.outcome, entry.cursor, entry.note, entry.receipt_id) = (outcome, cursor, note, receipt_id);
        now(true)
    }

    fn apply_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a str,
        receipt_id: &'a str,
        outcome: Outcome,
        note: &'a str,
    ) -> Stored<'a, Option<JournalEntry>> {
        let mut state = self.state();
        let is_meant = |it: &&mut JournalEntry| it.platform == platform && it.bot == bot && it.receipt_id == receipt_id;
        let Some(entry) = state.journal.values_mut().filter(|_| !receipt_id.is_empty()).find(is_meant) else {
            return now(None);
        };
        (entry.outcome, entry.note) = (outcome, note.into());
        now(Some(entry.clone()))
    }

    fn doubt_open_entries(&self, live: Vec<DeskNo>) -> Stored<'_, u64> {
        let mut doubted = 0;
        let is_left = |entry: &&mut JournalEntry| entry.outcome == Outcome::Open && !live.contains(&entry.desk);
        for entry in self.state().journal.values_mut().filter(is_left) {
            entry.outcome = Outcome::Unknown;
            entry.note = "the server stopped before the platform answered".into();
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
