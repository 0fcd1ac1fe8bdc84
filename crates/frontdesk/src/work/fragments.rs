//! Makes events from fragments that are complete, also those that an earlier start left.

use std::sync::Arc;

use frontdesk_core::Desk;
use tokio_util::sync::CancellationToken;

pub(super) async fn join(desk: Arc<Desk>, stop: CancellationToken) {
    let mut is_open = true; // perhaps from an earlier start
    loop {
        tokio::select! {
            () = desk.inbound().fragments_due(is_open) => {}
            () = stop.cancelled() => return,
        }
        is_open = desk.inbound().join_quiet().await;
    }
}
