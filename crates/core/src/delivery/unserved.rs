//! Instances without a socket that the wake loop must check for waiting mail.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use frontdesk_wire::InstanceNo;
use tokio::sync::Notify;

/// Why an instance without a socket is to be checked; of two reasons the later one here counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unserved {
    /// Its socket closed, or the server started: rows may be waiting.
    Look,
    /// New mail arrived that no socket of it has received.
    NewMail,
    /// The wake URL was set or changed: reset the retry state of the previous URL.
    NewUrl,
}

/// Each instance once, so it is bounded by their number.
#[derive(Default)]
pub struct UnservedInstances {
    /// In order, so that a simulation repeats it.
    instances: Mutex<BTreeMap<InstanceNo, Unserved>>,
    changed: Notify,
}

impl UnservedInstances {
    /// Requests a check whether this instance must be woken.
    pub fn note(&self, instance: InstanceNo, why: Unserved) {
        let mut instances = self.lock();
        let known = instances.get(&instance).copied();
        instances.insert(instance, known.map_or(why, |known| known.max(why)));
        drop(instances);
        if known.is_none() {
            self.changed.notify_one();
        }
    }

    /// The check failed and is repeated at the next look. Does not notify the loop, so that a failing store is not queried
    /// without pause.
    pub fn keep(&self, instance: InstanceNo, why: Unserved) {
        self.lock().entry(instance).and_modify(|known| *known = why.max(*known)).or_insert(why);
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub fn take(&self) -> BTreeMap<InstanceNo, Unserved> {
        std::mem::take(&mut self.lock())
    }

    /// Returns when an instance was noted.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<InstanceNo, Unserved>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
