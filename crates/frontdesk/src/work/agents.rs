//! Calls the wake URLs of agents that have an inbox and no socket, and hands messages of other servers to the
//! connectors of this one.

use std::sync::Arc;

use frontdesk_core::Desk;
use frontdesk_core::agents::LOOK_EVERY;
use frontdesk_core::delivery::wake::POKES_MAX;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) async fn poke_agents(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut calls = desk.messages().new_calls();
    let (done, mut ended) = mpsc::channel(POKES_MAX);
    loop {
        tokio::select! {
            () = desk.messages().called() => {}
            Some((call, how)) = ended.recv() => calls.ended(call, how, desk.env().steady_ms()),
            () = tokio::time::sleep(calls.pause(desk.delivery())) => {}
            () = stop.cancelled() => return,
        }
        for (task, since) in desk.messages().due_wake_tasks(&mut calls).await {
            let (desk, done) = (desk.clone(), done.clone());
            drop(tracker.spawn(async move {
                let ended = desk.messages().run(task, since).await;
                let _ = done.send(ended).await; // the loop may have ended
            }));
        }
    }
}

pub(super) async fn run_handoffs(desk: Arc<Desk>, stop: CancellationToken) {
    loop {
        if let Err(error) = desk.messages().run_handoffs().await {
            tracing::warn!(%error, "handing messages of other servers to connectors failed; trying again");
        }
        tokio::select! {
            () = desk.agents().handoff_arrived() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = stop.cancelled() => return,
        }
    }
}
