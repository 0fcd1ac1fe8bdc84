//! The inlet of a listener.

use std::sync::Arc;

use frontdesk_core::DeskError;
use frontdesk_core::inbound::BotInlet;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Change, Gap, Inlet, LateReceipt};
use frontdesk_core::port::store::StoreError;
use tokio_util::task::TaskTracker;

/// Calls that change state run to their end, also when the listener is stopped in between.
pub(super) struct TrackedInlet {
    pub(super) inlet: Arc<BotInlet>,
    pub(super) tracker: TaskTracker,
}

impl TrackedInlet {
    async fn to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = self.tracker.spawn(work).await;
        ended.unwrap_or_else(|error| Err(StoreError::Unknown(error.to_string())))
    }
}

impl Inlet for TrackedInlet {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        let inlet = self.inlet.clone();
        Box::pin(async move { self.to_end(async move { Ok(inlet.take(intakes).await) }).await? })
    }

    fn changed(&self, change: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        let inlet = self.inlet.clone();
        Box::pin(self.to_end(async move { inlet.changed(change).await }))
    }

    fn receipt<'a>(&'a self, receipt: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        let (inlet, receipt) = (self.inlet.clone(), receipt.clone());
        Box::pin(self.to_end(async move { inlet.receipt(&receipt).await }))
    }

    fn gap(&self, gap: Gap) {
        self.inlet.gap(gap);
    }

    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>> {
        let inlet = self.inlet.clone();
        Box::pin(self.to_end(async move { inlet.save_cursor(cursor).await }))
    }
}
