//! Media, while they last.

use frontdesk_core::port::store::{MediaItem, MediaShelf, Stored};

use super::{MemoryStore, now};

impl MediaShelf for MemoryStore {
    fn media_put(&self, item: MediaItem, body: Vec<u8>) -> Stored<'_, ()> {
        self.state().media.insert(item.id.clone(), (item, body));
        now(())
    }

    fn media_get<'a>(&'a self, tenant: &'a str, id: &'a str, now_ms: u64) -> Stored<'a, Option<(MediaItem, Vec<u8>)>> {
        let state = self.state();
        let found = state.media.get(id).filter(|(item, _)| item.tenant == tenant && item.expires_ms > now_ms);
        now(found.cloned())
    }
}
