//! Health, integrity, backup, and forgetting what is old.

use std::path::Path;
use std::time::Duration;

use frontdesk_core::port::store::{Retention, StoreError, StoreReport, Stored, Upkeep};
use rusqlite::Connection;
use rusqlite::backup::Backup;

use super::threads::Books;
use super::{SqliteStore, connect, fault, signed};

/// Rows forgotten per call: a purge must not hold up those who write.
const PURGE_MAX: u64 = 2_000;
/// Pages copied per step of a backup; between steps others may write.
const BACKUP_PAGES: i32 = 512;

impl Upkeep for SqliteStore {
    fn health(&self) -> Stored<'_, ()> {
        let work = |books: &mut Books| {
            let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('health', random())";
            books.connection.execute(sql, []).map(drop).map_err(fault)
        };
        self.writer.write(work, |()| {})
    }

    fn report(&self) -> Stored<'_, StoreReport> {
        let path = self.path.clone();
        self.readers.read(move |connection| {
            let mut check = connection.prepare("PRAGMA integrity_check(20)").map_err(fault)?;
            let found: Vec<String> =
                check.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(fault)?;
            let waiting = "SELECT COALESCE(SUM((SELECT COUNT(*) FROM mail m WHERE m.instance = p.instance
                           AND m.seq > p.through) - json_array_length(p.above)), 0) FROM position p";
            let rows_waiting: i64 = connection.query_row(waiting, [], |row| row.get(0)).map_err(fault)?;
            Ok(StoreReport {
                backend: "sqlite".into(),
                rows_waiting: super::unsigned(rows_waiting),
                bytes: std::fs::metadata(&path).map_or(0, |meta| meta.len()),
                faults: found.into_iter().filter(|line| line != "ok").collect(),
            })
        })
    }

    fn backup<'a>(&'a self, to: &'a Path) -> Stored<'a, u64> {
        let (from, to) = (self.path.clone(), to.to_owned());
        self.readers.read(move |_| {
            if to.exists() {
                return Err(StoreError::Unavailable(format!("{} exists already", to.display())));
            }
            let source = connect(&from, true)?;
            let mut target = Connection::open(&to).map_err(fault)?;
            let copied = Backup::new(&source, &mut target)
                .and_then(|copy| copy.run_to_completion(BACKUP_PAGES, Duration::from_millis(1), None));
            drop(target);
            if let Err(error) = copied {
                let _ = std::fs::remove_file(&to); // half a copy would be taken for one, and bars the next try
                return Err(fault(error));
            }
            let bytes = std::fs::File::open(&to).and_then(|file| file.sync_all().and(file.metadata()));
            bytes.map(|meta| meta.len()).map_err(|error| StoreError::Unavailable(error.to_string()))
        })
    }

    fn purge(&self, keep: Retention) -> Stored<'_, u64> {
        let folder = self.media_dir.clone();
        let work = move |books: &mut Books| {
            let connection = &books.connection;
            let now = signed(keep.now_ms);
            let mut gone = 0;
            gone += forget_events(connection, signed(keep.verdicts_before_ms.min(keep.events_before_ms)))?;
            let old = signed(keep.verdicts_before_ms);
            let ends = "DELETE FROM shot_end WHERE id IN (SELECT id FROM shot_end WHERE at_ms < ?1 LIMIT ?2)";
            gone += connection.execute(ends, (old, signed(PURGE_MAX))).map_err(fault)?;
            // A time that was fired may be armed once more for a while; after that nobody remembers it.
            let fired = "DELETE FROM shot WHERE id IN
                         (SELECT id FROM shot WHERE state = 'fired' AND due_ms < ?1 LIMIT ?2)";
            gone += connection.execute(fired, (old, signed(PURGE_MAX))).map_err(fault)?;
            gone += connection.execute("DELETE FROM capability WHERE expires_ms <= ?1", [now]).map_err(fault)?;
            let orphans = "DELETE FROM capability_key WHERE NOT EXISTS (SELECT 1 FROM capability c WHERE c.id = capability_key.id)";
            connection.execute(orphans, []).map_err(fault)?;
            gone += super::data::expire(connection, keep.now_ms / 1000)?;
            // The oldest come first: a page of them tells whether there is more to forget.
            let letters = "DELETE FROM letter WHERE event IN
                           (SELECT event FROM (SELECT event, at_ms FROM letter ORDER BY event LIMIT ?2) WHERE at_ms < ?1)";
            gone += connection.execute(letters, (signed(keep.letters_before_ms), signed(PURGE_MAX))).map_err(fault)?;
            let mut expired =
                connection.prepare_cached("DELETE FROM media WHERE expires_ms <= ?1 RETURNING id").map_err(fault)?;
            let ids: Vec<String> =
                expired.query_map([now], |row| row.get(0)).and_then(Iterator::collect).map_err(fault)?;
            Ok((gone + ids.len(), ids))
        };
        // The files go after the rows are gone for good.
        let after = move |(_, ids): &(usize, Vec<String>)| {
            for id in ids {
                let _ = std::fs::remove_file(folder.join(id)); // left over at worst: no row names it
            }
        };
        let answer = self.writer.write(work, after);
        Box::pin(async move { answer.await.map(|(gone, _)| gone as u64) })
    }
}

/// Events that some ledger still owes, whatever their age.
const OWED: &str = "SELECT m.event FROM position p CROSS JOIN mail m ON m.instance = p.instance AND m.seq > p.through";

/// The oldest events that are past their time and owed to nobody, with their mail. The first young
/// event ends it: after it may come an old one that was replayed. Rows of one ledger name events in
/// rising order, so its settled rows up to the last of these may go.
fn forget_events(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    let young = "SELECT COALESCE((SELECT id FROM event WHERE at_ms >= ?1 ORDER BY id LIMIT 1), 9223372036854775807)";
    let young: i64 = connection.query_row(young, [before_ms], |row| row.get(0)).map_err(fault)?;
    let sql =
        format!("SELECT MAX(id) FROM (SELECT id FROM event WHERE id < ?1 AND id NOT IN ({OWED}) ORDER BY id LIMIT ?2)");
    let end: Option<i64> = connection.query_row(&sql, (young, signed(PURGE_MAX)), |row| row.get(0)).map_err(fault)?;
    let Some(end) = end else { return Ok(0) };
    let last: i64 = connection.query_row("SELECT MAX(id) FROM event", [], |row| row.get(0)).map_err(fault)?;
    let keep = "INSERT OR REPLACE INTO meta (key, value) VALUES ('last_event', ?1)";
    connection.execute(keep, [last]).map_err(fault)?;
    let events = format!("DELETE FROM event WHERE id <= ?1 AND id NOT IN ({OWED})");
    let mut gone = connection.execute(&events, [end]).map_err(fault)?;
    let sql = "DELETE FROM mail WHERE instance = ?1 AND seq <= ?2 AND seq < COALESCE(
                 (SELECT seq FROM mail WHERE instance = ?1 AND event > ?3 ORDER BY seq LIMIT 1), 9223372036854775807)";
    let mut ledgers = connection.prepare_cached("SELECT instance, through FROM position").map_err(fault)?;
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let ledgers: Vec<(i64, i64)> = ledgers.query_map([], pair).and_then(Iterator::collect).map_err(fault)?;
    let mut delete = connection.prepare_cached(sql).map_err(fault)?;
    for (instance, through) in ledgers {
        gone += delete.execute((instance, through, end)).map_err(fault)?;
    }
    Ok(gone)
}
