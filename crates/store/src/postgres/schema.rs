//! Migrations: numbered, each in one transaction under a lock, so that servers that start together do not race.
//!
//! Two versions of the server may run side by side: a database tells the oldest migration that a server must know
//! to use it (`needs`). A migration raises it only if older servers cannot work with what it changes.

use frontdesk_core::port::store::StoreError;
use frontdesk_core::sha256_hex;

use super::connection::{Connection, Fault};
use super::worker::Database;

struct Migration {
    number: i64,
    sql: &'static str,
    /// The oldest migration that a server must know to use the database after this one.
    needs: i64,
}

const MIGRATIONS: [Migration; 1] = [Migration { number: 1, sql: include_str!("migrations/0001_store.sql"), needs: 1 }];

/// Any number will do, as long as all versions of the server use the same.
const LOCK: i64 = 0x0046_524f_4e54;

/// Migrates the database and returns its epoch.
pub(super) async fn migrate(database: &Database, epoch_seed: u32) -> Result<u32, StoreError> {
    database.writers.transaction(async |connection| migrate_by(connection, epoch_seed).await).await
}

/// For whoever only reads the database: it must have the schema of this version. Returns its epoch.
pub(super) async fn check(connection: &Connection) -> Result<u32, Fault> {
    let found = connection.query_one("SELECT to_regclass('meta') IS NOT NULL", &[]).await?;
    if !found.get::<_, bool>(0) {
        return Err(StoreError::Unavailable("the database has no tables of frontdesk".into()).into());
    }
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.number);
    let has_newest = read(connection, &format!("migration {newest}")).await?.is_some();
    let has_newer = read(connection, &format!("migration {}", newest + 1)).await?.is_some();
    let epoch = read(connection, "epoch").await?.and_then(|epoch| epoch.parse().ok());
    match epoch {
        Some(epoch) if has_newest && !has_newer => Ok(epoch),
        _ => {
            let why = format!(
                "the database does not have version {newest} of its schema, which this frontdesk uses; start a server once \
                 with this version, or use another one"
            );
            Err(StoreError::Unavailable(why).into())
        }
    }
}

/// Inside the transaction of the caller.
pub(super) async fn migrate_by(connection: &Connection, epoch_seed: u32) -> Result<u32, Fault> {
    connection.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let meta =
        "CREATE TABLE IF NOT EXISTS meta (key text COLLATE \"C\" PRIMARY KEY, value text COLLATE \"C\" NOT NULL)";
    connection.batch(meta).await?;
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.number);
    let needs: i64 = read(connection, "needs").await?.and_then(|value| value.parse().ok()).unwrap_or(0);
    if needs > newest {
        let why = format!(
            "the database needs version {needs} of its schema, this frontdesk knows up to {newest}; use a newer one"
        );
        return Err(StoreError::Unavailable(why).into());
    }
    for Migration { number, sql, needs } in &MIGRATIONS {
        let name = format!("migration {number}");
        match read(connection, &name).await? {
            Some(checksum) if checksum == sha256_hex(sql) => {}
            Some(_) => {
                let why = format!("{name} in the database differs from the one in this version");
                return Err(StoreError::Corrupt(why).into());
            }
            None => {
                connection.batch(sql).await?;
                write(connection, &name, &sha256_hex(sql)).await?;
                let before: i64 = read(connection, "needs").await?.and_then(|it| it.parse().ok()).unwrap_or(0);
                write(connection, "needs", &before.max(*needs).to_string()).await?;
                tracing::info!(number, "database migrated");
            }
        }
    }
    if let Some(epoch) = read(connection, "epoch").await? {
        return epoch
            .parse()
            .map_err(|_| StoreError::Corrupt("the epoch of the database is not a number".into()).into());
    }
    write(connection, "epoch", &epoch_seed.to_string()).await?;
    Ok(epoch_seed)
}

pub(super) async fn read(connection: &Connection, key: &str) -> Result<Option<String>, Fault> {
    let found = connection.query_opt("SELECT value FROM meta WHERE key = $1", &[&key]).await?;
    Ok(found.map(|row| row.get(0)))
}

pub(super) async fn write(connection: &Connection, key: &str, value: &str) -> Result<(), Fault> {
    let sql = "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    connection.execute(sql, &[&key, &value]).await.map(drop)
}
