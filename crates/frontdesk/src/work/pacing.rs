//! The timer of all outbound queues.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use tokio_util::sync::CancellationToken;

/// Nothing waits for a time.
const IDLE: Duration = Duration::from_mins(1);

pub(super) async fn release(desk: Arc<Desk>, stop: CancellationToken) {
    loop {
        let next = desk.outbound().release_due();
        let until = |at_ms: u64| Duration::from_millis(at_ms.saturating_sub(desk.env().steady_ms()).max(1));
        tokio::select! {
            () = tokio::time::sleep(next.map_or(IDLE, until)) => {}
            () = desk.outbound().due_earlier() => {}
            () = stop.cancelled() => break,
        }
    }
    desk.outbound().stop_waiting();
}
