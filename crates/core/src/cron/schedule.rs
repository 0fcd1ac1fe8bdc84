//! Alarms that are due soon: a heap by time, then lanes by tenant and callback host. No I/O; the caller passes the
//! time.
//!
//! Tenants take turns, so that a tenant with ten thousand alarms does not delay others; a host that hangs delays
//! only its own lanes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use frontdesk_wire::TenantId;

/// Stale entries that are tolerated for any size of the heap.
const STALE_MIN: usize = 1_024;

/// Concurrent calls: in total, per tenant, and per host.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    pub total: usize,
    pub per_tenant: usize,
    pub per_host: usize,
}

/// An alarm in the heap: its time, number and lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    next_ms: u64,
    id: u64,
    lane: u32,
}

pub struct Schedule {
    caps: Caps,
    heap: BinaryHeap<Reverse<Entry>>,
    lanes: Slots<Lane>,
    lane_of: HashMap<(u32, u32), u32>,
    hosts: Slots<Host>,
    host_of: HashMap<Arc<str>, u32>,
    tenants: Slots<TenantLanes>,
    tenant_of: HashMap<TenantId, u32>,
    /// Tenants with due alarms, in the order of their turns.
    ring: VecDeque<u32>,
    /// Alarms that are being fired.
    firing: HashSet<u64>,
    due: usize,
    /// Known stale entries of the heap: alarms that were moved or cancelled.
    stale: usize,
}

/// Alarms of one tenant for one host. Removed when nothing refers to it.
struct Lane {
    tenant: u32,
    host: u32,
    due: VecDeque<u64>,
    /// Entries in the heap plus alarms being fired.
    held: usize,
}

struct Host {
    name: Arc<str>,
    lanes: usize,
    in_flight: usize,
}

/// Lanes of one tenant with due alarms.
struct TenantLanes {
    name: TenantId,
    all_lanes: usize,
    lanes: VecDeque<u32>,
    waiting: bool,
    in_flight: usize,
}

/// An alarm to fire now; returned with [`Schedule::noted`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    pub id: u64,
    pub lane: u32,
}

/// Values by number; numbers of removed values are reused.
struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    fn put(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = Some(value);
            return at;
        }
        self.slots.push(Some(value));
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    fn get(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    fn remove(&mut self, at: u32) -> Option<T> {
        let gone = self.slots.get_mut(at as usize)?.take();
        if gone.is_some() {
            self.free.push(at);
        }
        gone
    }

    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Schedule {
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            heap: BinaryHeap::new(),
            lanes: Slots::default(),
            lane_of: HashMap::new(),
            hosts: Slots::default(),
            host_of: HashMap::new(),
            tenants: Slots::default(),
            tenant_of: HashMap::new(),
            ring: VecDeque::new(),
            firing: HashSet::new(),
            due: 0,
            stale: 0,
        }
    }

    pub fn add(&mut self, next_ms: u64, id: u64, tenant: &TenantId, host: &str) {
        let lane = self.lane(tenant, host);
        self.push(next_ms, id, lane);
    }

    fn push(&mut self, next_ms: u64, id: u64, lane: u32) {
        if let Some(held) = self.lanes.get(lane) {
            held.held += 1;
            self.heap.push(Reverse(Entry { next_ms, id, lane }));
        }
    }

    /// Moves due alarms from the heap into the lanes.
    pub fn move_due(&mut self, now_ms: u64) {
        while let Some(Reverse(entry)) = self.heap.peek().copied().filter(|entry| entry.0.next_ms <= now_ms) {
            self.heap.pop();
            self.enqueue(entry.lane, entry.id);
        }
    }

    /// Takes up to `max` due alarms, in turns and within the caps.
    pub fn take(&mut self, max: usize) -> Vec<Next> {
        let mut taken = Vec::new();
        let mut passed = 0;
        while taken.len() < max && self.firing.len() < self.caps.total && passed < self.ring.len() {
            let Some(tenant) = self.ring.pop_front() else { break };
            match self.take_of(tenant) {
                Some(next) => {
                    taken.push(next);
                    passed = 0;
                }
                None => passed += 1, // the tenant or all its hosts are at their caps
            }
            let Some(of_tenant) = self.tenants.get(tenant) else { continue };
            of_tenant.waiting = !of_tenant.lanes.is_empty();
            if of_tenant.waiting {
                self.ring.push_back(tenant);
            }
        }
        taken
    }

    fn take_of(&mut self, tenant: u32) -> Option<Next> {
        let of_tenant = self.tenants.get(tenant).filter(|of_tenant| of_tenant.in_flight < self.caps.per_tenant)?;
        for _ in 0..of_tenant.lanes.len() {
            let of_tenant = self.tenants.get(tenant)?;
            let at = of_tenant.lanes.pop_front()?;
            let lane = self.lanes.get(at)?;
            let host = self.hosts.get(lane.host)?;
            let id = if host.in_flight < self.caps.per_host { lane.due.pop_front() } else { None };
            if !lane.due.is_empty() {
                of_tenant.lanes.push_back(at);
            }
            if let Some(id) = id {
                lane.held += 1;
                host.in_flight += 1;
                of_tenant.in_flight += 1;
                self.firing.insert(id);
                self.due -= 1;
                return Some(Next { id, lane: at });
            }
        }
        None
    }

    /// The alarm turned out not to need firing.
    pub fn finished(&mut self, next: Next) {
        self.answered(next.lane);
        self.noted(next);
    }

    /// The result was stored. A retry must be put back before this call.
    pub fn noted(&mut self, next: Next) {
        self.firing.remove(&next.id);
        self.release(next.lane);
    }

    /// The host has answered, which frees its slot.
    pub fn answered(&mut self, lane: u32) {
        let Some((tenant, host)) = self.lanes.get(lane).map(|lane| (lane.tenant, lane.host)) else { return };
        if let Some(host) = self.hosts.get(host) {
            host.in_flight = host.in_flight.saturating_sub(1);
        }
        if let Some(of_tenant) = self.tenants.get(tenant) {
            of_tenant.in_flight = of_tenant.in_flight.saturating_sub(1);
        }
    }

    /// Schedules a retry.
    pub fn put_back(&mut self, next: Next, next_ms: u64) {
        self.push(next_ms, next.id, next.lane);
    }

    /// An alarm was moved or cancelled, which makes its entry stale.
    pub fn note_stale(&mut self) {
        self.stale += 1;
    }

    /// Whether there are so many stale entries that reading the store again is cheaper.
    pub fn has_too_many_stale_entries(&self) -> bool {
        self.stale > STALE_MIN + self.heap.len() / 2
    }

    /// Drops all alarms that are not due yet, to be read from the store again. Due and firing ones stay.
    pub fn clear_waiting(&mut self) {
        self.stale = 0;
        for Reverse(entry) in std::mem::take(&mut self.heap) {
            self.release(entry.lane);
        }
    }

    /// Those that are neither due nor being fired.
    pub fn unknown(&self, ids: impl Iterator<Item = u64>) -> HashSet<u64> {
        let mut unknown: HashSet<u64> = ids.filter(|id| !self.firing.contains(id)).collect();
        for lane in self.lanes.slots.iter().flatten() {
            for id in &lane.due {
                unknown.remove(id);
            }
        }
        unknown
    }

    /// Those that are not in the schedule at all: not waiting for their time, not due and not being fired.
    pub fn missing(&self, ids: impl Iterator<Item = u64>) -> HashSet<u64> {
        let mut missing = self.unknown(ids);
        for Reverse(entry) in &self.heap {
            missing.remove(&entry.id);
        }
        missing
    }

    pub fn next_ms(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.0.next_ms)
    }

    pub fn in_flight(&self) -> usize {
        self.firing.len()
    }

    /// Alarms that are due and wait for their turn.
    pub fn due(&self) -> usize {
        self.due
    }

    pub fn len(&self) -> usize {
        self.heap.len() + self.due
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn enqueue(&mut self, at: u32, id: u64) {
        let Some(lane) = self.lanes.get(at) else { return };
        let was_empty = lane.due.is_empty();
        lane.due.push_back(id);
        lane.held -= 1;
        self.due += 1;
        let tenant = lane.tenant;
        if was_empty && let Some(of_tenant) = self.tenants.get(tenant) {
            of_tenant.lanes.push_back(at);
            if !of_tenant.waiting {
                of_tenant.waiting = true;
                self.ring.push_back(tenant);
            }
        }
    }

    /// Releases one reference to a lane; removes the lane with the last one.
    fn release(&mut self, at: u32) {
        let Some(lane) = self.lanes.get(at) else { return };
        lane.held = lane.held.saturating_sub(1);
        if lane.held > 0 || !lane.due.is_empty() {
            return;
        }
        let (tenant, host) = (lane.tenant, lane.host);
        self.lanes.remove(at);
        self.lane_of.remove(&(tenant, host));
        if let Some(gone) = self.hosts.get(host) {
            gone.lanes -= 1;
            if gone.lanes == 0 {
                let gone = self.hosts.remove(host);
                gone.and_then(|host| self.host_of.remove(&host.name));
            }
        }
        if let Some(of_tenant) = self.tenants.get(tenant) {
            of_tenant.all_lanes -= 1;
            // In the ring only while a lane has due alarms; this was the last lane.
            if of_tenant.all_lanes == 0 && !of_tenant.waiting {
                let gone = self.tenants.remove(tenant);
                gone.and_then(|of_tenant| self.tenant_of.remove(&of_tenant.name));
            }
        }
    }

    fn tenant(&mut self, name: &TenantId) -> u32 {
        if let Some(at) = self.tenant_of.get(name) {
            return *at;
        }
        let of_tenant =
            TenantLanes { name: name.clone(), all_lanes: 0, lanes: VecDeque::new(), waiting: false, in_flight: 0 };
        let at = self.tenants.put(of_tenant);
        self.tenant_of.insert(name.clone(), at);
        at
    }

    fn host(&mut self, name: &str) -> u32 {
        if let Some(at) = self.host_of.get(name) {
            return *at;
        }
        let name: Arc<str> = name.into();
        let at = self.hosts.put(Host { name: name.clone(), lanes: 0, in_flight: 0 });
        self.host_of.insert(name, at);
        at
    }

    fn lane(&mut self, tenant: &TenantId, host: &str) -> u32 {
        let tenant = self.tenant(tenant);
        let host = self.host(host);
        if let Some(lane) = self.lane_of.get(&(tenant, host)) {
            return *lane;
        }
        if let Some(of_tenant) = self.tenants.get(tenant) {
            of_tenant.all_lanes += 1;
        }
        if let Some(host) = self.hosts.get(host) {
            host.lanes += 1;
        }
        let lane = self.lanes.put(Lane { tenant, host, due: VecDeque::new(), held: 0 });
        self.lane_of.insert((tenant, host), lane);
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Caps = Caps { total: 1_000, per_tenant: 1_000, per_host: 1_000 };

    fn ids(taken: &[Next]) -> Vec<u64> {
        taken.iter().map(|next| next.id).collect()
    }

    #[test]
    fn nothing_is_early_and_the_earliest_goes_first() {
        let mut schedule = Schedule::new(WIDE);
        for (at, id) in [(30, 3), (10, 1), (20, 2)] {
            schedule.add(at, id, &"t".into(), "h");
        }
        schedule.move_due(9);
        assert!(schedule.take(9).is_empty());
        assert_eq!(schedule.next_ms(), Some(10));
        schedule.move_due(20);
        assert_eq!(ids(&schedule.take(9)), [1, 2]);
        assert_eq!((schedule.next_ms(), schedule.in_flight(), schedule.len()), (Some(30), 2, 1));
    }

    #[test]
    fn tenants_take_turns_however_many_alarms_one_has() {
        let mut schedule = Schedule::new(WIDE);
        for id in 0..1_000 {
            schedule.add(0, id, &"big".into(), "h");
        }
        schedule.add(1, 5_000, &"small".into(), "h");
        schedule.add(1, 5_001, &"small".into(), "h");
        schedule.move_due(1);
        assert_eq!(ids(&schedule.take(5)), [0, 5_000, 1, 5_001, 2]);
    }

    #[test]
    fn a_host_at_its_cap_delays_no_other_host() {
        let mut schedule = Schedule::new(Caps { per_host: 2, ..WIDE });
        for id in 0..10 {
            schedule.add(0, id, &"a".into(), "slow");
        }
        schedule.add(0, 100, &"a".into(), "quick");
        schedule.add(0, 200, &"b".into(), "slow");
        schedule.move_due(0);
        let mut taken = schedule.take(100);
        taken.sort_by_key(|next| next.id);
        assert_eq!(ids(&taken), [0, 100, 200], "two of the slow host, one of them of the other tenant");
        assert!(schedule.take(100).is_empty());
        schedule.finished(taken[0]);
        assert_eq!(ids(&schedule.take(100)), [1]);
        assert_eq!(schedule.due(), 8);
    }

    #[test]
    fn a_tenant_whose_hosts_all_hang_leaves_room_for_another() {
        let mut schedule = Schedule::new(Caps { per_tenant: 3, ..WIDE });
        for id in 0..10 {
            schedule.add(0, id, &"big".into(), &format!("hangs-{id}"));
        }
        schedule.add(0, 100, &"small".into(), "quick");
        schedule.move_due(0);
        let taken = schedule.take(100);
        assert_eq!((taken.len(), taken.iter().filter(|next| next.id == 100).count()), (4, 1));
        schedule.finished(taken[0]);
        assert_eq!(schedule.take(100).len(), 1);
    }

    #[test]
    fn the_total_cap_is_respected() {
        let mut schedule = Schedule::new(Caps { total: 3, ..WIDE });
        for id in 0..10 {
            schedule.add(0, id, &"a".into(), "h");
        }
        schedule.move_due(0);
        let first = schedule.take(100);
        assert_eq!(first.len(), 3);
        for next in first {
            schedule.finished(next);
        }
        assert_eq!(schedule.take(2).len(), 2);
    }

    #[test]
    fn every_alarm_is_taken_once() {
        let mut schedule = Schedule::new(Caps { total: 7, per_tenant: 3, per_host: 2 });
        for id in 0..500u64 {
            schedule.add(id % 13, id, &format!("t{}", id % 5).into(), &format!("h{}", id % 7));
        }
        schedule.move_due(100);
        let mut seen = Vec::new();
        while !schedule.is_empty() {
            let taken = schedule.take(100);
            assert!(!taken.is_empty() && schedule.in_flight() <= 7);
            seen.extend(ids(&taken));
            for next in taken {
                schedule.finished(next);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..500).collect::<Vec<_>>());
        assert_eq!(schedule.in_flight(), 0);
    }

    #[test]
    fn lanes_and_names_go_when_nothing_refers_to_them() {
        let mut schedule = Schedule::new(WIDE);
        for round in 0..50u64 {
            for id in 0..100 {
                schedule.add(id, round * 100 + id, &format!("t{}", id % 3).into(), &format!("{round}-{id}.example"));
            }
            schedule.move_due(1_000);
            for (at, next) in schedule.take(1_000).into_iter().enumerate() {
                schedule.answered(next.lane);
                if at % 2 == 0 && round == 0 {
                    schedule.put_back(next, 2_000); // a retry keeps the lane
                }
                schedule.noted(next);
            }
        }
        assert_eq!((schedule.lanes(), schedule.len(), schedule.hosts.len()), (50, 50, 50));
        assert!(schedule.lanes.slots.len() <= 200, "numbers are reused: {}", schedule.lanes.slots.len());
        schedule.move_due(2_000);
        let again = schedule.take(1_000);
        assert_eq!(again.len(), 50);
        for next in again {
            schedule.finished(next);
        }
        assert_eq!((schedule.lanes(), schedule.tenants.len(), schedule.host_of.len()), (0, 0, 0));
    }

    #[test]
    fn entries_of_replaced_alarms_are_dropped_and_what_is_due_stays() {
        let mut schedule = Schedule::new(WIDE);
        for id in 0..2_000 {
            schedule.add(100 + id, id, &"t".into(), "h");
            schedule.note_stale();
        }
        schedule.move_due(109);
        let firing = schedule.take(4);
        assert!(!schedule.has_too_many_stale_entries(), "not yet");
        (0..100).for_each(|_| schedule.note_stale());
        assert!(schedule.has_too_many_stale_entries());
        schedule.clear_waiting();
        assert_eq!((schedule.len(), schedule.due(), schedule.in_flight(), schedule.next_ms()), (6, 6, 4, None));
        let unknown = schedule.unknown(0..12);
        assert_eq!(unknown, HashSet::from([10, 11]), "neither due nor being fired");
        schedule.add(110, 10, &"t".into(), "h");
        assert_eq!(schedule.missing(0..12), HashSet::from([11]), "one of them waits for its time again");
        for next in firing {
            schedule.finished(next);
        }
        assert_eq!(schedule.take(99).len(), 6);
    }
}
