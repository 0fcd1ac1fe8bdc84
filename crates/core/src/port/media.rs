//! Media: files that pass through the desk. Their bytes come and go in pieces; none is held whole in memory.

use std::pin::Pin;

use bytes::Bytes;
use frontdesk_wire::{EventId, TenantId};
use futures_util::{Stream, StreamExt as _, stream};

use super::stored::Stored;

/// The bytes of a file, as they come. An error says that the rest will not come.
pub type MediaBody = Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send>>;

/// A file whose bytes are in hand already.
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
    /// As the platform says. It counts for no quota until the bytes are here.
    pub size: Option<u64>,
    pub sealed: Vec<u8>,
    pub expires_ms: u64,
}

/// A file that an event refers to. It is kept while mail of the event is owed, whatever its age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventFile {
    /// One that is on the shelf already, by its id. Another tenant's is not touched.
    Kept(String),
    /// One whose bytes are fetched when somebody asks for them.
    Remote(SealedMedia),
}

/// Where a file is whose bytes were not fetched yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteItem {
    pub platform: String,
    pub bot: String,
    /// The event that brought it.
    pub event: EventId,
    pub mime: String,
    pub filename: Option<String>,
    pub size: Option<u64>,
    pub sealed: Vec<u8>,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaPut {
    /// It is kept; this is its size.
    Kept(u64),
    /// Its body broke off: nothing is kept.
    Aborted,
    /// The tenant has this many bytes already: nothing is kept.
    Full(u64),
}

pub trait MediaShelf: Send + Sync {
    /// Keeps a file; its size is counted, not believed. `tenant_max` bounds what one tenant has (0: nothing does).
    /// A file that was known without its bytes has them from now on, and its handle is forgotten. An id whose bytes are
    /// here is a conflict.
    fn media_put(&self, item: MediaItem, body: MediaBody, tenant_max: u64) -> Stored<'_, MediaPut>;
    /// What is known of a file, without its bytes. They may be at its platform.
    fn media_item<'a>(&'a self, tenant: &'a str, id: &'a str, now_ms: u64) -> Stored<'a, Option<MediaItem>>;
    /// `None` also if the bytes are still at its platform.
    fn media_get<'a>(&'a self, tenant: &'a str, id: &'a str, now_ms: u64)
    -> Stored<'a, Option<(MediaItem, MediaBody)>>;
    /// Where the bytes of a file are to be fetched from. `None`: they are here, or the file is not known.
    fn media_remote<'a>(&'a self, tenant: &'a str, id: &'a str, now_ms: u64) -> Stored<'a, Option<RemoteItem>>;
}
