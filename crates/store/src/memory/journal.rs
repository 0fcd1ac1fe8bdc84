//! Actions of agents and their results.

use frontdesk_core::port::store::{Closing, DeskNo, Journal, JournalEntry, Outcome, Stored};
use frontdesk_wire::{BotId, TenantId};

use super::{MemoryStore, now};

impl Journal for MemoryStore {
    fn open_entry(&self, entry: JournalEntry, receipt_id: Option<String>) -> Stored<'_, u64> {
        let mut state = self.state();
        let id = state.journal.last_key_value().map_or(1, |(last, _)| last + 1);
        if let Some(receipt_id) = receipt_id {
            state.receipts.insert([entry.platform.clone(), entry.bot.to_string(), receipt_id], id);
        }
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
        let Closing { outcome, cursor, note } = closing;
        (entry.outcome, entry.cursor, entry.note) = (outcome, cursor, note);
        now(true)
    }

    fn add_receipt(&self, id: u64, receipt_id: String) -> Stored<'_, ()> {
        let mut state = self.state();
        if let Some(entry) = state.journal.get(&id) {
            let key = [entry.platform.clone(), entry.bot.to_string(), receipt_id];
            state.receipts.insert(key, id);
        }
        now(())
    }

    fn apply_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_id: &'a str,
        outcome: Outcome,
        note: &'a str,
    ) -> Stored<'a, Option<JournalEntry>> {
        let mut state = self.state();
        let key = [platform, bot.as_str(), receipt_id].map(str::to_owned);
        let Some(id) = state.receipts.get(&key).copied() else { return now(None) };
        let Some(entry) = state.journal.get_mut(&id) else { return now(None) };
        let was_unknown = entry.outcome == Outcome::Unknown && entry.parts == 1;
        if outcome != Outcome::Delivered || was_unknown {
            entry.outcome = outcome;
            // The same report may come again, and then adds nothing.
            if !entry.note.contains(note) {
                entry.note = if entry.note.is_empty() { note.into() } else { format!("{}; {note}", entry.note) };
            }
        }
        now(Some(entry.clone()))
    }

    fn entry_of_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_ids: Vec<String>,
    ) -> Stored<'a, Option<JournalEntry>> {
        let state = self.state();
        let found = |id| state.receipts.get(&[platform.to_owned(), bot.to_string(), id]);
        now(receipt_ids.into_iter().find_map(found).and_then(|id| state.journal.get(id)).cloned())
    }

    fn mark_open_entries_unknown(&self, live: Vec<DeskNo>) -> Stored<'_, u64> {
        let mut marked = 0;
        let is_left = |entry: &&mut JournalEntry| entry.outcome == Outcome::Open && !live.contains(&entry.desk);
        for entry in self.state().journal.values_mut().filter(is_left) {
            entry.outcome = Outcome::Unknown;
            entry.note = "the server stopped before the platform answered".into();
            marked += 1;
        }
        now(marked)
    }

    fn entries<'a>(&'a self, tenant: Option<&'a TenantId>, limit: usize) -> Stored<'a, Vec<JournalEntry>> {
        let state = self.state();
        let of_tenant = state.journal.values().rev().filter(|entry| tenant.is_none_or(|name| entry.tenant == *name));
        now(of_tenant.take(limit).cloned().collect())
    }
}
