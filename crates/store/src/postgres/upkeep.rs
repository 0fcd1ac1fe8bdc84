//! Health, report and retention. Backups are made with the tools of Postgres.

use std::path::Path;

use frontdesk_core::port::store::{Purged, Retention, StoreError, StoreReport, Stored, Upkeep};

use super::connection::{Connection, Fault};
use super::{PostgresStore, unsigned};

/// Faults of a kind that a report names.
const FAULTS_MAX: i64 = 10;
/// Unsettled rows of a ledger that a report looks at.
const CHECKED_ROWS: i64 = 1_000;

impl Upkeep for PostgresStore {
    fn health(&self) -> Stored<'_, ()> {
        self.worker.write(async |connection| {
            // A few rows, so that servers do not wait for each other.
            let sql =
                "INSERT INTO meta (key, value) VALUES ('health ' || pg_backend_pid() % 64, clock_timestamp()::text)
                       ON CONFLICT (key) DO UPDATE SET value = excluded.value";
            connection.execute(sql, &[]).await.map(drop)
        })
    }

    fn report(&self) -> Stored<'_, StoreReport> {
        self.worker.read(async |connection| {
            let sql = "SELECT coalesce(sum(greatest(0, h.last_seq - coalesce(p.through, 0)
                         - (SELECT count(*) FROM unnest(p.above) AS s (seq)
                            WHERE seq > p.through AND seq <= h.last_seq))), 0)::bigint
                       FROM head h LEFT JOIN position p ON p.instance = h.instance";
            let rows_waiting = unsigned(connection.query_one(sql, &[]).await?.get(0));
            let sql = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
                       WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'";
            let bytes = unsigned(connection.query_one(sql, &[]).await?.get(0));
            let faults = faults(connection).await?;
            Ok(StoreReport { backend: "postgres".into(), rows_waiting, bytes, faults })
        })
    }

    fn backup<'a>(&'a self, _to: &'a Path) -> Stored<'a, u64> {
        let why = "a store in Postgres is backed up with pg_dump or the tools of its operator; \
                   `frontdesk export` writes a copy that any store can import";
        Box::pin(std::future::ready(Err(StoreError::Unavailable(why.into()))))
    }

    fn purge(&self, keep: Retention) -> Stored<'_, Purged> {
        Box::pin(async move { self.round.lock().await.step(self, keep).await })
    }
}

/// Cheap checks of what must be true of the ledgers. Postgres checks its own files.
async fn faults(connection: &Connection) -> Result<Vec<String>, Fault> {
    let sql = "SELECT m.instance, m.seq FROM head h LEFT JOIN position p ON p.instance = h.instance
               CROSS JOIN LATERAL (
                 SELECT instance, seq, event FROM mail
                 WHERE instance = h.instance AND seq > coalesce(p.through, 0) ORDER BY seq LIMIT $2) AS m
               WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.id = m.event) LIMIT $1";
    let orphans = connection.query(sql, &[&FAULTS_MAX, &CHECKED_ROWS]).await?;
    let sql = "SELECT h.instance, m.seq FROM head h
               CROSS JOIN LATERAL (SELECT seq FROM mail WHERE instance = h.instance ORDER BY seq DESC LIMIT 1) AS m
               WHERE m.seq > h.last_seq LIMIT $1";
    let ahead = connection.query(sql, &[&FAULTS_MAX]).await?;
    let told = |rows: Vec<tokio_postgres::Row>, what: &'static str| {
        rows.into_iter().map(move |row| {
            let (instance, seq): (i64, i64) = (row.get(0), row.get(1));
            format!("row {seq} of ledger {instance} {what}")
        })
    };
    Ok(told(orphans, "has no event").chain(told(ahead, "is above the last number of its ledger")).collect())
}
