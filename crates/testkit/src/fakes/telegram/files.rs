//! Files with their ids and paths.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

/// When more is kept than this, the oldest content is dropped.
const MAX_BYTES: usize = 256 * 1024 * 1024;

#[derive(Debug, Clone)]
pub(super) struct StoredFile {
    pub(super) file_id: String,
    pub(super) unique_id: String,
    pub(super) path: String,
    /// photo, document, voice...
    pub(super) kind: String,
    pub(super) name: Option<String>,
    pub(super) mime: String,
    /// What the server says; a test may name another size than the content has.
    pub(super) size: u64,
    pub(super) bytes: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Files {
    by_id: BTreeMap<String, StoredFile>,
    order: VecDeque<String>,
    held: usize,
    last: u64,
}

impl Files {
    pub(super) fn add(&mut self, kind: &str, name: Option<&str>, mime: &str, bytes: Bytes) -> StoredFile {
        self.last += 1;
        let number = self.last;
        let extension = name.and_then(|name| name.rsplit_once('.')).map_or(extension(kind), |(_, end)| end);
        let file = StoredFile {
            file_id: format!("AgACAgIAAxkB{number:08x}{kind}"),
            unique_id: format!("AQAD{number:08x}"),
            path: format!("{}/file_{number}.{extension}", folder(kind)),
            kind: kind.to_owned(),
            name: name.map(str::to_owned),
            mime: mime.to_owned(),
            size: bytes.len() as u64,
            bytes,
        };
        self.held += file.bytes.len();
        self.by_id.insert(file.file_id.clone(), file.clone());
        self.order.push_back(file.file_id.clone());
        while self.held > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(gone) = self.by_id.remove(&oldest) {
                self.held -= gone.bytes.len();
            }
        }
        file
    }

    pub(super) fn set_size(&mut self, file_id: &str, size: u64) {
        if let Some(file) = self.by_id.get_mut(file_id) {
            file.size = size;
        }
    }

    pub(super) fn get(&self, file_id: &str) -> Option<&StoredFile> {
        self.by_id.get(file_id)
    }

    pub(super) fn at(&self, path: &str) -> Option<&StoredFile> {
        self.by_id.values().find(|file| file.path == path)
    }
}

fn folder(kind: &str) -> &'static str {
    match kind {
        "photo" => "photos",
        "video" => "videos",
        "voice" => "voice",
        "audio" => "music",
        "animation" => "animations",
        "sticker" => "stickers",
        _ => "documents",
    }
}

fn extension(kind: &str) -> &'static str {
    match kind {
        "photo" => "jpg",
        "video" | "animation" => "mp4",
        "voice" => "oga",
        "audio" => "mp3",
        "sticker" => "webp",
        _ => "bin",
    }
}
