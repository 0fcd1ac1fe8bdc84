//! Files that only their owner can read, whatever the folder and the umask.

use std::fs::{self, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use frontdesk_core::port::store::StoreError;

pub(super) fn unusable(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}", path.display()))
}

/// Ensures that the file exists with mode 0600: creates it, or removes permissions of others. `SQLite` creates its log
/// with the mode of the database.
pub(super) fn make_file(path: &Path) -> Result<(), StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => narrow(path, 0o600),
        made => made.map(drop).map_err(|error| unusable(path, &error)),
    }
}

pub(super) fn make_folder(path: &Path) -> Result<(), StoreError> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => narrow(path, 0o700),
        Err(error) => Err(unusable(path, &error)),
    }
}

fn narrow(path: &Path, mode: u32) -> Result<(), StoreError> {
    let found = fs::metadata(path).map_err(|error| unusable(path, &error))?.permissions().mode();
    let others = found & 0o077;
    if others == 0 {
        return Ok(());
    }
    tracing::warn!(path = %path.display(), mode = format!("{:o}", found & 0o777), "removed permissions of other users");
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| unusable(path, &error))
}
