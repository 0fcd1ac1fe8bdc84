//! Checks that the open files are still those in the folder. `SQLite` continues to write into a file that was removed
//! or replaced, and these writes are lost at the next start.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use frontdesk_core::port::store::StoreError;

use super::private::unusable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
}

pub(super) struct Watched {
    database: PathBuf,
    log: PathBuf,
    identity: Identity,
    /// The file never shrinks, because it is never vacuumed.
    length: u64,
    /// Identity and length of the log, which the first write creates. It never shrinks either, because `SQLite` reuses it from
    /// the start.
    known_log: Option<(Identity, u64)>,
}

impl Watched {
    pub(super) fn begin(database: &Path) -> Result<Self, StoreError> {
        let mut name = database.as_os_str().to_owned();
        name.push("-wal");
        let (database, log) = (database.to_owned(), PathBuf::from(name));
        let Some((identity, length)) = stat(&database)? else { return Err(lost(&database, "is gone")) };
        Ok(Self { database, log, identity, length, known_log: None })
    }

    /// Called before every group of writes: two system calls, which are cheap compared with the fsync.
    pub(super) fn look(&mut self) -> Result<(), StoreError> {
        match stat(&self.database)? {
            None => return Err(lost(&self.database, "was removed")),
            Some((identity, _)) if identity != self.identity => return Err(lost(&self.database, "was replaced")),
            Some((_, length)) if length < self.length => return Err(lost(&self.database, "was truncated")),
            Some((_, length)) => self.length = length,
        }
        match (stat(&self.log)?, self.known_log) {
            (None, Some(_)) => Err(lost(&self.log, "was removed")),
            (Some((found, _)), Some((known, _))) if found != known => Err(lost(&self.log, "was replaced")),
            (Some((_, found)), Some((_, known))) if found < known => {
                let text = format!(
                    "{} was truncated while the server was running; if another program made a checkpoint of the database \
                     (`PRAGMA wal_checkpoint(TRUNCATE)`), nothing is lost: restart the server; otherwise stop it, restore \
                     the database from a backup, and start again",
                    self.log.display()
                );
                Err(StoreError::Unavailable(text))
            }
            (found, _) => {
                self.known_log = found;
                Ok(())
            }
        }
    }
}

fn stat(path: &Path) -> Result<Option<(Identity, u64)>, StoreError> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some((Identity { device: meta.dev(), number: meta.ino() }, meta.len()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(path, &error)),
    }
}

fn lost(path: &Path, how: &str) -> StoreError {
    let text = format!(
        "{} {how} while the server was running; stop the server, restore the database from a backup, and start again",
        path.display()
    );
    StoreError::Unavailable(text)
}
