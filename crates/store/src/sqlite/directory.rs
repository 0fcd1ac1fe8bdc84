//! Directory records, compared and set.

use frontdesk_core::port::store::{Applied, Change, Directory, Record, StoreError, Stored};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _};

use super::readers::DESK;
use super::{SqliteStore, fault, signed, unsigned};

impl Directory for SqliteStore {
    fn load(&self) -> Stored<'_, Vec<Record>> {
        self.readers.read(DESK, |connection| {
            let mut query = connection.prepare_cached("SELECT kind, key, version, json FROM record").map_err(fault)?;
            let record = |row: &rusqlite::Row<'_>| {
                Ok(Record { kind: row.get(0)?, key: row.get(1)?, version: unsigned(row.get(2)?), json: row.get(3)? })
            };
            query.query_map([], record).and_then(Iterator::collect).map_err(fault)
        })
    }

    fn amend(&self, changes: Vec<Change>, applied: Applied) -> Stored<'_, ()> {
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
            // A unique number may stand in the way of a later change: then the earlier ones go back too.
            connection.execute_batch("SAVEPOINT amend").map_err(fault)?;
            let done = changes.into_iter().try_for_each(|change| write_one(connection, change));
            let end = if done.is_ok() { "RELEASE amend" } else { "ROLLBACK TO amend; RELEASE amend" };
            connection.execute_batch(end).map_err(fault)?;
            done
        };
        self.writer.write(work, |()| applied())
    }

    fn draw_numbers(&self, count: u64) -> Stored<'_, u64> {
        let work = move |books: &mut super::threads::Books| {
            let sql = "UPDATE meta SET value = value + ?1 WHERE key = 'last_instance' RETURNING value";
            let last =
                books.connection.query_row(sql, [signed(count)], |row| row.get(0)).map(unsigned).map_err(fault)?;
            Ok(last + 1 - count)
        };
        self.writer.write(work, |_| {})
    }
}

fn write_one(connection: &Connection, change: Change) -> Result<(), StoreError> {
    if let Some(json) = change.json.as_deref().filter(|_| change.kind == "instance" && change.expect == 0) {
        raise_last_number(connection, json)?;
    }
    let written = match change.json {
        Some(json) => connection
            .prepare_cached(
                "INSERT INTO record (kind, key, version, json) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (kind, key) DO UPDATE SET version = excluded.version, json = excluded.json",
            )
            .and_then(|mut put| put.execute((change.kind, change.key, signed(change.expect + 1), json))),
        None => connection
            .prepare_cached("DELETE FROM record WHERE kind = ?1 AND key = ?2")
            .and_then(|mut delete| delete.execute((change.kind, change.key))),
    };
    match written {
        Ok(_) => Ok(()),
        // The number is another record's: see the index record_number.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => Err(StoreError::Conflict),
        Err(error) => Err(fault(error)),
    }
}

/// A record may bring its number along (an import does): it is not drawn again.
fn raise_last_number(connection: &Connection, json: &str) -> Result<(), StoreError> {
    let sql = "UPDATE meta SET value = MAX(value, COALESCE(json_extract(?1, '$.no'), 0)) WHERE key = 'last_instance'";
    connection.prepare_cached(sql).and_then(|mut raise| raise.execute([json])).map(drop).map_err(fault)
}
