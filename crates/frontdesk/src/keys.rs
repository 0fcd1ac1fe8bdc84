//! Secrets in the data folder: created at the first start, readable by their owner only.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use frontdesk_core::Env;
use frontdesk_core::vault::Sealer;
use frontdesk_wire::Secret;
use zeroize::Zeroizing;

pub(crate) struct Keys {
    pub(crate) sealer: Sealer,
    pub(crate) admin_token: Secret,
}

/// Opens or creates the keys. `may_be_new`: a database exists, or the operator asked for an empty one.
pub(crate) fn open(folder: &Path, env: &dyn Env, may_be_new: bool) -> anyhow::Result<Keys> {
    if !folder.exists() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("cannot create the data folder {}", folder.display()))?;
    }
    if !may_be_new && folder.join("master.key").exists() {
        bail!(
            "{} has a master.key but no database: all known gateways would be rejected as unknown. Restore the \
             database from a backup, or start with --new to create an empty one",
            folder.display()
        );
    }
    let master = secret_file(&folder.join("master.key"), || env.random_hex(32))?;
    let mut key = Zeroizing::new([0; 32]);
    let decoded = Zeroizing::new(hex::decode(master.expose()).unwrap_or_default());
    if decoded.len() != key.len() {
        bail!("{}/master.key must contain 64 hex digits; restore it from a backup", folder.display());
    }
    key.copy_from_slice(&decoded);
    let admin_token = secret_file(&folder.join("admin.token"), || format!("fda_{}", env.random_hex(24)))?;
    Ok(Keys { sealer: Sealer::new(key), admin_token })
}

/// Reads the file, or creates it with a new secret (mode 0600, synced).
fn secret_file(path: &Path, make: impl FnOnce() -> String) -> anyhow::Result<Secret> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let mode = fs::metadata(path).map_or(0, |meta| meta.permissions().mode());
            if mode & 0o077 != 0 {
                bail!(
                    "{} is readable by others (mode {:o}); run: chmod 600 {}",
                    path.display(),
                    mode & 0o777,
                    path.display()
                );
            }
            Ok(Secret::new(text.trim()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = Zeroizing::new(make());
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)
                .with_context(|| format!("cannot create {}", path.display()))?;
            file.write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
                .with_context(|| format!("cannot write {}", path.display()))?;
            Ok(Secret::new(text.as_str()))
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Writes a file with mode 0600, replacing its content.
pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = open.with_context(|| format!("cannot write {}", path.display()))?;
    file.set_permissions(fs::Permissions::from_mode(0o600))
        .and_then(|()| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
