//! Directory records with a common version.

use frontdesk_core::port::store::{Applied, Change, Changes, Directory, Record, StoreError, Stored};

use super::connection::{Connection, Fault};
use super::text::{given, kept};
use super::{PostgresStore, signed, unsigned};
use crate::read_queue::{Learned, SERVER};

impl Directory for PostgresStore {
    fn changed_since(&self, version: u64) -> Stored<'_, Changes> {
        let found = self.worker.read(SERVER, async move |connection| {
            let (changes, floor) = read(connection, version).await?;
            // Deletions before the floor are no longer stored, so everything must be returned.
            match version > 0 && version < floor {
                true => read(connection, 0).await.map(|(all, _)| all),
                false => Ok(changes),
            }
        });
        Box::pin(async move { found.await.inspect(|changes| self.tenants.note(changes)) })
    }

    fn amend(&self, seen: u64, changes: Vec<Change>, applied: Applied) -> Stored<'_, u64> {
        let (tenants, learned) = (self.tenants.clone(), Learned::from_changes(&changes));
        self.worker.ask(async move |database| {
            let changes = &changes;
            let version =
                database.writers.transaction(async |connection| write(connection, seen, changes).await).await?;
            tenants.learn(learned);
            applied(version);
            Ok(version)
        })
    }

    fn draw_numbers(&self, count: u64) -> Stored<'_, u64> {
        self.worker.write(async move |connection| {
            let sql = "UPDATE counter SET value = value + $1 WHERE name = 'instance' RETURNING value";
            let last: u64 = unsigned(connection.query_one(sql, &[&signed(count)]).await?.get(0));
            Ok(last + 1 - count)
        })
    }
}

/// Changes after a version, and the version from which deletions are stored.
async fn read(connection: &Connection, version: u64) -> Result<(Changes, u64), Fault> {
    // A single statement reads one snapshot, so version and records are consistent.
    let sql =
        "SELECT NULL AS kind, NULL AS key, value, (SELECT value::text FROM counter WHERE name = 'directory floor')
                 FROM counter WHERE name = 'directory'
               UNION ALL SELECT kind, key, version, json FROM record WHERE version > $1
               UNION ALL SELECT kind, key, version, NULL FROM tombstone WHERE version > $1 AND $1 > 0";
    let (mut changes, mut floor) = (Changes { whole: version == 0, ..Changes::default() }, 0);
    for row in connection.query(sql, &[&signed(version)]).await? {
        let (kind, json): (Option<String>, Option<String>) = (row.get(0), row.get(3));
        let at = unsigned(row.get(2));
        match kind {
            None => {
                changes.version = at;
                floor = json.and_then(|floor| floor.parse().ok()).unwrap_or(0);
            }
            Some(kind) => {
                let key: String = row.get(1);
                let json = json.map(given);
                changes.records.push(Record { kind: given(kind), key: given(key), version: at, json });
            }
        }
    }
    Ok((changes, floor))
}

async fn write(connection: &Connection, seen: u64, changes: &[Change]) -> Result<u64, Fault> {
    let raise = "UPDATE counter SET value = value + 1 WHERE name = 'directory' AND value = $1 RETURNING value";
    let raised = connection.query_opt(raise, &[&signed(seen)]).await?;
    let version: i64 = raised.ok_or(StoreError::Conflict)?.get(0);
    for Change { kind, key, json } in changes {
        let (name, key) = (kept(kind), kept(key));
        let Some(json) = json else {
            connection.execute("DELETE FROM record WHERE kind = $1 AND key = $2", &[&name, &key]).await?;
            let bury = "INSERT INTO tombstone (kind, key, version, at_ms)
                        VALUES ($1, $2, $3, (extract(epoch FROM now()) * 1000)::bigint)
                        ON CONFLICT (kind, key) DO UPDATE SET version = excluded.version, at_ms = excluded.at_ms";
            connection.execute(bury, &[&name, &key, &version]).await?;
            continue;
        };
        let no = number_of(json);
        if kind == "instance" {
            // Records may bring their own number (an import does); it must not be assigned again.
            let sql = "UPDATE counter SET value = greatest(value, $1) WHERE name = 'instance'";
            connection.execute(sql, &[&no.unwrap_or(0)]).await?;
        }
        connection.execute("DELETE FROM tombstone WHERE kind = $1 AND key = $2", &[&name, &key]).await?;
        let put = "INSERT INTO record (kind, key, version, no, json) VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT (kind, key) DO UPDATE
                   SET version = excluded.version, no = excluded.no, json = excluded.json";
        connection.execute(put, &[&name, &key, &version, &no, &kept(json)]).await?;
    }
    Ok(unsigned(version))
}

pub(super) fn number_of(json: &str) -> Option<i64> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        no: Option<u64>,
    }
    serde_json::from_str::<Numbered>(json).ok()?.no.map(signed)
}
