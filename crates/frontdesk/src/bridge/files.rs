//! Files of a message, for as long as it is answered.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use frontdesk_client::Agent;
use frontdesk_wire::MessageEvent;

/// Files of one message, and the size of one.
const FILES_MAX: usize = 10;
const FILE_MAX_BYTES: usize = 20 << 20;

pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) mime: String,
    pub(super) size: usize,
}

/// Removed when it is dropped.
pub(super) struct Files {
    folder: Option<PathBuf>,
    pub(super) list: Vec<File>,
    /// What could not be fetched, for the agent.
    pub(super) missing: Vec<String>,
}

impl Files {
    pub(super) fn paths(&self) -> Vec<String> {
        self.list.iter().map(|file| file.path.display().to_string()).collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder); // a leftover does no harm
        }
    }
}

pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes what an earlier process has left, unless another one uses the folder now. This one uses it for as long as it
/// keeps the lock.
pub(super) fn clear(state: &Path) -> io::Result<std::fs::File> {
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(state.join("lock"))?;
    if lock.try_lock().is_ok() {
        for left in std::fs::read_dir(state.join("files"))? {
            std::fs::remove_dir_all(left?.path())?;
        }
    }
    lock.lock_shared()?;
    Ok(lock)
}

/// Fetches the files of a message. One that cannot be fetched is told to the agent, and does not prevent an answer.
pub(super) async fn fetch(agent: &Agent, event: &MessageEvent, state: &Path) -> Files {
    let mut got = Files { folder: None, list: Vec::new(), missing: Vec::new() };
    if event.media.is_empty() {
        return got;
    }
    let folder = state.join("files").join(format!("{:016x}", random()));
    if let Err(error) = make_folder(&folder) {
        tracing::warn!(%error, folder = %folder.display(), "creating a folder for files failed");
        got.missing.push("the files cannot be stored".into());
        return got;
    }
    got.folder = Some(folder.clone());
    for (number, media) in event.media.iter().enumerate() {
        let name = media.filename.clone().unwrap_or_else(|| media.kind.clone());
        if number == FILES_MAX {
            got.missing.push(format!("{} more files", event.media.len() - FILES_MAX));
            break;
        }
        let path = folder.join(format!("{number}-{}", safe_name(&name)));
        let stored = match agent.transport().fetch_file(&media.url, FILE_MAX_BYTES).await {
            Ok(bytes) => tokio::fs::write(&path, &bytes).await.map(|()| bytes.len()).map_err(|error| error.to_string()),
            Err(why) => Err(why.to_string()),
        };
        match stored {
            Ok(size) => got.list.push(File { path, name, mime: media.mime.clone(), size }),
            Err(why) => {
                tracing::warn!(why, "fetching a file of a message failed");
                got.missing.push(format!("{name}: {why}"));
            }
        }
    }
    got
}

/// The name of a file without anything that leads elsewhere.
fn safe_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).take(80).collect();
    name.trim_start_matches('.').to_owned()
}

pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_lead_nowhere() {
        for (name, safe) in
            [("a b.pdf", "a_b.pdf"), ("../../etc/passwd", "_.._etc_passwd"), (".ssh", "ssh"), ("/x", "_x")]
        {
            assert_eq!(safe_name(name), safe);
        }
    }

    #[test]
    fn a_start_keeps_the_files_of_processes_that_run() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        make_folder(&state.join("files")).unwrap();
        let file = state.join("files/message");
        let first = clear(state).unwrap();
        make_folder(&file).unwrap();
        let second = clear(state).unwrap();
        drop(first);
        let third = clear(state).unwrap();
        assert!(file.exists(), "the second process still runs");
        drop((second, third));
        clear(state).unwrap();
        assert!(!file.exists());
    }
}
