//! Repeats the typing indicators of agents that work.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;

const TICK: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 32;
/// A vendor that is slow with some holds up the others no longer than this.
const TIME_LIMIT: Duration = Duration::from_secs(3);

pub(super) async fn repeat(desk: Arc<Desk>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = stop.cancelled() => return,
        }
        let due = futures_util::stream::iter(desk.outbound().typing_due());
        let all = due.for_each_concurrent(AT_ONCE, |again| desk.outbound().type_again(again));
        let _ = tokio::time::timeout(TIME_LIMIT, all).await; // what is left is due again soon
    }
}
