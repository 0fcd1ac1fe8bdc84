//! Receives hints of the other servers on the same store, and reads the store where none arrive.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::delivery::interrupt::ASKING_TENANTS_MAX;
use frontdesk_core::port::bus::{BusEvent, Hint};
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::TenantId;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const TICK: Duration = Duration::from_millis(250);
/// Slow hints that wait; sweeps find the changes of further ones.
const SLOW_MAX: usize = 1_024;

pub(super) async fn listen(desk: Arc<Desk>, stop: CancellationToken) {
    let cluster = desk.cluster();
    if !cluster.has_others() {
        return;
    }
    let (slow, mut hints) = mpsc::channel::<BusEvent>(SLOW_MAX);
    let work_off = async {
        while let Some(event) = hints.recv().await {
            note(cluster.take(event).await);
        }
    };
    let interrupts = desk.delivery().interrupts();
    let (asking, mut tenants) = mpsc::channel::<TenantId>(ASKING_TENANTS_MAX);
    // Polled concurrently with `receive`: work that waits for a read may hold its permit and must make progress.
    let interrupt = async {
        let mut working = FuturesUnordered::new(); // at most one future per tenant
        loop {
            tokio::select! {
                tenant = tenants.recv() => match tenant {
                    Some(tenant) => working.push(interrupts.work_off(tenant)),
                    None => return,
                },
                Some(()) = working.next(), if !working.is_empty() => {}
            }
        }
    };
    let receive = async move {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = tick.tick() => note(cluster.tick().await),
                event = cluster.next_event() => match event {
                    BusEvent::Hint(Hint::InterruptTurn(tenant, session_key)) => {
                        if interrupts.ask(&tenant, session_key) {
                            drop(asking.try_send(tenant)); // cannot be full: its capacity is the maximum number of tenants
                        }
                    }
                    event if event.is_slow() => drop(slow.try_send(event)),
                    event => note(cluster.take(event).await),
                },
            }
        }
    };
    tokio::join!(receive, work_off, interrupt); // the first one ends the others
}

fn note(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(%error, "looking for changes of other servers failed; the next sweep finds them");
    }
}
