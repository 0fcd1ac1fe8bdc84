//! Which server does a task, and how often something was tried.

use frontdesk_core::port::claims::{HANDOFF_HELD_MS, HANDOFFS_MAX, Handoff, PARKED_MAX, PARKED_MAX_BYTES, PARKED_MS};
use frontdesk_core::port::store::{Claims, DeskNo, EventId, InstanceNo, Mark, Stored};
use tokio_postgres::Row;

use super::connection::Connection;
use super::text::{given, kept};
use super::{Clock, PostgresStore, gone, now, signed, signed_all, unsigned};
use crate::read_queue::SERVER;

impl Claims for PostgresStore {
    fn claim(&self, mark: Mark, me: DeskNo, live: Vec<DeskNo>, limit_ms: u64, now_ms: u64) -> Stored<'_, bool> {
        let (now, live, by_lease) = (self.clock.at(now_ms), signed_all(&live), self.clock == Clock::Database);
        self.worker.write(async move |connection| {
            let sql = concat!(
                "INSERT INTO claim AS c (mark, desk, until_ms) VALUES ($4, $5, ",
                now!("$1"),
                " + $6) ON CONFLICT (mark) DO UPDATE SET desk = excluded.desk, until_ms = excluded.until_ms
                 WHERE c.desk = excluded.desk OR c.until_ms <= ",
                now!("$1"),
                " OR ",
                gone!("c.desk", "$2", "$3")
            );
            let (mark, me, limit) = (mark.as_slice(), signed(me), signed(limit_ms));
            Ok(connection.execute(sql, &[&now, &live, &by_lease, &mark, &me, &limit]).await? == 1)
        })
    }

    fn release(&self, marks: Vec<Mark>, me: DeskNo) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            let marks: Vec<&[u8]> = marks.iter().map(Mark::as_slice).collect();
            let sql = "DELETE FROM claim WHERE mark IN (
                         SELECT mark FROM claim WHERE mark = ANY ($1) AND desk = $2 ORDER BY mark FOR UPDATE)";
            connection.execute(sql, &[&marks, &signed(me)]).await.map(drop)
        })
    }

    fn tries(&self, mark: Mark, now_ms: u64) -> Stored<'_, u32> {
        let now = self.clock.at(now_ms);
        self.worker.read(SERVER, async move |connection| {
            let sql = concat!("SELECT count FROM tries WHERE mark = $2 AND until_ms > ", now!("$1"));
            let found = connection.query_opt(sql, &[&now, &mark.as_slice()]).await?;
            let count: i64 = found.map_or(0, |row| row.get(0));
            Ok(u32::try_from(count).unwrap_or(u32::MAX))
        })
    }

    fn note_try(&self, mark: Mark, window_ms: u64, now_ms: u64) -> Stored<'_, ()> {
        let now = self.clock.at(now_ms);
        self.worker.write(async move |connection| {
            let sql = concat!(
                "INSERT INTO tries AS t (mark, count, until_ms) VALUES ($2, 1, ",
                now!("$1"),
                " + $3) ON CONFLICT (mark) DO UPDATE SET
                   count = CASE WHEN t.until_ms > ",
                now!("$1"),
                " THEN t.count + 1 ELSE 1 END,
                   until_ms = CASE WHEN t.until_ms > ",
                now!("$1"),
                " THEN t.until_ms ELSE excluded.until_ms END"
            );
            connection.execute(sql, &[&now, &mark.as_slice(), &signed(window_ms)]).await.map(drop)
        })
    }
    // The table keeps its name while servers of an older version may run beside this one.
    fn add_handoff(&self, server: String, event: EventId, now_ms: u64) -> Stored<'_, bool> {
        let now = self.clock.at(now_ms);
        self.worker.write(async move |connection| {
            let (server, event) = (kept(&server), signed(event));
            let sql = "SELECT count(*) FILTER (WHERE event = $2), count(*) FROM errand WHERE server = $1";
            let row = connection.query_one(sql, &[&server, &event]).await?;
            let (known, waiting): (i64, u64) = (row.get(0), unsigned(row.get(1)));
            if known > 0 || waiting >= HANDOFFS_MAX as u64 {
                return Ok(known > 0);
            }
            let sql = concat!(
                "INSERT INTO errand (server, event, from_ms) VALUES ($2, $3, ",
                now!("$1"),
                " + $4) ON CONFLICT (server, event) DO NOTHING"
            );
            connection.execute(sql, &[&now, &server, &event, &signed(HANDOFF_HELD_MS)]).await?;
            Ok(true)
        })
    }

    fn release_handoffs(&self, event: EventId) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            let sql = "UPDATE errand SET from_ms = 0 WHERE id IN (
                         SELECT id FROM errand WHERE event = $1 ORDER BY id FOR UPDATE)";
            connection.execute(sql, &[&signed(event)]).await.map(drop)
        })
    }

    fn handoffs(&self, server: String, limit: usize, now_ms: u64) -> Stored<'_, Vec<Handoff>> {
        let now = self.clock.at(now_ms);
        self.worker.read(SERVER, async move |connection| {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let sql = concat!(
                "SELECT id, event FROM errand WHERE server = $2 AND from_ms <= ",
                now!("$1"),
                " ORDER BY id LIMIT $3"
            );
            let rows = connection.query(sql, &[&now, &kept(&server), &limit]).await?;
            let handoff = |row: &Row| Handoff { id: unsigned(row.get(0)), event: unsigned(row.get(1)) };
            Ok(rows.iter().map(handoff).collect())
        })
    }

    fn drop_handoff(&self, id: u64) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            connection.execute("DELETE FROM errand WHERE id = $1", &[&signed(id)]).await.map(drop)
        })
    }

    fn park(&self, instance: InstanceNo, line: String, now_ms: u64) -> Stored<'_, bool> {
        let now = self.clock.at(now_ms);
        self.worker.write(async move |connection| {
            let sql = concat!(
                "INSERT INTO parked (instance, at_ms, line) SELECT $2, ",
                now!("$1"),
                ", $3 FROM (SELECT count(*) AS lines, coalesce(sum(octet_length(line)), 0) AS bytes FROM parked
                            WHERE instance = $2 AND at_ms + $6 > ",
                now!("$1"),
                ") AS k WHERE k.lines < $4 AND k.bytes + octet_length($3) <= $5"
            );
            let (instance, line, ttl) = (signed(instance), kept(&line), signed(PARKED_MS));
            let max = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
            let (lines, bytes) = (max(PARKED_MAX), max(PARKED_MAX_BYTES));
            Ok(connection.execute(sql, &[&now, &instance, &line, &lines, &bytes, &ttl]).await? == 1)
        })
    }

    fn take_parked(&self, instances: Vec<InstanceNo>, now_ms: u64) -> Stored<'_, Vec<(InstanceNo, String)>> {
        let (now, instances) = (self.clock.at(now_ms), signed_all(&instances));
        self.worker.ask(async move |database| {
            let sql = "SELECT 1 FROM parked WHERE instance = ANY ($1) LIMIT 1";
            let look = async |connection: &Connection| connection.query_opt(sql, &[&instances]).await;
            // A sweep reads the results for all instances that are served, and nearly always there are none.
            if database.read(look).await?.is_none() {
                return Ok(Vec::new());
            }
            let take = async |connection: &Connection| {
                let sql = concat!(
                    "WITH taken AS (DELETE FROM parked WHERE instance = ANY ($2) RETURNING no, instance, at_ms, line)
                     SELECT instance, line FROM taken WHERE at_ms + $3 > ",
                    now!("$1"),
                    " ORDER BY no"
                );
                let rows = connection.query(sql, &[&now, &instances, &signed(PARKED_MS)]).await?;
                Ok(rows.iter().map(|row| (unsigned(row.get(0)), given(row.get(1)))).collect())
            };
            database.writers.transaction(take).await
        })
    }
}
