//! Media, kept in memory.

use frontdesk_core::port::media::{MediaBody, MediaItem, MediaPut, MediaShelf, body_of, read_whole};
use frontdesk_core::port::store::Stored;

use super::{MemoryStore, State, now};

impl State {
    fn media_of(&self, tenant: &str, id: &str, now_ms: u64) -> Option<&(MediaItem, Vec<u8>)> {
        self.media.get(id).filter(|(item, _)| item.tenant == tenant && item.expires_ms > now_ms)
    }
}

impl MediaShelf for MemoryStore {
    fn media_put(&self, mut item: MediaItem, body: MediaBody, tenant_max: u64) -> Stored<'_, MediaPut> {
        Box::pin(async move {
            let Ok(bytes) = read_whole(body).await else { return Ok(MediaPut::Aborted) };
            let mut state = self.state();
            let own = state.media.values().filter(|(it, _)| it.tenant == item.tenant);
            let used: u64 = own.map(|(it, _)| it.size).sum();
            item.size = bytes.len() as u64;
            if tenant_max > 0 && used + item.size > tenant_max {
                return Ok(MediaPut::Full(used));
            }
            let size = item.size;
            state.media.insert(item.id.clone(), (item, bytes));
            Ok(MediaPut::Kept(size))
        })
    }

    fn media_item<'a>(&'a self, tenant: &'a str, id: &'a str, now_ms: u64) -> Stored<'a, Option<MediaItem>> {
        now(self.state().media_of(tenant, id, now_ms).map(|(item, _)| item.clone()))
    }

    fn media_get<'a>(
        &'a self,
        tenant: &'a str,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(MediaItem, MediaBody)>> {
        let state = self.state();
        now(state.media_of(tenant, id, now_ms).map(|(item, bytes)| (item.clone(), body_of(bytes.clone()))))
    }
}
