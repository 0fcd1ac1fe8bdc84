//! Health, report and retention. Backups are made with the tools of Postgres.

use std::path::Path;

use frontdesk_core::port::store::{Purged, Retention, StoreError, StoreReport, Stored, Upkeep};

use super::connection::{Connection, Fault};
use super::{PostgresStore, schema, unsigned};
use crate::read_queue::SERVER;

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
                       ON CONFLICT (key) DO UPDATE SET value = excluded.value
                       RETURNING (SELECT value FROM meta WHERE key = 'needs')";
            Ok(schema::check_needs(connection.query_one(sql, &[]).await?.get(0))?)
        })
    }

    fn report(&self) -> Stored<'_, StoreReport> {
        self.worker.read(SERVER, async |connection| {
            let sql = "SELECT coalesce(sum(greatest(0, h.last_seq - coalesce(p.through, 0)
                         - (SELECT count(*) FROM unnest(p.above) AS s (seq)
                            WHERE seq > p.through AND seq <= h.last_seq))), 0)::bigint
                       FROM head h LEFT JOIN position p ON p.instance = h.instance";
            let rows_waiting = unsigned(connection.query_one(sql, &[]).await?.get(0));
            let sql = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
                       WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'";
            let bytes = unsigned(connection.query_one(sql, &[]).await?.get(0));
            let (faults, risks) = (faults(connection).await?, risks(connection).await?);
            Ok(StoreReport { backend: "postgres".into(), rows_waiting, bytes, faults, risks })
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

/// Cheap checks of invariants of the ledgers. Postgres checks its own files.
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
    let described = |rows: Vec<tokio_postgres::Row>, what: &'static str| {
        rows.into_iter().map(move |row| {
            let (instance, seq): (i64, i64) = (row.get(0), row.get(1));
            format!("row {seq} of ledger {instance} {what}")
        })
    };
    Ok(described(orphans, "has no event")
        .chain(described(ahead, "has a number above the last one of its ledger"))
        .collect())
}

async fn risks(connection: &Connection) -> Result<Vec<String>, Fault> {
    // A role without pg_read_all_stats sees only that a standby is connected. None is synchronous where none is
    // configured. One that has just connected has flushed nothing yet, and its mode is not known.
    let sql = "SELECT coalesce(r.application_name, ''), coalesce(r.sync_state,
                 CASE current_setting('synchronous_standby_names') WHEN '' THEN 'async' ELSE 'sync' END)
               FROM pg_stat_replication r
               WHERE (r.state IS NULL OR (r.state IN ('streaming', 'catchup') AND r.flush_lsn IS NOT NULL))
                 AND coalesce(r.application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal')
                 AND NOT EXISTS (SELECT 1 FROM pg_replication_slots s
                                 WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
               ORDER BY 1";
    let rows = connection.query(sql, &[]).await?;
    let standbys: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    Ok(risk_of(&standbys).into_iter().collect())
}

/// Of standbys with their names and modes.
fn risk_of(standbys: &[(String, String)]) -> Option<String> {
    if standbys.is_empty() || standbys.iter().any(|(_, mode)| mode == "sync" || mode == "quorum") {
        return None;
    }
    let names: Vec<String> = standbys.iter().map(|(name, _)| format!("{name:?}")).collect();
    Some(format!(
        "no standby of Postgres is synchronous ({}): if one is promoted, messages that were accepted last are lost; set \
         synchronous_standby_names in postgresql.conf of the primary",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standbys_are_a_risk_if_none_is_synchronous() {
        let risk = |modes: &[&str]| {
            let named = modes.iter().enumerate().map(|(number, mode)| (format!("s{number}"), (*mode).to_owned()));
            risk_of(&named.collect::<Vec<_>>())
        };
        for modes in [&[][..], &["sync"], &["async", "sync"], &["quorum", "quorum"], &["sync", "potential"]] {
            assert_eq!(risk(modes), None, "{modes:?}");
        }
        let text = risk(&["async", "async"]).unwrap();
        assert!(text.contains(r#"("s0", "s1")"#) && text.contains("synchronous_standby_names"), "{text}");
    }
}
