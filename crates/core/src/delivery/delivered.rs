//! How far a socket or stream has got with its messages, for callers that wait for a delivery.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// `N` is the type of its numbers: rows of the ledger, or messages of an inbox.
pub struct Delivered<N> {
    /// Highest number that was delivered.
    last: AtomicU64,
    ended: AtomicBool,
    /// Notified when the number rises, and at the end.
    notify: Notify,
    numbers: PhantomData<fn(N)>,
}

impl<N> Default for Delivered<N> {
    fn default() -> Self {
        let (last, ended, notify) = (AtomicU64::new(0), AtomicBool::new(false), Notify::new());
        Self { last, ended, notify, numbers: PhantomData }
    }
}

impl<N: Into<u64>> Delivered<N> {
    /// Everything up to this number was delivered.
    pub fn advance(&self, seq: N) {
        let seq = seq.into();
        if self.last.fetch_max(seq, Ordering::AcqRel) < seq {
            self.notify.notify_waiters();
        }
    }

    /// Nothing more will be delivered.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// Returns when this number was delivered; false: the session ended before.
    pub async fn reached(&self, seq: N) -> bool {
        let seq = seq.into();
        loop {
            // Registered before the check, so that no notification in between is missed.
            let mut notified = std::pin::pin!(self.notify.notified());
            notified.as_mut().enable();
            if self.last.load(Ordering::Acquire) >= seq {
                return true;
            }
            if self.ended.load(Ordering::Acquire) {
                return false;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_returns_at_its_number_or_at_the_end() {
        let delivered = std::sync::Arc::new(Delivered::<u64>::default());
        delivered.advance(3);
        delivered.advance(2);
        assert!(delivered.reached(3).await, "a lower number changes nothing");
        let waits = |seq| {
            let delivered = delivered.clone();
            tokio::spawn(async move { delivered.reached(seq).await })
        };
        let (four, nine) = (waits(4), waits(9));
        tokio::task::yield_now().await;
        delivered.advance(5);
        assert!(four.await.unwrap());
        delivered.end();
        assert!(!nine.await.unwrap());
        assert!(delivered.reached(5).await && !delivered.reached(6).await);
    }
}
