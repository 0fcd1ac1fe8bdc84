//! The time of a server: that of the machine or of a test, and what the control API adds to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frontdesk_core::Env;

pub(in crate::fakes) struct Clock {
    env: Option<Arc<dyn Env>>,
    ahead_ms: AtomicU64,
}

impl Clock {
    pub(in crate::fakes) fn of_machine() -> Self {
        Self { env: None, ahead_ms: AtomicU64::new(0) }
    }

    pub(in crate::fakes) fn of(env: Arc<dyn Env>) -> Self {
        Self { env: Some(env), ahead_ms: AtomicU64::new(0) }
    }

    #[allow(clippy::disallowed_methods, reason = "the fake also runs as a program of its own, without an Env")]
    pub(in crate::fakes) fn now_ms(&self) -> u64 {
        let of_machine = || {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        };
        self.env.as_ref().map_or_else(of_machine, |env| env.now_ms()) + self.ahead_ms.load(Ordering::SeqCst)
    }

    pub(in crate::fakes) fn advance_ms(&self, by_ms: u64) {
        self.ahead_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Takes back what was added.
    pub(in crate::fakes) fn reset(&self) {
        self.ahead_ms.store(0, Ordering::SeqCst);
    }
}
