//! Deletes old rows in small steps. One server at a time runs a round, but all of them write meanwhile: every deletion
//! carries its own condition.
//!
//! Numbers of events are not in the order of commits, so events are walked through by their time; one that becomes visible
//! behind the walk is found by the next round. Within a round no step reads rows that an earlier one has read.

use frontdesk_core::port::store::{Purged, Retention, StoreError};

use super::connection::{Connection, Fault};
use super::{PostgresStore, data, held_media, media, signed, unsigned};

/// Rows deleted per step. Statements say it as a literal: so the planner knows how few they are, and reads no whole table.
const STEP_ROWS: i64 = 200;
/// Rows of events deleted per step; an event with more is a step of its own.
const STEP_MAIL: i64 = 1_000;
/// Chats read per step.
const STEP_CHATS: i64 = 500;
/// Bytes of data deleted per step.
const STEP_BYTES: i64 = 256 << 10;
/// Interval of what reads whole tables.
const SELDOM_MS: u64 = 3_600_000;

/// The parts of a round, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    #[default]
    Events,
    Media,
    Files,
    Expired,
    Bytes,
    Journal,
    Tombstones,
    Chats,
    Reach,
}

/// Progress of a round. The next one begins when it is finished.
#[derive(Default)]
pub(super) struct Round {
    part: Part,
    /// Events up to this time and number were checked.
    event: (i64, i64),
    /// Files up to this one were checked for settled mail.
    media: String,
    /// Files up to this one were checked for expiry.
    files: held_media::Expiry,
    chat: (String, String),
    seldom_ms: u64,
}

/// How many rows are gone, and the next part; `None` ends the round.
type Step = (u64, Option<Part>);

impl Round {
    /// One step. `more` is false when the round is finished.
    pub(super) async fn step(&mut self, store: &PostgresStore, keep: Retention) -> Result<Purged, StoreError> {
        // If a step fails, the next one begins a new round.
        let mut round = std::mem::take(self);
        let (gone, next) = match round.part {
            Part::Events => round.events(store, keep).await?,
            Part::Media => round.media(store, keep).await?,
            Part::Files => round.files(store, keep).await?,
            Part::Expired => {
                let expire = store.worker.write(async move |connection| expire(connection, keep).await);
                let (gone, is_full) = expire.await?;
                (gone, Some(if is_full { Part::Expired } else { Part::Bytes }))
            }
            Part::Bytes => {
                let is_more = store.worker.write(async |connection| media::purge_uploads(connection).await).await?;
                (0, Some(if is_more { Part::Bytes } else { Part::Journal }))
            }
            Part::Journal => {
                let gone = store.worker.write(async move |connection| journal(connection, keep).await).await?;
                (gone, Some(again_if_full(gone, Part::Journal, Part::Tombstones)))
            }
            Part::Tombstones => {
                let gone = store.worker.write(async |connection| tombstones(connection).await).await?;
                (gone, Some(again_if_full(gone, Part::Tombstones, Part::Chats)))
            }
            Part::Chats => round.chat_lines(store, keep).await?,
            Part::Reach => round.reach(store, keep).await?,
        };
        let seldom_ms = round.seldom_ms;
        *self = match next {
            Some(part) => Self { part, ..round },
            None => Self { seldom_ms, ..Self::default() },
        };
        Ok(Purged { gone, more: next.is_some() })
    }

    /// Deletes rows of expired events up to the watermarks of their ledgers, and the events that have no row above one. Rows
    /// are created with their event and never later, and a watermark only rises: what is settled now stays settled.
    async fn events(&mut self, store: &PostgresStore, keep: Retention) -> Result<Step, StoreError> {
        let (after, before_ms) = (self.event, signed(keep.verdicts_before_ms.min(keep.events_before_ms)));
        let delete = store.worker.write(async move |connection| events(connection, after, before_ms).await);
        let (gone, last) = delete.await?;
        let is_over = last.is_none();
        self.event = last.unwrap_or_default();
        Ok((gone, Some(if is_over { Part::Media } else { Part::Events })))
    }

    /// Files expire from the time on at which the last mail that refers to them was found settled.
    async fn media(&mut self, store: &PostgresStore, keep: Retention) -> Result<Step, StoreError> {
        let after = std::mem::take(&mut self.media);
        let expires_ms = keep.now_ms.saturating_add(keep.media_ttl_ms);
        let release =
            store.worker.write(async move |connection| held_media::release(connection, &after, expires_ms).await);
        let last = release.await?;
        let next = if last.is_some() { Part::Media } else { Part::Files };
        self.media = last.unwrap_or_default();
        Ok((0, Some(next)))
    }

    /// Deletes files that have expired and that no mail refers to.
    async fn files(&mut self, store: &PostgresStore, keep: Retention) -> Result<Step, StoreError> {
        let after = std::mem::take(&mut self.files);
        let delete =
            store.worker.write(async move |connection| held_media::expire(connection, &after, keep.now_ms).await);
        let (gone, last) = delete.await?;
        let next = if last.is_some() { Part::Files } else { Part::Expired };
        self.files = last.unwrap_or_default();
        Ok((gone, Some(next)))
    }

    /// Deletes the oldest messages of each chat. Runs once an hour.
    async fn chat_lines(&mut self, store: &PostgresStore, keep: Retention) -> Result<Step, StoreError> {
        let is_due = keep.now_ms.abs_diff(self.seldom_ms) >= SELDOM_MS;
        if keep.chat_before_ms == 0 || !is_due {
            return Ok((0, is_due.then_some(Part::Reach)));
        }
        let (from, before_ms) = (std::mem::take(&mut self.chat), signed(keep.chat_before_ms));
        let delete = store.worker.write(async move |connection| old_lines(connection, &from, before_ms).await);
        let (gone, next) = delete.await?;
        let is_over = next.is_none();
        self.chat = next.unwrap_or_default();
        Ok((gone, Some(if is_over { Part::Reach } else { Part::Chats })))
    }

    async fn reach(&mut self, store: &PostgresStore, keep: Retention) -> Result<Step, StoreError> {
        let before_ms = signed(keep.reach_before_ms);
        let delete = store.worker.write(async move |connection| {
            let sql = "DELETE FROM reach WHERE (tenant, platform, bot, chat_id) IN (
                         SELECT tenant, platform, bot, chat_id FROM reach WHERE at_ms < $1
                         ORDER BY at_ms LIMIT 200 FOR UPDATE SKIP LOCKED)";
            connection.execute(sql, &[&before_ms]).await
        });
        let gone = delete.await?;
        if gone > 0 {
            store.accepts.forget_reached();
        }
        if gone == unsigned::<u64>(STEP_ROWS) {
            return Ok((gone, Some(Part::Reach)));
        }
        self.seldom_ms = keep.now_ms;
        Ok((gone, None))
    }
}

fn again_if_full(gone: u64, again: Part, next: Part) -> Part {
    if gone >= unsigned::<u64>(STEP_ROWS) { again } else { next }
}

/// The number of deleted rows, and the last event that was checked if there may be more.
async fn events(
    connection: &Connection,
    after: (i64, i64),
    before_ms: i64,
) -> Result<(u64, Option<(i64, i64)>), Fault> {
    let sql = "SELECT e.at_ms, e.id, r.settled, r.owed > 0
               FROM (SELECT at_ms, id FROM event
                     WHERE (at_ms, id) > ($1, $2) AND at_ms < $3 ORDER BY at_ms, id LIMIT 200) AS e
               CROSS JOIN LATERAL (
                 SELECT count(*) FILTER (WHERE m.seq <= p.through) AS settled,
                        count(*) FILTER (WHERE m.seq > coalesce(p.through, 0)) AS owed
                 FROM mail m LEFT JOIN position p ON p.instance = m.instance WHERE m.event = e.id) AS r
               ORDER BY e.at_ms, e.id";
    let rows = connection.query(sql, &[&after.0, &after.1, &before_ms]).await?;
    let (mut old, mut free, mut last, mut room) = (Vec::new(), Vec::new(), after, STEP_MAIL);
    let mut is_over = signed(rows.len() as u64) < STEP_ROWS;
    for row in &rows {
        let (at_ms, id, settled, is_owed): (i64, i64, i64, bool) = (row.get(0), row.get(1), row.get(2), row.get(3));
        if !old.is_empty() && settled > room {
            is_over = false;
            break;
        }
        room -= settled;
        old.push(id);
        if !is_owed {
            free.push(id);
        }
        last = (at_ms, id);
    }
    let mut gone = 0;
    if !old.is_empty() {
        let sql = "DELETE FROM mail m USING position p
                   WHERE m.event = ANY($1) AND p.instance = m.instance AND m.seq <= p.through";
        gone += connection.execute(sql, &[&old]).await?;
        gone += connection.execute("DELETE FROM event WHERE id = ANY($1)", &[&free]).await?;
    }
    Ok((gone, (!is_over).then_some(last)))
}

/// Deletes what has its own expiry: alarm results, fired alarms, capabilities, messages, data. Returns the number of
/// deleted rows, and whether there may be more.
async fn expire(connection: &Connection, keep: Retention) -> Result<(u64, bool), Fault> {
    let (old, now) = (signed(keep.verdicts_before_ms), signed(keep.now_ms));
    // A fired alarm is kept as long as its result, so that arming the same time again is recognised.
    let alarms = "WITH ended AS (
                    DELETE FROM alarm_end WHERE (instance, id) IN (
                      SELECT instance, id FROM alarm_end WHERE at_ms < $1 LIMIT 200 FOR UPDATE SKIP LOCKED)
                    RETURNING instance, job_id, fire_at), fired AS (
                    DELETE FROM alarm a USING ended e
                    WHERE a.instance = e.instance AND a.job_id = e.job_id AND a.fire_at = e.fire_at AND a.state = 'fired'
                    RETURNING a.id)
                  SELECT (SELECT count(*) FROM ended), (SELECT count(*) FROM fired)";
    let alarms = connection.query_one(alarms, &[&old]).await?;
    let messages = "DELETE FROM inbox_message WHERE (agent, place) IN (
                      SELECT agent, place FROM inbox_message WHERE at_ms < $1
                      ORDER BY at_ms LIMIT 200 FOR UPDATE SKIP LOCKED)";
    let counts = [
        unsigned(alarms.get(0)),
        unsigned(alarms.get(1)),
        connection.execute(messages, &[&signed(keep.inbox_before_ms)]).await?,
        capabilities(connection, now).await?,
    ];
    // Small rows without a count. Their times are by the clock of the database.
    for sql in [
        "DELETE FROM claim WHERE until_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
        "DELETE FROM tries WHERE until_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
        "DELETE FROM parked WHERE at_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 600000",
        "DELETE FROM errand e WHERE NOT EXISTS (SELECT 1 FROM inbox_message m WHERE m.event = e.event)",
    ] {
        connection.execute(sql, &[]).await?;
    }
    let rows = data::expire(connection, keep.now_ms / 1000, STEP_BYTES).await?;
    let is_full = rows > 0 || counts.iter().any(|count| *count >= unsigned::<u64>(STEP_ROWS));
    Ok((counts.iter().sum::<u64>() + rows, is_full))
}

/// A capability goes after its keys. A key that is being bound to another one is not waited for: then the capability stays
/// until the next round.
async fn capabilities(connection: &Connection, now: i64) -> Result<u64, Fault> {
    let sql = "SELECT id FROM capability WHERE expires_ms <= $1 ORDER BY expires_ms LIMIT 200";
    let rows = connection.query(sql, &[&now]).await?;
    let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    if ids.is_empty() {
        return Ok(0);
    }
    let sql = "DELETE FROM capability_key WHERE (tenant, session_key, kind) IN (
                 SELECT tenant, session_key, kind FROM capability_key WHERE id = ANY($1) FOR UPDATE SKIP LOCKED)";
    connection.execute(sql, &[&ids]).await?;
    let sql =
        "DELETE FROM capability c WHERE id = ANY($1) AND NOT EXISTS (SELECT 1 FROM capability_key k WHERE k.id = c.id)";
    connection.execute(sql, &[&ids]).await
}

async fn journal(connection: &Connection, keep: Retention) -> Result<u64, Fault> {
    // Open entries are kept, because their result is still to come.
    let sql = "WITH gone AS (
                 DELETE FROM journal WHERE id IN (
                   SELECT id FROM journal WHERE outcome <> 'open' AND at_ms < $1
                   ORDER BY at_ms LIMIT 200 FOR UPDATE SKIP LOCKED)
                 RETURNING id), receipts AS (
                 DELETE FROM journal_receipt WHERE entry IN (SELECT id FROM gone))
               SELECT count(*) FROM gone";
    let row = connection.query_one(sql, &[&signed(keep.journal_before_ms)]).await?;
    Ok(unsigned(row.get(0)))
}

/// Forgets deletions of the directory after a day, by the clock that they were written by. A server that does not know
/// them by then gets the whole directory.
async fn tombstones(connection: &Connection) -> Result<u64, Fault> {
    let sql = "WITH gone AS (
                 DELETE FROM tombstone WHERE (kind, key) IN (
                   SELECT kind, key FROM tombstone
                   WHERE at_ms < (extract(epoch FROM now() - interval '1 day') * 1000)::bigint
                   ORDER BY version LIMIT 200 FOR UPDATE SKIP LOCKED)
                 RETURNING version), raised AS (
                 UPDATE counter SET value = greatest(value, (SELECT max(version) FROM gone))
                 WHERE name = 'directory floor' AND EXISTS (SELECT 1 FROM gone))
               SELECT count(*) FROM gone";
    Ok(unsigned(connection.query_one(sql, &[]).await?.get(0)))
}

type Chat = (String, String);

/// The number of deleted lines, and where to continue; `None`: this was the last chat.
async fn old_lines(connection: &Connection, from: &Chat, before_ms: i64) -> Result<(u64, Option<Chat>), Fault> {
    let sql = "SELECT c.tenant, c.chat_id, coalesce(l.at_ms < $4, false) FROM chat c
               LEFT JOIN LATERAL (SELECT at_ms FROM chat_line
                 WHERE tenant = c.tenant AND chat_id = c.chat_id ORDER BY seq LIMIT 1) AS l ON true
               WHERE (c.tenant, c.chat_id) > ($1, $2) ORDER BY c.tenant, c.chat_id LIMIT $3";
    let chats = connection.query(sql, &[&from.0, &from.1, &STEP_CHATS, &before_ms]).await?;
    let is_last = signed(chats.len() as u64) < STEP_CHATS;
    // The oldest lines, up to the first that is young.
    let sql = "WITH oldest AS MATERIALIZED (
                 SELECT seq, at_ms FROM chat_line WHERE tenant = $1 AND chat_id = $2 ORDER BY seq LIMIT $3)
               DELETE FROM chat_line WHERE tenant = $1 AND chat_id = $2 AND seq IN (
                 SELECT seq FROM oldest
                 WHERE seq < coalesce((SELECT min(seq) FROM oldest WHERE at_ms >= $4), 9223372036854775807))";
    let (mut gone, mut last) = (0, from.clone());
    for row in &chats {
        let (chat, has_old): (Chat, bool) = ((row.get(0), row.get(1)), row.get(2));
        if has_old {
            let room = STEP_ROWS - signed(gone);
            let some = connection.execute(sql, &[&chat.0, &chat.1, &room, &before_ms]).await?;
            gone += some;
            if signed(some) == room {
                return Ok((gone, Some(last))); // there may be more messages in this chat
            }
        }
        last = chat;
    }
    Ok((gone, (!is_last).then_some(last)))
}
