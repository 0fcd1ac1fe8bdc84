//! Servers that share the database: leases by its clock, and duties.

use frontdesk_core::port::store::{ABSENT_MS, DeskNo, DeskRecord, Desks, LEASE_MS, Renewal, StoreError, Stored};

use super::text::{given, kept};
use super::{PostgresStore, now, schema, signed, unsigned};
use crate::read_queue::SERVER;
use tokio_postgres::Row;

/// In the order of names, as everywhere.
const FREE_DUTIES: &str = "UPDATE duty SET desk = 0 WHERE name IN
    (SELECT name FROM duty WHERE desk = $1 ORDER BY name FOR UPDATE)";

impl Desks for PostgresStore {
    fn enlist(&self, name: String, version: String, now_ms: u64) -> Stored<'_, DeskNo> {
        let now = self.clock.at(now_ms);
        self.lease_worker.ask(async move |database| {
            let (name, version) = (&name, &version);
            let enlist = async |connection: &super::connection::Connection| {
                let sql = concat!("DELETE FROM desk WHERE lease_until_ms < ", now!("$1"), " - $2");
                connection.execute(sql, &[&now, &signed(ABSENT_MS)]).await?;
                let sql = concat!(
                    "INSERT INTO desk (number, name, version, lease_until_ms)
                     VALUES (nextval('desk_number'), $2, $3, ",
                    now!("$1"),
                    " + $4) RETURNING number"
                );
                let row = connection.query_one(sql, &[&now, name, version, &signed(LEASE_MS)]).await?;
                Ok(unsigned(row.get(0)))
            };
            database.leases.transaction(enlist).await
        })
    }

    fn renew(&self, me: DeskNo, seen: u64, now_ms: u64) -> Stored<'_, Renewal> {
        let now = self.clock.at(now_ms);
        self.lease_worker.ask(async move |database| {
            let renew = async |connection: &super::connection::Connection| {
                let sql = concat!(
                    "UPDATE desk SET lease_until_ms = ",
                    now!("$1"),
                    " + $3, directory_seen = $4 WHERE number = $2 AND lease_until_ms > ",
                    now!("$1")
                );
                if connection.execute(sql, &[&now, &signed(me), &signed(LEASE_MS), &signed(seen)]).await? == 0 {
                    return Err(StoreError::Conflict.into());
                }
                let sql = concat!(
                    "SELECT (SELECT value FROM counter WHERE name = 'directory'),
                     array(SELECT number FROM desk WHERE lease_until_ms > ",
                    now!("$1"),
                    " ORDER BY number),
                     array(SELECT number FROM desk WHERE is_leaving AND lease_until_ms > ",
                    now!("$1"),
                    " ORDER BY number),
                     (SELECT value FROM meta WHERE key = 'needs')"
                );
                let row = connection.query_one(sql, &[&now]).await?;
                // A newer server may have migrated the database since this one started.
                schema::check_needs(row.get(3))?;
                let numbers = |column: usize| row.get::<_, Vec<i64>>(column).into_iter().map(unsigned).collect();
                Ok(Renewal { directory_version: unsigned(row.get(0)), live: numbers(1), leaving: numbers(2) })
            };
            database.leases.transaction(renew).await
        })
    }

    fn take_duty(&self, me: DeskNo, duty: String, now_ms: u64) -> Stored<'_, Option<u64>> {
        let now = self.clock.at(now_ms);
        self.worker.ask(async move |database| {
            let duty = &duty;
            // One statement: a row that another server takes at the same time is looked at again under its lock.
            let sql = concat!(
                "INSERT INTO duty AS d (name, desk, token)
                 SELECT $2, $3, 1 WHERE EXISTS 
                 (SELECT 1 FROM desk WHERE number = $3 AND NOT is_leaving AND lease_until_ms > ",
                now!("$1"),
                ") ON CONFLICT (name) DO UPDATE
                   SET desk = $3, token = CASE WHEN d.desk = $3 THEN d.token ELSE d.token + 1 END
                   WHERE d.desk = $3 OR NOT EXISTS
                     (SELECT 1 FROM desk WHERE number = d.desk AND lease_until_ms > ",
                now!("$1"),
                ") RETURNING token"
            );
            let take = async |connection: &super::connection::Connection| {
                let row = connection.query_opt(sql, &[&now, duty, &signed(me)]).await?;
                Ok(row.map(|row| unsigned(row.get(0))))
            };
            database.writers.transaction(take).await
        })
    }

    fn drop_duty(&self, me: DeskNo, duty: String) -> Stored<'_, ()> {
        self.worker.ask(async move |database| {
            let duty = &duty;
            let sql = "UPDATE duty SET desk = 0 WHERE name = $1 AND desk = $2";
            let work = async |connection: &super::connection::Connection| {
                connection.execute(sql, &[duty, &signed(me)]).await.map(drop)
            };
            database.writers.transaction(work).await
        })
    }

    fn leave(&self, me: DeskNo) -> Stored<'_, ()> {
        self.lease_worker.ask(async move |database| {
            let work = async |connection: &super::connection::Connection| {
                connection.execute("UPDATE desk SET is_leaving = true WHERE number = $1", &[&signed(me)]).await?;
                connection.execute(FREE_DUTIES, &[&signed(me)]).await.map(drop)
            };
            database.leases.transaction(work).await
        })
    }

    fn resign(&self, me: DeskNo) -> Stored<'_, ()> {
        self.lease_worker.ask(async move |database| {
            let work = async |connection: &super::connection::Connection| {
                connection.execute(FREE_DUTIES, &[&signed(me)]).await?;
                // Under the numbers that it had before it lost a lease.
                let sql =
                    "DELETE FROM desk d USING desk m WHERE m.number = $1 AND d.name = m.name AND d.number <= m.number
                           AND (d.number = m.number OR d.lease_until_ms < m.lease_until_ms - 5000)";
                connection.execute(sql, &[&signed(me)]).await.map(drop)
            };
            database.leases.transaction(work).await
        })
    }

    fn desks(&self, now_ms: u64) -> Stored<'_, Vec<(DeskRecord, Vec<String>)>> {
        let now = self.clock.at(now_ms);
        self.worker.read(SERVER, async move |connection| {
            let sql = concat!(
                "SELECT number, name, version, lease_until_ms, directory_seen,
                 (SELECT count(*) FROM head h WHERE h.desk = desk.number AND h.desk <> 0), is_leaving, report,
                 array(SELECT d.name FROM duty d WHERE d.desk = desk.number ORDER BY d.name)
                 FROM desk WHERE lease_until_ms > ",
                now!("$1"),
                " ORDER BY number"
            );
            let rows = connection.query(sql, &[&now]).await?;
            Ok(rows.into_iter().map(|row| (record(&row), row.get(8))).collect())
        })
    }

    fn put_report(&self, me: DeskNo, report: String) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            let sql = "UPDATE desk SET report = $2 WHERE number = $1";
            connection.execute(sql, &[&signed(me), &kept(&report)]).await.map(drop)
        })
    }

    fn absent(&self, now_ms: u64) -> Stored<'_, Vec<(DeskRecord, u64)>> {
        let now = self.clock.at(now_ms);
        self.worker.read(SERVER, async move |connection| {
            let sql = concat!(
                "SELECT number, name, version, lease_until_ms, directory_seen, 0::bigint, is_leaving, report, ",
                now!("$1"),
                " - lease_until_ms FROM desk WHERE lease_until_ms <= ",
                now!("$1"),
                " AND lease_until_ms > ",
                now!("$1"),
                " - $2 AND NOT EXISTS (SELECT 1 FROM desk o WHERE o.name = desk.name AND o.number > desk.number)
                 ORDER BY number"
            );
            let rows = connection.query(sql, &[&now, &signed(ABSENT_MS)]).await?;
            Ok(rows.iter().map(|row| (record(row), unsigned(row.get(8)))).collect())
        })
    }
}

fn record(row: &Row) -> DeskRecord {
    DeskRecord {
        number: unsigned(row.get(0)),
        name: row.get(1),
        version: row.get(2),
        lease_until_ms: unsigned(row.get(3)),
        directory_seen: unsigned(row.get(4)),
        sockets: unsigned(row.get(5)),
        is_leaving: row.get(6),
        report: given(row.get(7)),
    }
}
