//! Fragments of events that are not complete.

use frontdesk_core::port::fragments::{FRAGMENTS_MAX, FRAGMENTS_MAX_BYTES, JOINED_KEPT_MS};
use frontdesk_core::port::store::{ChatGroups, Claim, Fragment, Fragments, Held, StoreError, Stored};
use rusqlite::{Connection, Row};

use super::threads::Books;
use super::{SqliteStore, fault, signed, unsigned};
use crate::read_queue::SERVER;

/// Groups claimed in one step.
const CLAIMS_MAX: i64 = 100;

impl Fragments for SqliteStore {
    fn hold(&self, fragment: Fragment) -> Stored<'_, Held> {
        self.writer.write(move |books: &mut Books| hold(&books.connection, &fragment), |_| {})
    }

    fn claim_chat(&self, groups: ChatGroups, now_ms: u64) -> Stored<'_, Vec<Claim>> {
        Box::pin(async move {
            let wanted = groups.clone();
            // Asked for every message, and nearly always there is nothing to write.
            let is_any = self.readers.read(SERVER, move |connection| is_kept_for_chat(connection, &wanted));
            if !is_any.await? {
                return Ok(Vec::new());
            }
            let work = move |books: &mut Books| {
                let mut claims = claims_of_chat(&books.connection, &groups)?;
                let open = groups_of_chat(&books.connection, &groups)?;
                claims.extend(claim_groups(&books.connection, open, now_ms)?);
                Ok(claims)
            };
            self.writer.write(work, |_| {}).await
        })
    }

    fn claim_quiet(&self, quiet_since_ms: u64, claimed_until_ms: u64, now_ms: u64) -> Stored<'_, (Vec<Claim>, bool)> {
        let work = move |books: &mut Books| {
            let connection = &books.connection;
            let sql = "DELETE FROM fragment WHERE sealed IS NULL AND at_ms <= ?1";
            let joined_until = signed(now_ms.saturating_sub(JOINED_KEPT_MS));
            connection.prepare_cached(sql).and_then(|mut it| it.execute([joined_until])).map_err(fault)?;
            let mut claims = claim_again(connection, claimed_until_ms, now_ms)?;
            let sql = "SELECT platform, bot, grp FROM fragment WHERE claim = 0 AND sealed IS NOT NULL
                       GROUP BY platform, bot, grp HAVING max(at_ms) <= ?1 OR max(at_ms) > ?2
                       ORDER BY min(arrival) LIMIT ?3";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let times = (signed(quiet_since_ms), signed(now_ms), CLAIMS_MAX);
            let quiet = query.query_map(times, group).map_err(fault)?;
            let quiet = quiet.collect::<rusqlite::Result<_>>().map_err(fault)?;
            claims.extend(claim_groups(connection, quiet, now_ms)?);
            let sql = "SELECT EXISTS (SELECT 1 FROM fragment WHERE claim >= 0 AND sealed IS NOT NULL)";
            let is_more = connection.prepare_cached(sql).and_then(|mut it| it.query_row([], |row| row.get(0)));
            Ok((claims, is_more.map_err(fault)?))
        };
        self.writer.write(work, |_| {})
    }

    fn joined(&self, claim: u64) -> Stored<'_, ()> {
        let work = move |books: &mut Books| {
            let sql = "UPDATE fragment SET sealed = NULL WHERE claim = ?1 AND sealed IS NOT NULL";
            books.connection.execute(sql, [signed(claim)]).map(drop).map_err(fault)
        };
        self.writer.write(work, |()| {})
    }
}

fn hold(connection: &Connection, it: &Fragment) -> Result<Held, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM fragment WHERE platform = ?1 AND bot = ?2 AND id = ?3)";
    if connection.query_row(sql, (&it.platform, it.bot.as_str(), &it.id), |row| row.get(0)).map_err(fault)? {
        return Ok(Held::Known);
    }
    let sql = "SELECT count(*), coalesce(sum(length(sealed)), 0) FROM fragment INDEXED BY fragment_kept
               WHERE platform = ?1 AND bot = ?2 AND sealed IS NOT NULL";
    let (count, bytes): (i64, i64) = connection
        .query_row(sql, (&it.platform, it.bot.as_str()), |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(fault)?;
    let (count, bytes): (u64, u64) = (unsigned(count), unsigned(bytes));
    let is_full = count >= FRAGMENTS_MAX as u64 || bytes + it.sealed.len() as u64 > FRAGMENTS_MAX_BYTES as u64;
    if is_full {
        return Ok(Held::Full);
    }
    let sql = "INSERT INTO fragment (platform, bot, id, chat_id, grp, at_ms, sealed, arrival)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let arrival = next_number(connection, "last fragment")?;
    let row =
        (&it.platform, it.bot.as_str(), &it.id, it.chat_id.as_str(), &it.group, signed(it.at_ms), &it.sealed, arrival);
    connection.execute(sql, row).map_err(fault)?;
    Ok(Held::New)
}

fn next_number(connection: &Connection, name: &str) -> Result<i64, StoreError> {
    let sql =
        "INSERT INTO meta (key, value) VALUES (?1, 1) ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value";
    connection.query_row(sql, [name], |row| row.get(0)).map_err(fault)
}

/// Platform, bot and name.
type Group = [String; 3];

fn group(row: &Row<'_>) -> rusqlite::Result<Group> {
    Ok([row.get(0)?, row.get(1)?, row.get(2)?])
}

fn groups_of_chat(connection: &Connection, groups: &ChatGroups) -> Result<Vec<Group>, StoreError> {
    let sql = "SELECT platform, bot, grp FROM fragment
               WHERE platform = ?1 AND bot = ?2 AND claim = 0 AND chat_id = ?3 AND grp IS NOT ?4 AND sealed IS NOT NULL
               GROUP BY grp ORDER BY min(arrival)";
    let ChatGroups { platform, bot, chat_id, but } = groups;
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let found = query.query_map((platform, bot.as_str(), chat_id.as_str(), but), group).map_err(fault)?;
    found.collect::<rusqlite::Result<_>>().map_err(fault)
}

/// Claimed groups whose events are being created, or could not be.
fn claims_of_chat(connection: &Connection, groups: &ChatGroups) -> Result<Vec<Claim>, StoreError> {
    let sql = "SELECT DISTINCT claim FROM fragment INDEXED BY fragment_kept
               WHERE platform = ?1 AND bot = ?2 AND claim > 0 AND chat_id = ?3 AND sealed IS NOT NULL ORDER BY claim";
    let ChatGroups { platform, bot, chat_id, .. } = groups;
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let found = query.query_map((platform, bot.as_str(), chat_id.as_str()), |row| row.get(0)).map_err(fault)?;
    let numbers: Vec<i64> = found.collect::<rusqlite::Result<_>>().map_err(fault)?;
    numbers.into_iter().map(|number| claimed(connection, number)).collect()
}

fn is_kept_for_chat(connection: &Connection, groups: &ChatGroups) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM fragment INDEXED BY fragment_kept
               WHERE platform = ?1 AND bot = ?2 AND chat_id = ?3 AND sealed IS NOT NULL)";
    let ChatGroups { platform, bot, chat_id, .. } = groups;
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    query.query_row((platform, bot.as_str(), chat_id.as_str()), |row| row.get(0)).map_err(fault)
}

fn claim_groups(connection: &Connection, groups: Vec<Group>, now_ms: u64) -> Result<Vec<Claim>, StoreError> {
    let sql = "UPDATE fragment SET claim = ?4, claimed_ms = ?5
               WHERE platform = ?1 AND bot = ?2 AND grp = ?3 AND claim = 0 AND sealed IS NOT NULL";
    let mut update = connection.prepare_cached(sql).map_err(fault)?;
    let mut claims = Vec::with_capacity(groups.len());
    for [platform, bot, name] in groups {
        let number = next_number(connection, "last claim")?;
        update.execute((platform, bot, name, number, signed(now_ms))).map_err(fault)?;
        claims.push(claimed(connection, number)?);
    }
    Ok(claims)
}

/// Claims that were not completed.
fn claim_again(connection: &Connection, claimed_until_ms: u64, now_ms: u64) -> Result<Vec<Claim>, StoreError> {
    let sql = "SELECT DISTINCT claim FROM fragment
               WHERE claim > 0 AND sealed IS NOT NULL AND (claimed_ms <= ?1 OR claimed_ms > ?2) ORDER BY claim LIMIT ?3";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let times = (signed(claimed_until_ms), signed(now_ms), CLAIMS_MAX);
    let found = query.query_map(times, |row| row.get(0)).map_err(fault)?;
    let numbers: Vec<i64> = found.collect::<rusqlite::Result<_>>().map_err(fault)?;
    let sql = "UPDATE fragment SET claimed_ms = ?2 WHERE claim = ?1 AND sealed IS NOT NULL";
    let mut update = connection.prepare_cached(sql).map_err(fault)?;
    let mut claims = Vec::with_capacity(numbers.len());
    for number in numbers {
        update.execute((number, signed(now_ms))).map_err(fault)?;
        claims.push(claimed(connection, number)?);
    }
    Ok(claims)
}

fn claimed(connection: &Connection, number: i64) -> Result<Claim, StoreError> {
    let sql = "SELECT platform, bot, chat_id, grp, id, at_ms, sealed FROM fragment
               WHERE claim = ?1 AND sealed IS NOT NULL ORDER BY arrival";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let fragments = query.query_map([number], |row| {
        Ok(Fragment {
            platform: row.get(0)?,
            bot: row.get::<_, String>(1)?.into(),
            chat_id: row.get::<_, String>(2)?.into(),
            group: row.get(3)?,
            id: row.get(4)?,
            at_ms: unsigned(row.get(5)?),
            sealed: row.get(6)?,
        })
    });
    let fragments = fragments.map_err(fault)?.collect::<rusqlite::Result<_>>().map_err(fault)?;
    Ok(Claim { number: unsigned(number), fragments })
}
