//! The ledger: reading it, ending and replaying rows. Accepting is in [`accept`](super::accept), settling in
//! [`heads`](super::heads).

use std::collections::HashSet;
use std::sync::Arc;

use frontdesk_core::port::store::{
    Acceptance, Accepted, Delivery, EventRecord, Ledger, MadeRow, Mail, MailState, NewRow, Position, RowListener,
    SentTurn, Settlement, StoreError, Stored, TURN_ROWS_MAX, TURN_ROWS_OLD_MAX, TURN_SESSIONS_MAX, Waiting,
};
use frontdesk_wire::{BotId, ChatId, DeskNo, EventId, InstanceNo, MessageId, Seq, SessionNo, TenantId};
use tokio_postgres::Row;

use super::connection::{Connection, Fault, Param};
use super::heads::{lock_positions, read_position, write_positions};
use super::text::{given, kept};
use super::worker::Database;
use super::{PostgresStore, held_media, signed, unsigned};
use crate::read_queue::{SERVER, of_tenant};

/// Rows that a listing scans for a rare state, and how many it reads at a time.
const SCAN_MAX: usize = 20_000;
const SCAN_PAGE: usize = 200;
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
                "SELECT 1 FROM mail m JOIN event e ON e.id = m.event WHERE {OWED} AND e.message_id = $2 LIMIT 1"
            );
            Ok(connection.query_opt(&sql, &[&instance, &message_id]).await?.is_some())
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

    fn mail(&self, instance: InstanceNo, state: Option<MailState>, before: Seq, limit: usize) -> Stored<'_, Vec<Mail>> {
        self.worker.read(self.tenants.of(instance), async move |connection| {
            let position = read_position(connection, signed(instance)).await?;
            let sql = select_mail("WHERE m.instance = $1 AND m.seq < $2 ORDER BY m.seq DESC LIMIT $3");
            let mut top = if before.is_none() { i64::MAX } else { signed(before) };
            let (mut found, mut scanned) = (Vec::new(), 0);
            while found.len() < limit && scanned < SCAN_MAX {
                let page = signed(SCAN_PAGE.min(limit.max(1)) as u64);
                let rows = connection.query(&sql, &[&signed(instance), &top, &page]).await?;
                let Some(last) = rows.last() else { break };
                top = last.get(0);
                scanned += rows.len();
                let mails = rows.iter().map(|row| mail_of(row, instance, &position));
                found.extend(mails.filter(|mail| state.is_none_or(|wanted| wanted == mail.state)));
            }
            found.truncate(limit);
            Ok(found)
        })
    }

    fn mail_row(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Mail>> {
        self.worker.read(self.tenants.of(instance), async move |connection| {
            let position = read_position(connection, signed(instance)).await?;
            let found = one_mail(connection, instance, seq).await?;
            Ok(found.map(|row| mail_of(&row, instance, &position)))
        })
    }

    fn drop_mail(
        &self,
        instance: InstanceNo,
        seq: Seq,
        session: Option<SessionNo>,
        reason: String,
    ) -> Stored<'_, bool> {
        self.worker.write(async move |connection| {
            // Locked, so that no other session begins before this is written.
            let sql = "SELECT last_seq, session FROM head WHERE instance = $1 FOR SHARE";
            let head = connection.query_opt(sql, &[&signed(instance)]).await?;
            let (last, serving): (Seq, SessionNo) =
                head.map(|row| (unsigned(row.get(0)), unsigned(row.get(1)))).unwrap_or_default();
            if session.is_some_and(|session| session != serving) {
                return Err(StoreError::Conflict.into());
            }
            let mut positions = lock_positions(connection, &[signed(instance)]).await?;
            for position in positions.values_mut() {
                if position.settled(seq) || seq > last {
                    return Ok(false);
                }
                position.merge(&Position { above: vec![seq], ..Position::default() });
            }
            write_positions(connection, &positions).await?;
            let sql = "UPDATE mail SET reason = $3 WHERE instance = $1 AND seq = $2";
            let changed = connection.execute(sql, &[&signed(instance), &signed(seq), &kept(&reason)]).await?;
            Ok(changed == 1)
        })
    }

    fn replay_mail(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Seq>> {
        let listeners = self.listeners.clone();
        self.worker.ask(async move |database: &Database| {
            // In turn with what is accepted, so that rows are reported in the order of their commits.
            let _turn = database.ledger_turn.lock().await;
            let work = async |connection: &Connection| replay(connection, instance, seq).await;
            let Some(new) = database.ledger.transaction(work).await? else { return Ok(None) };
            let seq = new.row.seq;
            listeners.rows_committed(&[new]);
            Ok(Some(seq))
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
                    let session_key = text_at(row, 2);
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

    fn event(&self, event: EventId) -> Stored<'_, Option<EventRecord>> {
        self.worker.read(SERVER, async move |connection| one_event(connection, "id = $1", &[&signed(event)]).await)
    }

    fn event_named<'a>(
        &'a self,
        tenant: &'a TenantId,
        dedup_prefix: Vec<u8>,
        message_id: &'a MessageId,
        chat_id: Option<&'a ChatId>,
    ) -> Stored<'a, Option<EventRecord>> {
        let (tenant, message_id) = (kept(tenant).into_owned(), kept(message_id).into_owned());
        let chat_id = chat_id.map(|chat_id| kept(chat_id).into_owned());
        self.worker.read(of_tenant(&tenant), async move |connection| {
            // Text never contains 0xff, so this is above all keys with the prefix.
            let past = [dedup_prefix.as_slice(), &[0xff; 32]].concat();
            let which = "dedup BETWEEN $1 AND $2 AND tenant = $3 AND message_id = $4
                         AND ($5::text IS NULL OR chat_id = $5) ORDER BY id DESC LIMIT 1";
            one_event(connection, which, &[&dedup_prefix, &past, &tenant, &message_id, &chat_id]).await
        })
    }

    fn events_marked<'a>(&'a self, tenant: &'a TenantId, dedups: Vec<Vec<u8>>) -> Stored<'a, Vec<Option<EventRecord>>> {
        self.worker.read(of_tenant(tenant), async move |connection| {
            let sql = "SELECT id, tenant, at_ms, chat_id, message_id, verdict, dedup FROM event WHERE dedup = ANY($1)";
            let rows = connection.query(sql, &[&dedups]).await?;
            let found = |dedup: &Vec<u8>| rows.iter().find(|row| row.get::<_, &[u8]>(6) == dedup).map(event_record);
            Ok(dedups.iter().map(found).collect())
        })
    }

    fn reached<'a>(
        &'a self,
        tenant: &'a TenantId,
        platform: &'a str,
        bot: &'a BotId,
        chat_id: &'a ChatId,
    ) -> Stored<'a, bool> {
        let place = [tenant, platform, bot, chat_id].map(|part| kept(part).into_owned());
        self.worker.read(of_tenant(tenant), async move |connection| {
            let sql = "SELECT 1 FROM reach WHERE tenant = $1 AND platform = $2 AND bot = $3 AND chat_id = $4";
            let [tenant, platform, bot, chat_id] = &place;
            Ok(connection.query_opt(sql, &[tenant, platform, bot, chat_id]).await?.is_some())
        })
    }
}

/// The same delivery as a new row at the end.
async fn replay(connection: &Connection, instance: InstanceNo, seq: Seq) -> Result<Option<NewRow>, Fault> {
    let Some(row) = one_mail(connection, instance, seq).await? else { return Ok(None) };
    let mut found = delivery(&row);
    let copy = "INSERT INTO event (id, dedup, attempt, tenant, at_ms, passthrough, platform, bot, chat_id, session_key,
                                   message_id, json, verdict)
                SELECT nextval('event_number'), decode(replace(gen_random_uuid()::text, '-', ''), 'hex'), 0, tenant, at_ms,
                       passthrough, platform, bot, chat_id, session_key, message_id, $2, verdict
                FROM event WHERE id = $1 RETURNING id";
    let event: i64 = connection.query_one(copy, &[&signed(found.event), &kept(&found.json)]).await?.get(0);
    found.event = unsigned(event);
    let head = "UPDATE head SET last_seq = last_seq + 1 WHERE instance = $1 RETURNING last_seq, desk";
    let head = connection.query_one(head, &[&signed(instance)]).await?;
    let new = MadeRow { instance, seq: unsigned(head.get(0)), served_by: unsigned(head.get(1)) };
    let sql = "INSERT INTO mail (instance, seq, event) VALUES ($1, $2, $3)";
    connection.execute(sql, &[&signed(instance), &signed(new.seq), &event]).await?;
    held_media::hold_again(connection, instance, seq, new.seq).await?;
    Ok(Some(NewRow { row: new, delivery: Arc::new(found) }))
}

async fn one_event(connection: &Connection, which: &str, params: &[Param<'_>]) -> Result<Option<EventRecord>, Fault> {
    let sql = format!("SELECT id, tenant, at_ms, chat_id, message_id, verdict FROM event WHERE {which}");
    Ok(connection.query_opt(&sql, params).await?.as_ref().map(event_record))
}

fn event_record(row: &Row) -> EventRecord {
    EventRecord {
        event: unsigned(row.get(0)),
        tenant: text_at(row, 1).into(),
        at_ms: unsigned(row.get(2)),
        chat_id: text_at(row, 3).into(),
        message_id: text_at(row, 4).into(),
        verdict: text_at(row, 5),
    }
}

async fn one_mail(connection: &Connection, instance: InstanceNo, seq: Seq) -> Result<Option<Row>, Fault> {
    let sql = select_mail("WHERE m.instance = $1 AND m.seq = $2");
    connection.query_opt(&sql, &[&signed(instance), &signed(seq)]).await
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
fn select_mail(which: &str) -> String {
    format!(
        "SELECT m.seq, m.reason, e.id, e.at_ms, e.passthrough, e.platform, e.bot, e.chat_id, e.session_key,
         e.message_id, coalesce(m.json, e.json) FROM mail m JOIN event e ON e.id = m.event {which}"
    )
}

fn text_at(row: &Row, column: usize) -> String {
    given(row.get(column))
}

fn delivery(row: &Row) -> Delivery {
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

fn mail_of(row: &Row, instance: InstanceNo, position: &Position) -> Mail {
    let seq = unsigned(row.get(0));
    let reason = row.get::<_, Option<String>>(1).map(given);
    let state = match &reason {
        Some(_) => MailState::Dead,
        None if position.settled(seq) => MailState::Acked,
        None if seq <= position.sent => MailState::Sent,
        None => MailState::Accepted,
    };
    Mail { instance, seq, state, reason, delivery: Arc::new(delivery(row)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use frontdesk_testkit::postgres::TestSchema;

    use super::super::connection::Target;
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
