//! File connector: writes each message as one file, `<dispatch_id>.json`, to a folder that the agent reads.
//!
//! A file is complete and synced before it gets its name, so a reader never sees a partial file, even after a crash.
//! Nothing is written outside of the operator's base folder: names and folders are checked again at each delivery, with
//! symlinks resolved.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use frontdesk_core::Env;
use frontdesk_core::sha256_hex;
use frontdesk_wire::agents::{
    AgentConnector, AgentDescriptor, AgentReply, DeliveryPayload, DeliveryReceipt, Fault, Promise, WakeOpts,
    WakeReceipt,
};
use serde_json::{Value, json};

use crate::address::{note_dropped, note_early, only, session_of};

const NAME_MAX_BYTES: usize = 128;
/// Makes the search for a free name and the rename one step. No file is written under this lock.
static PLACING: Mutex<()> = Mutex::new(());

pub struct FileDrop {
    agent_id: String,
    folder: Folder,
    env: Arc<dyn Env>,
}

impl FileDrop {
    /// `dir` is relative to the base, or absolute and under it.
    pub fn open(agent_id: &str, base: &Path, dir: &str, env: Arc<dyn Env>) -> Result<Self, Fault> {
        let folder =
            Folder::named(base, dir).map_err(|why| Fault::invalid(format!("dir: {why}")).with("field", "dir"))?;
        Ok(Self { agent_id: agent_id.into(), folder, env })
    }

    /// Writes the message on a blocking thread.
    async fn put(&self, name: String, message: Value) -> Result<Placed, Fault> {
        let (folder, at_ms) = (self.folder.clone(), self.env.now_ms());
        let mark = self.env.random_hex(8);
        self.aside(move || folder.place(&name, &message, at_ms, &mark)).await
    }

    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Fault> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.unwrap_or_else(|error| Err(Trouble::Disk(format!("the write task failed: {error}"))));
        done.map_err(|trouble| match trouble {
            Trouble::Folder(why) => Fault::delivery_failed(&self.agent_id, "client_validation", why),
            Trouble::Disk(why) => Fault::delivery_failed(&self.agent_id, "network", why),
        })
    }
}

impl AgentConnector for FileDrop {
    fn list_agents(&self) -> Promise<'_, Vec<AgentDescriptor>> {
        Box::pin(async { Ok(only(&self.agent_id)) })
    }

    fn deliver<'a>(&'a self, agent_id: &'a str, payload: &'a DeliveryPayload) -> Promise<'a, DeliveryReceipt> {
        Box::pin(async move {
            let session = session_of(&self.agent_id, agent_id)?;
            let mut message = serde_json::to_value(payload).map_err(|error| {
                let text = format!("encoding the message as JSON failed: {error}");
                Fault::delivery_failed(&self.agent_id, "client_validation", text)
            })?;
            message["agent_id"] = self.agent_id.as_str().into();
            let placed = self.put(file_name(&payload.meta().dispatch_id), message).await?;
            let mut receipt = DeliveryReceipt {
                delivered_at: placed.at_ms,
                delivery_id: Some(placed.name),
                ..DeliveryReceipt::default()
            };
            if placed.again {
                receipt.warnings.push("duplicate: this message was already written; this is the first receipt".into());
            }
            Ok(note_dropped(receipt, session))
        })
    }

    fn wake<'a>(&'a self, agent_id: &'a str, opts: &'a WakeOpts) -> Promise<'a, WakeReceipt> {
        Box::pin(async move {
            let session = session_of(&self.agent_id, agent_id)?;
            let content = opts.context.as_deref().unwrap_or_default();
            let mut message = json!({ "agent_id": self.agent_id, "kind": "wake", "content": content });
            if let Some(session_id) = opts.session_id.as_deref().or(session) {
                message["session_id"] = session_id.into();
            }
            let name = format!("wake-{}", self.env.random_hex(16));
            let placed = self.put(name, message).await?;
            let receipt = WakeReceipt {
                woken_at: placed.at_ms,
                woken: false,
                warnings: vec!["a file connector cannot wake an agent: the context was written as a file".into()],
                ..WakeReceipt::default()
            };
            Ok(note_early(receipt, opts))
        })
    }

    fn health_check(&self) -> Promise<'_, ()> {
        Box::pin(async {
            let (folder, mark) = (self.folder.clone(), self.env.random_hex(8));
            self.aside(move || folder.try_writing(&mark)).await
        })
    }

    fn request_response<'a>(&'a self, _: &'a str, _: &'a DeliveryPayload, _: u64) -> Promise<'a, AgentReply> {
        Box::pin(async { Err(Fault::not_implemented("file", "request_response")) })
    }
}

/// Dispatch ids come from callers and are not trusted. One that is not a plain file name is replaced by its hash.
fn file_name(dispatch_id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let fits = (1..=NAME_MAX_BYTES).contains(&dispatch_id.len()) && !dispatch_id.starts_with('.');
    if fits && dispatch_id.bytes().all(plain) { dispatch_id.into() } else { sha256_hex(dispatch_id) }
}

struct Placed {
    name: String,
    at_ms: u64,
    /// The message was already written before.
    again: bool,
}

enum Trouble {
    /// The folder is missing, unusable or outside of the base.
    Folder(String),
    Disk(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Disk(format!("writing the file failed: {error}"))
    }
}

/// A folder under the base. Both paths are stored as configured, without symlinks resolved.
#[derive(Clone)]
struct Folder {
    base: PathBuf,
    /// Relative to the base, without `.` and `..`.
    under: PathBuf,
}

impl Folder {
    fn named(base: &Path, dir: &str) -> Result<Self, String> {
        let asked = Path::new(dir);
        let under = if asked.is_absolute() {
            let real = fs::canonicalize(base).unwrap_or_else(|_| base.into());
            let found = asked.strip_prefix(base).or_else(|_| asked.strip_prefix(&real));
            found.map_err(|_| "the path is outside of [agents] file_base")?
        } else {
            asked
        };
        let plain = under.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || under.as_os_str().is_empty() || dir.contains('\0') {
            return Err("must be a path to a folder under [agents] file_base, without . and ..".into());
        }
        let folder = Self { base: base.into(), under: under.into() };
        match folder.nearest() {
            Ok(_) => Ok(folder),
            Err(Trouble::Folder(why) | Trouble::Disk(why)) => Err(why),
        }
    }

    /// The deepest existing part of the path, with symlinks resolved, and the missing part below it.
    fn nearest(&self) -> Result<(PathBuf, PathBuf), Trouble> {
        let base = fs::canonicalize(&self.base)
            .map_err(|error| Trouble::Folder(format!("opening [agents] file_base failed: {error}")))?;
        let mut there = base.join(&self.under);
        let mut missing = PathBuf::new();
        // A dangling symlink counts as existing, so that its target is not created as a folder.
        while there != base && fs::symlink_metadata(&there).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        {
            let name = there.file_name().map(PathBuf::from).unwrap_or_default();
            missing = if missing.as_os_str().is_empty() { name } else { name.join(missing) };
            there.pop();
        }
        let real =
            fs::canonicalize(&there).map_err(|error| Trouble::Folder(format!("opening the folder failed: {error}")))?;
        if !real.starts_with(&base) {
            return Err(Trouble::Folder("the folder resolves to a path outside of [agents] file_base".into()));
        }
        if !real.is_dir() {
            return Err(Trouble::Folder("a component of the path is not a folder".into()));
        }
        Ok((real, missing))
    }

    /// The folder itself, created if it is missing.
    fn ready(&self) -> Result<PathBuf, Trouble> {
        let (there, missing) = self.nearest()?;
        if missing.as_os_str().is_empty() {
            return Ok(there);
        }
        let mut at = there;
        for part in missing.components() {
            let parent = at.clone();
            at.push(part);
            match fs::create_dir(&at) {
                Ok(()) => sync_folder(&parent)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {} // created by a concurrent delivery
                Err(error) => return Err(error.into()),
            }
        }
        // Checked again, because another process may have created a symlink in the meantime.
        let (there, _) = self.nearest()?;
        Ok(there)
    }

    fn place(&self, name: &str, message: &Value, at_ms: u64, mark: &str) -> Result<Placed, Trouble> {
        let dir = self.ready()?;
        let hidden = dir.join(format!(".{mark}.part"));
        let placed = write_whole(&hidden, message, at_ms).and_then(|()| take_name(&dir, &hidden, name, message, at_ms));
        if !placed.as_ref().is_ok_and(|placed| !placed.again) {
            let _ = fs::remove_file(&hidden); // readers ignore this name
        }
        let placed = placed?;
        sync_folder(&dir)?; // for a duplicate too: the first delivery may not have synced yet
        Ok(placed)
    }

    fn try_writing(&self, mark: &str) -> Result<(), Trouble> {
        let probe = self.ready()?.join(format!(".{mark}.probe"));
        let written = write_whole(&probe, &Value::Null, 0);
        let _ = fs::remove_file(&probe);
        written
    }
}

fn write_whole(path: &Path, message: &Value, at_ms: u64) -> Result<(), Trouble> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(message.to_string().as_bytes())?;
    // The receipt's time is stored as the file's time, so that a retry returns the same time.
    file.set_modified(UNIX_EPOCH + Duration::from_millis(at_ms))?;
    file.sync_all()?;
    Ok(())
}

/// Renames to the first free name of this message, or finds the file that it already has.
fn take_name(dir: &Path, hidden: &Path, name: &str, message: &Value, at_ms: u64) -> Result<Placed, Trouble> {
    let hash = sha256_hex(&format!("{name}\0{}\0{}\0{}", message["agent_id"], message["kind"], text_of(message)));
    let _placing = PLACING.lock().unwrap_or_else(PoisonError::into_inner);
    for name in [format!("{name}.json"), format!("{name}-{}.json", &hash[..16])] {
        let path = dir.join(&name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::rename(hidden, &path)?;
                return Ok(Placed { name, at_ms, again: false });
            }
            Err(error) => return Err(error.into()),
            // A symlink or folder was not written by this connector.
            Ok(found) if !found.is_file() => {}
            Ok(found) => {
                let there: Value = serde_json::from_slice(&fs::read(&path)?).unwrap_or_default();
                let same = ["agent_id", "kind"].into_iter().all(|field| there[field] == message[field]);
                if same && text_of(&there) == text_of(message) {
                    let since = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
                    let at_ms = u64::try_from(since.as_millis()).unwrap_or(at_ms);
                    return Ok(Placed { name, at_ms, again: true });
                }
            }
        }
    }
    Err(Trouble::Disk("both candidate file names for this message are taken by other files".into()))
}

fn text_of(message: &Value) -> &Value {
    if message["kind"] == "template" { &message["prompt"] } else { &message["content"] }
}

fn sync_folder(dir: &Path) -> Result<(), Trouble> {
    Ok(File::open(dir)?.sync_all()?)
}
