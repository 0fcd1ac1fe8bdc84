//! Attachments with their content, under paths of the content network.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde_json::Value;

use super::snowflake::Id;

/// When more is kept than this, the oldest content is dropped.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// How long the address of a file can be used.
pub(super) const VALID_S: u64 = 86_400;

pub(super) fn path(channel: Id, attachment: &Value) -> String {
    let part = |name: &str| attachment[name].as_str().unwrap_or_default().to_owned();
    format!("attachments/{channel}/{}/{}", part("id"), part("filename"))
}

#[derive(Debug, Default)]
pub(super) struct Files {
    /// By path: content and media type.
    by_path: BTreeMap<String, (Bytes, String)>,
    order: VecDeque<String>,
    held: usize,
}

impl Files {
    pub(super) fn put(&mut self, path: String, bytes: Bytes, mime: &str) {
        self.held += bytes.len();
        self.by_path.insert(path.clone(), (bytes, mime.to_owned()));
        self.order.push_back(path);
        while self.held > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some((gone, _)) = self.by_path.remove(&oldest) {
                self.held -= gone.len();
            }
        }
    }

    pub(super) fn get(&self, path: &str) -> Option<(Bytes, String)> {
        self.by_path.get(path).cloned()
    }
}
