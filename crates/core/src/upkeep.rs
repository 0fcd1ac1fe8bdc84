//! Health, retention and backup of the store, for operators and for the loop that deletes what is old.

use std::path::Path;
use std::sync::Arc;

use crate::port::store::{Purged, Retention, StoreError, StoreReport, Upkeep};
use crate::port::stores::Stores;

pub struct UpkeepPlane {
    store: Arc<dyn Upkeep>,
}

impl UpkeepPlane {
    pub(crate) fn new(stores: &Stores) -> Self {
        Self { store: stores.upkeep.clone() }
    }

    /// Whether a message could be accepted now: a real write.
    pub async fn health(&self) -> Result<(), StoreError> {
        self.store.health().await
    }

    pub async fn report(&self) -> Result<StoreReport, StoreError> {
        self.store.report().await
    }

    /// A consistent copy, made while the server works. Returns its size in bytes.
    pub async fn backup(&self, to: &Path) -> Result<u64, StoreError> {
        self.store.backup(to).await
    }

    /// One small step of deleting what is old. Call it until it says that there is no more.
    pub async fn purge(&self, retention: Retention) -> Result<Purged, StoreError> {
        self.store.purge(retention).await
    }
}
