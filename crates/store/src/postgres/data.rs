//! Data: rows of a tenant, found by hashes of their words. A hash has the tenant in it, so that tenants share no entry of
//! the index.
//!
//! Words are extracted and texts searched in the task of the caller: the thread of the connections must not compute.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use frontdesk_core::port::data::{ANSWER_MAX_BYTES, Data, DataQuery};
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_core::short_hash;
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::PortableData;

use super::connection::{Connection, Fault, Param};
use super::phrases::Phrases;
use super::text::{given, kept};
use super::words::words;
use super::{PostgresStore, signed};
use crate::ranking::{CANDIDATES, COUNTED_BYTES, Match, mark, marks, rank};
use crate::read_queue::of_tenant;

/// Bytes of rows that may wait for a connection; further callers wait before they enter the queue.
pub(super) const ROOM_BYTES: usize = 8 << 20;
/// Bytes that a row counts at least.
const ROW_MIN_BYTES: usize = 1_024;
/// Newest rows that are searched before the index is used. Frequent words are found among these; the index would return
/// all rows that have them.
const NEWEST: i64 = 1_000;
/// Limit for the word list of such a row, in bytes.
const NEWEST_BYTES: i32 = 16 << 10;
/// Texts that are read at once, in count and in bytes.
const PAGE_ROWS: usize = 64;
const PAGE_BYTES: i64 = 1 << 20;
/// Rows that have all words and are searched for phrases, in count and bytes of text.
const SEARCHED_MAX: usize = 8 * CANDIDATES;
const SEARCHED_BYTES: i64 = 64 << 20;

impl Data for PostgresStore {
    fn data_put<'a>(&'a self, tenant: &'a TenantId, mut row: PortableData) -> Stored<'a, ()> {
        Box::pin(async move {
            let bytes = row.detail.as_ref().map_or(0, String::len).clamp(ROW_MIN_BYTES, ROOM_BYTES);
            let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
            // The semaphore is never closed. The permit is held until the row is durable.
            let _room = self.data_room.acquire_many(permits).await;
            let marks = marks(&row);
            let (has_detail, text) = (row.detail.is_some(), row.detail.take().unwrap_or_else(|| row.summary.clone()));
            row.score = None;
            let json = serde_json::to_string(&row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
            let hashes = hashes(tenant, &marks, &text);
            let (tenant, expires) = (tenant.to_owned(), row.expires_at.map(signed));
            let write = self.worker.write(async move |connection| {
                let sql = "INSERT INTO data_row (tenant, id, expires_at, has_detail, json, text, words)
                           VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, id) DO NOTHING";
                let (tenant, id, json, text) = (kept(&tenant), kept(&row.id), kept(&json), kept(&text));
                let columns: [Param<'_>; 7] = [&tenant, &id, &expires, &has_detail, &json, &text, &hashes];
                match connection.execute(sql, &columns).await? {
                    0 => Err(StoreError::Conflict.into()),
                    _ => Ok(()),
                }
            });
            write.await
        })
    }

    fn data_get<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_s: u64) -> Stored<'a, Option<PortableData>> {
        let [tenant, id] = [tenant.as_str(), id].map(str::to_owned);
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT has_detail, json, text FROM data_row
                       WHERE tenant = $1 AND id = $2 AND (expires_at IS NULL OR expires_at > $3)";
            let found = connection.query_opt(sql, &[&kept(&tenant), &kept(&id), &signed(now_s)]).await?;
            Ok(found.map(|row| portable(row.get(0), row.get(1), row.get(2))).transpose()?)
        })
    }

    fn data_query<'a>(&'a self, tenant: &'a TenantId, query: DataQuery) -> Stored<'a, Vec<PortableData>> {
        Box::pin(async move {
            let ranked = !query.phrases.is_empty();
            let phrases = Phrases::of(&query.phrases);
            let cannot_match = (ranked && phrases.is_empty()) || query.filters.iter().any(|(_, any)| any.is_empty());
            if cannot_match || query.limit == 0 {
                return Ok(Vec::new());
            }
            let wanted = if ranked { CANDIDATES.max(query.limit) } else { query.limit };
            let asked = Asked::of(tenant, &query, &phrases);
            let mut found = match ranked {
                true => self.search(&asked, &phrases, wanted).await?,
                false => self.candidates(&asked, i64::MAX, wanted).await?,
            };
            if ranked {
                rank(&mut found, query.phrases.len(), query.limit);
            }
            self.read_rows(&asked.tenant, found, ranked.then_some(query.phrases.len())).await
        })
    }
}

/// Hashes under which a row is indexed.
pub(super) fn hashes(tenant: &TenantId, marks: &[String], text: &str) -> Vec<i64> {
    let distinct: BTreeSet<String> = words(text).collect();
    let of_words = distinct.iter().map(|word| word_hash(tenant, word));
    let all: BTreeSet<i64> = of_words.chain(marks.iter().map(|mark| mark_hash(tenant, mark))).collect();
    all.into_iter().collect()
}

impl PostgresStore {
    /// The newest rows that match.
    async fn search(&self, asked: &Asked, phrases: &Phrases, wanted: usize) -> Result<Vec<Match>, StoreError> {
        let (mut found, mut before, mut searched, mut bytes) = (Vec::new(), i64::MAX, 0, 0);
        while found.len() < wanted && searched < SEARCHED_MAX.max(wanted) && bytes < SEARCHED_BYTES {
            let some = self.candidates(asked, before, wanted).await?;
            let Some(last) = some.last() else { break };
            before = last.no;
            searched += some.len();
            let is_last = some.len() < wanted;
            bytes += self.verify(asked, some, phrases, &mut found).await?;
            if is_last {
                break;
            }
        }
        found.truncate(wanted);
        Ok(found)
    }

    /// Rows with all words, newest first, below this one.
    async fn candidates(&self, asked: &Asked, before: i64, wanted: usize) -> Result<Vec<Match>, StoreError> {
        let asked = asked.clone();
        let read = self.worker.read(of_tenant(&asked.tenant), async move |connection| {
            if before == i64::MAX
                && let Some(found) = asked.among_newest(connection, wanted).await?
            {
                return Ok(found);
            }
            asked.by_index(connection, before, wanted).await
        });
        read.await
    }

    /// Adds the rows that contain every phrase, and counts hits in short texts. Returns the bytes of text that were read.
    async fn verify(
        &self,
        asked: &Asked,
        some: Vec<Match>,
        phrases: &Phrases,
        found: &mut Vec<Match>,
    ) -> Result<i64, StoreError> {
        let is_read = |one: &Match| phrases.has_long() || one.bytes <= COUNTED_BYTES;
        let mut bytes = 0;
        for page in pages(&some, |one| if is_read(one) { one.bytes } else { 0 }) {
            let numbers: Vec<i64> = page.iter().filter(|one| is_read(one)).map(|one| one.no).collect();
            bytes += page.iter().filter(|one| is_read(one)).map(|one| one.bytes).sum::<i64>();
            let texts = match numbers.is_empty() {
                true => HashMap::new(),
                false => self.texts(&asked.tenant, numbers).await?,
            };
            for one in page {
                let hits = match texts.get(&one.no) {
                    Some(text) => phrases.hits(text),
                    None if is_read(one) => continue, // it expired, and was deleted meanwhile
                    None => Some(0),
                };
                let Some(hits) = hits else { continue };
                let hits = (one.bytes <= COUNTED_BYTES).then_some(signed(hits as u64));
                found.push(Match { no: one.no, bytes: one.bytes, hits });
            }
        }
        Ok(bytes)
    }

    async fn texts(&self, tenant: &str, numbers: Vec<i64>) -> Result<HashMap<i64, String>, StoreError> {
        let tenant = tenant.to_owned();
        let read = self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT no, text FROM data_row WHERE tenant = $1 AND no = ANY($2)";
            let rows = connection.query(sql, &[&tenant, &numbers]).await?;
            Ok(rows.iter().map(|row| (row.get(0), given(row.get(1)))).collect())
        });
        read.await
    }

    /// The rows themselves, in this order, with details as far as there is room.
    async fn read_rows(
        &self,
        tenant: &str,
        found: Vec<Match>,
        phrases: Option<usize>,
    ) -> Result<Vec<PortableData>, StoreError> {
        let (mut answer, mut room) = (Vec::with_capacity(found.len()), ANSWER_MAX_BYTES);
        for page in pages(&found, |one| one.bytes) {
            let numbers: Vec<i64> = page.iter().map(|one| one.no).collect();
            let mut rows = self.rows(tenant, numbers, room).await?;
            for one in page {
                let Some(mut row) = rows.remove(&one.no) else { continue }; // it was deleted meanwhile
                if row.detail.as_ref().is_some_and(|detail| detail.len() > room) {
                    row.detail = None;
                }
                room -= row.detail.as_ref().map_or(0, String::len);
                row.score = phrases.map(|phrases| one.score(phrases));
                answer.push(row);
            }
        }
        Ok(answer)
    }

    async fn rows(
        &self,
        tenant: &str,
        numbers: Vec<i64>,
        room: usize,
    ) -> Result<HashMap<i64, PortableData>, StoreError> {
        let tenant = tenant.to_owned();
        let read = self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = "SELECT no, has_detail, json, CASE WHEN octet_length(text) <= $3 THEN text END
                       FROM data_row WHERE tenant = $1 AND no = ANY($2)";
            let room = i32::try_from(room).unwrap_or(i32::MAX);
            let rows = connection.query(sql, &[&tenant, &numbers, &room]).await?;
            let row = |row: &tokio_postgres::Row| Ok((row.get(0), portable(row.get(1), row.get(2), row.get(3))?));
            Ok(rows.iter().map(row).collect::<Result<_, StoreError>>()?)
        });
        read.await
    }
}

/// Conditions of a query, as hashes.
#[derive(Clone)]
struct Asked {
    tenant: String,
    now_s: i64,
    /// Words that must all occur.
    words: Vec<i64>,
    /// For each filter, the accepted values.
    filters: Vec<Vec<i64>>,
}

impl Asked {
    fn of(tenant: &TenantId, query: &DataQuery, phrases: &Phrases) -> Self {
        let words: BTreeSet<i64> = phrases.words().map(|word| word_hash(tenant, word)).collect();
        let any = |(key, values): &(String, Vec<serde_json::Value>)| {
            values.iter().map(|value| mark_hash(tenant, &mark(key, value))).collect()
        };
        Self {
            tenant: kept(tenant).into_owned(),
            now_s: signed(query.now_s),
            words: words.into_iter().collect(),
            filters: query.filters.iter().map(any).collect(),
        }
    }

    /// The condition on `words`, with parameters after the first `given` ones.
    fn condition<'a>(&'a self, given: usize, params: &mut Vec<Param<'a>>) -> String {
        let mut sql = String::from("true");
        if !self.words.is_empty() {
            params.push(&self.words);
            let _ = write!(sql, " AND words @> ${}", given + 1); // writing to a text cannot fail
        }
        for filter in &self.filters {
            params.push(filter);
            let _ = write!(sql, " AND words && ${}", params.len());
        }
        sql
    }

    /// `None`: the newest rows are not sufficient, so the index must be used.
    async fn among_newest(&self, connection: &Connection, wanted: usize) -> Result<Option<Vec<Match>>, Fault> {
        let mut params: Vec<Param<'_>> = vec![&self.tenant, &self.now_s, &NEWEST, &NEWEST_BYTES];
        let condition = self.condition(4, &mut params);
        let sql = format!(
            "SELECT no, octet_length(text),
                    CASE WHEN pg_column_size(words) <= $4 THEN {condition} END
             FROM data_row WHERE tenant = $1 AND (expires_at IS NULL OR expires_at > $2) ORDER BY no DESC LIMIT $3"
        );
        let rows = connection.query(&sql, &params).await?;
        let mut found = Vec::new();
        for row in &rows {
            match row.get::<_, Option<bool>>(2) {
                None => return Ok(None),
                Some(false) => {}
                Some(true) => found.push(candidate(row)),
            }
            if found.len() == wanted {
                return Ok(Some(found));
            }
        }
        Ok((signed(rows.len() as u64) < NEWEST).then_some(found))
    }

    async fn by_index(&self, connection: &Connection, before: i64, wanted: usize) -> Result<Vec<Match>, Fault> {
        let wanted = signed(wanted as u64);
        let mut params: Vec<Param<'_>> = vec![&self.tenant, &self.now_s, &before, &wanted];
        let condition = self.condition(4, &mut params);
        // Kept apart from the order, so that Postgres asks the index of words and does not walk through all rows.
        let hits = match self.words.is_empty() && self.filters.is_empty() {
            true => "data_row".into(),
            false => format!("(SELECT * FROM data_row WHERE {condition} OFFSET 0)"),
        };
        let sql = format!(
            "SELECT no, octet_length(text) FROM {hits} AS hit
             WHERE tenant = $1 AND (expires_at IS NULL OR expires_at > $2) AND no < $3 ORDER BY no DESC LIMIT $4"
        );
        Ok(connection.query(&sql, &params).await?.iter().map(candidate).collect())
    }
}

fn candidate(row: &tokio_postgres::Row) -> Match {
    Match { no: row.get(0), bytes: row.get::<_, i32>(1).into(), hits: None }
}

/// Parts of a list that are read at once.
fn pages(all: &[Match], size: impl Fn(&Match) -> i64) -> Vec<&[Match]> {
    let (mut pages, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (index, one) in all.iter().enumerate() {
        bytes += size(one);
        if index > begin && (bytes > PAGE_BYTES || index - begin >= PAGE_ROWS) {
            pages.push(&all[begin..index]);
            (begin, bytes) = (index, size(one));
        }
    }
    pages.push(&all[begin..]);
    pages
}

/// Deletes a bounded number of expired rows; fewer if they are large. Returns how many.
pub(super) async fn expire(connection: &Connection, now_s: u64, bytes: i64) -> Result<u64, Fault> {
    let sql = "DELETE FROM data_row WHERE (tenant, no) IN (
                 SELECT tenant, no FROM (
                   SELECT tenant, no, sum(size) OVER (ORDER BY expires_at, no) - size AS before FROM (
                     SELECT tenant, no, expires_at, octet_length(text) AS size FROM data_row WHERE expires_at <= $1
                     ORDER BY expires_at, no LIMIT 200) AS old) AS page
                 WHERE before < $2)";
    connection.execute(sql, &[&signed(now_s), &bytes]).await
}

fn word_hash(tenant: &TenantId, word: &str) -> i64 {
    hash(&[tenant, "word", word])
}

fn mark_hash(tenant: &TenantId, mark: &str) -> i64 {
    hash(&[tenant, "mark", mark])
}

fn hash(parts: &[&str]) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = short_hash(parts);
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn portable(has_detail: bool, json: String, text: Option<String>) -> Result<PortableData, StoreError> {
    let mut row: PortableData = serde_json::from_str(&given(json))
        .map_err(|error| StoreError::Corrupt(format!("invalid data row: {error}")))?;
    row.detail = text.filter(|_| has_detail).map(given);
    Ok(row)
}
