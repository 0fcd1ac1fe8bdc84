//! How many files go out at a time. A file is in memory as a whole, and read from where the agent chose.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// For all robots.
const UPLOADS_MAX: usize = 4;
/// A source that is slow holds up the files of its own tenant only.
const OF_TENANT_MAX: usize = 1;
const WAIT_MAX: Duration = Duration::from_secs(5);

pub(super) struct Uploads {
    all: Arc<Semaphore>,
    of_tenants: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for Uploads {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(UPLOADS_MAX)), of_tenants: Mutex::default() }
    }
}

/// A file may be in memory until this is dropped.
pub(super) struct Upload(#[allow(dead_code)] [OwnedSemaphorePermit; 2]); // held, and not read

impl Uploads {
    /// `None`: others take too long.
    pub(super) async fn begin(&self, tenant: &str) -> Option<Upload> {
        let of_tenant = self.of_tenant(tenant);
        let both = async {
            let own = of_tenant.acquire_owned().await.ok()?;
            Some(Upload([own, self.all.clone().acquire_owned().await.ok()?]))
        };
        timeout(WAIT_MAX, both).await.ok().flatten()
    }

    fn of_tenant(&self, tenant: &str) -> Arc<Semaphore> {
        let mut known = self.of_tenants.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody holds or waits for.
        known.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        known.entry(tenant.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(OF_TENANT_MAX))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_a_share_and_nobody_waits_for_long() {
        let uploads = Uploads::default();
        let first = uploads.begin("a").await.unwrap();
        assert!(uploads.begin("a").await.is_none(), "its share is used");
        let mut others = Vec::new();
        for tenant in ["b", "c", "d"] {
            others.push(uploads.begin(tenant).await.unwrap());
        }
        assert!(uploads.begin("e").await.is_none(), "all are used");
        drop(first);
        assert!(uploads.begin("e").await.is_some());
        drop(others);
        assert!(uploads.begin("a").await.is_some());
        assert_eq!(uploads.of_tenants.lock().unwrap().len(), 1, "what is not used is not remembered");
    }
}
