//! Migrations: numbered, in one transaction under a lock, so that servers that start together do not race. They may
//! take as long as a large database needs. Only for locks that running servers hold they wait briefly, because all
//! later requests wait behind them.
//!
//! Two versions of the server may run side by side: a database tells the oldest migration that a server must know
//! to use it (`needs`). A migration raises it only if older servers cannot work with what it changes.

use std::cell::Cell;
use std::time::Duration;

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

const MIGRATIONS: [Migration; 4] = [
    Migration { number: 1, sql: include_str!("migrations/0001_store.sql"), needs: 1 },
    Migration { number: 2, sql: include_str!("migrations/0002_retention.sql"), needs: 1 },
    Migration { number: 3, sql: include_str!("migrations/0003_media_total.sql"), needs: 1 },
    Migration { number: 4, sql: include_str!("migrations/0004_planned_wakes.sql"), needs: 1 },
];

/// Any number, as long as all versions of the server use the same.
const LOCK: i64 = 0x0046_524f_4e54;

/// Session settings of a migration. Statements may take any time, but pauses between them are short: a migration that is
/// idle for longer is frozen and must not hold its locks forever.
const UNHURRIED: &str =
    "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = '60s'; SET lock_timeout = '5s'";
/// Pause between attempts while another server migrates or running servers hold a lock.
const PAUSE: Duration = Duration::from_secs(1);
/// Attempts to lock tables that running servers use.
const ATTEMPTS: usize = 12;
/// How often it is logged that a migration is still running.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Migrates the database and returns its epoch. Waits while another server migrates it.
pub(super) async fn migrate(database: &Database, epoch_seed: u32) -> Result<u32, StoreError> {
    migrate_to(database, epoch_seed, &MIGRATIONS).await
}

async fn migrate_to(database: &Database, epoch_seed: u32, migrations: &[Migration]) -> Result<u32, StoreError> {
    let connection = database.connect().await?;
    connection.batch(UNHURRIED).await.map_err(Fault::unwritten)?;
    let mut attempts = 0;
    let mut is_logged = false;
    loop {
        let tried = try_migrate(&connection, epoch_seed, migrations).await;
        let rolled_back = if matches!(tried, Ok(Some(_))) { Ok(()) } else { connection.batch("ROLLBACK").await };
        match tried {
            Ok(Some(epoch)) => return Ok(epoch),
            Ok(None) => {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::info!("database migration by another server detected; waiting");
                }
            }
            Err(Fault::Retry(why)) if attempts < ATTEMPTS => {
                attempts += 1;
                tracing::warn!(why, "migrating the database failed, because running servers use it; trying again");
            }
            Err(Fault::Retry(why)) => {
                let why =
                    format!("the database could not be migrated, because running servers use it: {why}; try again");
                return Err(StoreError::Unavailable(why));
            }
            Err(fault) => return Err(fault.unwritten()),
        }
        rolled_back.map_err(Fault::unwritten)?;
        tokio::time::sleep(PAUSE).await;
    }
}

/// `None`: another server migrates.
async fn try_migrate(connection: &Connection, epoch_seed: u32, migrations: &[Migration]) -> Result<Option<u32>, Fault> {
    connection.batch("BEGIN").await?;
    let row = connection.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&LOCK]).await?;
    if !row.get::<_, bool>(0) {
        return Ok(None);
    }
    let at = Cell::new(0);
    let report = async {
        let mut seconds = 0;
        loop {
            tokio::time::sleep(REPORT_EVERY).await;
            seconds += REPORT_EVERY.as_secs();
            tracing::info!(number = at.get(), seconds, "the database migration is still running");
        }
    };
    let epoch = tokio::select! {
        done = bring_up(connection, epoch_seed, migrations, &at) => done?,
        never = report => never,
    };
    connection.batch("COMMIT").await?;
    Ok(Some(epoch))
}

/// The epoch, if the database has one. It may have no tables.
pub(super) async fn epoch(connection: &Connection) -> Result<Option<u32>, Fault> {
    let found = connection.query_one("SELECT to_regclass('meta') IS NOT NULL", &[]).await?;
    match found.get(0) {
        true => Ok(read(connection, "epoch").await?.and_then(|epoch| epoch.parse().ok())),
        false => Ok(None),
    }
}

/// For readers of the database: it must have the schema of this version. Returns its epoch.
pub(super) async fn check(connection: &Connection) -> Result<u32, Fault> {
    let found = connection.query_one("SELECT to_regclass('meta') IS NOT NULL", &[]).await?;
    if !found.get::<_, bool>(0) {
        return Err(StoreError::Unavailable("the database has no tables of Frontdesk; check store.url".into()).into());
    }
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.number);
    let has_newest = read(connection, &format!("migration {newest}")).await?.is_some();
    let has_newer = read(connection, &format!("migration {}", newest + 1)).await?.is_some();
    let epoch = read(connection, "epoch").await?.and_then(|epoch| epoch.parse().ok());
    match epoch {
        Some(epoch) if has_newest && !has_newer => Ok(epoch),
        _ => {
            let why = format!(
                "the database does not have version {newest} of its schema, which this version of Frontdesk uses; start a server once \
                 with this version, or use another one"
            );
            Err(StoreError::Unavailable(why).into())
        }
    }
}

/// Inside the transaction of the caller.
pub(super) async fn migrate_by(connection: &Connection, epoch_seed: u32) -> Result<u32, Fault> {
    connection.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    bring_up(connection, epoch_seed, &MIGRATIONS, &Cell::new(0)).await
}

/// Under the lock. `at` is the number of the migration that runs.
async fn bring_up(
    connection: &Connection,
    epoch_seed: u32,
    migrations: &[Migration],
    at: &Cell<i64>,
) -> Result<u32, Fault> {
    let meta =
        "CREATE TABLE IF NOT EXISTS meta (key text COLLATE \"C\" PRIMARY KEY, value text COLLATE \"C\" NOT NULL)";
    connection.batch(meta).await?;
    check_range(migrations, read(connection, "needs").await?.as_deref())?;
    for Migration { number, sql, needs } in migrations {
        at.set(*number);
        let name = format!("migration {number}");
        match read(connection, &name).await? {
            Some(checksum) if checksum == sha256_hex(sql) => {}
            Some(_) => {
                let why = format!(
                    "{name} in the database differs from that of this version; use the version that applied it"
                );
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

/// Whether this version can use a database that requires this.
pub(super) fn check_needs(needs: Option<&str>) -> Result<(), StoreError> {
    check_range(&MIGRATIONS, needs)
}

fn check_range(migrations: &[Migration], needs: Option<&str>) -> Result<(), StoreError> {
    let newest = migrations.last().map_or(0, |migration| migration.number);
    let needs: i64 = needs.and_then(|value| value.parse().ok()).unwrap_or(0);
    if needs <= newest {
        return Ok(());
    }
    let why = format!(
        "the database needs version {needs} of its schema; this version of Frontdesk knows up to {newest}: use a newer one"
    );
    Err(StoreError::Unavailable(why))
}

pub(super) async fn read(connection: &Connection, key: &str) -> Result<Option<String>, Fault> {
    let found = connection.query_opt("SELECT value FROM meta WHERE key = $1", &[&key]).await?;
    Ok(found.map(|row| row.get(0)))
}

pub(super) async fn write(connection: &Connection, key: &str, value: &str) -> Result<(), Fault> {
    let sql = "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    connection.execute(sql, &[&key, &value]).await.map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use frontdesk_testkit::postgres::TestSchema;

    use super::super::connection::Target;
    use super::super::worker::Worker;
    use super::*;
    use crate::read_queue::SERVER;

    const SECOND: Migration = Migration {
        number: 2,
        // Without the limits of other work, but with one for locks.
        sql: "DO $$ BEGIN
                IF current_setting('statement_timeout') <> '0' THEN RAISE EXCEPTION 'a limit of time'; END IF;
                IF current_setting('lock_timeout') = '0' THEN RAISE EXCEPTION 'no limit for locks'; END IF;
              END $$;
              ALTER TABLE desk ADD COLUMN mood text",
        needs: 1,
    };
    /// Older servers cannot use the result.
    const THIRD: Migration = Migration { number: 3, sql: "ALTER TABLE desk DROP COLUMN mood", needs: 3 };

    fn first() -> Migration {
        let [Migration { number, sql, needs }, ..] = MIGRATIONS;
        Migration { number, sql, needs }
    }

    fn migrate(worker: &Worker, migrations: Vec<Migration>) -> Result<u32, StoreError> {
        worker.ask_blocking(async move |database| migrate_to(database, 7, &migrations).await)
    }

    #[test]
    fn versions_within_the_range_share_a_database_and_others_are_refused() {
        let schema = TestSchema::create();
        let worker = Worker::start(Target::of(&schema.url()).unwrap()).unwrap();
        assert_eq!(migrate(&worker, vec![first()]).unwrap(), 7);
        assert_eq!(migrate(&worker, vec![first(), SECOND]).unwrap(), 7, "a newer one migrates");
        assert_eq!(migrate(&worker, vec![first()]).unwrap(), 7, "the older one goes on");
        migrate(&worker, vec![first(), SECOND, THIRD]).unwrap();
        let refused = migrate(&worker, vec![first(), SECOND]).unwrap_err().to_string();
        assert!(
            refused
                .ends_with("needs version 3 of its schema; this version of Frontdesk knows up to 2: use a newer one"),
            "{refused}"
        );
    }

    /// Also of files that a server of the version before writes afterwards.
    #[tokio::test]
    async fn files_of_before_are_in_the_totals() {
        let schema = TestSchema::create();
        let worker = Worker::start(Target::of(&schema.url()).unwrap()).unwrap();
        let [first, second, ..] = MIGRATIONS;
        migrate(&worker, vec![first, second]).unwrap();
        let put = |from: u32, to: u32| {
            format!(
                "INSERT INTO media (id, tenant, mime, size, expires_ms, upload)
                 SELECT 'f-' || n, CASE WHEN n % 2 = 0 THEN 'acme' ELSE 'other' END, 'a/b', n, 500,
                        CASE WHEN n % 3 = 0 THEN NULL ELSE n END
                 FROM generate_series({from}, {to}) n"
            )
        };
        schema.run(&put(1, 6)); // 3 and 6 are at their platform
        migrate(&worker, MIGRATIONS.into()).unwrap();
        let total = async |tenant: &'static str| {
            let sql = "SELECT files, bytes FROM media_total WHERE tenant = $1";
            let row = worker.read(SERVER, async move |connection| connection.query_one(sql, &[&tenant]).await);
            let row = row.await.unwrap();
            (row.get::<_, i64>(0), row.get::<_, i64>(1))
        };
        assert_eq!((total("acme").await, total("other").await), ((2, 6), (2, 6)), "2 and 4, 1 and 5");
        schema.run(&put(7, 8));
        schema.run("UPDATE media SET upload = 6 WHERE id = 'f-6'; UPDATE media SET expires_ms = 600");
        schema.run("DELETE FROM media WHERE id IN ('f-1', 'f-2', 'f-3')");
        assert_eq!((total("acme").await, total("other").await), ((3, 18), (2, 12)), "4, 6 and 8, 5 and 7");
    }

    /// Those that start together wait for the one that migrates.
    #[test]
    fn one_server_migrates_while_others_wait() {
        let schema = TestSchema::create();
        let start = || Worker::start(Target::of(&schema.url()).unwrap()).unwrap();
        let workers: Vec<Worker> = (0..3).map(|_| start()).collect();
        std::thread::scope(|scope| {
            let all: Vec<_> = workers.iter().map(|it| scope.spawn(|| migrate(it, vec![first(), SECOND]))).collect();
            assert!(all.into_iter().all(|it| it.join().unwrap() == Ok(7)));
        });
    }
}
