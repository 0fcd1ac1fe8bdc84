//! Files that mail refers to. They are kept while one of these rows is owed; then their time runs.

use frontdesk_core::port::media::{EventFile, SealedMedia};
use frontdesk_core::port::store::{Delivery, MadeRow, StoreError};
use frontdesk_wire::{InstanceNo, Seq, TenantId};
use rusqlite::{Connection, OptionalExtension as _};

use super::media::{count, forget_handle};
use super::{fault, signed};

/// Binds the files of an event to its rows, so that they are kept while one of these is owed.
pub(super) fn hold(
    connection: &Connection,
    tenant: &TenantId,
    delivery: &Delivery,
    files: Vec<EventFile>,
    rows: &[MadeRow],
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(()); // no session was notified of them
    }
    for file in files {
        let id = match file {
            EventFile::Remote(file) => put_handle(connection, tenant, delivery, file)?,
            EventFile::Stored(id) => {
                let sql = "SELECT 1 FROM media WHERE id = ?1 AND tenant = ?2";
                let known = connection.prepare_cached(sql).and_then(|mut query| query.exists((&id, tenant.as_str())));
                if !known.map_err(fault)? {
                    continue; // it expired while the event was on its way
                }
                id
            }
        };
        let sql = "INSERT OR IGNORE INTO media_mail (id, instance, seq) VALUES (?1, ?2, ?3)";
        let mut bind = connection.prepare_cached(sql).map_err(fault)?;
        for row in rows {
            bind.execute((&id, signed(row.instance), signed(row.seq))).map_err(fault)?;
        }
    }
    Ok(())
}

/// Binds the files of a row to its copy, if they are still bound.
pub(super) fn hold_again(
    connection: &Connection,
    instance: InstanceNo,
    seq: Seq,
    again: Seq,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO media_mail (id, instance, seq)
               SELECT id, instance, ?3 FROM media_mail WHERE instance = ?1 AND seq = ?2";
    connection.execute(sql, (signed(instance), signed(seq), signed(again))).map(drop).map_err(fault)
}

fn put_handle(
    connection: &Connection,
    tenant: &TenantId,
    delivery: &Delivery,
    file: SealedMedia,
) -> Result<String, StoreError> {
    let SealedMedia { id, mime, filename, size, sealed, expires_ms } = file;
    let sql = "INSERT INTO media (id, tenant, mime, filename, size, expires_ms) VALUES (?1, ?2, ?3, ?4, 0, ?5)";
    let mut put = connection.prepare_cached(sql).map_err(fault)?;
    put.execute((&id, tenant.as_str(), mime, filename, signed(expires_ms))).map_err(fault)?;
    let sql = "INSERT INTO media_remote (id, platform, bot, event, size, sealed) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut put = connection.prepare_cached(sql).map_err(fault)?;
    let Delivery { platform, bot, event, .. } = delivery;
    put.execute((&id, platform, bot.as_str(), signed(*event), size.map(signed), sealed)).map_err(fault)?;
    Ok(id)
}

/// Whether mail that refers to a file is unsettled.
fn is_owed(connection: &Connection, id: &str) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM media_mail l LEFT JOIN position p ON p.instance = l.instance
               WHERE l.id = ?1 AND l.seq > COALESCE(p.through, 0)
                 AND NOT EXISTS (SELECT 1 FROM json_each(p.above) WHERE value = l.seq)";
    connection.prepare_cached(sql).and_then(|mut query| query.exists([id])).map_err(fault)
}

/// The next `limit` files after this one that mail refers to: the last of them if there may be more, and those whose
/// mail is all settled.
pub(super) fn settled(
    connection: &Connection,
    after: &str,
    limit: usize,
) -> Result<(Option<String>, Vec<String>), StoreError> {
    let sql = "SELECT DISTINCT id FROM media_mail WHERE id > ?1 ORDER BY id LIMIT ?2";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let some = query.query_map((after, signed(limit as u64)), |row| row.get(0));
    let some: Vec<String> = some.and_then(Iterator::collect).map_err(fault)?;
    let last = some.last().filter(|_| some.len() == limit).cloned();
    let mut settled = Vec::new();
    for id in some {
        if !is_owed(connection, &id)? {
            settled.push(id);
        }
    }
    Ok((last, settled))
}

/// Files whose mail is settled expire, but not before this time. Asked again: a row may have been replayed meanwhile.
pub(super) fn release(connection: &Connection, ids: &[String], expires_ms: u64) -> Result<(), StoreError> {
    let mut unbind = connection.prepare_cached("DELETE FROM media_mail WHERE id = ?1").map_err(fault)?;
    let sql = "UPDATE media SET expires_ms = MAX(expires_ms, ?2) WHERE id = ?1";
    let mut extend = connection.prepare_cached(sql).map_err(fault)?;
    for id in ids {
        if !is_owed(connection, id)? {
            unbind.execute([id]).map_err(fault)?;
            extend.execute((id, signed(expires_ms))).map_err(fault)?;
        }
    }
    Ok(())
}

/// Time and id of a file, in the order in which files expire.
pub(super) type Expiry = (i64, String);

/// The next `limit` files after this one that have expired: the last of them if there may be more, and those that no
/// mail refers to. The others may be many, so one read does not go through all of them.
pub(super) fn expired(
    connection: &Connection,
    after: &Expiry,
    now_ms: u64,
    limit: usize,
) -> Result<(Option<Expiry>, Vec<String>), StoreError> {
    let sql = "SELECT m.expires_ms, m.id, EXISTS (SELECT 1 FROM media_mail l WHERE l.id = m.id) FROM media m
               WHERE (m.expires_ms, m.id) > (?1, ?2) AND m.expires_ms <= ?3 ORDER BY m.expires_ms, m.id LIMIT ?4";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let which = (after.0, &after.1, signed(now_ms), signed(limit as u64));
    let some = query.query_map(which, |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)));
    let some: Vec<(Expiry, bool)> = some.and_then(Iterator::collect).map_err(fault)?;
    let last = some.last().filter(|_| some.len() == limit).map(|(expiry, _)| expiry.clone());
    Ok((last, some.into_iter().filter(|(_, is_held)| !is_held).map(|((_, id), _)| id).collect()))
}

/// Deletes those of them that are still so, and returns them.
pub(super) fn delete(connection: &Connection, ids: Vec<String>, now_ms: u64) -> Result<Vec<String>, StoreError> {
    let sql = "DELETE FROM media WHERE id = ?1 AND expires_ms <= ?2
               AND NOT EXISTS (SELECT 1 FROM media_mail l WHERE l.id = ?1) RETURNING tenant, size";
    let mut delete = connection.prepare_cached(sql).map_err(fault)?;
    let mut gone = Vec::with_capacity(ids.len());
    for id in ids {
        let had = delete.query_row((&id, signed(now_ms)), |row| Ok((row.get(0)?, row.get(1)?))).optional();
        let Some((tenant, size)): Option<(String, i64)> = had.map_err(fault)? else { continue };
        if !forget_handle(connection, &id)? {
            count(connection, &tenant, -1, -size)?;
        }
        gone.push(id);
    }
    Ok(gone)
}
