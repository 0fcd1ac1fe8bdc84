//! Counts the instructions that `SQLite` executes on a database, for tests that bound the work of an operation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rusqlite::Connection;

static COUNTERS: Mutex<BTreeMap<PathBuf, Arc<AtomicU64>>> = Mutex::new(BTreeMap::new());

/// Counts what is executed on connections to this database that are opened from now on.
pub(super) fn count(path: &Path) -> Arc<AtomicU64> {
    COUNTERS.lock().expect("no test panics here").entry(path.to_owned()).or_default().clone()
}

/// Called for each new connection.
pub(super) fn counted(mut connection: Connection, path: &Path) -> Connection {
    let counter = COUNTERS.lock().expect("no test panics here").get(path).cloned();
    if let Some(counter) = counter {
        let each = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            false // do not interrupt
        };
        connection.progress_handler(1, Some(each)).expect("the connection is open");
    }
    connection
}
