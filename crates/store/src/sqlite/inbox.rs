//! Inboxes of agents, and planned wakes.

use frontdesk_core::port::inbox::{Inbox, InboxMessage, PAGE_MAX_BYTES, PlannedWake, StoredMessage};
use frontdesk_core::port::store::{Purged, StoreError, Stored};
use frontdesk_wire::{EventId, InboxSeq, InstanceNo, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::threads::Books;
use super::{STEP_ROWS, SqliteStore, fault, signed, unsigned};
use crate::read_queue::{SERVER, of_tenant};

/// The message of an event: its place is the event's number, or it came with a place of its own.
const OF_EVENT: &str = "((event = ?1 AND origin IS NULL) OR origin = ?1)";
/// Characters read of each text in lists.
const SHOWN_CHARS: i64 = 1_000;
/// Bytes of an inbox that one step erases, or one message. The pages of a long text are walked through.
const STEP_BYTES: i64 = 8 << 20;

/// Appends a message to its inbox, and returns its place. With one writer, events become readable in the order of their
/// numbers: the number of the event is the place. Only messages that were imported may have another one.
pub(super) fn append(
    connection: &Connection,
    tenant: &TenantId,
    event: EventId,
    at_ms: u64,
    it: &InboxMessage,
) -> Result<InboxSeq, StoreError> {
    let sql =
        "INSERT INTO inbox_message (event, agent, tenant, at_ms, delivery_id, kind, text, meta, session_id, receipts)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let mut insert = connection.prepare_cached(sql).map_err(fault)?;
    insert
        .execute(rusqlite::params![
            signed(event),
            signed(it.agent),
            tenant.as_str(),
            signed(at_ms),
            it.delivery_id,
            it.kind,
            it.text,
            it.meta,
            it.session_id,
            it.receipts,
        ])
        .map_err(fault)?;
    Ok(InboxSeq(event.0))
}

/// The place of the message that an event became; 0 if it became none.
pub(super) fn place_of(connection: &Connection, event: EventId) -> Result<InboxSeq, StoreError> {
    let sql = format!("SELECT event FROM inbox_message WHERE {OF_EVENT}");
    let mut query = connection.prepare_cached(&sql).map_err(fault)?;
    let place = query.query_row([signed(event)], |row| row.get(0).map(unsigned)).optional().map_err(fault)?;
    Ok(place.unwrap_or(InboxSeq::NONE))
}

fn last(connection: &Connection, agent: InstanceNo) -> Result<InboxSeq, StoreError> {
    let sql = "SELECT COALESCE(MAX(event), 0) FROM inbox_message WHERE agent = ?1";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    query.query_row([signed(agent)], |row| row.get(0)).map(unsigned).map_err(fault)
}

impl Inbox for SqliteStore {
    fn messages(&self, agent: InstanceNo, after: InboxSeq, limit: usize) -> Stored<'_, Vec<StoredMessage>> {
        self.readers.read(self.tenants.of(agent), move |connection| {
            let sql = select("agent = ?1 AND event > ?2 ORDER BY event LIMIT ?3");
            let mut query = connection.prepare_cached(&sql).map_err(fault)?;
            let which = (signed(agent), signed(after), signed(limit as u64));
            let (mut page, mut bytes) = (Vec::new(), 0);
            for it in query.query_map(which, stored).map_err(fault)? {
                let it = it.map_err(fault)?;
                bytes += it.message.size();
                page.push(it);
                if bytes >= PAGE_MAX_BYTES {
                    break;
                }
            }
            Ok(page)
        })
    }

    fn newest_message(&self, agent: InstanceNo) -> Stored<'_, InboxSeq> {
        self.readers.read(self.tenants.of(agent), move |connection| last(connection, agent))
    }

    fn message_of(&self, event: EventId) -> Stored<'_, Option<StoredMessage>> {
        self.readers.read(SERVER, move |connection| {
            let mut query = connection.prepare_cached(&select(OF_EVENT)).map_err(fault)?;
            query.query_row([signed(event)], stored).optional().map_err(fault)
        })
    }

    fn note_receipts(&self, event: EventId, seen: Option<String>, it: InboxMessage) -> Stored<'_, bool> {
        let work = move |books: &mut Books| {
            let sql = format!(
                "UPDATE inbox_message SET kind = ?3, session_id = ?4, receipts = ?5
                 WHERE agent = ?2 AND {OF_EVENT} AND (?6 IS NULL OR receipts = ?6)"
            );
            let mut put = books.connection.prepare_cached(&sql).map_err(fault)?;
            let values = (signed(event), signed(it.agent), it.kind, it.session_id, it.receipts, seen);
            put.execute(values).map(|rows| rows > 0).map_err(fault)
        };
        self.writer.write(work, |_| {})
    }

    fn recent_messages<'a>(&'a self, tenant: &'a TenantId, limit: usize) -> Stored<'a, Vec<StoredMessage>> {
        let tenant = tenant.to_owned();
        self.readers.read(of_tenant(&tenant), move |connection| {
            let sql = "SELECT event, at_ms, agent, delivery_id, kind, substr(text, 1, ?3), NULL, session_id, receipts,
                              COALESCE(origin, event)
                       FROM inbox_message WHERE tenant = ?1 ORDER BY event DESC LIMIT ?2";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            query
                .query_map((tenant.as_str(), signed(limit as u64), SHOWN_CHARS), stored)
                .and_then(Iterator::collect)
                .map_err(fault)
        })
    }

    fn inboxes(&self) -> Stored<'_, Vec<InstanceNo>> {
        self.readers.read(SERVER, |connection| {
            // Skips from inbox to inbox with the index instead of scanning all messages.
            let sql = "WITH RECURSIVE inbox(agent) AS (
                         SELECT MIN(agent) FROM inbox_message
                         UNION ALL
                         SELECT (SELECT MIN(agent) FROM inbox_message WHERE agent > inbox.agent) FROM inbox
                         WHERE inbox.agent IS NOT NULL)
                       SELECT agent FROM inbox WHERE agent IS NOT NULL UNION SELECT agent FROM planned_wake";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            query.query_map([], |row| row.get(0).map(unsigned)).and_then(Iterator::collect).map_err(fault)
        })
    }

    fn drop_inbox(&self, agent: InstanceNo) -> Stored<'_, Purged> {
        let work = move |books: &mut Books| {
            let wakes = "SELECT key, octet_length(json) FROM planned_wake WHERE agent = ?1 LIMIT ?2";
            let step = drop_some(&books.connection, agent, wakes, "DELETE FROM planned_wake WHERE key = ?1")?;
            if step.gone > 0 {
                return Ok(Purged { more: true, ..step });
            }
            let messages = "SELECT event, octet_length(text) + COALESCE(octet_length(meta), 0) + octet_length(receipts)
                            FROM inbox_message WHERE agent = ?1 ORDER BY event LIMIT ?2";
            drop_some(&books.connection, agent, messages, "DELETE FROM inbox_message WHERE event = ?1")
        };
        self.writer.write(work, |_| {})
    }

    fn plan_wake(&self, wake: PlannedWake) -> Stored<'_, ()> {
        let work = move |books: &mut Books| {
            let sql = "INSERT OR REPLACE INTO planned_wake (key, agent, json) VALUES (?1, ?2, ?3)";
            let mut put = books.connection.prepare_cached(sql).map_err(fault)?;
            put.execute((wake.key, signed(wake.agent), wake.json)).map(drop).map_err(fault)
        };
        self.writer.write(work, |()| {})
    }

    fn planned_wake<'a>(&'a self, key: &'a str) -> Stored<'a, Option<PlannedWake>> {
        let key = key.to_owned();
        self.readers.read(SERVER, move |connection| {
            let sql = "SELECT key, agent, json FROM planned_wake WHERE key = ?1";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let wake =
                |row: &Row<'_>| Ok(PlannedWake { key: row.get(0)?, agent: unsigned(row.get(1)?), json: row.get(2)? });
            query.query_row([key], wake).optional().map_err(fault)
        })
    }

    fn drop_planned_wake<'a>(&'a self, key: &'a str) -> Stored<'a, ()> {
        let key = key.to_owned();
        let work = move |books: &mut Books| {
            books.connection.execute("DELETE FROM planned_wake WHERE key = ?1", [key]).map(drop).map_err(fault)
        };
        self.writer.write(work, |()| {})
    }
}

/// Deletes the first rows that `list` finds, which tells the key and the size of each.
fn drop_some(connection: &Connection, agent: InstanceNo, list: &str, delete: &str) -> Result<Purged, StoreError> {
    let mut list = connection.prepare_cached(list).map_err(fault)?;
    let pair = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let found = list.query_map((signed(agent), signed(STEP_ROWS as u64)), pair).map_err(fault)?;
    let found: Vec<(rusqlite::types::Value, i64)> = found.collect::<Result<_, _>>().map_err(fault)?;
    let mut delete = connection.prepare_cached(delete).map_err(fault)?;
    let (mut gone, mut room) = (0, STEP_BYTES);
    for (key, bytes) in &found {
        if *bytes > room && gone > 0 {
            break;
        }
        delete.execute([key]).map_err(fault)?;
        room -= bytes;
        gone += 1;
    }
    Ok(Purged { gone: gone as u64, more: gone < found.len() || found.len() == STEP_ROWS })
}

fn select(which: &str) -> String {
    format!(
        "SELECT event, at_ms, agent, delivery_id, kind, text, meta, session_id, receipts, COALESCE(origin, event)
         FROM inbox_message WHERE {which}"
    )
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredMessage> {
    Ok(StoredMessage {
        place: unsigned(row.get(0)?),
        event: unsigned(row.get(9)?),
        at_ms: unsigned(row.get(1)?),
        message: InboxMessage {
            agent: unsigned(row.get(2)?),
            delivery_id: row.get(3)?,
            kind: row.get(4)?,
            text: row.get(5)?,
            meta: row.get(6)?,
            session_id: row.get(7)?,
            receipts: row.get(8)?,
        },
    })
}
