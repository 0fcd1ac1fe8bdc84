//! Media in memory.

use frontdesk_core::port::media::{
    EventFile, MediaBody, MediaItem, MediaPut, MediaStore, MediaTotal, RemoteItem, SealedMedia, body_of, read_whole,
};
use frontdesk_core::port::store::{Delivery, MadeRow, StoreError, Stored};
use frontdesk_wire::{InstanceNo, Seq, TenantId};

use super::{MemoryStore, State, now};

pub(super) struct MediaEntry {
    item: MediaItem,
    bytes: Bytes,
    /// Mail that refers to it, as (instance, seq), until all of it is settled.
    rows: Vec<(InstanceNo, Seq)>,
}

enum Bytes {
    Here(Vec<u8>),
    AtPlatform(RemoteItem),
}

impl MediaEntry {
    /// It has not expired, or mail refers to it.
    pub(super) fn lasts(&self, now_ms: u64) -> bool {
        self.item.expires_ms > now_ms || !self.rows.is_empty()
    }
}

impl State {
    fn media_of(&self, tenant: &TenantId, id: &str, now_ms: u64) -> Option<&MediaEntry> {
        self.media.get(id).filter(|it| it.item.tenant == *tenant && it.lasts(now_ms))
    }

    fn media_total(&self, tenant: &TenantId) -> MediaTotal {
        let own = self.media.values().filter(|it| it.item.tenant == *tenant);
        let here = own.filter(|it| matches!(it.bytes, Bytes::Here(_)));
        here.fold(MediaTotal::default(), |total, it| MediaTotal {
            files: total.files + 1,
            bytes: total.bytes + it.item.size,
        })
    }

    /// Binds the files of an event to its rows, so that they are kept while one of these is unsettled.
    pub(super) fn hold_media(&mut self, tenant: &TenantId, it: &Delivery, files: Vec<EventFile>, rows: &[MadeRow]) {
        if rows.is_empty() {
            return; // no session was notified of them
        }
        for file in files {
            let id = match file {
                EventFile::Stored(id) => id,
                EventFile::Remote(file) => {
                    let id = file.id.clone();
                    self.media.insert(id.clone(), at_platform(tenant, it, file));
                    id
                }
            };
            if let Some(kept) = self.media.get_mut(&id).filter(|kept| kept.item.tenant == *tenant) {
                kept.rows.extend(rows.iter().map(|row| (row.instance, row.seq)));
            }
        }
    }

    /// Binds the files of a row to its copy, if they are still bound.
    pub(super) fn hold_media_again(&mut self, row: (InstanceNo, Seq), again: (InstanceNo, Seq)) {
        for kept in self.media.values_mut().filter(|kept| kept.rows.contains(&row)) {
            kept.rows.push(again);
        }
    }

    /// Files whose mail is settled expire, but not before this time.
    pub(super) fn release_media(&mut self, expires_ms: u64) {
        let Self { media, ledgers, .. } = self;
        let owed = |(instance, seq): &(InstanceNo, Seq)| {
            !ledgers.get(instance).is_some_and(|account| account.position.settled(*seq))
        };
        for kept in media.values_mut().filter(|kept| !kept.rows.is_empty()) {
            if !kept.rows.iter().any(owed) {
                kept.rows.clear();
                kept.item.expires_ms = kept.item.expires_ms.max(expires_ms);
            }
        }
    }
}

fn at_platform(tenant: &TenantId, it: &Delivery, file: SealedMedia) -> MediaEntry {
    let SealedMedia { id, mime, filename, size, sealed, expires_ms } = file;
    let remote = RemoteItem {
        platform: it.platform.clone(),
        bot: it.bot.clone(),
        event: it.event,
        mime: mime.clone(),
        filename: filename.clone(),
        size,
        sealed,
    };
    let item = MediaItem { id, tenant: tenant.clone(), mime, filename, size: size.unwrap_or(0), expires_ms };
    MediaEntry { item, bytes: Bytes::AtPlatform(remote), rows: Vec::new() }
}

impl MediaStore for MemoryStore {
    fn media_put(&self, mut item: MediaItem, body: MediaBody, tenant_max: u64) -> Stored<'_, MediaPut> {
        Box::pin(async move {
            let Ok(bytes) = read_whole(body).await else { return Ok(MediaPut::Aborted) };
            let mut state = self.state();
            let used = state.media_total(&item.tenant).bytes;
            item.size = bytes.len() as u64;
            if tenant_max > 0 && used + item.size > tenant_max {
                return Ok(MediaPut::Full(used));
            }
            let size = item.size;
            let mut rows = Vec::new();
            if let Some(known) = state.media.get_mut(&item.id) {
                if matches!(known.bytes, Bytes::Here(_)) || known.item.tenant != item.tenant {
                    return Err(StoreError::Conflict);
                }
                rows = std::mem::take(&mut known.rows);
                item.expires_ms = item.expires_ms.max(known.item.expires_ms);
            }
            state.media.insert(item.id.clone(), MediaEntry { item, bytes: Bytes::Here(bytes), rows });
            Ok(MediaPut::Stored(size))
        })
    }

    fn media_total<'a>(&'a self, tenant: &'a TenantId) -> Stored<'a, MediaTotal> {
        now(self.state().media_total(tenant))
    }

    fn media_item<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<MediaItem>> {
        now(self.state().media_of(tenant, id, now_ms).map(|it| it.item.clone()))
    }

    fn media_get<'a>(
        &'a self,
        tenant: &'a TenantId,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(MediaItem, MediaBody)>> {
        let state = self.state();
        now(state.media_of(tenant, id, now_ms).and_then(|it| match &it.bytes {
            Bytes::Here(bytes) => Some((it.item.clone(), body_of(bytes.clone()))),
            Bytes::AtPlatform(_) => None,
        }))
    }

    fn media_remote<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<RemoteItem>> {
        let state = self.state();
        now(state.media_of(tenant, id, now_ms).and_then(|it| match &it.bytes {
            Bytes::Here(_) => None,
            Bytes::AtPlatform(remote) => Some(remote.clone()),
        }))
    }
}
