//! Which session of the agent belongs to which chat, kept across restarts.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::super::lock;

/// The sessions that were not used for the longest time are forgotten.
pub(super) const SESSIONS_MAX: usize = 1000;

#[derive(Clone, Serialize, Deserialize)]
struct Known {
    session: String,
    /// Counts up with each use.
    used: u64,
}

pub(super) struct Sessions {
    path: PathBuf,
    known: Mutex<HashMap<String, Known>>,
}

impl Sessions {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let known = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                let aside = path.with_extension("unreadable");
                tracing::warn!(
                    %error,
                    aside = %aside.display(),
                    "reading the file of sessions failed; it is moved aside, and all chats get new sessions"
                );
                let _ = fs::rename(&path, &aside); // it is overwritten otherwise
                HashMap::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => HashMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { path, known: Mutex::new(known) })
    }

    pub(super) fn get(&self, chat: &str) -> Option<String> {
        lock(&self.known).get(chat).map(|known| known.session.clone())
    }

    /// Blocks for the time of a small write.
    pub(super) fn put(&self, chat: &str, session: &str) -> io::Result<()> {
        let mut known = lock(&self.known);
        let used = known.values().map(|it| it.used).max().unwrap_or(0) + 1;
        known.insert(chat.to_owned(), Known { session: session.to_owned(), used });
        if known.len() > SESSIONS_MAX
            && let Some(oldest) = known.iter().min_by_key(|(_, it)| it.used).map(|(chat, _)| chat.clone())
        {
            known.remove(&oldest);
        }
        let bytes = serde_json::to_vec(&*known)?;
        let part = self.path.with_extension("part");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&part, &self.path)?;
        File::open(self.path.parent().unwrap_or(&self.path))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_kept_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.json");
        let sessions = Sessions::open(path.clone()).unwrap();
        sessions.put("first", "s-first").unwrap();
        for number in 0..SESSIONS_MAX {
            lock(&sessions.known).insert(number.to_string(), Known { session: "s".into(), used: number as u64 + 2 });
        }
        sessions.put("last", "s-last").unwrap();
        let again = Sessions::open(path.clone()).unwrap();
        assert_eq!((again.get("first"), again.get("last").as_deref()), (None, Some("s-last")));
        fs::write(&path, "{").unwrap();
        assert_eq!(Sessions::open(path.clone()).unwrap().get("last"), None);
        assert!(path.with_extension("unreadable").exists(), "it is kept for whoever wants to look");
    }
}
