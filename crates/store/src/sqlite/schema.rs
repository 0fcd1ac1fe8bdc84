//! Migrations: numbered, one transaction each, with a checksum to detect changed ones.

use frontdesk_core::port::store::StoreError;
use frontdesk_core::sha256_hex;
use rusqlite::{Connection, OptionalExtension as _};

use super::fault;

pub(crate) const SKILLS_AND_DATA: &str = include_str!("migrations/0005_skills_and_data.sql");

const EPOCH: &str = "SELECT value FROM meta WHERE key = 'epoch'";

/// From this migration on numbers are unique; a database with duplicates must be repaired first.
const UNIQUE_NUMBERS: u32 = 8;

const MIGRATIONS: [(u32, &str); 19] = [
    (1, include_str!("migrations/0001_spine.sql")),
    (2, include_str!("migrations/0002_own_json.sql")),
    (3, include_str!("migrations/0003_alarms.sql")),
    (4, include_str!("migrations/0004_letters.sql")),
    (5, SKILLS_AND_DATA),
    (6, include_str!("migrations/0006_relay.sql")),
    (7, include_str!("migrations/0007_bounds.sql")),
    (UNIQUE_NUMBERS, include_str!("migrations/0008_unique_numbers.sql")),
    (9, include_str!("migrations/0009_directory_version.sql")),
    (10, include_str!("migrations/0010_claims.sql")),
    (11, include_str!("migrations/0011_ports.sql")),
    (12, include_str!("migrations/0012_sessions.sql")),
    (13, include_str!("migrations/0013_remote_media.sql")),
    (14, include_str!("migrations/0014_fragments.sql")),
    (15, include_str!("migrations/0015_places.sql")),
    (16, include_str!("migrations/0016_names.sql")),
    (17, include_str!("migrations/0017_reach_age.sql")),
    (18, include_str!("migrations/0018_media_total.sql")),
    (19, include_str!("migrations/0019_planned_wakes.sql")),
];

/// For readers of the database: it must have the schema of this version. Returns its epoch.
pub(super) fn check(connection: &Connection) -> Result<u32, StoreError> {
    let present: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fault)?;
    let newest = MIGRATIONS.last().map_or(0, |(number, _)| *number);
    if present != newest {
        let text = format!(
            "the database has version {present} of its schema; this version of Frontdesk uses {newest}: start the server once with \
             this version, or use another one"
        );
        return Err(StoreError::Unavailable(text));
    }
    connection.query_row(EPOCH, [], |row| row.get(0)).map_err(fault)
}

/// Migrates the database and returns its epoch. `repair` is called before numbers become unique.
pub(super) fn migrate(
    connection: &mut Connection,
    epoch_seed: u32,
    mut repair: impl FnMut(&mut Connection) -> Result<(), StoreError>,
) -> Result<u32, StoreError> {
    let present: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fault)?;
    let newest = MIGRATIONS.last().map_or(0, |(number, _)| *number);
    if present > newest {
        let text = format!(
            "the database has schema version {present}; this version of Frontdesk supports up to {newest}: use a newer one"
        );
        return Err(StoreError::Unavailable(text));
    }
    for (number, sql) in MIGRATIONS {
        let name = format!("migration {number}");
        if number <= present {
            let kept: Option<String> = connection
                .query_row("SELECT value FROM meta WHERE key = ?1", [&name], |row| row.get(0))
                .optional()
                .map_err(fault)?;
            if kept.as_deref() != Some(&sha256_hex(sql)) {
                return Err(StoreError::Corrupt(format!(
                    "{name} in the database differs from that of this version; use the version that applied it"
                )));
            }
            continue;
        }
        if number == UNIQUE_NUMBERS {
            repair(connection)?;
        }
        let transaction = connection.transaction().map_err(fault)?;
        transaction.execute_batch(sql).map_err(fault)?;
        let note = "INSERT INTO meta (key, value) VALUES (?1, ?2)";
        transaction.execute(note, (&name, sha256_hex(sql))).map_err(fault)?;
        if number == 1 {
            transaction.execute(note, ("epoch", i64::from(epoch_seed))).map_err(fault)?;
        }
        transaction.pragma_update(None, "user_version", number).map_err(fault)?;
        transaction.commit().map_err(fault)?;
    }
    connection.query_row(EPOCH, [], |row| row.get(0)).map_err(fault)
}
