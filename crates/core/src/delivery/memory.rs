//! What the sockets of a tenant hold in memory together. Each holder has a share, which is given back when it is dropped.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Memory of one tenant. Both pools have the limit `relay.flight_per_tenant_kib`.
pub(super) struct TenantMemory {
    /// Data for its agents: rows in flight and the outbox.
    pub(super) outgoing: Arc<Pool>,
    /// Data from its agents: incomplete messages and waiting actions.
    pub(super) incoming: Arc<Pool>,
}

impl TenantMemory {
    /// `max` 0: no limit.
    pub(super) fn new(max: usize) -> Self {
        let pool = || Arc::new(Pool { used: AtomicUsize::new(0), max });
        Self { outgoing: pool(), incoming: pool() }
    }
}

/// Above the limit a holder gets a little, so that it does not stand still. So far above it gets nothing: with enough
/// sockets, a little for each of them has no bound. The second part is for small limits.
fn ceiling(max: usize) -> usize {
    max.saturating_mul(2).saturating_add(CEILING_MIN_BYTES)
}
const CEILING_MIN_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(super) struct Pool {
    used: AtomicUsize,
    max: usize,
}

/// The part of one holder.
#[derive(Default)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    own: usize,
}

impl Share {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self { pool: pool.clone(), own: 0 }
    }

    pub(super) fn set(&mut self, bytes: usize) {
        // Called for each turn of a session, mostly without a change.
        match bytes.cmp(&self.own) {
            Ordering::Equal => return,
            Ordering::Greater => self.pool.used.fetch_add(bytes - self.own, Relaxed),
            Ordering::Less => self.pool.used.fetch_sub(self.own - bytes, Relaxed),
        };
        self.own = bytes;
    }

    /// Merges another share of the same pool into this one.
    pub(super) fn join(&mut self, mut other: Self) {
        let bytes = self.own + other.own;
        other.set(0);
        self.set(bytes);
    }

    /// Nothing more is given out, however little.
    pub(super) fn is_over(&self) -> bool {
        self.pool.max > 0 && self.pool.used.load(Relaxed) >= ceiling(self.pool.max)
    }

    pub(super) fn is_full(&self) -> bool {
        self.pool.max > 0 && self.pool.used.load(Relaxed) >= self.pool.max
    }

    /// Whether the other holders use up the pool. A single holder may exceed the limit.
    pub(super) fn is_full_without_own(&self) -> bool {
        self.pool.max > 0 && self.pool.used.load(Relaxed).saturating_sub(self.own) >= self.pool.max
    }

    /// How many of these rows may be sent. If the pool is full, a session without rows in flight gets one row, so that slow
    /// agents of a tenant do not block its other agents. Above the ceiling it waits.
    pub(super) fn allow(&self, rows: usize) -> usize {
        match self.is_full() {
            true if self.own > 0 || self.is_over() => 0,
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
        let pool = TenantMemory::new(100).outgoing;
        let (mut slow, mut other) = (Share::new(&pool), Share::new(&pool));
        slow.set(60);
        assert_eq!((slow.allow(5), other.allow(5)), (5, 5));
        slow.set(100);
        assert_eq!((slow.allow(5), other.allow(5), other.allow(0)), (0, 1, 0));
        other.set(10);
        assert_eq!(other.allow(5), 0);
        let third = Share::new(&pool);
        slow.set(ceiling(100) - 10);
        assert_eq!((third.allow(5), third.is_over()), (0, true), "a row for each of many sockets would have no bound");
        slow.set(20);
        assert_eq!((other.allow(5), third.allow(5)), (5, 5));
        other.join(slow);
        assert_eq!(pool.used.load(Relaxed), 30);
        drop(other);
        assert_eq!(pool.used.load(Relaxed), 0);
        let mut unlimited = Share::new(&TenantMemory::new(0).outgoing);
        unlimited.set(usize::MAX);
        assert_eq!(unlimited.allow(5), 5);
    }
}
