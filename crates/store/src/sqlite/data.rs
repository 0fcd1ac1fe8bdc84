//! Data: rows of a tenant and a full-text index. The memory store uses the same statements.

use frontdesk_core::port::data::{ANSWER_MAX_BYTES, Data, DataQuery};
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::PortableData;
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::threads::Books;
use super::{SqliteStore, fault, signed};
use crate::ranking::{CANDIDATES, COUNTED_BYTES, Match, mark, marks, rank};
use crate::read_queue::of_tenant;

/// Bits of a row number that count the rows of one tenant; the bits above identify the tenant.
pub(super) const ROW_BITS: u32 = 40;
/// Indexing a megabyte occupies the single writer for tens of milliseconds. At most this much is in its queue; further
/// rows wait outside, so that other writes get their turn.
pub(super) const ROOM_BYTES: usize = 256 << 10;
/// Bytes that a row counts at least.
const ROW_MIN_BYTES: usize = 1_024;
/// Expired rows deleted per run.
const EXPIRED_MAX: i64 = 200;

impl Data for SqliteStore {
    fn data_put<'a>(&'a self, tenant: &'a TenantId, row: PortableData) -> Stored<'a, ()> {
        let tenant = tenant.to_owned();
        Box::pin(async move {
            let bytes = row.detail.as_ref().map_or(0, String::len).clamp(ROW_MIN_BYTES, ROOM_BYTES);
            let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
            // The semaphore is never closed. The permit is held until the row is durable.
            let _room = self.data_room.acquire_many(permits).await;
            self.writer.write(move |books: &mut Books| put(&books.connection, &tenant, row), |()| {}).await
        })
    }

    fn data_get<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_s: u64) -> Stored<'a, Option<PortableData>> {
        let (tenant, id) = (tenant.to_owned(), id.to_owned());
        self.readers.read(of_tenant(&tenant), move |connection| get(connection, &tenant, &id, now_s))
    }

    fn data_query<'a>(&'a self, tenant: &'a TenantId, query: DataQuery) -> Stored<'a, Vec<PortableData>> {
        let tenant = tenant.to_owned();
        self.readers.read(of_tenant(&tenant), move |connection| {
            // One transaction, so that rows found by the index can still be read.
            let moment = connection.unchecked_transaction().map_err(fault)?;
            find(&moment, &tenant, &query)
        })
    }
}

/// An existing id is a conflict, detected before anything is written.
pub(crate) fn put(connection: &Connection, tenant: &TenantId, mut row: PortableData) -> Result<(), StoreError> {
    let known = number_of(connection, tenant)?;
    let taken = "SELECT 1 FROM data_row WHERE tenant = ?1 AND id = ?2";
    let mut taken = connection.prepare_cached(taken).map_err(fault)?;
    if taken.exists((known, &row.id)).map_err(fault)? {
        return Err(StoreError::Conflict);
    }
    let sql = "INSERT INTO data_tenant (tenant, last) VALUES (?1, 1)
               ON CONFLICT (tenant) DO UPDATE SET last = last + 1 RETURNING no, last";
    let mut count = connection.prepare_cached(sql).map_err(fault)?;
    let (owner, last): (i64, i64) =
        count.query_row([tenant.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).map_err(fault)?;
    let no = (owner << ROW_BITS) | last;
    let (has_detail, text) = (row.detail.is_some(), row.detail.take().unwrap_or_else(|| row.summary.clone()));
    row.score = None;
    let json = serde_json::to_string(&row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    write(connection, owner, no, &Columns { row: &row, json: &json, has_detail, text: &text })
}

/// A row as it is stored: its JSON is without the text that is searched.
pub(super) struct Columns<'a> {
    pub(super) row: &'a PortableData,
    pub(super) json: &'a str,
    pub(super) has_detail: bool,
    pub(super) text: &'a str,
}

/// Puts back a row that was exported, under its number.
pub(super) fn restore(connection: &Connection, tenant: &TenantId, no: i64, it: &Columns<'_>) -> Result<(), StoreError> {
    let sql = "INSERT INTO data_tenant (tenant, last) VALUES (?1, ?2)
               ON CONFLICT (tenant) DO UPDATE SET last = MAX(last, excluded.last) RETURNING no";
    let mut count = connection.prepare_cached(sql).map_err(fault)?;
    let owner: i64 = count.query_row((tenant.as_str(), no), |row| row.get(0)).map_err(fault)?;
    write(connection, owner, (owner << ROW_BITS) | no, it)
}

fn write(connection: &Connection, owner: i64, no: i64, it: &Columns<'_>) -> Result<(), StoreError> {
    let Columns { row, json, has_detail, text } = it;
    let marks = marks(row).join(" ");
    let sql = "INSERT INTO data_row (no, tenant, id, expires_at, has_detail, json, marks, text)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let mut insert = connection.prepare_cached(sql).map_err(fault)?;
    let columns = (no, owner, &row.id, row.expires_at.map(signed), has_detail, json, &marks, text);
    insert.execute(columns).map_err(fault)?;
    let sql = "INSERT INTO data_word (rowid, text, marks) VALUES (?1, ?2, ?3)";
    let mut index = connection.prepare_cached(sql).map_err(fault)?;
    index.execute((no, text, &marks)).map(drop).map_err(fault)
}

pub(crate) fn get(
    connection: &Connection,
    tenant: &TenantId,
    id: &str,
    now_s: u64,
) -> Result<Option<PortableData>, StoreError> {
    let sql = "SELECT has_detail, json, text FROM data_row
               WHERE tenant = (SELECT no FROM data_tenant WHERE tenant = ?1) AND id = ?2
               AND (expires_at IS NULL OR expires_at > ?3)";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let found = query.query_row((tenant.as_str(), id, signed(now_s)), columns).optional().map_err(fault)?;
    found.map(portable).transpose()
}

pub(crate) fn find(
    connection: &Connection,
    tenant: &TenantId,
    query: &DataQuery,
) -> Result<Vec<PortableData>, StoreError> {
    let Some(owner) = number_of(connection, tenant)? else { return Ok(Vec::new()) };
    let range = (owner << ROW_BITS, ((owner + 1) << ROW_BITS) - 1);
    let now_s = signed(query.now_s);
    let ranked = !query.phrases.is_empty();
    let candidates = if ranked { CANDIDATES.max(query.limit) } else { query.limit };
    let limit = signed(candidates as u64);
    let matches = |row: &Row<'_>| Ok(Match { no: row.get(0)?, bytes: row.get(1)?, hits: row.get(2)? });
    let mut found: Vec<Match> = if ranked || !query.filters.is_empty() {
        // Newest first is the order of the index, so the scan ends as soon as there are enough rows. Each hit makes the
        // highlighted text one byte longer; a NUL byte ends it early. Counting copies the text for each hit, so long
        // texts are not counted.
        let sql = "SELECT w.rowid, octet_length(d.text),
                   CASE WHEN ?6 AND octet_length(d.text) <= ?5
                        THEN octet_length(highlight(data_word, 0, '*', '')) - octet_length(d.text) END
                   FROM data_word w CROSS JOIN data_row d ON d.no = w.rowid
                   WHERE data_word MATCH ?1 AND w.rowid BETWEEN ?2 AND ?3 AND (d.expires_at IS NULL OR d.expires_at > ?4)
                   ORDER BY w.rowid DESC LIMIT ?7";
        let mut statement = connection.prepare_cached(sql).map_err(fault)?;
        let asked = (expression(query), range.0, range.1, now_s, COUNTED_BYTES, ranked, limit);
        statement.query_map(asked, matches).and_then(Iterator::collect).map_err(fault)?
    } else {
        let sql = "SELECT no, 0, NULL FROM data_row
                   WHERE no BETWEEN ?1 AND ?2 AND (expires_at IS NULL OR expires_at > ?3) ORDER BY no DESC LIMIT ?4";
        let mut statement = connection.prepare_cached(sql).map_err(fault)?;
        statement.query_map((range.0, range.1, now_s, limit), matches).and_then(Iterator::collect).map_err(fault)?
    };
    if ranked {
        rank(&mut found, query.phrases.len(), query.limit);
    }
    let sql = "SELECT has_detail, json, CASE WHEN octet_length(text) <= ?2 THEN text END FROM data_row WHERE no = ?1";
    let mut read = connection.prepare_cached(sql).map_err(fault)?;
    let mut rows = Vec::with_capacity(found.len());
    let mut room = ANSWER_MAX_BYTES;
    for one in found {
        let asked = (one.no, signed(room as u64));
        let mut row = portable(read.query_row(asked, columns).map_err(fault)?)?;
        room -= row.detail.as_ref().map_or(0, String::len).min(room);
        row.score = ranked.then(|| one.score(query.phrases.len()));
        rows.push(row);
    }
    Ok(rows)
}

/// Deletes a bounded number of expired rows from table and index; fewer if they are large.
pub(crate) fn expire(connection: &Connection, now_s: u64) -> Result<usize, StoreError> {
    let sql = "SELECT no, octet_length(text) FROM data_row WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2";
    let mut expired = connection.prepare_cached(sql).map_err(fault)?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let expired: Vec<(i64, i64)> =
        expired.query_map((signed(now_s), EXPIRED_MAX), row).and_then(Iterator::collect).map_err(fault)?;
    let sql = "DELETE FROM data_row WHERE no = ?1 RETURNING text, marks";
    let mut delete = connection.prepare_cached(sql).map_err(fault)?;
    // The index stores no text, so deleting needs the original one.
    let sql = "INSERT INTO data_word (data_word, rowid, text, marks) VALUES ('delete', ?1, ?2, ?3)";
    let mut unlist = connection.prepare_cached(sql).map_err(fault)?;
    let (mut gone, mut room) = (0, signed(ROOM_BYTES as u64));
    for (no, bytes) in expired {
        if bytes > room && gone > 0 {
            break;
        }
        let had: (String, String) = delete.query_row([no], |row| Ok((row.get(0)?, row.get(1)?))).map_err(fault)?;
        unlist.execute((no, had.0, had.1)).map_err(fault)?;
        room -= bytes;
        gone += 1;
    }
    Ok(gone)
}

fn number_of(connection: &Connection, tenant: &TenantId) -> Result<Option<i64>, StoreError> {
    let mut query = connection.prepare_cached("SELECT no FROM data_tenant WHERE tenant = ?1").map_err(fault)?;
    query.query_row([tenant.as_str()], |row| row.get(0)).optional().map_err(fault)
}

/// The query as an FTS5 expression. All phrases are quoted, so they contain no syntax. A NUL byte would end the
/// expression.
fn expression(query: &DataQuery) -> String {
    let mut parts = Vec::new();
    if !query.phrases.is_empty() {
        let quoted =
            query.phrases.iter().map(|phrase| format!("\"{}\"", phrase.replace('"', "\"\"").replace('\0', " ")));
        parts.push(format!("text : ({})", quoted.collect::<Vec<_>>().join(" ")));
    }
    for (key, values) in &query.filters {
        let any: Vec<String> = values.iter().map(|value| mark(key, value)).collect();
        // An empty list matches nothing: search for a word that no row has.
        let any = if any.is_empty() { "none".into() } else { any.join(" OR ") };
        parts.push(format!("marks : ({any})"));
    }
    parts.join(" AND ")
}

fn columns(row: &Row<'_>) -> rusqlite::Result<(bool, String, Option<String>)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

fn portable((has_detail, json, text): (bool, String, Option<String>)) -> Result<PortableData, StoreError> {
    let mut row: PortableData =
        serde_json::from_str(&json).map_err(|error| StoreError::Corrupt(format!("invalid data row: {error}")))?;
    row.detail = text.filter(|_| has_detail);
    Ok(row)
}
