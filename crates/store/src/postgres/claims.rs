//! Who does something, and how often something was tried.

use frontdesk_core::port::store::{Claims, DeskNo, Mark, Stored};

use super::{Clock, PostgresStore, gone, now, signed, signed_all};

impl Claims for PostgresStore {
    fn claim(&self, mark: Mark, me: DeskNo, live: Vec<DeskNo>, limit_ms: u64, now_ms: u64) -> Stored<'_, bool> {
        let (now, live, by_lease) = (self.clock.at(now_ms), signed_all(&live), self.clock == Clock::Database);
        self.worker.write(async move |connection| {
            let sql = concat!(
                "INSERT INTO claim AS c (mark, desk, until_ms) VALUES ($4, $5, ",
                now!("$1"),
                " + $6) ON CONFLICT (mark) DO UPDATE SET desk = excluded.desk, until_ms = excluded.until_ms
                 WHERE c.until_ms <= ",
                now!("$1"),
                " OR ",
                gone!("c.desk", "$2", "$3")
            );
            let (mark, me, limit) = (mark.as_slice(), signed(me), signed(limit_ms));
            Ok(connection.execute(sql, &[&now, &live, &by_lease, &mark, &me, &limit]).await? == 1)
        })
    }

    fn release(&self, mark: Mark, me: DeskNo) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            let sql = "DELETE FROM claim WHERE mark = $1 AND desk = $2";
            connection.execute(sql, &[&mark.as_slice(), &signed(me)]).await.map(drop)
        })
    }

    fn tries(&self, mark: Mark, now_ms: u64) -> Stored<'_, u32> {
        let now = self.clock.at(now_ms);
        self.worker.read(async move |connection| {
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
}
