//! Directory records with a common version.

use frontdesk_core::port::store::{Applied, Change, Changes, Directory, Record, StoreError, Stored};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _};

use super::{SqliteStore, fault, signed, unsigned};
use crate::read_queue::{Learned, SERVER};

impl Directory for SqliteStore {
    fn changed_since(&self, version: u64) -> Stored<'_, Changes> {
        let found = self.readers.read(SERVER, move |connection| {
            let (changes, floor) = read(connection, version)?;
            // Deletions before the floor are no longer stored, so everything must be returned.
            if version > 0 && version < floor { read(connection, 0).map(|(all, _)| all) } else { Ok(changes) }
        });
        Box::pin(async move { found.await.inspect(|changes| self.tenants.note(changes)) })
    }

    fn amend(&self, seen: u64, changes: Vec<Change>, applied: Applied) -> Stored<'_, u64> {
        let (tenants, learned) = (self.tenants.clone(), Learned::from_changes(&changes));
        let work = move |books: &mut super::threads::Books| {
            let connection = &books.connection;
            let raise =
                "UPDATE meta SET value = value + 1 WHERE key = 'directory_version' AND value = ?1 RETURNING value";
            let mut raise = connection.prepare_cached(raise).map_err(fault)?;
            // A unique number may refuse a later change of the batch; then the earlier ones are rolled back too.
            connection.execute_batch("SAVEPOINT amend").map_err(fault)?;
            let raised = raise.query_row([signed(seen)], |row| row.get(0)).optional().map_err(fault)?;
            let done = raised.map(unsigned).ok_or(StoreError::Conflict).and_then(|version| {
                changes.into_iter().try_for_each(|change| write_one(connection, change, version)).map(|()| version)
            });
            let end = if done.is_ok() { "RELEASE amend" } else { "ROLLBACK TO amend; RELEASE amend" };
            connection.execute_batch(end).map_err(fault)?;
            done
        };
        self.writer.write(work, move |version| {
            tenants.learn(learned);
            applied(*version);
        })
    }

    fn draw_numbers(&self, count: u64) -> Stored<'_, u64> {
        let work = move |books: &mut super::threads::Books| {
            let sql = "UPDATE meta SET value = value + ?1 WHERE key = 'last_instance' RETURNING value";
            let last: u64 =
                books.connection.query_row(sql, [signed(count)], |row| row.get(0)).map(unsigned).map_err(fault)?;
            Ok(last + 1 - count)
        };
        self.writer.write(work, |_| {})
    }
}

/// The version of the directory as a whole.
pub(super) fn version(connection: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT value FROM meta WHERE key = 'directory_version'";
    connection.query_row(sql, [], |row| row.get(0)).map(unsigned).map_err(fault)
}

/// Changes after a version, and the version from which deletions are stored.
fn read(connection: &Connection, version: u64) -> Result<(Changes, u64), StoreError> {
    // A single statement reads one snapshot, so version and records are consistent.
    let sql = "SELECT NULL, NULL, value, (SELECT value FROM meta WHERE key = 'directory_floor')
                 FROM meta WHERE key = 'directory_version'
               UNION ALL SELECT kind, key, version, json FROM record WHERE version > ?1
               UNION ALL SELECT kind, key, version, NULL FROM tombstone WHERE version > ?1 AND ?1 > 0";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let mut rows = query.query([signed(version)]).map_err(fault)?;
    let (mut changes, mut floor) = (Changes { whole: version == 0, ..Changes::default() }, 0);
    while let Some(row) = rows.next().map_err(fault)? {
        let at = unsigned(row.get(2).map_err(fault)?);
        match row.get::<_, Option<String>>(0).map_err(fault)? {
            None => (changes.version, floor) = (at, unsigned(row.get(3).map_err(fault)?)),
            Some(kind) => {
                let (key, json) = (row.get(1).map_err(fault)?, row.get(3).map_err(fault)?);
                changes.records.push(Record { kind, key, version: at, json });
            }
        }
    }
    Ok((changes, floor))
}

/// The lock on the folder shows that there are no other readers, so deletions need not be kept across a start.
pub(super) fn forget_deletions(connection: &Connection) -> Result<(), StoreError> {
    let sql = "DELETE FROM tombstone;
               UPDATE meta SET value = (SELECT value FROM meta WHERE key = 'directory_version')
                WHERE key = 'directory_floor';";
    connection.execute_batch(sql).map_err(fault)
}

fn write_one(connection: &Connection, change: Change, version: u64) -> Result<(), StoreError> {
    let Change { kind, key, json } = change;
    if let Some(json) = json.as_deref().filter(|_| kind == "instance") {
        raise_last_number(connection, json)?;
    }
    let run = |sql: &str| {
        let mut delete = connection.prepare_cached(sql).map_err(fault)?;
        delete.execute((&kind, &key)).map(drop).map_err(fault)
    };
    let written = if let Some(json) = &json {
        run("DELETE FROM tombstone WHERE kind = ?1 AND key = ?2")?;
        let put = "INSERT INTO record (kind, key, version, json) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (kind, key) DO UPDATE SET version = excluded.version, json = excluded.json";
        connection.prepare_cached(put).and_then(|mut put| put.execute((&kind, &key, signed(version), json)))
    } else {
        run("DELETE FROM record WHERE kind = ?1 AND key = ?2")?;
        let bury = "INSERT OR REPLACE INTO tombstone (kind, key, version) VALUES (?1, ?2, ?3)";
        connection.prepare_cached(bury).and_then(|mut bury| bury.execute((&kind, &key, signed(version))))
    };
    match written {
        Ok(_) => Ok(()),
        // The number belongs to another record: see index record_number.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => Err(StoreError::Conflict),
        Err(error) => Err(fault(error)),
    }
}

/// Records may bring their own number (an import does); it must not be assigned again.
fn raise_last_number(connection: &Connection, json: &str) -> Result<(), StoreError> {
    let sql = "UPDATE meta SET value = MAX(value, COALESCE(json_extract(?1, '$.no'), 0)) WHERE key = 'last_instance'";
    connection.prepare_cached(sql).and_then(|mut raise| raise.execute([json])).map(drop).map_err(fault)
}
