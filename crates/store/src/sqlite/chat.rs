//! Messages of the built-in chat, in order, each with a revision.

use frontdesk_core::port::store::{ChatAmend, ChatLog, ChatRecord, ChatRow, PAGE_MAX_BYTES, StoreError, Stored};
use frontdesk_wire::{ChatId, MessageId, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::threads::Books;
use super::{SqliteStore, fault, signed, unsigned};
use crate::read_queue::of_tenant;

/// Appends once per message id; a repetition returns the number of the first one and `false`.
pub(super) fn append(
    connection: &Connection,
    [tenant, chat_id, message_id]: [&str; 3],
    json: &str,
    at_ms: u64,
) -> Result<(u64, bool), StoreError> {
    if let Some(seq) = seq_of(connection, [tenant, chat_id, message_id])? {
        return Ok((seq, false));
    }
    let sql = "INSERT INTO chat (tenant, chat_id, json, last_seq) VALUES (?1, ?2, '{}', 1)
               ON CONFLICT (tenant, chat_id) DO UPDATE SET last_seq = last_seq + 1 RETURNING last_seq";
    let mut bump = connection.prepare_cached(sql).map_err(fault)?;
    let seq: i64 = bump.query_row((tenant, chat_id), |row| row.get(0)).map_err(fault)?;
    let sql = "INSERT INTO chat_line (tenant, chat_id, seq, message_id, rev, json, at_ms)
               VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6)";
    let mut insert = connection.prepare_cached(sql).map_err(fault)?;
    insert.execute((tenant, chat_id, seq, message_id, json, signed(at_ms))).map_err(fault)?;
    Ok((unsigned(seq), true))
}

pub(super) fn seq_of(
    connection: &Connection,
    [tenant, chat_id, message_id]: [&str; 3],
) -> Result<Option<u64>, StoreError> {
    let sql = "SELECT seq FROM chat_line WHERE tenant = ?1 AND chat_id = ?2 AND message_id = ?3";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let found = query.query_row((tenant, chat_id, message_id), |row| row.get(0)).optional().map_err(fault)?;
    Ok(found.map(unsigned))
}

/// Whether the message has the revision that the change expects.
pub(super) fn is_at(
    connection: &Connection,
    tenant: &TenantId,
    chat_id: &ChatId,
    it: &ChatAmend,
) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM chat_line WHERE tenant = ?1 AND chat_id = ?2 AND message_id = ?3 AND rev = ?4";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    query.exists((tenant.as_str(), chat_id.as_str(), it.message_id.as_str(), signed(it.rev))).map_err(fault)
}

/// False: the message has another revision, or does not exist.
pub(super) fn amend(
    connection: &Connection,
    tenant: &TenantId,
    chat_id: &ChatId,
    it: &ChatAmend,
) -> Result<bool, StoreError> {
    let sql = "UPDATE chat_line SET json = ?5, rev = rev + 1
               WHERE tenant = ?1 AND chat_id = ?2 AND message_id = ?3 AND rev = ?4";
    let mut update = connection.prepare_cached(sql).map_err(fault)?;
    let changed = update
        .execute((tenant.as_str(), chat_id.as_str(), it.message_id.as_str(), signed(it.rev), &it.json))
        .map_err(fault)?;
    Ok(changed == 1)
}

impl ChatLog for SqliteStore {
    fn chat_append<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
        json: String,
        at_ms: u64,
    ) -> Stored<'a, (u64, bool)> {
        let name = [tenant.as_str(), chat_id.as_str(), message_id.as_str()].map(str::to_owned);
        let work =
            move |books: &mut Books| append(&books.connection, name.each_ref().map(String::as_str), &json, at_ms);
        self.writer.write(work, |_| {})
    }

    fn chat_amend<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
        rev: u64,
        json: String,
    ) -> Stored<'a, ()> {
        let (tenant, chat_id) = (tenant.clone(), chat_id.clone());
        let change = ChatAmend { message_id: message_id.clone(), rev, json };
        let work = move |books: &mut Books| match amend(&books.connection, &tenant, &chat_id, &change)? {
            true => Ok(()),
            false => Err(StoreError::Conflict),
        };
        self.writer.write(work, |()| {})
    }

    fn chat_line<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
    ) -> Stored<'a, Option<ChatRow>> {
        let name = [tenant.as_str(), chat_id.as_str(), message_id.as_str()].map(str::to_owned);
        self.readers.read(of_tenant(tenant), move |connection| {
            let sql = "SELECT seq, message_id, rev, json FROM chat_line WHERE tenant = ?1 AND chat_id = ?2 AND message_id = ?3";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            query.query_row(name, line).optional().map_err(fault)
        })
    }

    fn chat_since<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        after: u64,
        limit: usize,
    ) -> Stored<'a, Vec<ChatRow>> {
        let [tenant, chat_id] = [tenant.as_str(), chat_id.as_str()].map(str::to_owned);
        self.readers.read(of_tenant(&tenant), move |connection| {
            let sql = "SELECT seq, message_id, rev, json FROM chat_line
                       WHERE tenant = ?1 AND chat_id = ?2 AND seq > ?3 ORDER BY seq LIMIT ?4";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let all = query.query_map((tenant, chat_id, signed(after), signed(limit as u64)), line).map_err(fault)?;
            page(all, |row| row.json.len())
        })
    }

    fn chat_latest<'a>(&'a self, tenant: &'a TenantId, chat_id: &'a ChatId, limit: usize) -> Stored<'a, Vec<ChatRow>> {
        let [tenant, chat_id] = [tenant.as_str(), chat_id.as_str()].map(str::to_owned);
        self.readers.read(of_tenant(&tenant), move |connection| {
            let sql = "SELECT seq, message_id, rev, json FROM chat_line
                       WHERE tenant = ?1 AND chat_id = ?2 ORDER BY seq DESC LIMIT ?3";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let found = query.query_map((tenant, chat_id, signed(limit as u64)), line).map_err(fault)?;
            let mut lines = page(found, |row| row.json.len())?;
            lines.reverse();
            Ok(lines)
        })
    }

    fn chat_put<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        before: &'a str,
        json: String,
    ) -> Stored<'a, ()> {
        let [tenant, chat_id, before] = [tenant.as_str(), chat_id.as_str(), before].map(str::to_owned);
        let work = move |books: &mut Books| {
            let place = (&tenant, &chat_id);
            let mut query = books
                .connection
                .prepare_cached("SELECT json FROM chat WHERE tenant = ?1 AND chat_id = ?2")
                .map_err(fault)?;
            let kept: Option<String> = query.query_row(place, |row| row.get(0)).optional().map_err(fault)?;
            if kept.unwrap_or_default() != before {
                return Err(StoreError::Conflict);
            }
            let sql = "INSERT INTO chat (tenant, chat_id, json, last_seq) VALUES (?1, ?2, ?3, 0)
                       ON CONFLICT (tenant, chat_id) DO UPDATE SET json = excluded.json";
            books.connection.execute(sql, (&tenant, &chat_id, json)).map(drop).map_err(fault)
        };
        self.writer.write(work, |()| {})
    }

    fn chat_get<'a>(&'a self, tenant: &'a TenantId, chat_id: &'a ChatId) -> Stored<'a, Option<ChatRecord>> {
        let name = [tenant.as_str(), chat_id.as_str()].map(str::to_owned);
        self.readers.read(of_tenant(tenant), move |connection| {
            let sql = "SELECT chat_id, json, last_seq FROM chat WHERE tenant = ?1 AND chat_id = ?2";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            query.query_row(name, record).optional().map_err(fault)
        })
    }

    fn chats<'a>(&'a self, tenant: &'a TenantId, after: &'a str, limit: usize) -> Stored<'a, Vec<ChatRecord>> {
        let (tenant, after) = (tenant.to_owned(), after.to_owned());
        self.readers.read(of_tenant(&tenant), move |connection| {
            let sql = "SELECT chat_id, json, last_seq FROM chat WHERE tenant = ?1 AND chat_id > ?2
                       ORDER BY chat_id LIMIT ?3";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let all = query.query_map((tenant.as_str(), after, signed(limit as u64)), record).map_err(fault)?;
            page(all, |record| record.json.len())
        })
    }
}

/// As many rows as fit into a page.
fn page<T>(all: impl Iterator<Item = rusqlite::Result<T>>, size: impl Fn(&T) -> usize) -> Result<Vec<T>, StoreError> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    for one in all {
        let one = one.map_err(fault)?;
        bytes += size(&one);
        page.push(one);
        if bytes >= PAGE_MAX_BYTES {
            break;
        }
    }
    Ok(page)
}

fn line(row: &Row<'_>) -> rusqlite::Result<ChatRow> {
    Ok(ChatRow {
        seq: unsigned(row.get(0)?),
        message_id: row.get::<_, String>(1)?.into(),
        rev: unsigned(row.get(2)?),
        json: row.get(3)?,
    })
}

fn record(row: &Row<'_>) -> rusqlite::Result<ChatRecord> {
    Ok(ChatRecord { chat_id: row.get::<_, String>(0)?.into(), json: row.get(1)?, last_seq: unsigned(row.get(2)?) })
}
