//! Media: files that pass through the server. Their bytes are streamed; none is held whole in memory.

use std::pin::Pin;

use bytes::Bytes;
use frontdesk_wire::{BotId, EventId, TenantId};
use futures_util::{Stream, StreamExt as _, stream};

use super::stored::Stored;

/// The bytes of a file as a stream. After an error there are no further bytes.
pub type MediaBody = Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send>>;

/// A body of bytes that are in memory.
pub fn body_of(bytes: impl Into<Bytes>) -> MediaBody {
    Box::pin(stream::iter([Ok(bytes.into())]))
}

/// All bytes of a body. For small ones, and for tests.
pub async fn read_whole(mut body: MediaBody) -> std::io::Result<Vec<u8>> {
    let mut whole = Vec::new();
    while let Some(piece) = body.next().await {
        whole.extend_from_slice(&piece?);
    }
    Ok(whole)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaItem {
    pub id: String,
    pub tenant: TenantId,
    pub mime: String,
    pub filename: Option<String>,
    pub size: u64,
    pub expires_ms: u64,
}

/// A file that is still at its platform, with the sealed handle by which the platform gives it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedMedia {
    pub id: String,
    pub mime: String,
    pub filename: Option<String>,
    /// As the platform reports it. It does not count for a quota until the bytes are stored.
    pub size: Option<u64>,
    pub sealed: Vec<u8>,
    pub expires_ms: u64,
}

/// A file that an event refers to. It is kept while a row of the event is unsettled, whatever its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventFile {
    /// Id of a file in the store. A file of another tenant is not touched.
    Stored(String),
    /// A file whose bytes are fetched on first use.
    Remote(SealedMedia),
}

/// Where a file is whose bytes were not fetched yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteItem {
    pub platform: String,
    pub bot: BotId,
    /// The event that brought it.
    pub event: EventId,
    pub mime: String,
    pub filename: Option<String>,
    pub size: Option<u64>,
    pub sealed: Vec<u8>,
}

/// What a tenant has stored. A file that is still at its platform does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MediaTotal {
    pub files: u64,
    pub bytes: u64,
}

impl MediaTotal {
    /// Why a tenant that has this may store no further file. `max` 0: no limit.
    pub fn too_many(self, max: u64) -> Option<String> {
        let there = self.files;
        let text = || {
            format!(
                "this tenant stores {there} files, which includes files of messages that no agent has acked yet; wait, \
                 drop such messages (frontdesk mail drop), or raise media.per_tenant_files ({max})"
            )
        };
        (max > 0 && there >= max).then(text)
    }
}

/// Outcome of storing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaPut {
    /// It was stored; this is its size.
    Stored(u64),
    /// Its body ended with an error; nothing was stored.
    Aborted,
    /// The tenant has this many bytes already; nothing was stored.
    Full(u64),
}

pub trait MediaStore: Send + Sync {
    /// Stores a file. Its size is counted; the size in `item` is ignored. `tenant_max` limits the bytes of one tenant
    /// (0: no limit). For a file that was known without its bytes, the bytes are added and the handle is deleted. An id
    /// whose bytes are stored is a conflict.
    fn media_put(&self, item: MediaItem, body: MediaBody, tenant_max: u64) -> Stored<'_, MediaPut>;
    /// What a tenant has stored, by a total that is kept: it takes no longer if there are many files. A store of no files
    /// has nothing.
    fn media_total<'a>(&'a self, _tenant: &'a TenantId) -> Stored<'a, MediaTotal> {
        Box::pin(std::future::ready(Ok(MediaTotal::default())))
    }
    /// What is known of a file, without its bytes. They may be at its platform.
    fn media_item<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<MediaItem>>;
    /// `None` also if the bytes are still at its platform.
    fn media_get<'a>(
        &'a self,
        tenant: &'a TenantId,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(MediaItem, MediaBody)>>;
    /// Where to fetch the bytes of a file. `None`: they are stored, or the file is unknown.
    fn media_remote<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<RemoteItem>>;
}
