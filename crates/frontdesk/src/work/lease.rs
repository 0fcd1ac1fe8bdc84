//! Keeps the lease of this desk, and reads what others wrote.

use std::convert::Infallible;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::port::store::{DeskNo, StoreError};

const RENEW_EVERY: Duration = Duration::from_secs(1);
/// A store that does not answer by then counts as away: the lease runs out, and the desk stops acting.
const RENEW_TIME: Duration = Duration::from_secs(1);

pub(crate) async fn keep_lease(desk: &Desk) -> Infallible {
    let mut known: Option<Vec<DeskNo>> = None;
    loop {
        match tokio::time::timeout(RENEW_TIME, desk.lease().renew()).await {
            Ok(Ok((version, live))) => {
                // At first too: one may have gone while this one started.
                let someone_left = known.as_ref().is_none_or(|known| known.iter().any(|desk| !live.contains(desk)));
                if desk.directory().version() < version
                    && let Err(error) = desk.directory().refresh().await
                {
                    tracing::warn!(%error, "reading the changes of other desks failed");
                }
                desk.lease().note_directory(desk.directory().version());
                match if someone_left { take_over(desk, &live).await } else { Ok(()) } {
                    Ok(()) => known = Some(live),
                    Err(error) => tracing::warn!(%error, "taking over from a desk that is gone failed; retrying"),
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "renewing the lease of this desk failed"),
            Err(_) => tracing::warn!("renewing the lease of this desk took too long"),
        }
        tokio::time::sleep(RENEW_EVERY).await;
    }
}

/// What a desk that is gone was doing is unknown, and agents that it served may have to be woken.
async fn take_over(desk: &Desk, live: &[DeskNo]) -> Result<(), StoreError> {
    desk.outbound().doubt(live.to_vec()).await?;
    desk.delivery().served().look_for_unserved().await
}
