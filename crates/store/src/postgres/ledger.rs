//! The ledger: reading it. Accepting is in [`accept`](super::accept), settling in
//! [`heads`](super::heads).

use std::collections::HashSet;
use std::sync::Arc;

use frontdesk_core::port::store::{
    Acceptance, Accepted, Delivery, Ledger, OWED_SCANNED_MAX, Position, RowListener, SentTurn, Settlement, Stored,
    TURN_ROWS_MAX, TURN_ROWS_OLD_MAX, TURN_SESSIONS_MAX, Waiting,
};
use frontdesk_wire::{DeskNo, InstanceNo, MessageId, Seq, SessionKey, SessionNo};
use tokio_postgres::Row;

use super::heads::read_position;
use super::text::{kept, text_at};
use super::{PostgresStore, signed, unsigned};
use crate::read_queue::SERVER;

/// Rows that a search for turns reads at a time.
const TURN_ROWS_STEP: usize = 1_000;

impl Ledger for PostgresStore {
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn attach_listener(&self, listener: Arc<dyn RowListener>) {
        self.listeners.attach(listener);
    }

    fn may_lose_answers(&self) -> bool {
        true
    }

    fn accept(&self, batch: Vec<Acceptance>) -> Stored<'_, Vec<Accepted>> {
        self.accept_grouped(batch)
    }

    fn settle(&self, instance: InstanceNo, settlement: Settlement) -> Stored<'_, bool> {
        self.settle_grouped(instance, settlement)
    }

    fn position(&self, instance: InstanceNo) -> Stored<'_, Position> {
        let (owner, instance) = (self.tenants.of(instance), signed(instance));
        self.worker.read(owner, async move |connection| read_position(connection, instance).await)
    }

    fn pending(&self, instance: InstanceNo, after: Seq, limit: usize) -> Stored<'_, Vec<(Seq, Arc<Delivery>)>> {
        let owner = self.tenants.of(instance);
        let (instance, after, limit) = (signed(instance), signed(after), signed(limit as u64));
        self.worker.read(owner, async move |connection| {
            let rows = connection.query(&select_pending(), &[&instance, &after, &limit]).await?;
            Ok(rows.into_iter().map(|row| (unsigned(row.get(0)), Arc::new(delivery(&row)))).collect())
        })
    }

    fn owes<'a>(&'a self, instance: InstanceNo, message_id: &'a MessageId) -> Stored<'a, bool> {
        let owner = self.tenants.of(instance);
        let (instance, message_id) = (signed(instance), kept(message_id).into_owned());
        self.worker.read(owner, async move |connection| {
            let sql = format!(
                "SELECT coalesce(bool_or(e.message_id = $2), false)
                 FROM (SELECT m.event FROM mail m WHERE {OWED} ORDER BY m.seq DESC LIMIT $3) AS m JOIN event e ON e.id = m.event"
            );
            let most = signed(OWED_SCANNED_MAX as u64);
            Ok(connection.query_one(&sql, &[&instance, &message_id, &most]).await?.get(0))
        })
    }

    fn heads(&self, me: DeskNo) -> Stored<'_, Vec<(InstanceNo, SessionNo, Seq)>> {
        self.worker.read(SERVER, async move |connection| {
            let sql = "SELECT instance, session, last_seq FROM head WHERE desk = $1 AND desk <> 0";
            let rows = connection.query(sql, &[&signed(me)]).await?;
            Ok(rows.iter().map(|row| (unsigned(row.get(0)), unsigned(row.get(1)), unsigned(row.get(2)))).collect())
        })
    }

    fn waiting(&self) -> Stored<'_, Vec<Waiting>> {
        self.worker.read(SERVER, async move |connection| {
            let sql = "SELECT h.instance, h.last_seq - coalesce(p.through, 0)
                         - (SELECT count(*) FROM unnest(p.above) AS s (seq) WHERE seq <= h.last_seq), o.at_ms, o.seq
                       FROM head h LEFT JOIN position p ON p.instance = h.instance
                       CROSS JOIN LATERAL (
                         SELECT m.seq, e.at_ms FROM mail m JOIN event e ON e.id = m.event
                         WHERE m.instance = h.instance AND m.seq > coalesce(p.through, 0) AND m.reason IS NULL
                         ORDER BY m.seq LIMIT 1) AS o
                       WHERE h.last_seq > coalesce(p.through, 0) ORDER BY h.instance";
            let rows = connection.query(sql, &[]).await?;
            let waiting = |row: &Row| Waiting {
                instance: unsigned(row.get(0)),
                count: unsigned(row.get(1)),
                oldest_ms: unsigned(row.get(2)),
                oldest_seq: unsigned(row.get(3)),
            };
            Ok(rows.iter().map(waiting).filter(|it| it.count > 0).collect())
        })
    }

    fn sent_turns(&self, instance: InstanceNo, since_ms: u64) -> Stored<'_, Vec<SentTurn>> {
        self.worker.read(self.tenants.of(instance), async move |connection| {
            // Reads only the compared columns; events may be large.
            let sql = "SELECT m.seq, e.at_ms, e.session_key, e.chat_id FROM mail m JOIN event e ON e.id = m.event
                       WHERE m.instance = $1 AND m.seq <= $2 ORDER BY m.seq DESC LIMIT $3";
            let position = read_position(connection, signed(instance)).await?;
            let mut newest = signed(position.sent.max(position.through));
            let (mut known, mut turns, mut old) = (HashSet::new(), Vec::new(), 0);
            for _ in 0..TURN_ROWS_MAX / TURN_ROWS_STEP {
                let rows = connection.query(sql, &[&signed(instance), &newest, &signed(TURN_ROWS_STEP as u64)]).await?;
                for row in &rows {
                    let at_ms = unsigned(row.get(1));
                    old += usize::from(at_ms < since_ms);
                    if old > TURN_ROWS_OLD_MAX || turns.len() >= TURN_SESSIONS_MAX {
                        return Ok(turns);
                    }
                    if at_ms < since_ms {
                        continue;
                    }
                    let session_key = SessionKey::from(text_at(row, 2));
                    if known.insert(session_key.clone()) {
                        turns.push(SentTurn { session_key, chat_id: text_at(row, 3).into(), at_ms });
                    }
                }
                let Some(last) = rows.last().filter(|_| rows.len() == TURN_ROWS_STEP) else { break };
                newest = last.get::<_, i64>(0) - 1;
            }
            Ok(turns)
        })
    }
}

/// Rows of the instance `$1` that are not settled. The position is looked up once, before the rows: joined to them, it would not
/// limit which of them are read, and a ledger keeps settled rows for days.
const OWED: &str = "m.instance = $1 AND m.seq > coalesce((SELECT through FROM position WHERE instance = $1), 0)
     AND m.seq <> ALL (coalesce((SELECT above FROM position WHERE instance = $1), '{}'))";

/// One statement, so that a row that is settled meanwhile is seen either way, but not half.
fn select_pending() -> String {
    select_mail(&format!("WHERE {OWED} AND m.seq > $2 ORDER BY m.seq LIMIT $3"))
}

/// Mail with its event; the caller adds which.
pub(super) fn select_mail(which: &str) -> String {
    format!(
        "SELECT m.seq, m.reason, e.id, e.at_ms, e.passthrough, e.platform, e.bot, e.chat_id, e.session_key,
         e.message_id, coalesce(m.json, e.json) FROM mail m JOIN event e ON e.id = m.event {which}"
    )
}

pub(super) fn delivery(row: &Row) -> Delivery {
    Delivery {
        event: unsigned(row.get(2)),
        at_ms: unsigned(row.get(3)),
        passthrough: row.get(4),
        platform: text_at(row, 5),
        bot: text_at(row, 6).into(),
        chat_id: text_at(row, 7).into(),
        session_key: text_at(row, 8).into(),
        message_id: text_at(row, 9).into(),
        json: text_at(row, 10),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use frontdesk_testkit::postgres::TestSchema;

    use super::super::connection::{Fault, Target};
    use super::super::worker::Worker;
    use super::*;

    /// Settled rows stay in the ledger for days: reading the others must not walk through them.
    #[test]
    fn pending_rows_are_found_without_reading_settled_ones() {
        let schema = TestSchema::create();
        let worker = Worker::start(Target::of(&schema.url()).unwrap()).unwrap();
        let plan = worker.ask_blocking(async |database| {
            super::super::schema::migrate(database, 7).await?;
            let connection = database.connect().await?;
            let fill = "INSERT INTO event (id, tenant, dedup, at_ms, json, verdict, attempt, passthrough, platform, bot,
                            chat_id, session_key, message_id)
                        SELECT n, 't', n::text::bytea, n, '{}', '', 0, false, '', '', '', '', '' FROM generate_series(1, 9000) n;
                        INSERT INTO mail (instance, seq, event) SELECT 1, n, n FROM generate_series(1, 9000) n;
                        INSERT INTO position (instance, through, above, sent) VALUES (1, 8990, '{}', 9000)";
            connection.batch(fill).await.map_err(Fault::unwritten)?;
            // As prepared statements are planned, also before the statistics are there.
            let prepare = format!("SET plan_cache_mode = force_generic_plan;
                                   PREPARE pending (bigint, bigint, bigint) AS {}", select_pending());
            connection.batch(&prepare).await.map_err(Fault::unwritten)?;
            let sql = "EXPLAIN (ANALYZE, TIMING OFF) EXECUTE pending (1, 0, 200)";
            let rows = connection.query(sql, &[]).await.map_err(Fault::unwritten)?;
            Ok(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n"))
        });
        let plan = plan.unwrap();
        let scan = plan.lines().find(|line| line.contains("on mail m")).unwrap_or_default();
        assert!(scan.contains("rows=10 "), "{plan}");
        assert!(!plan.contains("Rows Removed"), "{plan}");
    }
}
