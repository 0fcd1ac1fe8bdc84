//! The embedded store: one writer thread with group commit, two reader threads, WAL, full sync.
//!
//! Writes are answered after their fsync. Writes that arrive during one fsync share the next.

mod alarms;
mod backlogs;
mod chat;
mod cursors;
pub(crate) mod data;
mod desks;
mod directory;
mod events;
mod fragments;
mod heads;
mod held_media;
mod inbox;
#[cfg(test)]
mod instructions;
mod journal;
mod ledger;
mod mail;
mod media;
mod portable;
mod private;
mod readers;
mod repair;
mod retention;
pub(crate) mod schema;
mod sessions;
mod skills;
mod threads;
#[cfg(test)]
mod turns;
mod upkeep;
mod vault;
mod watch;

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frontdesk_core::port::store::StoreError;
use rusqlite::types::Type;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use tokio::sync::Semaphore;

use crate::claims::{LocalClaims, local_claims};
use crate::exchanges::{LocalExchanges, local_exchanges};
use crate::listeners::Listeners;
use crate::read_queue::Tenants;
use crate::wakes::WakeClaims;
use desks::Leases;
use readers::Readers;
use threads::Writer;
use upkeep::Round;
use watch::Watched;

/// File name of the database.
const FILE: &str = "frontdesk.db";
/// Rows deleted at once: a few milliseconds of the writer. Others write between two steps.
const STEP_ROWS: usize = 200;

pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    tenants: Tenants,
    listeners: Listeners,
    epoch: u32,
    path: PathBuf,
    media_dir: PathBuf,
    /// Progress of the retention run.
    round: tokio::sync::Mutex<Round>,
    /// One operation on the whole file at a time: backup or integrity check.
    whole_file: Arc<Semaphore>,
    /// Bytes of data that may wait for the writer, so that other writes get their turn.
    data_room: Semaphore,
    leases: Leases,
    wakes: WakeClaims,
    exchanges: LocalExchanges,
    claims: LocalClaims,
    /// Held while the store is open: two servers must not use the same folder.
    _lock: File,
}

local_exchanges!(SqliteStore);
local_claims!(SqliteStore);

impl SqliteStore {
    /// Opens or creates `frontdesk.db` and `media/` in a folder. `epoch_seed` is used only when creating.
    pub fn open(folder: &Path, epoch_seed: u32) -> Result<Self, StoreError> {
        private::make_folder(folder)?;
        let lock = lock(folder)?;
        let media_dir = folder.join("media");
        private::make_folder(&media_dir)?;
        let path = folder.join(FILE);
        private::make_file(&path)?;
        let mut connection = connect(&path, false)?;
        let epoch = schema::migrate(&mut connection, epoch_seed, |connection| repair::check(connection))?;
        alarms::free_claims(&connection)?;
        directory::forget_deletions(&connection)?;
        media::remove_orphans(&connection, &media_dir)?;
        media::count_again(&connection)?;
        Ok(Self {
            writer: Writer::start(connection, Watched::begin(&path)?)?,
            readers: Readers::start(&path)?,
            tenants: Tenants::default(),
            listeners: Listeners::default(),
            epoch,
            path,
            media_dir,
            round: tokio::sync::Mutex::default(),
            whole_file: Arc::new(Semaphore::new(1)),
            data_room: Semaphore::new(data::ROOM_BYTES),
            leases: Leases::default(),
            wakes: WakeClaims::default(),
            exchanges: LocalExchanges::default(),
            claims: LocalClaims::default(),
            _lock: lock,
        })
    }
}

impl SqliteStore {
    pub fn is_in(folder: &Path) -> bool {
        std::fs::metadata(folder.join(FILE)).is_ok_and(|meta| meta.len() > 0)
    }

    /// Repairs a database that `open` refuses. No server may use the folder. Returns one sentence per change.
    pub fn repair(folder: &Path) -> Result<Vec<String>, StoreError> {
        let path = folder.join(FILE);
        if !Self::is_in(folder) {
            return Err(StoreError::Unavailable(format!("database {} not found", path.display())));
        }
        let _lock = lock(folder)?;
        let mut connection = connect(&path, false)?;
        let mut changes = Vec::new();
        schema::migrate(&mut connection, 0, |connection| {
            changes = repair::separate(connection)?;
            Ok(())
        })?;
        Ok(changes)
    }
}

/// Two servers must not use the same folder.
fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join("frontdesk.lock");
    private::make_file(&path)?;
    let file = OpenOptions::new().write(true).open(&path).map_err(|error| private::unusable(&path, &error))?;
    file.try_lock()
        .map_err(|_| StoreError::Unavailable(format!("{} is in use by another Frontdesk server", folder.display())))?;
    Ok(file)
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
        // journal_mode returns a row; the other pragmas do not.
        let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).map_err(fault)?;
        if mode != "wal" {
            return Err(StoreError::Unavailable(format!("SQLite uses journal mode {mode}; wal is required")));
        }
        // A checkpoint copies pages and syncs twice; every 32 MiB keeps that rare.
        let settings = "PRAGMA synchronous=FULL; PRAGMA foreign_keys=OFF; PRAGMA wal_autocheckpoint=8000;
                        PRAGMA cache_size=-16000; PRAGMA temp_store=MEMORY;";
        connection.execute_batch(settings).map_err(fault)?;
    }
    #[cfg(test)]
    let connection = instructions::counted(connection, path);
    Ok(connection)
}

fn gone() -> StoreError {
    StoreError::Unavailable("the store was shut down".into())
}

/// Maps errors of `SQLite` to those of the port.
pub(crate) fn fault(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// `SQLite` integers are signed; our counts, times and ids are far below the sign bit.
fn signed(number: impl Into<u64>) -> i64 {
    i64::try_from(number.into()).unwrap_or(i64::MAX)
}

fn unsigned<T: From<u64>>(number: i64) -> T {
    u64::try_from(number).unwrap_or(0).into()
}

/// A text that is not copied before it becomes an id.
fn text_at<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r str> {
    row.get_ref(column)?
        .as_str()
        .map_err(|why| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why.into()))
}
