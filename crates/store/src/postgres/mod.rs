//! The store for several servers: Postgres. Files mirror those of the embedded store.
//!
//! One thread has all connections ([`worker`]). Each verb is one transaction. Rows are locked in the order of their keys,
//! so that two transactions never wait for each other.

mod accept;
mod alarms;
mod chat;
mod claims;
pub(crate) mod connection;
mod cursors;
mod data;
mod desks;
mod directory;
mod events;
mod exchanges;
mod fragments;
mod groups;
mod heads;
mod held_media;
mod inbox;
mod journal;
mod ledger;
mod locks;
mod mail;
mod media;
mod phrases;
mod portable;
mod retention;
mod schema;
mod sessions;
mod skills;
mod text;
mod upkeep;
mod vault;
mod words;
mod worker;

use frontdesk_core::port::store::StoreError;
use tokio::sync::Semaphore;

use crate::listeners::Listeners;
use accept::Accepts;
use connection::Target;
use heads::Settles;
use retention::Round;
use worker::Worker;

use crate::read_queue::Tenants;

/// The time: the caller's where a test gives it, else the database's.
macro_rules! now {
    ($param:literal) => {
        concat!("coalesce(", $param, "::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)")
    };
}
pub(crate) use now;

/// Whether a server is gone: it is not in the list, nor has it a lease by the clock of the database. The parameters are the
/// list, and whether leases run by that clock.
macro_rules! gone {
    ($desk:literal, $live:literal, $by_lease:literal) => {
        concat!(
            "(",
            $desk,
            " <> ALL (",
            $live,
            "::bigint[]) AND NOT (",
            $by_lease,
            "::boolean AND EXISTS (SELECT 1 FROM desk WHERE number = ",
            $desk,
            " AND lease_until_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint)))"
        )
    };
}
pub(crate) use gone;

/// Which clock leases run by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// That of the database: the clocks of servers differ.
    Database,
    /// The caller's. For tests, which move it.
    Caller,
}

impl Clock {
    /// The time for a statement; null is the clock of the database.
    fn at(self, now_ms: u64) -> Option<i64> {
        (self == Self::Caller).then(|| signed(now_ms))
    }
}

pub struct PostgresStore {
    worker: Worker,
    /// For leases alone: no queue of other work may delay a renewal.
    lease_worker: Worker,
    tenants: Tenants,
    accepts: Accepts,
    settles: Settles,
    listeners: Listeners,
    epoch: u32,
    clock: Clock,
    /// Bytes of data that may wait for a connection.
    data_room: Semaphore,
    /// Progress of the retention run.
    round: tokio::sync::Mutex<Round>,
}

impl PostgresStore {
    /// Opens a database, and creates its tables in an empty one. `epoch_seed` is used only when creating. Waits for the
    /// server.
    pub fn open(url: &str, epoch_seed: u32, clock: Clock) -> Result<Self, StoreError> {
        let target = Target::of(url)?;
        let (worker, lease_worker) = (Worker::start(target.clone())?, Worker::start(target)?);
        let epoch = worker.ask_blocking(async move |database| {
            check_pooler(database).await?;
            schema::migrate(database, epoch_seed).await
        })?;
        Ok(Self {
            worker,
            lease_worker,
            tenants: Tenants::default(),
            accepts: Accepts::default(),
            settles: Settles::default(),
            listeners: Listeners::default(),
            epoch,
            clock,
            data_room: Semaphore::new(data::ROOM_BYTES),
            round: tokio::sync::Mutex::default(),
        })
    }
}

impl PostgresStore {
    /// The epoch of the database at this address, which tells it from others. `None`: it has no tables yet. Changes nothing.
    pub fn epoch_at(url: &str) -> Result<Option<u32>, StoreError> {
        let worker = Worker::start(Target::of(url)?)?;
        worker.ask_blocking(async move |database| database.read(schema::epoch).await)
    }

    /// Whether this value is the one that the first server has stored under the name. If there is none, it is stored.
    pub fn is_agreed(&self, name: &str, value: &str) -> Result<bool, StoreError> {
        let (name, value) = (format!("check {name}"), value.to_owned());
        self.worker.ask_blocking(async move |database| {
            let agree = async |connection: &connection::Connection| {
                let sql = "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING";
                connection.execute(sql, &[&name, &value]).await?;
                Ok(schema::read(connection, &name).await?.as_deref() == Some(&value))
            };
            database.writers.transaction(agree).await
        })
    }
}

/// A pooler that lends a connection for one transaction only breaks prepared statements, locks and notifications in ways
/// that show late. Two sessions are told apart by a setting of their own: while the second one holds a transaction, the
/// first one must still find its setting.
async fn check_pooler(database: &worker::Database) -> Result<(), StoreError> {
    let look = async {
        let (one, other) = (database.connect().await?, database.connect().await?);
        let look = async {
            one.batch("SET frontdesk.session = 'one'").await?;
            other.batch("BEGIN").await?;
            let row = other.query_one("SELECT coalesce(current_setting('frontdesk.session', true), '')", &[]).await?;
            let seen: String = row.get(0);
            let row = one.query_one("SELECT coalesce(current_setting('frontdesk.session', true), '')", &[]).await?;
            let own: String = row.get(0);
            other.batch("ROLLBACK").await?;
            Ok((own, seen))
        };
        look.await.map_err(connection::Fault::unwritten)
    };
    let pooled = || {
        StoreError::Unavailable(
            "the address of the store is a pooler in transaction mode (PgBouncer or similar); Frontdesk needs sessions of \
             its own: use the address of Postgres itself, or session mode"
                .into(),
        )
    };
    match tokio::time::timeout(std::time::Duration::from_secs(8), look).await {
        Ok(Ok((own, seen))) if own == "one" && seen.is_empty() => Ok(()),
        Ok(Ok(_)) => Err(pooled()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(StoreError::Unavailable("Postgres did not answer in time".into())),
    }
}

/// Integers of Postgres are signed; our counts, times and ids are far below the sign bit.
fn signed(number: impl Into<u64>) -> i64 {
    i64::try_from(number.into()).unwrap_or(i64::MAX)
}

fn unsigned<T: From<u64>>(number: i64) -> T {
    u64::try_from(number).unwrap_or(0).into()
}

/// For columns and parameters that are lists.
fn signed_all<N: Into<u64> + Copy>(numbers: &[N]) -> Vec<i64> {
    numbers.iter().map(|number| signed(*number)).collect()
}
