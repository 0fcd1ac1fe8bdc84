//! Repeats the typing indicators of agents that work.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

const TICK: Duration = Duration::from_millis(500);
/// Shorter than the time after which an indicator is repeated, so that each has one call in progress at most.
const TIME_LIMIT: Duration = Duration::from_secs(3);

pub(super) async fn repeat(desk: Arc<Desk>, stop: CancellationToken) {
    // A vendor that is slow with one does not delay the others.
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {
                let due = desk.outbound().typing_due();
                let again = |again| tokio::time::timeout(TIME_LIMIT, desk.outbound().type_again(again));
                running.extend(due.into_iter().map(again));
            }
            Some(_) = running.next(), if !running.is_empty() => {}
            () = stop.cancelled() => return,
        }
    }
}
