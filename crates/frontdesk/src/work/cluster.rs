//! Hears the other servers on the same store, and looks at the store where nothing is heard.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use tokio_util::sync::CancellationToken;

const TICK: Duration = Duration::from_millis(250);

pub(super) async fn listen(desk: Arc<Desk>, stop: CancellationToken) {
    let cluster = desk.cluster();
    if !cluster.has_others() {
        return;
    }
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let done = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = tick.tick() => cluster.tick().await,
            heard = cluster.hear() => cluster.take(heard).await,
        };
        if let Err(error) = done {
            tracing::warn!(%error, "looking for changes of other servers failed; the next sweep finds them");
        }
    }
}
