//! Keeps the lease of this desk, and reads what others wrote.

use std::convert::Infallible;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::port::store::{DeskNo, StoreError};
use tokio::sync::watch;

const RENEW_EVERY: Duration = Duration::from_secs(1);
/// A store that does not answer by then counts as away: the lease runs out, and the desk stops acting.
const RENEW_TIME: Duration = Duration::from_secs(1);

/// Renews, and beside that reads what others wrote: however long that takes, it delays no renewal.
pub(crate) async fn keep_lease(desk: &Desk) -> Infallible {
    let (renewals, renewed) = watch::channel(None);
    let renewing = async {
        loop {
            match tokio::time::timeout(RENEW_TIME, desk.lease().renew()).await {
                Ok(Ok(renewal)) => drop(renewals.send_replace(Some(renewal))),
                Ok(Err(error)) => tracing::warn!(%error, "renewing the lease of this server failed"),
                Err(_) => tracing::warn!("renewing the lease of this server took too long"),
            }
            tokio::time::sleep(RENEW_EVERY).await;
        }
    };
    tokio::select! {
        never = renewing => never,
        never = follow(desk, renewed) => never,
    }
}

/// Reads the changes of others after each renewal, and takes over from desks that are gone.
async fn follow(desk: &Desk, mut renewed: watch::Receiver<Option<(u64, Vec<DeskNo>)>>) -> Infallible {
    let mut known: Option<Vec<DeskNo>> = None;
    loop {
        if renewed.changed().await.is_err() {
            return std::future::pending().await; // never: the sender lives as long
        }
        let Some((version, live)) = renewed.borrow_and_update().clone() else { continue };
        // At first too: one may have gone while this one started.
        let someone_left = known.as_ref().is_none_or(|known| known.iter().any(|desk| !live.contains(desk)));
        if desk.directory().version() < version
            && let Err(error) = desk.directory().refresh().await
        {
            tracing::warn!(%error, "reading the changes of other servers failed");
        }
        desk.lease().note_directory(desk.directory().version());
        match if someone_left { take_over(desk, &live).await } else { Ok(()) } {
            Ok(()) => known = Some(live),
            Err(error) => tracing::warn!(%error, "taking over from a server that ended failed; retrying"),
        }
    }
}

/// What a desk that is gone was doing is unknown, and agents that it served may have to be woken.
async fn take_over(desk: &Desk, live: &[DeskNo]) -> Result<(), StoreError> {
    desk.outbound().doubt(live.to_vec()).await?;
    desk.delivery().served().look_for_unserved().await
}
