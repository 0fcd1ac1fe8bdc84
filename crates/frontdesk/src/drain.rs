//! How a server stops that shares its store with others: it reports that, gives up its duties, closes its sockets in
//! steps, and only then closes its listener. So others take over while it still answers, and its clients do not
//! reconnect all at once.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frontdesk_core::Desk;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Sockets are closed in this many steps.
const SLICES: usize = 50;
/// Time for the loops with duties to end before the duties are given up. Their later writes name the old token.
const DUTIES_TIME: Duration = Duration::from_secs(2);

/// Time for the store to list the other servers.
const LOOK_TIME: Duration = Duration::from_secs(1);

pub struct Drain {
    leaving: CancellationToken,
    stop: CancellationToken,
    slices: Vec<CancellationToken>,
    next: AtomicUsize,
}

impl Drain {
    pub(crate) fn new(stop: &CancellationToken) -> Self {
        Self {
            leaving: stop.child_token(),
            stop: stop.clone(),
            slices: std::iter::repeat_with(|| stop.child_token()).take(SLICES).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Cancelled when the server is asked to stop.
    pub(crate) fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Cancelled when this socket or stream has to end. One that begins while the server is stopping stays until the
    /// end: its client would reconnect at once.
    pub(crate) fn slice(&self) -> CancellationToken {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % SLICES;
        self.slices.get(next).filter(|_| !self.is_leaving()).unwrap_or(&self.stop).clone()
    }

    /// Runs once the server is asked to stop. Without other servers it stops at once, because none could take over.
    pub(crate) async fn run(&self, desk: &Desk, duties: Vec<JoinHandle<()>>, time: Duration) -> Infallible {
        self.leaving.cancelled().await;
        if !time.is_zero() && !self.stop.is_cancelled() && has_others(desk).await {
            tracing::info!(?time, "started to close sockets in steps");
            tokio::join!(give_up(desk, duties), self.close_slices(time));
        }
        self.stop.cancel();
        std::future::pending().await
    }

    async fn close_slices(&self, time: Duration) {
        let mut tick = tokio::time::interval(time / u32::try_from(SLICES).unwrap_or(u32::MAX));
        tick.tick().await; // at once
        for slice in &self.slices {
            tick.tick().await;
            slice.cancel();
        }
    }
}

/// Asks the store: a server that has just started, to replace this one, is missing in the last renewal.
async fn has_others(desk: &Desk) -> bool {
    if !desk.cluster().has_others() {
        return false;
    }
    match tokio::time::timeout(LOOK_TIME, desk.lease().renew()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "looking for other servers failed; the last known list is used"),
        Err(_) => tracing::warn!("looking for other servers took too long; the last known list is used"),
    }
    !desk.lease().is_alone()
}

async fn give_up(desk: &Desk, duties: Vec<JoinHandle<()>>) {
    let _ = tokio::time::timeout(DUTIES_TIME, futures_util::future::join_all(duties)).await;
    match tokio::time::timeout(DUTIES_TIME, desk.lease().leave()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(
                %error,
                "giving up the duties of this server failed; other servers take them over when its lease ends"
            );
        }
        Err(_) => {
            tracing::warn!(
                "giving up the duties of this server took too long; other servers take them over when its lease ends"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sockets_end_slice_by_slice_and_all_at_a_stop() {
        let stop = CancellationToken::new();
        let drain = Drain::new(&stop);
        let sockets: Vec<_> = (0..SLICES * 2).map(|_| drain.slice()).collect();
        drain.leaving().cancel();
        assert!(!drain.slice().is_cancelled() && !stop.is_cancelled(), "a new one stays");
        let open = || sockets.iter().filter(|socket| !socket.is_cancelled()).count();
        tokio::join!(drain.close_slices(Duration::from_secs(5)), async {
            for second in 0..5 {
                tokio::time::sleep(Duration::from_millis(950)).await;
                assert_eq!(open(), SLICES * 2 - 2 * (second * 10 + 9), "after {second} s");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        assert_eq!(open(), 0);
        let last = drain.slice();
        stop.cancel();
        assert!(last.is_cancelled());
    }
}
