//! Media: contents are files beside the database, metadata are rows. A row is written after its file, except for a file
//! that is still at its platform: that one has a row in `media_remote` until its bytes are here.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

use bytes::Bytes;
use frontdesk_core::port::media::{MediaBody, MediaItem, MediaPut, MediaStore, MediaTotal, RemoteItem};
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_wire::TenantId;
use futures_util::{StreamExt as _, stream};
use rusqlite::{Connection, OptionalExtension as _, Row};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::threads::Books;
use super::{SqliteStore, fault, private, signed, unsigned};
use crate::read_queue::of_tenant;

/// Bytes read from a file at once.
const PIECE_BYTES: usize = 64 << 10;

/// Removes files without a row, left over from a crash.
pub(super) fn remove_orphans(connection: &Connection, folder: &Path) -> Result<(), StoreError> {
    let mut query = connection.prepare("SELECT id FROM media").map_err(fault)?;
    let known: HashSet<String> = query.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(fault)?;
    let files = std::fs::read_dir(folder).map_err(|error| private::unusable(folder, &error))?;
    for file in files.flatten() {
        if !file.file_name().to_str().is_some_and(|name| known.contains(name)) {
            let _ = std::fs::remove_file(file.path()); // retried at the next start
        }
    }
    Ok(())
}

/// What each tenant has, from the files themselves: after an import, and should a total ever be wrong.
pub(super) fn count_again(connection: &Connection) -> Result<(), StoreError> {
    let sql = "BEGIN IMMEDIATE;
               DELETE FROM media_total;
               INSERT INTO media_total (tenant, files, bytes)
               SELECT tenant, COUNT(*), SUM(size) FROM media WHERE id NOT IN (SELECT id FROM media_remote)
               GROUP BY tenant;
               COMMIT";
    connection.execute_batch(sql).map_err(fault)
}

/// Notes that a tenant has more or fewer files, in the transaction that writes their rows.
pub(super) fn count(connection: &Connection, tenant: &str, files: i64, bytes: i64) -> Result<(), StoreError> {
    let sql = "INSERT INTO media_total (tenant, files, bytes) VALUES (?1, ?2, ?3)
               ON CONFLICT DO UPDATE SET files = files + excluded.files, bytes = bytes + excluded.bytes";
    let mut count = connection.prepare_cached(sql).map_err(fault)?;
    count.execute((tenant, files, bytes)).map(drop).map_err(fault)
}

impl MediaStore for SqliteStore {
    fn media_put(&self, mut item: MediaItem, body: MediaBody, tenant_max: u64) -> Stored<'_, MediaPut> {
        let path = self.media_dir.join(&item.id);
        Box::pin(async move {
            let (tenant, id) = (item.tenant.clone(), item.id.clone());
            let known = self.readers.read(of_tenant(&item.tenant), move |connection| {
                Ok((total_of(connection, &tenant)?.bytes, is_here(connection, &id)?))
            });
            let (used, is_here) = known.await?;
            if is_here {
                return Err(StoreError::Conflict);
            }
            if tenant_max > 0 && used >= tenant_max {
                return Ok(MediaPut::Full(used));
            }
            let written = write_file(&path, body).await;
            let put = match written {
                Ok(Some(size)) => {
                    item.size = size;
                    let work = move |books: &mut Books| put_row(&books.connection, item, tenant_max);
                    self.writer.write(work, |_| {}).await
                }
                Ok(None) => Ok(MediaPut::Aborted),
                Err(error) => Err(private::unusable(&path, &error)),
            };
            if !matches!(put, Ok(MediaPut::Stored(_)) | Err(StoreError::Unknown(_))) {
                let _ = fs::remove_file(&path).await; // it has no row; the next start removes it if this fails
            }
            put
        })
    }

    fn media_total<'a>(&'a self, tenant: &'a TenantId) -> Stored<'a, MediaTotal> {
        let owner = tenant.to_owned();
        self.readers.read(of_tenant(tenant), move |connection| total_of(connection, &owner))
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
            let Some((item, true)) = self.find(tenant, id, now_ms).await? else { return Ok(None) };
            // The id was created by us and read from the table, so it cannot point outside the folder.
            let path = self.media_dir.join(&item.id);
            match File::open(&path).await {
                Ok(file) => Ok(Some((item, pieces(file)))),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(private::unusable(&path, &error)),
            }
        })
    }

    fn media_remote<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<RemoteItem>> {
        let [id, owner] = [id, tenant.as_str()].map(str::to_owned);
        self.readers.read(of_tenant(tenant), move |connection| {
            let sql = "SELECT r.platform, r.bot, r.event, m.mime, m.filename, r.size, r.sealed
                       FROM media m JOIN media_remote r ON r.id = m.id
                       WHERE m.id = ?1 AND m.tenant = ?2 AND ";
            let mut query = connection.prepare_cached(&format!("{sql}{LASTS}")).map_err(fault)?;
            let found = query.query_row((id, owner, signed(now_ms)), |row| {
                Ok(RemoteItem {
                    platform: row.get(0)?,
                    bot: row.get::<_, String>(1)?.into(),
                    event: unsigned(row.get(2)?),
                    mime: row.get(3)?,
                    filename: row.get(4)?,
                    size: row.get::<_, Option<i64>>(5)?.map(unsigned),
                    sealed: row.get(6)?,
                })
            });
            found.optional().map_err(fault)
        })
    }
}

/// A file `m` can be had at the time `?3`: it has not expired, or mail refers to it.
const LASTS: &str = "(m.expires_ms > ?3 OR EXISTS (SELECT 1 FROM media_mail l WHERE l.id = m.id))";

impl SqliteStore {
    /// A file, and whether its bytes are here.
    fn find<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<(MediaItem, bool)>> {
        let (id, owner) = (id.to_owned(), tenant.to_owned());
        self.readers.read(of_tenant(tenant), move |connection| find(connection, id, owner, now_ms))
    }
}

/// The size, after the file was synced. `None`: the upload was aborted.
async fn write_file(path: &Path, mut body: MediaBody) -> std::io::Result<Option<u64>> {
    // What is there already is the rest of a write that was given up: it has no row.
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).await?;
    let mut size = 0;
    while let Some(piece) = body.next().await {
        let Ok(piece) = piece else { return Ok(None) };
        file.write_all(&piece).await?;
        size += piece.len() as u64;
    }
    file.flush().await?;
    file.sync_all().await?;
    Ok(Some(size))
}

fn pieces(file: File) -> MediaBody {
    Box::pin(stream::try_unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece).await?;
        Ok((read > 0).then(|| (Bytes::from(piece), file)))
    }))
}

fn total_of(connection: &Connection, tenant: &TenantId) -> Result<MediaTotal, StoreError> {
    let sql = "SELECT files, bytes FROM media_total WHERE tenant = ?1";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let total = |row: &Row<'_>| Ok(MediaTotal { files: unsigned(row.get(0)?), bytes: unsigned(row.get(1)?) });
    Ok(query.query_row([tenant.as_str()], total).optional().map_err(fault)?.unwrap_or_default())
}

fn is_here(connection: &Connection, id: &str) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM media m WHERE m.id = ?1 AND NOT EXISTS (SELECT 1 FROM media_remote r WHERE r.id = m.id)";
    connection.prepare_cached(sql).and_then(|mut query| query.exists([id])).map_err(fault)
}

/// Checks the quota again, because several uploads of a tenant may end at the same time.
fn put_row(connection: &Connection, item: MediaItem, tenant_max: u64) -> Result<MediaPut, StoreError> {
    let used = total_of(connection, &item.tenant)?.bytes;
    if tenant_max > 0 && used + item.size > tenant_max {
        return Ok(MediaPut::Full(used));
    }
    let size = item.size;
    // A file that was at its platform has a row; a later expiry of it is kept.
    let sql = "INSERT INTO media (id, tenant, mime, filename, size, expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (id) DO UPDATE SET mime = excluded.mime, filename = excluded.filename, size = excluded.size,
                 expires_ms = MAX(expires_ms, excluded.expires_ms)
               WHERE tenant = excluded.tenant AND id IN (SELECT id FROM media_remote)";
    let row = (&item.id, item.tenant.as_str(), item.mime, item.filename, signed(size), signed(item.expires_ms));
    let mut put = connection.prepare_cached(sql).map_err(fault)?;
    if put.execute(row).map_err(fault)? == 0 {
        return Err(StoreError::Conflict);
    }
    forget_handle(connection, &item.id)?;
    count(connection, &item.tenant, 1, signed(size))?;
    Ok(MediaPut::Stored(size))
}

fn find(
    connection: &Connection,
    id: String,
    tenant: TenantId,
    now_ms: u64,
) -> Result<Option<(MediaItem, bool)>, StoreError> {
    let sql = "SELECT m.mime, m.filename, COALESCE(r.size, m.size), m.expires_ms, r.id IS NULL
               FROM media m LEFT JOIN media_remote r ON r.id = m.id WHERE m.id = ?1 AND m.tenant = ?2 AND ";
    let mut query = connection.prepare_cached(&format!("{sql}{LASTS}")).map_err(fault)?;
    let found = query.query_row((&id, tenant.as_str(), signed(now_ms)), |row| {
        Ok((row.get(0)?, row.get(1)?, unsigned(row.get(2)?), unsigned(row.get(3)?), row.get(4)?))
    });
    let found = found.optional().map_err(fault)?;
    Ok(found.map(|(mime, filename, size, expires_ms, is_here)| {
        (MediaItem { id, tenant, mime, filename, size, expires_ms }, is_here)
    }))
}

/// The bytes of a file are here, or it is gone: its handle is not needed any more. False: it had none.
pub(super) fn forget_handle(connection: &Connection, id: &str) -> Result<bool, StoreError> {
    let mut forget = connection.prepare_cached("DELETE FROM media_remote WHERE id = ?1").map_err(fault)?;
    forget.execute([id]).map(|rows| rows > 0).map_err(fault)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use frontdesk_core::port::media::body_of;
    use frontdesk_testkit::store_suite::media::item;

    use super::*;
    use crate::sqlite::{FILE, instructions};

    /// Rows of files that a tenant has.
    fn files(count: u32) -> String {
        format!(
            "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {count})
             INSERT INTO media (id, tenant, mime, size, expires_ms)
             SELECT 'f-' || n, 'acme', 'a/b', 2, 9000 FROM number"
        )
    }

    async fn fill(store: &SqliteStore, sql: String) {
        store.writer.write(move |books| books.connection.execute_batch(&sql).map_err(fault), |()| {}).await.unwrap();
    }

    /// Instructions of an upload of a tenant with so many files.
    async fn upload(count: u32) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let executed = instructions::count(&folder.path().join(FILE));
        let store = SqliteStore::open(folder.path(), 1).unwrap();
        fill(&store, files(count)).await;
        for id in ["first", "second", "third"] {
            executed.store(0, Ordering::Relaxed); // the last one counts: the schema is loaded, statements are prepared
            store.media_put(item(id, 0), body_of("hi"), 1 << 40).await.unwrap();
            store.media_total(&"acme".into()).await.unwrap();
        }
        executed.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn an_upload_costs_the_same_however_many_files_a_tenant_has() {
        let (few, many) = (upload(100).await, upload(20_000).await);
        assert!(many <= 2 * few, "{few} instructions with 100 files, {many} with 20,000");
    }

    #[tokio::test]
    async fn totals_are_counted_again_at_each_start() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), 1).unwrap();
        fill(
            &store,
            files(300) + "; INSERT INTO media_total (tenant, files, bytes) VALUES ('acme', 7, 7), ('gone', 7, 7)",
        )
        .await;
        drop(store);
        let store = SqliteStore::open(folder.path(), 1).unwrap();
        assert_eq!(store.media_total(&"acme".into()).await.unwrap(), MediaTotal { files: 300, bytes: 600 });
        assert_eq!(store.media_total(&"gone".into()).await.unwrap(), MediaTotal::default());
    }
}
