//! Reading alarms from the store into the schedule: a window at a time, and again when the schedule is stale.

use std::sync::atomic::Ordering;

use frontdesk_wire::TenantId;

use super::buckets::Buckets;
use super::{CronPlane, LEASE_MS, WINDOW_MS, lane_of};
use crate::port::store::StoreError;

/// Rows per read from the store.
const PAGE: usize = 10_000;

/// Progress of reading alarms from the store.
#[derive(Debug, Clone, Copy)]
pub struct Loading {
    from: (u64, u64),
    until_ms: u64,
    /// Reads from the beginning, after the schedule was cleared.
    again: bool,
    pub done: bool,
}

impl Default for Loading {
    /// Nothing to read yet.
    fn default() -> Self {
        Self { from: (0, 0), until_ms: 0, again: false, done: true }
    }
}

impl CronPlane {
    /// When to read the next window from the store.
    pub(super) fn next_load_ms(&self) -> u64 {
        self.clock.loaded_until_ms.load(Ordering::Acquire).saturating_sub(WINDOW_MS / 2)
    }

    /// Starts to read the next window, from where the last read ended.
    ///
    /// Alarms armed from now on for this window are added directly, so none is missed; one that is added twice is
    /// claimed once.
    pub(super) fn begin_load(&self, last: &Loading) -> Loading {
        let until_ms = self.env.now_ms() + WINDOW_MS;
        self.clock.loaded_until_ms.fetch_max(until_ms, Ordering::AcqRel);
        Loading { from: last.from, until_ms, again: false, done: false }
    }

    /// Starts to read everything again if too many entries of the schedule are stale (moved or cancelled alarms), which
    /// bounds its size however often agents change their alarms.
    ///
    /// Also if other servers came or went: then this one fires others than before.
    pub(super) fn reload(&self, last: &Loading, buckets: &mut Buckets) -> Option<Loading> {
        let mut schedule = self.clock.schedule();
        let live = Buckets::of(&self.lease);
        if !last.done || (!schedule.has_too_many_stale_entries() && live == *buckets) {
            return None;
        }
        *buckets = live;
        schedule.clear_waiting();
        Some(Loading { from: (0, 0), until_ms: last.until_ms, again: true, done: false })
    }

    /// Reads the next page.
    pub(super) async fn load_alarms(&self, loading: &mut Loading) -> Result<(), StoreError> {
        let page = self.alarms.next_alarms(loading.from, loading.until_ms, PAGE).await?;
        loading.done = page.len() < PAGE;
        loading.from = match page.last() {
            Some(last) if !loading.done => (last.next_ms, last.id),
            _ => (loading.until_ms, u64::MAX >> 1),
        };
        let tenants: Vec<TenantId> = page.iter().map(|it| self.directory.tenant_of_no(it.instance)).collect();
        let buckets = Buckets::of(&self.lease);
        let mut schedule = self.clock.schedule();
        // Some alarms of this page may be due or firing, and must not be added again.
        let unknown = loading.again.then(|| schedule.unknown(page.iter().map(|it| it.id)));
        for (it, tenant) in page.iter().zip(tenants) {
            if unknown.as_ref().is_some_and(|unknown| !unknown.contains(&it.id)) {
                continue;
            }
            let lane = lane_of(&it.callback);
            schedule.add(buckets.tried_ms(lane, it.next_ms), it.id, &tenant, lane);
        }
        Ok(())
    }

    /// Puts overdue alarms back into the schedule that are neither queued nor being fired.
    pub(super) async fn find_forgotten_alarms(&self) -> Result<(), StoreError> {
        let long_ago_ms = self.env.now_ms().saturating_sub(LEASE_MS);
        let overdue = self.alarms.next_alarms((0, 0), long_ago_ms, PAGE).await?;
        let forgotten = self.clock.schedule().unknown(overdue.iter().map(|it| it.id));
        for it in overdue.into_iter().filter(|it| forgotten.contains(&it.id)) {
            self.schedule_alarm(it.next_ms, it.id, &self.directory.tenant_of_no(it.instance), lane_of(&it.callback));
        }
        Ok(())
    }
}
