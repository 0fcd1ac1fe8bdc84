//! Media: the bytes are files beside the database, the facts are rows. A row is written after its file.

use std::fs::File;
use std::io::{Read as _, Write as _};

use frontdesk_core::port::store::{MediaItem, MediaShelf, StoreError, Stored};
use rusqlite::OptionalExtension as _;

use super::threads::Books;
use super::{SqliteStore, fault, signed, unsigned};

impl MediaShelf for SqliteStore {
    fn media_put(&self, item: MediaItem, body: Vec<u8>) -> Stored<'_, ()> {
        let path = self.media_dir.join(&item.id);
        Box::pin(async move {
            let file = path.clone();
            let write = move || {
                let mut made = File::create_new(&file)?;
                made.write_all(&body).and_then(|()| made.sync_all()).inspect_err(|_| {
                    let _ = std::fs::remove_file(&file); // half a file on a full disk keeps it full
                })
            };
            self.readers.read(move |_| write().map_err(|error| StoreError::Unavailable(error.to_string()))).await?;
            let work = move |books: &mut Books| {
                let sql =
                    "INSERT INTO media (id, tenant, mime, filename, size, expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                let row = (item.id, item.tenant, item.mime, item.filename, signed(item.size), signed(item.expires_ms));
                books.connection.execute(sql, row).map(drop).map_err(fault)
            };
            let written = self.writer.write(work, |()| {}).await;
            if written.is_err() {
                let _ = std::fs::remove_file(&path); // no row names it, so no purge would find it
            }
            written
        })
    }

    fn media_get<'a>(&'a self, tenant: &'a str, id: &'a str, now_ms: u64) -> Stored<'a, Option<(MediaItem, Vec<u8>)>> {
        let name = [id, tenant].map(str::to_owned);
        let folder = self.media_dir.clone();
        self.readers.read(move |connection| {
            let sql =
                "SELECT mime, filename, size, expires_ms FROM media WHERE id = ?1 AND tenant = ?2 AND expires_ms > ?3";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let [id, tenant] = name;
            let found = query.query_row((&id, &tenant, signed(now_ms)), |row| {
                Ok(MediaItem {
                    id: id.clone(),
                    tenant: tenant.clone(),
                    mime: row.get(0)?,
                    filename: row.get(1)?,
                    size: unsigned(row.get(2)?),
                    expires_ms: unsigned(row.get(3)?),
                })
            });
            let Some(item) = found.optional().map_err(fault)? else { return Ok(None) };
            // The id is one that we made and that the table holds: it cannot name another folder.
            let mut body = Vec::with_capacity(usize::try_from(item.size).unwrap_or(0));
            let read = File::open(folder.join(&item.id)).and_then(|mut file| file.read_to_end(&mut body));
            match read {
                Ok(_) => Ok(Some((item, body))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(StoreError::Unavailable(error.to_string())),
            }
        })
    }
}
