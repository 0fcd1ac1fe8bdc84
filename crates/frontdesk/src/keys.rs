//! Secrets in the data folder: created at the first start, readable by their owner only.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use frontdesk_core::Env;
use frontdesk_core::vault::Sealer;
use frontdesk_wire::Secret;
use serde::Deserialize;
use zeroize::Zeroizing;

/// Where the secrets are; empty: in the data folder.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub master_file: PathBuf,
    pub admin_token_file: PathBuf,
}

pub(crate) struct Keys {
    pub(crate) sealer: Sealer,
    pub(crate) admin_token: Secret,
}

/// Opens or creates the keys. `may_be_new`: a database exists, or the operator asked for an empty one.
pub(crate) fn open(folder: &Path, files: &Settings, env: &dyn Env, may_be_new: bool) -> anyhow::Result<Keys> {
    if !folder.exists() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("cannot create the data folder {}", folder.display()))?;
    }
    let master_file = or_in(folder, &files.master_file, "master.key");
    let admin_token_file = or_in(folder, &files.admin_token_file, "admin.token");
    if !may_be_new && master_file.exists() {
        bail!(
            "{} has no database, but there is a master key for one: all known gateways would be rejected as unknown. Restore the \
             database from a backup, or start with --new to create an empty one",
            folder.display()
        );
    }
    let sealer = sealer(&secret_file(&master_file, || env.random_hex(32))?, &master_file)?;
    let admin_token = secret_file(&admin_token_file, || format!("fda_{}", env.random_hex(24)))?;
    Ok(Keys { sealer, admin_token })
}

/// The master key if there is one. Creates nothing.
pub(crate) fn master(folder: &Path, files: &Settings) -> anyhow::Result<Option<Sealer>> {
    let path = or_in(folder, &files.master_file, "master.key");
    let is_there = path.try_exists().with_context(|| format!("cannot read {}", path.display()))?;
    match is_there {
        true => sealer(&secret_file(&path, String::new)?, &path).map(Some),
        false => Ok(None),
    }
}

fn or_in(folder: &Path, given: &Path, name: &str) -> PathBuf {
    match given.as_os_str().is_empty() {
        true => folder.join(name),
        false => given.to_owned(),
    }
}

fn sealer(master: &Secret, path: &Path) -> anyhow::Result<Sealer> {
    let mut key = Zeroizing::new([0; 32]);
    let decoded = Zeroizing::new(hex::decode(master.expose()).unwrap_or_default());
    if decoded.len() != key.len() {
        bail!("{} must contain 64 hex digits; restore it from a backup", path.display());
    }
    key.copy_from_slice(&decoded);
    Ok(Sealer::new(key))
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
