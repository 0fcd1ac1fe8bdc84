//! What the sessions of a tenant hold in memory together: rows in flight, and what waits to be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The part of one session.
pub(super) struct Share {
    all: Arc<AtomicUsize>,
    own: usize,
    max: usize,
}

impl Share {
    /// `all`: of the tenant. `max` 0: no limit.
    pub(super) fn new(all: Arc<AtomicUsize>, max: usize) -> Self {
        Self { all, own: 0, max }
    }

    pub(super) fn set(&mut self, bytes: usize) {
        if bytes > self.own {
            self.all.fetch_add(bytes - self.own, Ordering::Relaxed);
        } else {
            self.all.fetch_sub(self.own - bytes, Ordering::Relaxed);
        }
        self.own = bytes;
    }

    /// How many of these rows may be sent. When the tenant has too much in memory, a session gets one row at a time, so that
    /// slow agents do not stop its other ones.
    pub(super) fn allow(&self, rows: usize) -> usize {
        match self.max > 0 && self.all.load(Ordering::Relaxed) >= self.max {
            true if self.own > 0 => 0,
            true => rows.min(1),
            false => rows,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_too_much_in_memory_gets_one_row_a_session() {
        let all = Arc::new(AtomicUsize::new(0));
        let share = || Share::new(all.clone(), 100);
        let (mut slow, mut other) = (share(), share());
        slow.set(60);
        assert_eq!((slow.allow(5), other.allow(5)), (5, 5));
        slow.set(100);
        assert_eq!((slow.allow(5), other.allow(5), other.allow(0)), (0, 1, 0));
        other.set(10);
        assert_eq!(other.allow(5), 0);
        slow.set(20);
        assert_eq!(other.allow(5), 5);
        drop(slow);
        assert_eq!(all.load(Ordering::Relaxed), 10);
        assert_eq!(Share::new(all, 0).allow(5), 5);
    }
}
