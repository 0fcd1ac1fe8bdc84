//! How many files may be on their way at a time, in total and for each owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a transfer waits for others to end.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Transfers {
    all: Arc<Semaphore>,
    each: usize,
    owners: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A slot for one transfer, released on drop.
pub(crate) struct Transfer {
    _places: [OwnedSemaphorePermit; 2],
}

impl Transfers {
    /// The number in total, and for each owner: an owner with a slow source delays its own files only.
    pub(crate) fn new(all: usize, each: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), each, owners: Mutex::default() }
    }

    /// `None`: no slot became free in time.
    pub(crate) async fn begin(&self, owner: &str) -> Option<Transfer> {
        self.begin_within(owner, WAIT_MAX).await
    }

    pub(crate) async fn begin_within(&self, owner: &str, wait: Duration) -> Option<Transfer> {
        let of_owner = self.of(owner);
        let both = async {
            let own = of_owner.acquire_owned().await.ok()?;
            Some(Transfer { _places: [own, self.all.clone().acquire_owned().await.ok()?] })
        };
        timeout(wait, both).await.ok().flatten()
    }

    fn of(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // Removes owners without a running or waiting transfer.
        owners.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        owners.entry(owner.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_owner_has_a_share_and_nobody_waits_for_long() {
        let transfers = Transfers::new(4, 1);
        let first = transfers.begin("a").await.unwrap();
        assert!(transfers.begin("a").await.is_none(), "its share is used");
        let mut others = Vec::new();
        for owner in ["b", "c", "d"] {
            others.push(transfers.begin(owner).await.unwrap());
        }
        assert!(transfers.begin("e").await.is_none(), "all are used");
        drop(first);
        assert!(transfers.begin("e").await.is_some());
        drop(others);
        assert!(transfers.begin("a").await.is_some());
        assert_eq!(transfers.owners.lock().unwrap().len(), 1, "what is not used is not remembered");
    }
}
