//! Messages of the built-in chat, in order, each with a revision.

use frontdesk_core::port::store::{ChatAmend, ChatLog, ChatRecord, ChatRow, PAGE_MAX_BYTES, StoreError, Stored};
use frontdesk_wire::{ChatId, MessageId, TenantId};
use tokio_postgres::Row;

use super::connection::{Connection, Fault};
use super::text::{given, kept};
use super::{PostgresStore, signed, unsigned};
use crate::read_queue::of_tenant;

/// Appends once per message id; a repetition returns the number of the first one and `false`. Inside the transaction of
/// the caller.
pub(super) async fn append(
    connection: &Connection,
    name @ [tenant, chat_id, message_id]: [&str; 3],
    json: &str,
    at_ms: u64,
) -> Result<(u64, bool), Fault> {
    if let Some(seq) = seq_of(connection, name).await? {
        return Ok((seq, false));
    }
    let (tenant, chat_id, message_id) = (kept(tenant), kept(chat_id), kept(message_id));
    // The lock of the chat is held until the commit is visible: lines become readable in the order of their numbers.
    let sql = "INSERT INTO chat AS c (tenant, chat_id, json, last_seq) VALUES ($1, $2, '{}', 1)
               ON CONFLICT (tenant, chat_id) DO UPDATE SET last_seq = c.last_seq + 1 RETURNING last_seq";
    let seq: i64 = connection.query_one(sql, &[&tenant, &chat_id]).await?.get(0);
    let sql = "INSERT INTO chat_line (tenant, chat_id, seq, message_id, rev, json, at_ms)
               VALUES ($1, $2, $3, $4, 1, $5, $6) ON CONFLICT (tenant, chat_id, message_id) DO NOTHING";
    let at_ms = signed(at_ms);
    if connection.execute(sql, &[&tenant, &chat_id, &seq, &message_id, &kept(json), &at_ms]).await? == 1 {
        return Ok((unsigned(seq), true));
    }
    // Another caller wrote it while this one waited for the chat. The number was not used.
    let sql = "UPDATE chat SET last_seq = last_seq - 1 WHERE tenant = $1 AND chat_id = $2";
    connection.execute(sql, &[&tenant, &chat_id]).await?;
    let first = seq_of(connection, name).await?;
    let first =
        first.ok_or_else(|| Fault::Retry("a chat message was deleted while it was being written again".into()))?;
    Ok((first, false))
}

pub(super) async fn seq_of(
    connection: &Connection,
    [tenant, chat_id, message_id]: [&str; 3],
) -> Result<Option<u64>, Fault> {
    let sql = "SELECT seq FROM chat_line WHERE tenant = $1 AND chat_id = $2 AND message_id = $3";
    let found = connection.query_opt(sql, &[&kept(tenant), &kept(chat_id), &kept(message_id)]).await?;
    Ok(found.map(|row| unsigned(row.get(0))))
}

/// Whether the message has the revision that the change expects. If so, it keeps it until the transaction ends.
pub(super) async fn is_at(
    connection: &Connection,
    tenant: &TenantId,
    chat_id: &ChatId,
    it: &ChatAmend,
) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM chat_line WHERE tenant = $1 AND chat_id = $2 AND message_id = $3 AND rev = $4 FOR UPDATE";
    let which = (kept(tenant), kept(chat_id), kept(&it.message_id));
    let found = connection.query_opt(sql, &[&which.0, &which.1, &which.2, &signed(it.rev)]).await?;
    Ok(found.is_some())
}

/// False: the message has another revision, or does not exist.
pub(super) async fn amend(
    connection: &Connection,
    tenant: &TenantId,
    chat_id: &ChatId,
    it: &ChatAmend,
) -> Result<bool, Fault> {
    let sql = "UPDATE chat_line SET json = $5, rev = rev + 1
               WHERE tenant = $1 AND chat_id = $2 AND message_id = $3 AND rev = $4";
    let which = (kept(tenant), kept(chat_id), kept(&it.message_id));
    let (rev, json) = (signed(it.rev), kept(&it.json));
    let changed = connection.execute(sql, &[&which.0, &which.1, &which.2, &rev, &json]).await?;
    Ok(changed == 1)
}

impl ChatLog for PostgresStore {
    fn chat_append<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
        json: String,
        at_ms: u64,
    ) -> Stored<'a, (u64, bool)> {
        let name = [tenant.as_str(), chat_id.as_str(), message_id.as_str()].map(str::to_owned);
        self.worker
            .write(async move |connection| append(connection, name.each_ref().map(String::as_str), &json, at_ms).await)
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
        self.worker.write(async move |connection| match amend(connection, &tenant, &chat_id, &change).await? {
            true => Ok(()),
            false => Err(StoreError::Conflict.into()),
        })
    }

    fn chat_line<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
    ) -> Stored<'a, Option<ChatRow>> {
        let [tenant, chat_id, message_id] = [tenant.as_str(), chat_id.as_str(), message_id.as_str()].map(str::to_owned);
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT seq, message_id, rev, json FROM chat_line
                       WHERE tenant = $1 AND chat_id = $2 AND message_id = $3";
            let found = connection.query_opt(sql, &[&kept(&tenant), &kept(&chat_id), &kept(&message_id)]).await?;
            Ok(found.as_ref().map(line))
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
        self.worker.read(of_tenant(&tenant), async move |connection| {
            // Rows after the page is full are not sent; the same below.
            let sql = "SELECT seq, message_id, rev, json FROM (
                         SELECT *, sum(octet_length(json)) OVER (ORDER BY seq) - octet_length(json) AS before FROM (
                           SELECT seq, message_id, rev, json FROM chat_line
                           WHERE tenant = $1 AND chat_id = $2 AND seq > $3 ORDER BY seq LIMIT $4) AS line) AS page
                       WHERE before < $5 ORDER BY seq";
            let (limit, bytes) = (signed(limit as u64), signed(PAGE_MAX_BYTES as u64));
            let which = (kept(&tenant), kept(&chat_id), signed(after));
            let rows = connection.query(sql, &[&which.0, &which.1, &which.2, &limit, &bytes]).await?;
            Ok(rows.iter().map(line).collect())
        })
    }

    fn chat_latest<'a>(&'a self, tenant: &'a TenantId, chat_id: &'a ChatId, limit: usize) -> Stored<'a, Vec<ChatRow>> {
        let [tenant, chat_id] = [tenant.as_str(), chat_id.as_str()].map(str::to_owned);
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT seq, message_id, rev, json FROM (
                         SELECT *, sum(octet_length(json)) OVER (ORDER BY seq DESC) - octet_length(json) AS before FROM (
                           SELECT seq, message_id, rev, json FROM chat_line
                           WHERE tenant = $1 AND chat_id = $2 ORDER BY seq DESC LIMIT $3) AS line) AS page
                       WHERE before < $4 ORDER BY seq";
            let (limit, bytes) = (signed(limit as u64), signed(PAGE_MAX_BYTES as u64));
            let rows = connection.query(sql, &[&kept(&tenant), &kept(&chat_id), &limit, &bytes]).await?;
            Ok(rows.iter().map(line).collect())
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
        self.worker.write(async move |connection| {
            let sql = match before.is_empty() {
                true => {
                    "INSERT INTO chat AS c (tenant, chat_id, json, last_seq) VALUES ($1, $2, $4, 0)
                     ON CONFLICT (tenant, chat_id) DO UPDATE SET json = excluded.json WHERE c.json = $3"
                }
                false => "UPDATE chat SET json = $4 WHERE tenant = $1 AND chat_id = $2 AND json = $3",
            };
            let texts = [&tenant, &chat_id, &before, &json].map(|text| kept(text));
            match connection.execute(sql, &[&texts[0], &texts[1], &texts[2], &texts[3]]).await? {
                0 => Err(StoreError::Conflict.into()),
                _ => Ok(()),
            }
        })
    }

    fn chat_get<'a>(&'a self, tenant: &'a TenantId, chat_id: &'a ChatId) -> Stored<'a, Option<ChatRecord>> {
        let [tenant, chat_id] = [tenant.as_str(), chat_id.as_str()].map(str::to_owned);
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT chat_id, json, last_seq FROM chat WHERE tenant = $1 AND chat_id = $2";
            let found = connection.query_opt(sql, &[&kept(&tenant), &kept(&chat_id)]).await?;
            Ok(found.as_ref().map(record))
        })
    }

    fn chats<'a>(&'a self, tenant: &'a TenantId, after: &'a str, limit: usize) -> Stored<'a, Vec<ChatRecord>> {
        let [tenant, after] = [tenant.as_str(), after].map(str::to_owned);
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT chat_id, json, last_seq FROM (
                         SELECT *, sum(octet_length(json)) OVER (ORDER BY chat_id) - octet_length(json) AS before FROM (
                           SELECT chat_id, json, last_seq FROM chat
                           WHERE tenant = $1 AND chat_id > $2 ORDER BY chat_id LIMIT $3) AS chat) AS page
                       WHERE before < $4 ORDER BY chat_id";
            let (limit, bytes) = (signed(limit as u64), signed(PAGE_MAX_BYTES as u64));
            let rows = connection.query(sql, &[&kept(&tenant), &kept(&after), &limit, &bytes]).await?;
            Ok(rows.iter().map(record).collect())
        })
    }
}

fn line(row: &Row) -> ChatRow {
    ChatRow {
        seq: unsigned(row.get(0)),
        message_id: given(row.get(1)).into(),
        rev: unsigned(row.get(2)),
        json: given(row.get(3)),
    }
}

fn record(row: &Row) -> ChatRecord {
    ChatRecord { chat_id: given(row.get(0)).into(), json: given(row.get(1)), last_seq: unsigned(row.get(2)) }
}
