//! Files that mail refers to. They are kept while one of these rows is unsettled; then their time limit begins.

use frontdesk_core::port::media::{EventFile, SealedMedia};
use frontdesk_core::port::store::{Delivery, MadeRow};
use frontdesk_wire::{InstanceNo, Seq, TenantId};
use tokio_postgres::Row;

use super::connection::{Connection, Fault};
use super::text::kept;
use super::{signed, signed_all, unsigned};

/// Files per step of retention. Statements have it as a literal, so that the planner knows how few they are.
const FILES_MAX: usize = 200;

/// Mail of the file `f.id` that is unsettled.
macro_rules! owed {
    () => {
        "SELECT 1 FROM media_mail l LEFT JOIN position p ON p.instance = l.instance
         WHERE l.id = f.id AND l.seq > coalesce(p.through, 0) AND l.seq <> ALL (coalesce(p.above, '{}'))"
    };
}

/// Binds the files of an event to its rows, so that they are kept while one of these is unsettled. Inside the
/// transaction of the caller.
pub(super) async fn hold(
    connection: &Connection,
    tenant: &TenantId,
    delivery: &Delivery,
    files: &[EventFile],
    rows: &[MadeRow],
) -> Result<(), Fault> {
    if rows.is_empty() || files.is_empty() {
        return Ok(()); // no session was notified of them
    }
    let mut ids = Vec::with_capacity(files.len());
    let mut stored = Vec::new();
    for file in files {
        match file {
            EventFile::Remote(file) => {
                put_handle(connection, tenant, delivery, file).await?;
                ids.push(kept(&file.id).into_owned());
            }
            EventFile::Stored(id) => stored.push(kept(id)),
        }
    }
    if !stored.is_empty() {
        // A file that has expired may be gone. This lock keeps it from being deleted before its mail is visible.
        let sql = "SELECT id FROM media WHERE id = ANY($1) AND tenant = $2 ORDER BY id FOR KEY SHARE";
        let known = connection.query(sql, &[&stored, &kept(tenant)]).await?;
        ids.extend(known.iter().map(|row| row.get::<_, String>(0)));
    }
    let (instances, seqs): (Vec<_>, Vec<_>) = rows.iter().map(|row| (row.instance, row.seq)).unzip();
    let sql = "INSERT INTO media_mail (id, instance, seq)
               SELECT id, instance, seq FROM unnest($1::text[]) AS file (id),
                      unnest($2::bigint[], $3::bigint[]) AS mail (instance, seq)
               ON CONFLICT DO NOTHING";
    connection.execute(sql, &[&ids, &signed_all(&instances), &signed_all(&seqs)]).await.map(drop)
}

/// Binds the files of a row to its copy, if they are still bound.
pub(super) async fn hold_again(
    connection: &Connection,
    instance: InstanceNo,
    seq: Seq,
    again: Seq,
) -> Result<(), Fault> {
    let sql = "INSERT INTO media_mail (id, instance, seq)
               SELECT l.id, l.instance, $3 FROM media_mail l JOIN media m ON m.id = l.id
               WHERE l.instance = $1 AND l.seq = $2 FOR KEY SHARE OF m
               ON CONFLICT DO NOTHING";
    connection.execute(sql, &[&signed(instance), &signed(seq), &signed(again)]).await.map(drop)
}

async fn put_handle(
    connection: &Connection,
    tenant: &TenantId,
    delivery: &Delivery,
    file: &SealedMedia,
) -> Result<(), Fault> {
    let SealedMedia { id, mime, filename, size, sealed, expires_ms } = file;
    let id = kept(id);
    let sql = "INSERT INTO media (id, tenant, mime, filename, size, expires_ms) VALUES ($1, $2, $3, $4, 0, $5)";
    let (tenant, mime, filename) = (kept(tenant), kept(mime), filename.as_deref().map(kept));
    connection.execute(sql, &[&id, &tenant, &mime, &filename, &signed(*expires_ms)]).await?;
    let sql = "INSERT INTO media_remote (id, platform, bot, event, size, sealed) VALUES ($1, $2, $3, $4, $5, $6)";
    let (platform, bot, event) = (kept(&delivery.platform), kept(&delivery.bot), signed(delivery.event));
    connection.execute(sql, &[&id, &platform, &bot, &event, &size.map(signed), sealed]).await.map(drop)
}

/// Looks at the next [`FILES_MAX`] files after this one that mail refers to. Those whose mail is all settled expire, but not
/// before this time. Returns the last one if there may be more.
pub(super) async fn release(connection: &Connection, after: &str, expires_ms: u64) -> Result<Option<String>, Fault> {
    let sql = "SELECT DISTINCT id FROM media_mail WHERE id > $1 ORDER BY id LIMIT 200";
    let some: Vec<String> = connection.query(sql, &[&after]).await?.iter().map(|row| row.get(0)).collect();
    // A settled row stays settled. Mail that comes meanwhile is not seen, and holds the file by a row of its own.
    let sql = concat!("DELETE FROM media_mail f WHERE f.id = ANY($1) AND NOT EXISTS (", owed!(), ") RETURNING f.id");
    let settled: Vec<String> = connection.query(sql, &[&some]).await?.iter().map(|row| row.get(0)).collect();
    if !settled.is_empty() {
        let sql = "UPDATE media SET expires_ms = greatest(expires_ms, $2) WHERE id IN (
                     SELECT id FROM media WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE)";
        connection.execute(sql, &[&settled, &signed(expires_ms)]).await?;
    }
    let is_full = some.len() == FILES_MAX;
    Ok(some.into_iter().next_back().filter(|_| is_full))
}

/// Time and id of a file, in the order in which files expire.
pub(super) type Expiry = (i64, String);

/// Looks at the next [`FILES_MAX`] files after this one that have expired, and deletes those that no mail refers to; their
/// bytes go later. Returns how many, and the last one that it looked at if there may be more.
pub(super) async fn expire(
    connection: &Connection,
    after: &Expiry,
    now_ms: u64,
) -> Result<(u64, Option<Expiry>), Fault> {
    let sql = "SELECT f.expires_ms, f.id, EXISTS (SELECT 1 FROM media_mail l WHERE l.id = f.id)
               FROM (SELECT expires_ms, id FROM media WHERE (expires_ms, id) > ($1, $2) AND expires_ms <= $3
                     ORDER BY expires_ms, id LIMIT 200) AS f
               ORDER BY f.expires_ms, f.id";
    let some = connection.query(sql, &[&after.0, &after.1, &signed(now_ms)]).await?;
    let last = some.last().filter(|_| some.len() == FILES_MAX).map(|row| (row.get(0), row.get(1)));
    let is_free = |row: &&Row| !row.get::<_, bool>(2);
    let free: Vec<String> = some.iter().filter(is_free).map(|row| row.get(1)).collect();
    let sql = "SELECT id FROM media WHERE id = ANY($1) FOR UPDATE SKIP LOCKED";
    let ids: Vec<String> = connection.query(sql, &[&free]).await?.iter().map(|row| row.get(0)).collect();
    if ids.is_empty() {
        return Ok((0, last));
    }
    // Checked again under the locks: an event that refers to one of them may have been committed meanwhile.
    let sql = "WITH gone AS (
                 DELETE FROM media f WHERE id = ANY($1) AND expires_ms <= $2
                   AND NOT EXISTS (SELECT 1 FROM media_mail l WHERE l.id = f.id)
                 RETURNING id, upload), handles AS (
                 DELETE FROM media_remote WHERE id IN (SELECT id FROM gone)), bytes AS (
                 INSERT INTO media_upload (upload, is_dropped) SELECT upload, true FROM gone WHERE upload IS NOT NULL)
               SELECT count(*) FROM gone";
    Ok((unsigned(connection.query_one(sql, &[&ids, &signed(now_ms)]).await?.get(0)), last))
}
