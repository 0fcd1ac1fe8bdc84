//! Makes events from complete fragments, also those that an earlier start left.

use std::sync::Arc;

use frontdesk_core::Desk;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) async fn join(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut is_open = true; // perhaps from an earlier start
    loop {
        tokio::select! {
            () = desk.inbound().fragments_due(is_open) => {}
            () = stop.cancelled() => return,
        }
        // In a task of its own: a panic ends this one only, and a stop does not cancel it.
        let desk = desk.clone();
        let joined = tracker.spawn(async move { desk.inbound().join_quiet().await }).await;
        is_open = joined.unwrap_or_else(|error| {
            tracing::error!(%error, "joining fragments of events panicked; trying again");
            false
        });
    }
}
