//! Files that pass through the desk. Ids cannot be guessed, and only the tenant that put a file may get it.

use std::sync::Arc;

use crate::base::Base;
use crate::env::Env;
use crate::port::media::{MediaBody, MediaItem, MediaPut, MediaShelf};
use crate::port::store::StoreError;
use crate::port::stores::Stores;
use crate::rules::Rules;

pub struct MediaPlane {
    env: Arc<dyn Env>,
    store: Arc<dyn MediaShelf>,
    rules: Arc<Rules>,
}

impl MediaPlane {
    pub(crate) fn new(base: &Base, stores: &Stores) -> Self {
        Self { env: base.env.clone(), store: stores.media.clone(), rules: base.rules.clone() }
    }

    /// The longest file that is taken.
    pub fn max_bytes(&self) -> usize {
        self.rules.media_max_bytes
    }

    /// Bytes of files that one tenant may have; 0 is no limit.
    pub fn tenant_max_bytes(&self) -> u64 {
        self.rules.media_tenant_bytes
    }

    /// Keeps a file under an id of its own, which is returned with how that went.
    pub async fn put(
        &self,
        tenant: String,
        mime: String,
        filename: Option<String>,
        body: MediaBody,
    ) -> Result<(String, MediaPut), StoreError> {
        let id = self.env.random_hex(16);
        let expires_ms = self.env.now_ms() + self.rules.media_ttl_ms;
        let item = MediaItem { id: id.clone(), tenant, mime, filename, size: 0, expires_ms };
        let put = self.store.media_put(item, body, self.rules.media_tenant_bytes).await?;
        Ok((id, put))
    }

    pub async fn get(&self, tenant: &str, id: &str) -> Result<Option<(MediaItem, MediaBody)>, StoreError> {
        self.store.media_get(tenant, id, self.env.now_ms()).await
    }
}
