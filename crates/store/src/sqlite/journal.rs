//! Actions of agents and their results.

use frontdesk_core::port::store::{Closing, DeskNo, Journal, JournalEntry, Outcome, StoreError, Stored};
use frontdesk_wire::{BotId, TenantId};
use rusqlite::{OptionalExtension as _, Row};

use super::threads::Books;
use super::{SqliteStore, fault, signed, unsigned};
use crate::read_queue::SERVER;

impl Journal for SqliteStore {
    fn open_entry(&self, it: JournalEntry, receipt_id: Option<String>) -> Stored<'_, u64> {
        let work = move |books: &mut Books| {
            let sql = "INSERT INTO journal (tenant, instance, platform, bot, chat_id, op, at_ms, outcome, parts, cursor, note, desk)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'open', ?8, 0, '', ?9)";
            let mut insert = books.connection.prepare_cached(sql).map_err(fault)?;
            let (at_ms, desk) = (signed(it.at_ms), signed(it.desk));
            let row = (
                it.tenant.as_str(),
                it.instance.as_str(),
                it.platform,
                it.bot.as_str(),
                it.chat_id.as_str(),
                it.op,
                at_ms,
                it.parts,
                desk,
            );
            let id = insert.insert(row).map_err(fault)?;
            if let Some(receipt_id) = receipt_id {
                add_receipt(books, id, &receipt_id)?;
            }
            Ok(unsigned(id))
        };
        self.writer.write(work, |_| {})
    }

    fn close_entry(&self, id: u64, closing: Closing) -> Stored<'_, bool> {
        let work = move |books: &mut Books| {
            let Closing { outcome, cursor, note } = closing;
            let sql = "UPDATE journal SET outcome = ?2, cursor = ?3, note = ?4
                       WHERE id = ?1 AND outcome IN ('open', 'unknown')";
            let mut update = books.connection.prepare_cached(sql).map_err(fault)?;
            update.execute((signed(id), name(outcome), cursor, note)).map(|rows| rows > 0).map_err(fault)
        };
        self.writer.write(work, |_| {})
    }

    fn add_receipt(&self, id: u64, receipt_id: String) -> Stored<'_, ()> {
        self.writer.write(move |books: &mut Books| add_receipt(books, signed(id), &receipt_id), |()| {})
    }

    fn apply_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_id: &'a str,
        outcome: Outcome,
        note: &'a str,
    ) -> Stored<'a, Option<JournalEntry>> {
        let (key, note) = ((platform.to_owned(), bot.to_string(), receipt_id.to_owned()), note.to_owned());
        let work = move |books: &mut Books| {
            let sql = "SELECT entry FROM journal_receipt WHERE platform = ?1 AND bot = ?2 AND receipt_id = ?3";
            let found = books.connection.query_row(sql, key, |row| row.get::<_, i64>(0)).optional().map_err(fault)?;
            let Some(id) = found else { return Ok(None) };
            // A failure counts whatever was known; a success only where the outcome of the one message was unknown.
            // The same report may come again, and then adds nothing.
            let sql = "UPDATE journal SET outcome = ?2,
                         note = CASE WHEN instr(note, ?3) > 0 THEN note WHEN note = '' THEN ?3 ELSE note || '; ' || ?3 END
                       WHERE id = ?1 AND (?2 <> 'delivered' OR (outcome = 'unknown' AND parts = 1))";
            books.connection.execute(sql, (id, name(outcome), note)).map_err(fault)?;
            let sql = format!("SELECT {COLUMNS} FROM journal WHERE id = ?1");
            books.connection.query_row(&sql, [id], entry).optional().map_err(fault)
        };
        self.writer.write(work, |_| {})
    }

    fn entry_of_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_ids: Vec<String>,
    ) -> Stored<'a, Option<JournalEntry>> {
        let (platform, bot) = (platform.to_owned(), bot.to_owned());
        self.readers.read(SERVER, move |connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM journal WHERE id =
                   (SELECT entry FROM journal_receipt WHERE platform = ?1 AND bot = ?2 AND receipt_id = ?3)"
            );
            let mut query = connection.prepare_cached(&sql).map_err(fault)?;
            for receipt_id in receipt_ids {
                let found = query.query_row((&platform, bot.as_str(), receipt_id), entry).optional().map_err(fault)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        })
    }

    fn mark_open_entries_unknown(&self, live: Vec<DeskNo>) -> Stored<'_, u64> {
        let work = move |books: &mut Books| {
            let note = "the server stopped before the platform answered";
            let live = serde_json::to_string(&live).unwrap_or_default();
            let sql = "UPDATE journal SET outcome = 'unknown', note = ?1
                       WHERE outcome = 'open' AND desk NOT IN (SELECT value FROM json_each(?2))";
            books.connection.execute(sql, [note, &live]).map(|rows| rows as u64).map_err(fault)
        };
        self.writer.write(work, |_| {})
    }

    fn entries<'a>(&'a self, tenant: Option<&'a TenantId>, limit: usize) -> Stored<'a, Vec<JournalEntry>> {
        let tenant = tenant.map(ToString::to_string);
        self.readers.read(SERVER, move |connection| {
            let sql =
                format!("SELECT {COLUMNS} FROM journal WHERE ?1 IS NULL OR tenant = ?1 ORDER BY id DESC LIMIT ?2");
            let mut query = connection.prepare_cached(&sql).map_err(fault)?;
            query.query_map((tenant, signed(limit as u64)), entry).and_then(Iterator::collect).map_err(fault)
        })
    }
}

fn add_receipt(books: &Books, entry: i64, receipt_id: &str) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO journal_receipt (platform, bot, receipt_id, entry)
               SELECT platform, bot, ?2, id FROM journal WHERE id = ?1";
    books.connection.execute(sql, (entry, receipt_id)).map(drop).map_err(fault)
}

const COLUMNS: &str = "id, tenant, instance, platform, bot, chat_id, op, at_ms, outcome, parts, cursor, note, desk";

fn entry(row: &Row<'_>) -> rusqlite::Result<JournalEntry> {
    let outcome: String = row.get(8)?;
    Ok(JournalEntry {
        id: unsigned(row.get(0)?),
        tenant: row.get::<_, String>(1)?.into(),
        instance: row.get::<_, String>(2)?.into(),
        platform: row.get(3)?,
        bot: row.get::<_, String>(4)?.into(),
        chat_id: row.get::<_, String>(5)?.into(),
        op: row.get(6)?,
        at_ms: unsigned(row.get(7)?),
        outcome: [Outcome::Open, Outcome::Delivered, Outcome::Rejected]
            .into_iter()
            .find(|known| name(*known) == outcome)
            .unwrap_or(Outcome::Unknown),
        parts: row.get(9)?,
        cursor: row.get(10)?,
        note: row.get(11)?,
        desk: unsigned(row.get(12)?),
    })
}

fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Open => "open",
        Outcome::Delivered => "delivered",
        Outcome::Rejected => "rejected",
        Outcome::Unknown => "unknown",
    }
}
