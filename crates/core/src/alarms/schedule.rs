//! The next shots in memory: a heap by time, then lanes by tenant and callback host. Pure: it is told
//! the time.
//!
//! Tenants take turns, so that one with ten thousand shots does not keep another waiting; a host that
//! hangs holds up its own lane only.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

/// Fires under way at once: in all, of one tenant, and to one host.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    pub total: usize,
    pub per_tenant: usize,
    pub per_host: usize,
}

/// A shot's place in time: when, which, and in whose lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    next_ms: u64,
    id: u64,
    lane: u32,
}

pub struct Schedule {
    caps: Caps,
    heap: BinaryHeap<Reverse<Entry>>,
    lanes: Vec<Lane>,
    lane_of: HashMap<(Arc<str>, Arc<str>), u32>,
    hosts: Vec<usize>,
    host_of: HashMap<Arc<str>, u32>,
    tenants: Vec<Turn>,
    tenant_of: HashMap<Arc<str>, u32>,
    /// Tenants with something due, in order of their turn.
    ring: VecDeque<u32>,
    in_flight: usize,
    due: usize,
}

/// One tenant's shots for one host.
struct Lane {
    tenant: u32,
    host: u32,
    due: VecDeque<u64>,
}

/// One tenant's lanes with something due.
#[derive(Default)]
struct Turn {
    lanes: VecDeque<u32>,
    waiting: bool,
    in_flight: usize,
}

/// A shot to fire now; `lane` is given back with [`Schedule::finished`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    pub id: u64,
    pub lane: u32,
}

impl Schedule {
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            heap: BinaryHeap::new(),
            lanes: Vec::new(),
            lane_of: HashMap::new(),
            hosts: Vec::new(),
            host_of: HashMap::new(),
            tenants: Vec::new(),
            tenant_of: HashMap::new(),
            ring: VecDeque::new(),
            in_flight: 0,
            due: 0,
        }
    }

    pub fn add(&mut self, next_ms: u64, id: u64, tenant: &str, host: &str) {
        let lane = self.lane(tenant, host);
        self.heap.push(Reverse(Entry { next_ms, id, lane }));
    }

    /// Moves what is due into the lanes.
    pub fn come_due(&mut self, now_ms: u64) {
        while let Some(Reverse(entry)) = self.heap.peek().copied().filter(|entry| entry.0.next_ms <= now_ms) {
            self.heap.pop();
            self.enqueue(entry.lane, entry.id);
        }
    }

    /// Up to `max` shots whose turn it is.
    pub fn take(&mut self, max: usize) -> Vec<Next> {
        let mut taken = Vec::new();
        let mut passed = 0;
        while taken.len() < max && self.in_flight < self.caps.total && passed < self.ring.len() {
            let Some(tenant) = self.ring.pop_front() else { break };
            match self.take_of(tenant) {
                Some(next) => {
                    taken.push(next);
                    passed = 0;
                }
                None => passed += 1, // it, or all its hosts, are at their cap
            }
            let turn = &mut self.tenants[tenant as usize];
            turn.waiting = !turn.lanes.is_empty();
            if turn.waiting {
                self.ring.push_back(tenant);
            }
        }
        taken
    }

    fn take_of(&mut self, tenant: u32) -> Option<Next> {
        if self.tenants[tenant as usize].in_flight >= self.caps.per_tenant {
            return None;
        }
        for _ in 0..self.tenants[tenant as usize].lanes.len() {
            let at = self.tenants[tenant as usize].lanes.pop_front()?;
            let lane = &mut self.lanes[at as usize];
            let free = self.hosts[lane.host as usize] < self.caps.per_host;
            let id = if free { lane.due.pop_front() } else { None };
            if !lane.due.is_empty() {
                self.tenants[tenant as usize].lanes.push_back(at);
            }
            if let Some(id) = id {
                self.hosts[lane.host as usize] += 1;
                self.tenants[tenant as usize].in_flight += 1;
                self.in_flight += 1;
                self.due -= 1;
                return Some(Next { id, lane: at });
            }
        }
        None
    }

    /// One of this lane is over: there was nothing to fire any more.
    pub fn finished(&mut self, lane: u32) {
        self.answered(lane);
        self.noted();
    }

    /// The end of one is written down; only then it is no longer under way.
    pub fn noted(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The host has answered, and may get another.
    pub fn answered(&mut self, lane: u32) {
        if let Some(lane) = self.lanes.get(lane as usize) {
            let host = &mut self.hosts[lane.host as usize];
            *host = host.saturating_sub(1);
            let turn = &mut self.tenants[lane.tenant as usize];
            turn.in_flight = turn.in_flight.saturating_sub(1);
        }
    }

    /// It comes again at that time.
    pub fn put_back(&mut self, next: Next, next_ms: u64) {
        self.heap.push(Reverse(Entry { next_ms, id: next.id, lane: next.lane }));
    }

    pub fn next_ms(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.0.next_ms)
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Shots that are due and wait for their turn.
    pub fn due(&self) -> usize {
        self.due
    }

    pub fn len(&self) -> usize {
        self.heap.len() + self.due
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn enqueue(&mut self, at: u32, id: u64) {
        let lane = &mut self.lanes[at as usize];
        let was_empty = lane.due.is_empty();
        lane.due.push_back(id);
        self.due += 1;
        if was_empty {
            let turn = &mut self.tenants[lane.tenant as usize];
            turn.lanes.push_back(at);
            if !turn.waiting {
                turn.waiting = true;
                self.ring.push_back(lane.tenant);
            }
        }
    }

    fn lane(&mut self, tenant: &str, host: &str) -> u32 {
        let (tenant, host) = (known_as(&self.tenant_of, tenant), known_as(&self.host_of, host));
        if let Some(lane) = self.lane_of.get(&(tenant.clone(), host.clone())) {
            return *lane;
        }
        let tenant_no = number(&mut self.tenant_of, &tenant);
        if tenant_no as usize == self.tenants.len() {
            self.tenants.push(Turn::default());
        }
        let host_no = number(&mut self.host_of, &host);
        if host_no as usize == self.hosts.len() {
            self.hosts.push(0);
        }
        let lane = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        self.lanes.push(Lane { tenant: tenant_no, host: host_no, due: VecDeque::new() });
        self.lane_of.insert((tenant, host), lane);
        lane
    }
}

/// The same text in the same place: names are kept once.
fn known_as(known: &HashMap<Arc<str>, u32>, name: &str) -> Arc<str> {
    known.get_key_value(name).map_or_else(|| name.into(), |(name, _)| name.clone())
}

fn number(known: &mut HashMap<Arc<str>, u32>, name: &Arc<str>) -> u32 {
    let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
    *known.entry(name.clone()).or_insert(next)
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
            schedule.add(at, id, "t", "h");
        }
        schedule.come_due(9);
        assert!(schedule.take(9).is_empty());
        assert_eq!(schedule.next_ms(), Some(10));
        schedule.come_due(20);
        assert_eq!(ids(&schedule.take(9)), [1, 2]);
        assert_eq!((schedule.next_ms(), schedule.in_flight(), schedule.len()), (Some(30), 2, 1));
    }

    #[test]
    fn tenants_take_turns_however_many_shots_one_has() {
        let mut schedule = Schedule::new(WIDE);
        for id in 0..1_000 {
            schedule.add(0, id, "big", "h");
        }
        schedule.add(1, 5_000, "small", "h");
        schedule.add(1, 5_001, "small", "h");
        schedule.come_due(1);
        assert_eq!(ids(&schedule.take(5)), [0, 5_000, 1, 5_001, 2]);
    }

    #[test]
    fn a_host_at_its_cap_holds_up_nobody_else() {
        let mut schedule = Schedule::new(Caps { per_host: 2, ..WIDE });
        for id in 0..10 {
            schedule.add(0, id, "a", "slow");
        }
        schedule.add(0, 100, "a", "quick");
        schedule.add(0, 200, "b", "slow");
        schedule.come_due(0);
        let mut taken = schedule.take(100);
        taken.sort_by_key(|next| next.id);
        assert_eq!(ids(&taken), [0, 100, 200], "two of the slow host, one of them the other tenant's");
        assert!(schedule.take(100).is_empty());
        schedule.finished(taken[0].lane);
        assert_eq!(ids(&schedule.take(100)), [1]);
        assert_eq!(schedule.due(), 8);
    }

    #[test]
    fn a_tenant_whose_hosts_all_hang_leaves_room_for_another() {
        let mut schedule = Schedule::new(Caps { per_tenant: 3, ..WIDE });
        for id in 0..10 {
            schedule.add(0, id, "big", &format!("hangs-{id}"));
        }
        schedule.add(0, 100, "small", "quick");
        schedule.come_due(0);
        let taken = schedule.take(100);
        assert_eq!((taken.len(), taken.iter().filter(|next| next.id == 100).count()), (4, 1));
        schedule.finished(taken[0].lane);
        assert_eq!(schedule.take(100).len(), 1);
    }

    #[test]
    fn no_more_are_under_way_than_the_cap_says() {
        let mut schedule = Schedule::new(Caps { total: 3, ..WIDE });
        for id in 0..10 {
            schedule.add(0, id, "a", "h");
        }
        schedule.come_due(0);
        let first = schedule.take(100);
        assert_eq!(first.len(), 3);
        for next in first {
            schedule.finished(next.lane);
        }
        assert_eq!(schedule.take(2).len(), 2);
    }

    #[test]
    fn every_shot_is_taken_once() {
        let mut schedule = Schedule::new(Caps { total: 7, per_tenant: 3, per_host: 2 });
        for id in 0..500u64 {
            schedule.add(id % 13, id, &format!("t{}", id % 5), &format!("h{}", id % 7));
        }
        schedule.come_due(100);
        let mut seen = Vec::new();
        while !schedule.is_empty() {
            let taken = schedule.take(100);
            assert!(!taken.is_empty() && schedule.in_flight() <= 7);
            seen.extend(ids(&taken));
            for next in taken {
                schedule.finished(next.lane);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..500).collect::<Vec<_>>());
        assert_eq!(schedule.in_flight(), 0);
    }
}
