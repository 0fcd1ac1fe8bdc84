//! The embedded store: one writer thread with group commit, two reader threads, WAL, full sync.
//!
//! Nothing is answered before its fsync. Writes that arrive while one fsync runs share the next.

mod alarms;
mod chat;
pub(crate) mod data;
mod directory;
mod journal;
mod ledger;
mod letters;
mod media;
pub(crate) mod schema;
mod skills;
mod threads;
mod upkeep;
mod vault;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use frontdesk_core::port::store::{Bell, StoreError};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use threads::{Readers, Writer};

pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    bell: Arc<OnceLock<Arc<dyn Bell>>>,
    epoch: u32,
    path: PathBuf,
    media_dir: PathBuf,
    /// Held for as long as we live: two desks on one folder would each think it their own.
    _lock: File,
}

impl SqliteStore {
    /// Opens (or makes) `frontdesk.db` and `media/` in a folder. `epoch_seed` is used once, when it is made.
    pub fn open(folder: &Path, epoch_seed: u32) -> Result<Self, StoreError> {
        let io = |error: std::io::Error| StoreError::Unavailable(format!("{}: {error}", folder.display()));
        let media_dir = folder.join("media");
        std::fs::create_dir_all(&media_dir).map_err(io)?;
        let lock_path = folder.join("frontdesk.lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(lock_path).map_err(io)?;
        lock.try_lock().map_err(|_| {
            StoreError::Unavailable(format!("{} is in use by another frontdesk process", folder.display()))
        })?;
        let path = folder.join("frontdesk.db");
        let mut connection = connect(&path, false)?;
        let epoch = schema::migrate(&mut connection, epoch_seed)?;
        alarms::free_claims(&connection)?;
        Ok(Self {
            writer: Writer::start(connection)?,
            readers: Readers::start(&path)?,
            bell: Arc::new(OnceLock::new()),
            epoch,
            path,
            media_dir,
            _lock: lock,
        })
    }
}

fn connect(path: &Path, read_only: bool) -> Result<Connection, StoreError> {
    let access = if read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
    };
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(fault)?;
    connection.busy_timeout(std::time::Duration::from_secs(2)).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    if !read_only {
        // journal_mode answers with a row; the others do not.
        let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).map_err(fault)?;
        if mode != "wal" {
            return Err(StoreError::Unavailable(format!("SQLite offers journal mode {mode}, not wal")));
        }
        // A checkpoint copies pages and fsyncs twice; every 32 MiB keeps that rare.
        let settings = "PRAGMA synchronous=FULL; PRAGMA foreign_keys=OFF; PRAGMA wal_autocheckpoint=8000;
                        PRAGMA cache_size=-16000; PRAGMA temp_store=MEMORY;";
        connection.execute_batch(settings).map_err(fault)?;
    }
    Ok(connection)
}

/// What `SQLite` says, in the port's words.
pub(crate) fn fault(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// `SQLite` holds signed numbers; ours are counts and times far below the sign bit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
