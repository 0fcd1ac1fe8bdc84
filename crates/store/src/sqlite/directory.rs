//! Directory records, compared and set.

use frontdesk_core::port::store::{Change, Directory, Record, StoreError, Stored};
use rusqlite::OptionalExtension as _;

use super::{SqliteStore, fault, signed, unsigned};

impl Directory for SqliteStore {
    fn load(&self) -> Stored<'_, Vec<Record>> {
        self.readers.read(|connection| {
            let mut query = connection.prepare_cached("SELECT kind, key, version, json FROM record").map_err(fault)?;
            let record = |row: &rusqlite::Row<'_>| {
                Ok(Record { kind: row.get(0)?, key: row.get(1)?, version: unsigned(row.get(2)?), json: row.get(3)? })
            };
            query.query_map([], record).and_then(Iterator::collect).map_err(fault)
        })
    }

    fn amend(&self, changes: Vec<Change>) -> Stored<'_, ()> {
        let work = move |books: &mut super::threads::Books| {
            let connection = &books.connection;
            for change in &changes {
                let mut query = connection
                    .prepare_cached("SELECT version FROM record WHERE kind = ?1 AND key = ?2")
                    .map_err(fault)?;
                let held: Option<i64> =
                    query.query_row((&change.kind, &change.key), |row| row.get(0)).optional().map_err(fault)?;
                if unsigned(held.unwrap_or(0)) != change.expect {
                    return Err(StoreError::Conflict); // nothing was written yet
                }
            }
            for change in changes {
                match change.json {
                    Some(json) => connection
                        .prepare_cached(
                            "INSERT OR REPLACE INTO record (kind, key, version, json) VALUES (?1, ?2, ?3, ?4)",
                        )
                        .and_then(|mut put| put.execute((change.kind, change.key, signed(change.expect + 1), json))),
                    None => connection
                        .prepare_cached("DELETE FROM record WHERE kind = ?1 AND key = ?2")
                        .and_then(|mut delete| delete.execute((change.kind, change.key))),
                }
                .map_err(fault)?;
            }
            Ok(())
        };
        self.writer.write(work, |()| {})
    }
}
