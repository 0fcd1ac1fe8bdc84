//! Which of a bot's waiting actions goes out next. Pure: it is told the time and holds no action, only tickets.
//!
//! By priority, then in turn between tenants, then in the order in which they came. Actions in one chat go one after
//! another. A bot's rate budget is a set of token buckets; what the vendor says about its limits overrides them.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::port::platform::{Cost, Pace, Priority, Rate};

/// Actions of one bot that are at the platform at the same time.
pub const IN_FLIGHT_MAX: usize = 256;
/// Actions of one tenant that wait for one bot, in count and bytes. More are refused.
pub const WAITING_MAX: usize = 512;
pub const WAITING_MAX_BYTES: usize = 8 << 20;
/// An action that is worth nothing when it is late waits no longer than this.
pub const DROP_AFTER_MS: u64 = 2_000;
/// Full buckets are forgotten when there are this many.
const BUCKETS_MAX: usize = 4_096;

pub type Ticket = u64;

/// An action that wants to go out.
pub struct Ask {
    pub tenant: String,
    pub chat_id: String,
    pub cost: Cost,
    pub bytes: usize,
    /// It is refused rather than begun after this time.
    pub deadline_ms: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub ticket: Ticket,
    /// A waiting action that this one makes superfluous; it ends with the same result.
    pub supersedes: Option<Ticket>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The tenant has too many actions waiting for this bot.
    Full,
    /// Its turn would come only after so long.
    TooLong { wait_ms: u64 },
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// These begin now.
    pub start: Vec<Ticket>,
    /// When to ask again, if actions still wait for their time.
    pub again_ms: Option<u64>,
}

#[derive(Default)]
pub struct Scheduler {
    lines: [Line; Priority::ALL.len()],
    held: HashMap<Ticket, Held>,
    waiting: usize,
    tenants: HashMap<String, (usize, usize)>,
    in_flight: usize,
    /// (tenant, chat) with an action at the platform.
    busy: HashSet<(String, String)>,
    /// (tenant, key) of a waiting action that a later one may replace.
    replaceable: HashMap<(String, String), Ticket>,
    buckets: HashMap<String, Bucket>,
    paused_until_ms: u64,
    last_ticket: Ticket,
}

struct Held {
    ask: Ask,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Waiting,
    InFlight,
}

/// Waiting actions of one priority: tenants take turns.
#[derive(Default)]
struct Line {
    turns: VecDeque<String>,
    of: HashMap<String, VecDeque<Ticket>>,
}

impl Line {
    fn push(&mut self, tenant: &str, ticket: Ticket, first: bool) {
        let queue = self.of.entry(tenant.to_owned()).or_default();
        if queue.is_empty() {
            self.turns.push_back(tenant.to_owned());
        }
        if first { queue.push_front(ticket) } else { queue.push_back(ticket) }
    }

    fn remove(&mut self, tenant: &str, ticket: Ticket) {
        let Some(queue) = self.of.get_mut(tenant) else { return };
        queue.retain(|held| *held != ticket);
        if queue.is_empty() {
            self.of.remove(tenant);
            self.turns.retain(|held| held != tenant);
        }
    }

    fn replace(&mut self, tenant: &str, old: Ticket, new: Ticket) {
        let queue = self.of.get_mut(tenant).into_iter().flatten();
        queue.filter(|held| **held == old).for_each(|held| *held = new);
    }
}

struct Bucket {
    rate: Rate,
    /// When it is full again, as far as we count ourselves.
    full_at_ms: u64,
    /// Nothing before this, says the vendor.
    paused_until_ms: u64,
}

impl Bucket {
    fn new(rate: Rate) -> Self {
        Self { rate, full_at_ms: 0, paused_until_ms: 0 }
    }

    /// When it has a token, if `ahead` others take theirs first.
    fn ready_at_ms(&self, ahead: u64, now_ms: u64) -> u64 {
        let debt_ms = self.full_at_ms.saturating_sub(now_ms) + (ahead + 1) * self.rate.every_ms;
        let room_ms = u64::from(self.rate.burst.max(1)) * self.rate.every_ms;
        (now_ms + debt_ms.saturating_sub(room_ms)).max(self.paused_until_ms)
    }

    fn take(&mut self, now_ms: u64) {
        self.full_at_ms = self.full_at_ms.max(now_ms) + self.rate.every_ms;
    }

    fn is_full(&self, now_ms: u64) -> bool {
        self.full_at_ms <= now_ms && self.paused_until_ms <= now_ms
    }
}

impl Scheduler {
    /// Nothing waits, nothing is on its way, and no limit is remembered.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        self.held.is_empty()
            && self.paused_until_ms <= now_ms
            && self.buckets.values().all(|bucket| bucket.is_full(now_ms))
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.held.get(&ticket).is_some_and(|held| held.state == State::Waiting)
    }

    pub fn ask(&mut self, ask: Ask, now_ms: u64) -> Result<Asked, Refusal> {
        let replaced = ask.cost.replaces.as_ref().map(|key| (ask.tenant.clone(), key.clone()));
        let supersedes = replaced.as_ref().and_then(|key| self.replaceable.get(key).copied());
        let (count, bytes) = self.tenants.get(&ask.tenant).copied().unwrap_or_default();
        if supersedes.is_none() && (count >= WAITING_MAX || bytes + ask.bytes > WAITING_MAX_BYTES) {
            return Err(Refusal::Full);
        }
        let starts_ms = self.expected_ms(&ask, now_ms);
        let latest_ms = if ask.cost.droppable { ask.deadline_ms.min(now_ms + DROP_AFTER_MS) } else { ask.deadline_ms };
        if supersedes.is_none() && starts_ms > latest_ms {
            return Err(Refusal::TooLong { wait_ms: starts_ms - now_ms });
        }
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let line = ask.cost.priority as usize;
        match supersedes {
            // It takes the place in the queue of the one that it replaces.
            Some(old) => {
                self.lines[line].replace(&ask.tenant, old, ticket);
                self.drop_held(old);
            }
            None => self.lines[line].push(&ask.tenant, ticket, false),
        }
        if let Some(key) = replaced {
            self.replaceable.insert(key, ticket);
        }
        self.count_in(&ask);
        for (name, rate) in &ask.cost.buckets {
            self.buckets.entry(name.clone()).or_insert_with(|| Bucket::new(*rate)).rate = *rate;
        }
        self.held.insert(ticket, Held { ask, state: State::Waiting });
        Ok(Asked { ticket, supersedes })
    }

    /// What may begin now. These are in flight from here on.
    pub fn grants(&mut self, now_ms: u64) -> Grants {
        let mut grants = Grants::default();
        if self.waiting == 0 {
            return grants;
        }
        if self.paused_until_ms > now_ms {
            grants.again_ms = Some(self.paused_until_ms);
            return grants;
        }
        for line in 0..self.lines.len() {
            self.grant_line(line, now_ms, &mut grants);
        }
        self.forget_full_buckets(now_ms);
        grants
    }

    /// Tenants take turns: one that starts an action goes to the end of the line.
    fn grant_line(&mut self, line: usize, now_ms: u64, grants: &mut Grants) {
        let mut index = 0;
        while self.in_flight < IN_FLIGHT_MAX {
            let Some(tenant) = self.lines[line].turns.get(index).cloned() else { break };
            let Some(ticket) = self.first_ready(line, &tenant, now_ms, &mut grants.again_ms) else {
                index += 1;
                continue;
            };
            self.start(line, ticket, now_ms);
            grants.start.push(ticket);
            let turns = &mut self.lines[line].turns;
            if turns.get(index) == Some(&tenant) {
                turns.remove(index); // it has more waiting
                turns.push_back(tenant);
            }
        }
    }

    /// The tenant's first action of this priority whose chat is free and whose buckets have a token. One that waits
    /// for its bucket holds up its chat, so that the order within a chat is kept.
    fn first_ready(&self, line: usize, tenant: &str, now_ms: u64, again_ms: &mut Option<u64>) -> Option<Ticket> {
        let mut held_up: HashSet<&str> = HashSet::new();
        for ticket in self.lines[line].of.get(tenant)? {
            let Some(Held { ask, .. }) = self.held.get(ticket) else { continue };
            let chat = ask.chat_id.as_str();
            if held_up.contains(chat) || self.busy.contains(&(tenant.to_owned(), ask.chat_id.clone())) {
                continue;
            }
            let ready_ms = self.ready_ms(&ask.cost, now_ms);
            if ready_ms <= now_ms {
                return Some(*ticket);
            }
            *again_ms = Some(again_ms.map_or(ready_ms, |known| known.min(ready_ms)));
            held_up.insert(chat);
        }
        None
    }

    fn ready_ms(&self, cost: &Cost, now_ms: u64) -> u64 {
        let at = |(name, _): &(String, Rate)| self.buckets.get(name).map_or(0, |it| it.ready_at_ms(0, now_ms));
        cost.buckets.iter().map(at).max().unwrap_or(0)
    }

    fn start(&mut self, line: usize, ticket: Ticket, now_ms: u64) {
        let Some(held) = self.held.get_mut(&ticket) else { return };
        held.state = State::InFlight;
        let ask = &held.ask;
        for (name, _) in &ask.cost.buckets {
            if let Some(bucket) = self.buckets.get_mut(name) {
                bucket.take(now_ms);
            }
        }
        if is_ordered(&ask.cost) {
            self.busy.insert((ask.tenant.clone(), ask.chat_id.clone()));
        }
        self.in_flight += 1;
        let tenant = ask.tenant.clone();
        self.lines[line].remove(&tenant, ticket);
        self.count_out(ticket);
    }

    /// An action that was granted is over. What its platform said about the pace holds from now on.
    pub fn finished(&mut self, ticket: Ticket, pace: &Pace, now_ms: u64) {
        self.obey(pace, now_ms);
        self.end_flight(ticket);
        self.held.remove(&ticket);
    }

    /// A granted action was refused for its rate and not sent: it waits again, before all others of its tenant.
    /// `false`: its time would not come before its deadline, and it is over.
    pub fn again(&mut self, ticket: Ticket, pace: &Pace, now_ms: u64) -> bool {
        self.obey(pace, now_ms);
        self.end_flight(ticket);
        let Some(held) = self.held.get_mut(&ticket) else { return false };
        held.state = State::Waiting;
        let ask = &self.held[&ticket].ask;
        let latest_ms = if ask.cost.droppable { ask.deadline_ms.min(now_ms + DROP_AFTER_MS) } else { ask.deadline_ms };
        if self.ready_ms(&ask.cost, now_ms).max(self.paused_until_ms) > latest_ms {
            self.held.remove(&ticket);
            return false;
        }
        let (line, tenant, bytes) = (ask.cost.priority as usize, ask.tenant.clone(), ask.bytes);
        self.lines[line].push(&tenant, ticket, true);
        self.waiting += 1;
        let counts = self.tenants.entry(tenant).or_default();
        *counts = (counts.0 + 1, counts.1 + bytes);
        true
    }

    /// Whoever asked is gone, or its deadline passed.
    pub fn withdraw(&mut self, ticket: Ticket) {
        match self.held.get(&ticket) {
            None => {}
            Some(held) if held.state == State::InFlight => {
                self.end_flight(ticket);
                self.held.remove(&ticket);
            }
            Some(held) => {
                let (line, tenant) = (held.ask.cost.priority as usize, held.ask.tenant.clone());
                self.lines[line].remove(&tenant, ticket);
                self.drop_held(ticket);
            }
        }
    }

    fn obey(&mut self, pace: &Pace, now_ms: u64) {
        let Some(pause_ms) = pace.retry_after_ms.max(pace.pause_ms) else { return };
        let until_ms = now_ms.saturating_add(pause_ms);
        match &pace.bucket {
            Some(name) => {
                let bucket = self.buckets.entry(name.clone()).or_insert_with(|| Bucket::new(UNLIMITED));
                bucket.paused_until_ms = bucket.paused_until_ms.max(until_ms);
            }
            None => self.paused_until_ms = self.paused_until_ms.max(until_ms),
        }
    }

    /// When this action would begin, if nothing of a higher priority comes in between.
    fn expected_ms(&self, ask: &Ask, now_ms: u64) -> u64 {
        let before = |held: &&Held| held.state == State::Waiting && held.ask.cost.priority <= ask.cost.priority;
        let at = |(name, rate): &(String, Rate)| {
            let shares = |held: &&Held| held.ask.cost.buckets.iter().any(|(known, _)| known == name);
            let ahead = match self.waiting {
                0 => 0,
                _ => self.held.values().filter(before).filter(shares).count() as u64,
            };
            match self.buckets.get(name) {
                Some(bucket) => bucket.ready_at_ms(ahead, now_ms),
                None => Bucket::new(*rate).ready_at_ms(ahead, now_ms),
            }
        };
        ask.cost.buckets.iter().map(at).max().unwrap_or(0).max(self.paused_until_ms).max(now_ms)
    }

    fn end_flight(&mut self, ticket: Ticket) {
        let Some(held) = self.held.get(&ticket).filter(|held| held.state == State::InFlight) else { return };
        self.in_flight -= 1;
        if is_ordered(&held.ask.cost) {
            self.busy.remove(&(held.ask.tenant.clone(), held.ask.chat_id.clone()));
        }
    }

    fn count_in(&mut self, ask: &Ask) {
        self.waiting += 1;
        let counts = self.tenants.entry(ask.tenant.clone()).or_default();
        *counts = (counts.0 + 1, counts.1 + ask.bytes);
    }

    /// It waits no longer.
    fn count_out(&mut self, ticket: Ticket) {
        let Some(Held { ask, .. }) = self.held.get(&ticket) else { return };
        self.waiting -= 1;
        if let Some(counts) = self.tenants.get_mut(&ask.tenant) {
            *counts = (counts.0 - 1, counts.1 - ask.bytes);
            if counts.0 == 0 {
                self.tenants.remove(&ask.tenant);
            }
        }
        if let Some(key) = &ask.cost.replaces {
            let key = (ask.tenant.clone(), key.clone());
            if self.replaceable.get(&key) == Some(&ticket) {
                self.replaceable.remove(&key);
            }
        }
    }

    fn drop_held(&mut self, ticket: Ticket) {
        self.count_out(ticket);
        self.held.remove(&ticket);
    }

    fn forget_full_buckets(&mut self, now_ms: u64) {
        if self.buckets.len() > BUCKETS_MAX {
            self.buckets.retain(|_, bucket| !bucket.is_full(now_ms));
        }
    }
}

/// A bucket that only the vendor's word limits.
const UNLIMITED: Rate = Rate { burst: u32::MAX, every_ms: 0 };

/// Texts, prompts and edits in one chat keep their order; the rest may overtake.
fn is_ordered(cost: &Cost) -> bool {
    cost.priority <= Priority::Edit
}

#[cfg(test)]
mod tests;
