//! Media: bytes in rows of a few hundred kilobytes, under the number of the upload that brought them. The row that makes
//! a file visible is written last; a file that is still at its platform has a row in `media_remote` until its bytes are
//! here.
//!
//! An upload in progress has a row in `media_upload`. Before its bytes are deleted, this row is marked, and no further bytes
//! are added.

use std::io::{Error, ErrorKind};

use bytes::{Bytes, BytesMut};
use frontdesk_core::port::media::{MediaBody, MediaItem, MediaPut, MediaStore, MediaTotal, RemoteItem};
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_wire::TenantId;
use futures_util::{StreamExt as _, stream};
use tokio_postgres::Row;

use super::connection::{Connection, Fault};
use super::locks::lock;
use super::text::{given, kept};
use super::worker::Asker;
use super::{PostgresStore, signed, unsigned};
use crate::read_queue::{Owner, of_tenant};

/// Bytes in a row.
const CHUNK_BYTES: usize = 256 << 10;
/// Rows of bytes that one statement deletes.
const CHUNKS_DELETED: i64 = 32;

/// A file `m` can be had at the time `$3`: it has not expired, or mail refers to it.
macro_rules! lasts {
    () => {
        "(m.expires_ms > $3 OR EXISTS (SELECT 1 FROM media_mail l WHERE l.id = m.id))"
    };
}

impl MediaStore for PostgresStore {
    fn media_put(&self, mut item: MediaItem, body: MediaBody, tenant_max: u64) -> Stored<'_, MediaPut> {
        Box::pin(async move {
            let (tenant, id) = (item.tenant.clone(), item.id.clone());
            let known = self.worker.read(of_tenant(&item.tenant), async move |connection| {
                Ok((total_of(connection, &tenant).await?.bytes, is_here(connection, &id).await?))
            });
            let (used, is_here) = known.await?;
            if is_here {
                return Err(StoreError::Conflict);
            }
            if tenant_max > 0 && used >= tenant_max {
                return Ok(MediaPut::Full(used));
            }
            let begin = self.worker.write(async |connection| {
                let sql = "INSERT INTO media_upload (upload) VALUES (DEFAULT) RETURNING upload";
                Ok(connection.query_one(sql, &[]).await?.get::<_, i64>(0))
            });
            let upload = begin.await.map_err(unseen)?;
            let put = match self.write_chunks(upload, body).await {
                Ok(Some(size)) => {
                    item.size = size;
                    self.worker
                        .write(async move |connection| put_row(connection, &item, upload, tenant_max).await)
                        .await
                }
                Ok(None) => Ok(MediaPut::Aborted),
                Err(error) => Err(error),
            };
            if !matches!(put, Ok(MediaPut::Stored(_)) | Err(StoreError::Unknown(_))) {
                // If this fails or the caller is gone, the retention run deletes them later.
                let _ = self.discard(upload).await;
            }
            put
        })
    }

    fn media_total<'a>(&'a self, tenant: &'a TenantId) -> Stored<'a, MediaTotal> {
        let owner = tenant.to_owned();
        self.worker.read(of_tenant(tenant), async move |connection| total_of(connection, &owner).await)
    }

    fn media_item<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<MediaItem>> {
        Box::pin(async move { Ok(self.find(tenant, id, now_ms).await?.map(|(item, _)| item)) })
    }

    fn media_get<'a>(
        &'a self,
        tenant: &'a TenantId,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(MediaItem, MediaBody)>> {
        Box::pin(async move {
            let Some((item, Some(upload))) = self.find(tenant, id, now_ms).await? else { return Ok(None) };
            let body = pieces(self.worker.asker()?, of_tenant(tenant), upload, item.size);
            Ok(Some((item, body)))
        })
    }

    fn media_remote<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<RemoteItem>> {
        let [tenant, id] = [tenant.as_str(), id].map(str::to_owned);
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = concat!(
                "SELECT r.platform, r.bot, r.event, m.mime, m.filename, r.size, r.sealed
                 FROM media m JOIN media_remote r ON r.id = m.id WHERE m.id = $1 AND m.tenant = $2 AND ",
                lasts!()
            );
            let found = connection.query_opt(sql, &[&kept(&id), &kept(&tenant), &signed(now_ms)]).await?;
            Ok(found.map(|row| RemoteItem {
                platform: given(row.get(0)),
                bot: given(row.get(1)).into(),
                event: unsigned(row.get(2)),
                mime: given(row.get(3)),
                filename: row.get::<_, Option<String>>(4).map(given),
                size: row.get::<_, Option<i64>>(5).map(unsigned),
                sealed: row.get(6),
            }))
        })
    }
}

impl PostgresStore {
    /// A file, and the upload that has its bytes if they are here.
    fn find<'a>(
        &'a self,
        tenant: &'a TenantId,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(MediaItem, Option<i64>)>> {
        let [tenant, id] = [tenant, id].map(str::to_owned);
        self.worker.read(of_tenant(&tenant), async move |connection| {
            let sql = concat!(
                "SELECT m.mime, m.filename, coalesce(r.size, m.size), m.expires_ms, m.upload
                 FROM media m LEFT JOIN media_remote r ON r.id = m.id WHERE m.id = $1 AND m.tenant = $2 AND ",
                lasts!()
            );
            let found = connection.query_opt(sql, &[&kept(&id), &kept(&tenant), &signed(now_ms)]).await?;
            Ok(found.map(|row| {
                let item = MediaItem {
                    id: id.clone(),
                    tenant: tenant.as_str().into(),
                    mime: given(row.get(0)),
                    filename: row.get::<_, Option<String>>(1).map(given),
                    size: unsigned(row.get(2)),
                    expires_ms: unsigned(row.get(3)),
                };
                (item, row.get(4))
            }))
        })
    }

    /// The size. `None`: the upload was aborted. The body is read here, in the task of the caller, and no further than
    /// what is written.
    async fn write_chunks(&self, upload: i64, mut body: MediaBody) -> Result<Option<u64>, StoreError> {
        let (mut chunk, mut no, mut size) = (BytesMut::new(), 0, 0);
        while let Some(piece) = body.next().await {
            let Ok(mut piece) = piece else { return Ok(None) };
            size += piece.len() as u64;
            while !piece.is_empty() {
                let some = piece.split_to(piece.len().min(CHUNK_BYTES - chunk.len()));
                chunk.extend_from_slice(&some);
                if chunk.len() == CHUNK_BYTES {
                    self.write_chunk(upload, no, chunk.split().freeze()).await?;
                    no += 1;
                }
            }
        }
        if !chunk.is_empty() {
            self.write_chunk(upload, no, chunk.freeze()).await?;
        }
        Ok(Some(size))
    }

    async fn write_chunk(&self, upload: i64, no: i32, bytes: Bytes) -> Result<(), StoreError> {
        let write = self.worker.write(async move |connection| {
            let sql = "WITH live AS (
                         UPDATE media_upload SET seen_at = clock_timestamp() WHERE upload = $1 AND NOT is_dropped
                         RETURNING upload)
                       INSERT INTO media_chunk (upload, no, bytes) SELECT upload, $2, $3 FROM live";
            match connection.execute(sql, &[&upload, &no, &&*bytes]).await? {
                0 => Err(too_slow().into()),
                _ => Ok(()),
            }
        });
        write.await.map_err(unseen)
    }

    /// Deletes the bytes of an upload that became no file.
    async fn discard(&self, upload: i64) -> Result<(), StoreError> {
        let mark = self.worker.write(async move |connection| drop_upload(connection, upload).await);
        mark.await?;
        while self.worker.write(async move |connection| delete_chunks(connection, upload).await).await? {}
        Ok(())
    }
}

/// Bytes of an upload are not seen before its last transaction, so that it does not matter whether they were written.
fn unseen(error: StoreError) -> StoreError {
    match error {
        StoreError::Unknown(why) => StoreError::Unavailable(why),
        other => other,
    }
}

fn too_slow() -> StoreError {
    StoreError::Unavailable("the upload was cancelled, because no data arrived for a long time".into())
}

/// Reads one row at a time, when it is asked for.
fn pieces(asker: Asker, owner: Owner, upload: i64, size: u64) -> MediaBody {
    Box::pin(stream::try_unfold((asker, 0_i32, size), move |(asker, no, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let read = asker.read(owner, async move |connection| {
            let sql = "SELECT bytes FROM media_chunk WHERE upload = $1 AND no = $2";
            Ok(connection.query_opt(sql, &[&upload, &no]).await?.map(|row| Bytes::from(row.get::<_, Vec<u8>>(0))))
        });
        let gone = || Error::new(ErrorKind::UnexpectedEof, "the file was deleted while it was being read");
        let bytes = read.await.map_err(Error::other)?.ok_or_else(gone)?;
        let left = left.saturating_sub(bytes.len() as u64);
        Ok(Some((bytes, (asker, no + 1, left))))
    }))
}

/// Triggers keep it, in the transaction that writes the rows of files.
async fn total_of(connection: &Connection, tenant: &TenantId) -> Result<MediaTotal, Fault> {
    let sql = "SELECT files, bytes FROM media_total WHERE tenant = $1";
    let found = connection.query_opt(sql, &[&kept(tenant)]).await?;
    let total = |row: Row| MediaTotal { files: unsigned(row.get(0)), bytes: unsigned(row.get(1)) };
    Ok(found.map(total).unwrap_or_default())
}

async fn is_here(connection: &Connection, id: &str) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM media WHERE id = $1 AND upload IS NOT NULL";
    Ok(connection.query_opt(sql, &[&kept(id)]).await?.is_some())
}

/// Checks the quota again, because several uploads of a tenant may end at the same time.
async fn put_row(connection: &Connection, item: &MediaItem, upload: i64, tenant_max: u64) -> Result<MediaPut, Fault> {
    lock(connection, &["media", &item.tenant]).await?;
    let used = total_of(connection, &item.tenant).await?.bytes;
    if tenant_max > 0 && used + item.size > tenant_max {
        return Ok(MediaPut::Full(used));
    }
    // A file that was at its platform has a row; a later expiry of it is kept.
    let sql = "INSERT INTO media AS m (id, tenant, mime, filename, size, expires_ms, upload)
               VALUES ($1, $2, $3, $4, $5, $6, $7)
               ON CONFLICT (id) DO UPDATE SET mime = excluded.mime, filename = excluded.filename, size = excluded.size,
                 expires_ms = greatest(m.expires_ms, excluded.expires_ms), upload = excluded.upload
               WHERE m.tenant = excluded.tenant AND m.upload IS NULL";
    let (id, tenant, mime) = (kept(&item.id), kept(&item.tenant), kept(&item.mime));
    let (filename, size, expires) = (item.filename.as_deref().map(kept), signed(item.size), signed(item.expires_ms));
    if connection.execute(sql, &[&id, &tenant, &mime, &filename, &size, &expires, &upload]).await? == 0 {
        return Err(StoreError::Conflict.into());
    }
    connection.execute("DELETE FROM media_remote WHERE id = $1", &[&id]).await?;
    let sql = "DELETE FROM media_upload WHERE upload = $1 AND NOT is_dropped";
    if connection.execute(sql, &[&upload]).await? == 0 {
        return Err(too_slow().into());
    }
    Ok(MediaPut::Stored(item.size))
}

/// No more bytes are added to this upload, and those that are there may be deleted.
async fn drop_upload(connection: &Connection, upload: i64) -> Result<(), Fault> {
    connection.execute("UPDATE media_upload SET is_dropped = true WHERE upload = $1", &[&upload]).await.map(drop)
}

/// Deletes some bytes of an upload that was dropped, and its row with the last of them. True: there are more.
async fn delete_chunks(connection: &Connection, upload: i64) -> Result<bool, Fault> {
    let sql = "DELETE FROM media_chunk c USING media_upload u
               WHERE u.upload = $1 AND u.is_dropped AND c.upload = u.upload AND c.no IN (
                 SELECT no FROM media_chunk WHERE upload = $1 ORDER BY no LIMIT $2)";
    if connection.execute(sql, &[&upload, &CHUNKS_DELETED]).await? == unsigned::<u64>(CHUNKS_DELETED) {
        return Ok(true);
    }
    let sql = "DELETE FROM media_upload WHERE upload = $1 AND is_dropped";
    connection.execute(sql, &[&upload]).await?;
    Ok(false)
}

/// Drops uploads that stopped coming, and deletes some bytes of one that was dropped. True: there are more.
pub(super) async fn purge_uploads(connection: &Connection) -> Result<bool, Fault> {
    let sql = "UPDATE media_upload SET is_dropped = true WHERE upload IN (
                 SELECT upload FROM media_upload
                 WHERE NOT is_dropped AND seen_at < clock_timestamp() - interval '1 hour'
                 ORDER BY upload LIMIT 200 FOR UPDATE SKIP LOCKED)";
    connection.execute(sql, &[]).await?;
    let sql = "SELECT upload FROM media_upload WHERE is_dropped ORDER BY upload LIMIT 1";
    let Some(row) = connection.query_opt(sql, &[]).await? else { return Ok(false) };
    delete_chunks(connection, row.get(0)).await?;
    Ok(true)
}
