//! Fragments of events that are not complete. Decisions about the open fragments of a bot are made under its lock: its
//! bounds, and the fragments of a claim.

use std::collections::BTreeMap;

use frontdesk_core::port::fragments::{FRAGMENTS_MAX, FRAGMENTS_MAX_BYTES, JOINED_KEPT_MS};
use frontdesk_core::port::store::{ChatGroups, Claim, Fragment, Fragments, Held, Stored};
use tokio_postgres::Row;

use super::connection::{Connection, Fault};
use super::locks::{key, lock, try_lock};
use super::text::{given, kept};
use super::{PostgresStore, signed, unsigned};

/// Groups claimed in one step.
const CLAIMS_MAX: i64 = 100;
/// Joined fragments deleted in one step.
const FORGET_MAX: i64 = 500;

impl Fragments for PostgresStore {
    fn hold(&self, fragment: Fragment) -> Stored<'_, Held> {
        self.worker.write(async move |connection| hold(connection, &fragment).await)
    }

    fn claim_chat(&self, groups: ChatGroups, now_ms: u64) -> Stored<'_, Vec<Claim>> {
        self.worker.ask(async move |database| {
            // Called for every message, and nearly always there is nothing to write.
            if !database.read(async |connection| is_kept_for_chat(connection, &groups).await).await? {
                return Ok(Vec::new());
            }
            let claim = async |connection: &Connection| {
                lock(connection, &bot_lock(&groups.platform, &groups.bot)).await?;
                let mut claims = claims_of_chat(connection, &groups).await?;
                let open = groups_of_chat(connection, &groups).await?;
                claims.extend(claim_groups(connection, &open, now_ms).await?);
                Ok(claims)
            };
            database.writers.transaction(claim).await
        })
    }

    fn claim_quiet(&self, quiet_since_ms: u64, claimed_until_ms: u64, now_ms: u64) -> Stored<'_, (Vec<Claim>, bool)> {
        self.worker.write(async move |connection| {
            let mut claims = Vec::new();
            // Otherwise another server does it.
            if try_lock(connection, &["quiet fragments"]).await? {
                forget_joined(connection, now_ms).await?;
                claims = claim_again(connection, claimed_until_ms, now_ms).await?;
                claims.extend(claim_groups_quiet(connection, quiet_since_ms, now_ms).await?);
            }
            let sql = "SELECT EXISTS (SELECT 1 FROM fragment WHERE claim >= 0 AND sealed IS NOT NULL)";
            Ok((claims, connection.query_one(sql, &[]).await?.get(0)))
        })
    }

    fn joined(&self, claim: u64) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            let sql = "UPDATE fragment SET sealed = NULL WHERE (platform, bot, id) IN (
                         SELECT platform, bot, id FROM fragment WHERE claim = $1 AND sealed IS NOT NULL
                         ORDER BY platform, bot, id FOR UPDATE)";
            connection.execute(sql, &[&signed(claim)]).await.map(drop)
        })
    }
}

fn bot_lock<'a>(platform: &'a str, bot: &'a str) -> [&'a str; 3] {
    ["fragments", platform, bot]
}

async fn hold(connection: &Connection, it: &Fragment) -> Result<Held, Fault> {
    lock(connection, &bot_lock(&it.platform, &it.bot)).await?;
    let (platform, bot, id) = (kept(&it.platform), kept(&it.bot), kept(&it.id));
    let sql = "SELECT EXISTS (SELECT 1 FROM fragment WHERE platform = $1 AND bot = $2 AND id = $3), count(*),
                      coalesce(sum(octet_length(sealed)), 0)
               FROM fragment WHERE platform = $1 AND bot = $2 AND sealed IS NOT NULL";
    let row = connection.query_one(sql, &[&platform, &bot, &id]).await?;
    if row.get(0) {
        return Ok(Held::Known);
    }
    let (count, bytes): (u64, u64) = (unsigned(row.get(1)), unsigned(row.get(2)));
    if count >= FRAGMENTS_MAX as u64 || bytes + it.sealed.len() as u64 > FRAGMENTS_MAX_BYTES as u64 {
        return Ok(Held::Full);
    }
    let sql =
        "INSERT INTO fragment (platform, bot, id, chat_id, grp, at_ms, sealed) VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let (chat_id, group, at_ms) = (kept(&it.chat_id), kept(&it.group), signed(it.at_ms));
    connection.execute(sql, &[&platform, &bot, &id, &chat_id, &group, &at_ms, &it.sealed]).await?;
    Ok(Held::New)
}

/// Platform, bot and name, as the columns hold them.
type Group = [String; 3];

fn group(row: &Row) -> Group {
    [row.get(0), row.get(1), row.get(2)]
}

async fn groups_of_chat(connection: &Connection, groups: &ChatGroups) -> Result<Vec<Group>, Fault> {
    let sql = "SELECT platform, bot, grp FROM fragment
               WHERE platform = $1 AND bot = $2 AND claim = 0 AND chat_id = $3 AND grp IS DISTINCT FROM $4
                 AND sealed IS NOT NULL
               GROUP BY platform, bot, grp ORDER BY min(arrival)";
    let ChatGroups { platform, bot, chat_id, but } = groups;
    let but = but.as_deref().map(kept);
    let found = connection.query(sql, &[&kept(platform), &kept(bot), &kept(chat_id), &but]).await?;
    Ok(found.iter().map(group).collect())
}

/// Claims whose servers are making events from them, or have failed to.
async fn claims_of_chat(connection: &Connection, groups: &ChatGroups) -> Result<Vec<Claim>, Fault> {
    let sql = "SELECT DISTINCT claim FROM fragment
               WHERE platform = $1 AND bot = $2 AND claim > 0 AND chat_id = $3 AND sealed IS NOT NULL ORDER BY claim";
    let ChatGroups { platform, bot, chat_id, .. } = groups;
    let found = connection.query(sql, &[&kept(platform), &kept(bot), &kept(chat_id)]).await?;
    claims(connection, found.iter().map(|row| row.get(0)).collect()).await
}

async fn is_kept_for_chat(connection: &Connection, groups: &ChatGroups) -> Result<bool, Fault> {
    let sql = "SELECT EXISTS (SELECT 1 FROM fragment
               WHERE platform = $1 AND bot = $2 AND chat_id = $3 AND sealed IS NOT NULL)";
    let ChatGroups { platform, bot, chat_id, .. } = groups;
    Ok(connection.query_one(sql, &[&kept(platform), &kept(bot), &kept(chat_id)]).await?.get(0))
}

/// Under the locks of their bots.
async fn claim_groups(connection: &Connection, groups: &[Group], now_ms: u64) -> Result<Vec<Claim>, Fault> {
    let sql = "UPDATE fragment SET claim = $4, claimed_ms = $5
               WHERE platform = $1 AND bot = $2 AND grp = $3 AND claim = 0 AND sealed IS NOT NULL";
    let mut numbers = Vec::with_capacity(groups.len());
    for [platform, bot, name] in groups {
        let number: i64 = connection.query_one("SELECT nextval('fragment_claim_number')", &[]).await?.get(0);
        connection.execute(sql, &[platform, bot, name, &number, &signed(now_ms)]).await?;
        numbers.push(number);
    }
    claims(connection, numbers).await
}

/// Quiet groups are searched twice: the search before the locks only tells which locks are needed.
async fn claim_groups_quiet(connection: &Connection, quiet_since_ms: u64, now_ms: u64) -> Result<Vec<Claim>, Fault> {
    let sql = "SELECT platform, bot, grp FROM fragment WHERE claim = 0 AND sealed IS NOT NULL
               GROUP BY platform, bot, grp HAVING max(at_ms) <= $1 OR max(at_ms) > $2
               ORDER BY min(arrival) LIMIT $3";
    let quiet = async || connection.query(sql, &[&signed(quiet_since_ms), &signed(now_ms), &CLAIMS_MAX]).await;
    let lock_of = |[platform, bot, _]: &Group| {
        let (platform, bot) = (given(platform.clone()), given(bot.clone()));
        (key(&bot_lock(&platform, &bot)), (platform, bot))
    };
    let bots: BTreeMap<i64, (String, String)> = quiet().await?.iter().map(|row| lock_of(&group(row))).collect();
    if bots.is_empty() {
        return Ok(Vec::new());
    }
    for (platform, bot) in bots.values() {
        lock(connection, &bot_lock(platform, bot)).await?;
    }
    let mut groups: Vec<Group> = quiet().await?.iter().map(group).collect();
    groups.retain(|group| bots.contains_key(&lock_of(group).0));
    claim_groups(connection, &groups, now_ms).await
}

/// The servers that claimed these did not finish.
async fn claim_again(connection: &Connection, claimed_until_ms: u64, now_ms: u64) -> Result<Vec<Claim>, Fault> {
    let sql = "SELECT DISTINCT claim FROM fragment
               WHERE claim > 0 AND sealed IS NOT NULL AND (claimed_ms <= $1 OR claimed_ms > $2) ORDER BY claim LIMIT $3";
    let found = connection.query(sql, &[&signed(claimed_until_ms), &signed(now_ms), &CLAIMS_MAX]).await?;
    let numbers: Vec<i64> = found.iter().map(|row| row.get(0)).collect();
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "UPDATE fragment SET claimed_ms = $2 WHERE (platform, bot, id) IN (
                 SELECT platform, bot, id FROM fragment WHERE claim = ANY($1) AND sealed IS NOT NULL
                 ORDER BY platform, bot, id FOR UPDATE)";
    connection.execute(sql, &[&numbers, &signed(now_ms)]).await?;
    claims(connection, numbers).await
}

async fn forget_joined(connection: &Connection, now_ms: u64) -> Result<(), Fault> {
    let sql = "DELETE FROM fragment WHERE (platform, bot, id) IN (
                 SELECT platform, bot, id FROM fragment WHERE sealed IS NULL AND at_ms <= $1
                 LIMIT $2 FOR UPDATE SKIP LOCKED)";
    let until = signed(now_ms.saturating_sub(JOINED_KEPT_MS));
    connection.execute(sql, &[&until, &FORGET_MAX]).await.map(drop)
}

/// The claims with these numbers, in the same order.
async fn claims(connection: &Connection, numbers: Vec<i64>) -> Result<Vec<Claim>, Fault> {
    let sql = "SELECT platform, bot, chat_id, grp, id, at_ms, sealed FROM fragment
               WHERE claim = $1 AND sealed IS NOT NULL ORDER BY arrival";
    let mut claims = Vec::with_capacity(numbers.len());
    for number in numbers {
        let found = connection.query(sql, &[&number]).await?;
        let fragments: Vec<Fragment> = found.iter().map(fragment).collect();
        // Another server may have joined it meanwhile.
        if !fragments.is_empty() {
            claims.push(Claim { number: unsigned(number), fragments });
        }
    }
    Ok(claims)
}

fn fragment(row: &Row) -> Fragment {
    let text = |column| given(row.get(column));
    Fragment {
        platform: text(0),
        bot: text(1).into(),
        chat_id: text(2).into(),
        group: text(3),
        id: text(4),
        at_ms: unsigned(row.get(5)),
        sealed: row.get(6),
    }
}
