//! How far a socket or stream has got with its messages, for callers that wait for a delivery.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Default)]
pub struct Delivered {
    /// Highest number that was handed over.
    last: AtomicU64,
    ended: AtomicBool,
    /// Notified when the number rises, and at the end.
    bell: Notify,
}

impl Delivered {
    /// Everything up to this number was handed over.
    pub fn hand(&self, seq: u64) {
        if self.last.fetch_max(seq, Ordering::AcqRel) < seq {
            self.bell.notify_waiters();
        }
    }

    /// Nothing more will be handed over.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    /// Returns when this number was handed over; false: the session ended before.
    pub async fn took(&self, seq: u64) -> bool {
        loop {
            // Registered before the check, so that no notification in between is missed.
            let mut rung = std::pin::pin!(self.bell.notified());
            rung.as_mut().enable();
            if self.last.load(Ordering::Acquire) >= seq {
                return true;
            }
            if self.ended.load(Ordering::Acquire) {
                return false;
            }
            rung.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_returns_at_its_number_or_at_the_end() {
        let handed = std::sync::Arc::new(Delivered::default());
        handed.hand(3);
        handed.hand(2);
        assert!(handed.took(3).await, "a lower number changes nothing");
        let waits = |seq| {
            let handed = handed.clone();
            tokio::spawn(async move { handed.took(seq).await })
        };
        let (four, nine) = (waits(4), waits(9));
        tokio::task::yield_now().await;
        handed.hand(5);
        assert!(four.await.unwrap());
        handed.end();
        assert!(!nine.await.unwrap());
        assert!(handed.took(5).await && !handed.took(6).await);
    }
}
