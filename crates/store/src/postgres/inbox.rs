//! Inboxes of agents, and planned wakes.

use frontdesk_core::port::inbox::{Inbox, InboxMessage, PAGE_MAX_BYTES, PlannedWake, StoredMessage};
use frontdesk_core::port::store::{Purged, Stored};
use frontdesk_wire::{EventId, InboxSeq, InstanceNo, TenantId};
use tokio_postgres::Row;

use super::connection::{Connection, Fault, Param};
use super::text::{given, kept};
use super::{PostgresStore, signed, unsigned};
use crate::read_queue::{SERVER, of_tenant};

/// Characters read of each text in lists.
const SHOWN_CHARS: usize = 1_000;
/// Rows of an inbox that one step erases. Statements say it as a literal: so the planner knows how few they are.
const STEP_ROWS: usize = 200;

/// Appends a message to its inbox, inside the transaction of the caller, and returns its place. The lock of the inbox is
/// held from drawing the place until the commit is visible, so that messages become readable in the order of their places.
/// All inboxes draw from one sequence: an agent that is made again gets another inbox, whose places must be higher.
pub(super) async fn append(
    connection: &Connection,
    tenant: &TenantId,
    event: EventId,
    at_ms: u64,
    it: &InboxMessage,
) -> Result<InboxSeq, Fault> {
    let sql = "WITH head AS (UPDATE inbox_head SET last_place = nextval('inbox_place') WHERE agent = $1
                             RETURNING last_place)
               INSERT INTO inbox_message
                 (agent, place, event, tenant, at_ms, delivery_id, kind, text, meta, session_id, receipts)
               SELECT $1, last_place, $2, $3, $4, $5, $6, $7, $8, $9, $10 FROM head RETURNING place";
    let (tenant, delivery_id, kind) = (kept(tenant), kept(&it.delivery_id), kept(&it.kind));
    let (text, receipts) = (kept(&it.text), kept(&it.receipts));
    let (meta, session_id) = (it.meta.as_deref().map(kept), it.session_id.as_deref().map(kept));
    let (agent, event, at_ms) = (signed(it.agent), signed(event), signed(at_ms));
    let values: [Param<'_>; 10] =
        [&agent, &event, &tenant, &at_ms, &delivery_id, &kind, &text, &meta, &session_id, &receipts];
    if let Some(row) = connection.query_opt(sql, &values).await? {
        return Ok(unsigned(row.get(0)));
    }
    let first = "INSERT INTO inbox_head (agent, last_place) VALUES ($1, 0) ON CONFLICT (agent) DO NOTHING";
    connection.execute(first, &[&agent]).await?;
    Ok(unsigned(connection.query_one(sql, &values).await?.get(0)))
}

/// The place of the message that an event became; 0 if it became none.
pub(super) async fn place_of(connection: &Connection, event: EventId) -> Result<InboxSeq, Fault> {
    let found = connection.query_opt("SELECT place FROM inbox_message WHERE event = $1", &[&signed(event)]).await?;
    Ok(found.map_or(InboxSeq::NONE, |row| unsigned(row.get(0))))
}

impl Inbox for PostgresStore {
    fn messages(&self, agent: InstanceNo, after: InboxSeq, limit: usize) -> Stored<'_, Vec<StoredMessage>> {
        self.worker.read(self.tenants.of(agent), async move |connection| {
            // Rows after the page is full are not sent.
            let sql = "SELECT place, event, at_ms, agent, delivery_id, kind, text, meta, session_id, receipts FROM (
                         SELECT *, sum(size) OVER (ORDER BY place) - size AS before FROM (
                           SELECT *, octet_length(text) + coalesce(octet_length(meta), 0) + octet_length(receipts) AS size
                           FROM inbox_message WHERE agent = $1 AND place > $2 ORDER BY place LIMIT $3) AS message) AS page
                       WHERE before < $4 ORDER BY place";
            let (limit, bytes) = (signed(limit as u64), signed(PAGE_MAX_BYTES as u64));
            let rows = connection.query(sql, &[&signed(agent), &signed(after), &limit, &bytes]).await?;
            Ok(rows.iter().map(stored).collect())
        })
    }

    fn newest_message(&self, agent: InstanceNo) -> Stored<'_, InboxSeq> {
        self.worker.read(self.tenants.of(agent), async move |connection| {
            let sql = "SELECT coalesce(max(place), 0) FROM inbox_message WHERE agent = $1";
            Ok(unsigned(connection.query_one(sql, &[&signed(agent)]).await?.get(0)))
        })
    }

    fn message_of(&self, event: EventId) -> Stored<'_, Option<StoredMessage>> {
        self.worker.read(SERVER, async move |connection| {
            let sql = "SELECT place, event, at_ms, agent, delivery_id, kind, text, meta, session_id, receipts
                       FROM inbox_message WHERE event = $1";
            Ok(connection.query_opt(sql, &[&signed(event)]).await?.as_ref().map(stored))
        })
    }

    fn note_receipts(&self, event: EventId, seen: Option<String>, it: InboxMessage) -> Stored<'_, bool> {
        self.worker.write(async move |connection| {
            let sql = "UPDATE inbox_message SET kind = $3, session_id = $4, receipts = $5
                       WHERE agent = $1 AND event = $2 AND ($6::text IS NULL OR receipts = $6)";
            let (session_id, seen) = (it.session_id.as_deref().map(kept), seen.as_deref().map(kept));
            let (kind, receipts) = (kept(&it.kind), kept(&it.receipts));
            let which = (signed(it.agent), signed(event));
            let values: [Param<'_>; 6] = [&which.0, &which.1, &kind, &session_id, &receipts, &seen];
            Ok(connection.execute(sql, &values).await? > 0)
        })
    }

    fn recent_messages<'a>(&'a self, tenant: &'a TenantId, limit: usize) -> Stored<'a, Vec<StoredMessage>> {
        let tenant = tenant.to_owned();
        self.worker.read(of_tenant(&tenant), async move |connection| {
            // Written so that only the index of tenants gives the order: with `=`, all messages might be walked through.
            let sql =
                "SELECT place, event, at_ms, agent, delivery_id, kind, left(text, $3), NULL::text, session_id, receipts
                       FROM inbox_message WHERE tenant BETWEEN $1 AND $1 ORDER BY tenant DESC, event DESC LIMIT $2";
            // A letter that was replaced by two takes twice the room.
            let letters = i32::try_from(2 * SHOWN_CHARS).unwrap_or(i32::MAX);
            let rows = connection.query(sql, &[&kept(&tenant), &signed(limit as u64), &letters]).await?;
            let mut recent: Vec<_> = rows.iter().map(stored).collect();
            for it in &mut recent {
                let text = &mut it.message.text;
                if let Some((end, _)) = text.char_indices().nth(SHOWN_CHARS) {
                    text.truncate(end);
                }
            }
            Ok(recent)
        })
    }

    fn inboxes(&self) -> Stored<'_, Vec<InstanceNo>> {
        self.worker.read(SERVER, async |connection| {
            let sql =
                "SELECT agent FROM inbox_head h WHERE EXISTS (SELECT 1 FROM inbox_message m WHERE m.agent = h.agent)
                       UNION SELECT agent FROM planned_wake ORDER BY agent";
            let rows = connection.query(sql, &[]).await?;
            Ok(rows.iter().map(|row| unsigned(row.get(0))).collect())
        })
    }

    fn drop_inbox(&self, agent: InstanceNo) -> Stored<'_, Purged> {
        self.worker.write(async move |connection| {
            let agent = signed(agent);
            let sql = "SELECT key FROM planned_wake WHERE agent = $1 ORDER BY key LIMIT 200";
            let wakes: Vec<String> = connection.query(sql, &[&agent]).await?.iter().map(|row| row.get(0)).collect();
            if !wakes.is_empty() {
                let gone = connection.execute("DELETE FROM planned_wake WHERE key = ANY($1)", &[&wakes]).await?;
                return Ok(Purged { gone, more: true });
            }
            // The head stays: places never begin again. Its lock keeps away messages that are being written.
            connection.execute("SELECT 1 FROM inbox_head WHERE agent = $1 FOR UPDATE", &[&agent]).await?;
            let sql = "SELECT place FROM inbox_message WHERE agent = $1 ORDER BY place LIMIT 200";
            let places: Vec<i64> = connection.query(sql, &[&agent]).await?.iter().map(|row| row.get(0)).collect();
            let sql = "DELETE FROM inbox_message WHERE agent = $1 AND place = ANY($2)";
            let gone = connection.execute(sql, &[&agent, &places]).await?; // retention may have taken some of them
            Ok(Purged { gone, more: places.len() == STEP_ROWS })
        })
    }

    fn plan_wake(&self, wake: PlannedWake) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            let sql = "INSERT INTO planned_wake (key, agent, json) VALUES ($1, $2, $3)
                       ON CONFLICT (key) DO UPDATE SET agent = excluded.agent, json = excluded.json";
            let (key, json) = (kept(&wake.key), kept(&wake.json));
            connection.execute(sql, &[&key, &signed(wake.agent), &json]).await.map(drop)
        })
    }

    fn planned_wake<'a>(&'a self, key: &'a str) -> Stored<'a, Option<PlannedWake>> {
        let key = key.to_owned();
        self.worker.read(SERVER, async move |connection| {
            let sql = "SELECT key, agent, json FROM planned_wake WHERE key = $1";
            let found = connection.query_opt(sql, &[&kept(&key)]).await?;
            let wake =
                |row: Row| PlannedWake { key: given(row.get(0)), agent: unsigned(row.get(1)), json: given(row.get(2)) };
            Ok(found.map(wake))
        })
    }

    fn drop_planned_wake<'a>(&'a self, key: &'a str) -> Stored<'a, ()> {
        let key = key.to_owned();
        self.worker.write(async move |connection| {
            connection.execute("DELETE FROM planned_wake WHERE key = $1", &[&kept(&key)]).await.map(drop)
        })
    }
}

fn stored(row: &Row) -> StoredMessage {
    let text = |column| given(row.get(column));
    let maybe = |column| row.get::<_, Option<String>>(column).map(given);
    StoredMessage {
        place: unsigned(row.get(0)),
        event: unsigned(row.get(1)),
        at_ms: unsigned(row.get(2)),
        message: InboxMessage {
            agent: unsigned(row.get(3)),
            delivery_id: text(4),
            kind: text(5),
            text: text(6),
            meta: maybe(7),
            session_id: maybe(8),
            receipts: text(9),
        },
    }
}
