//! Decides which of a bot's waiting actions is sent next. No I/O: the caller passes the time; it holds tickets, not
//! actions.
//!
//! Order: by priority, then round-robin between tenants, then by arrival. Actions in one chat are sent one after
//! another. A bot's rate budget is a set of token buckets; limits that the vendor reports override them.

use std::collections::{HashMap, HashSet, VecDeque};

use frontdesk_wire::{ChatId, TenantId};

use crate::port::platform::{Cost, Pace, Priority, Rate};

/// Actions of one tenant that are at the platform at the same time. There is no limit over all tenants: one with slow
/// actions must not hold up the others.
pub const IN_FLIGHT_MAX: usize = 256;
/// Actions of one tenant that wait for one bot, in count and bytes. More are refused.
pub const WAITING_MAX: usize = 512;
pub const WAITING_MAX_BYTES: usize = 8 << 20;
/// A platform that refuses without a time is asked again after this.
const RETRY_MIN_MS: u64 = 100;
/// Longer pauses are cut to this, so that one wrong answer does not silence a bot.
const PAUSE_MAX_MS: u64 = 3_600_000;
/// Full buckets are dropped when there are this many.
const BUCKETS_MAX: usize = 4_096;

pub type Ticket = u64;

/// An action to be scheduled.
pub struct Ask {
    pub tenant: TenantId,
    pub chat_id: ChatId,
    pub cost: Cost,
    pub bytes: usize,
    /// Actions that follow this one and need a token each: the further parts of a long text.
    pub more: u64,
    /// It is not started after this time, but refused.
    pub deadline_ms: u64,
}

/// An action that was taken into the queue.
#[derive(Debug, PartialEq, Eq)]
pub struct Admission {
    pub ticket: Ticket,
    /// A waiting action that this one replaces; it gets the same result.
    pub supersedes: Option<Ticket>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The tenant has too many actions waiting for this bot.
    Full,
    /// The rate limit of the bot would delay it this long.
    TooLong { wait_ms: u64 },
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// To start now.
    pub start: Vec<Ticket>,
    /// When to ask again, if actions wait for a time. Actions that wait for another one to end do not count: its end
    /// causes the next call.
    pub again_ms: Option<u64>,
}

#[derive(Default)]
pub struct Scheduler {
    /// Tenants with waiting actions, per priority, in round-robin order.
    turns: [VecDeque<TenantId>; Priority::ALL.len()],
    tenants: HashMap<TenantId, Tenant>,
    held: HashMap<Ticket, Held>,
    waiting: usize,
    buckets: HashMap<String, Bucket>,
    paused_until_ms: u64,
    last_ticket: Ticket,
}

#[derive(Default)]
struct Tenant {
    waiting: [VecDeque<Ticket>; Priority::ALL.len()],
    count: usize,
    bytes: usize,
    in_flight: usize,
    /// Chats with an action at the platform.
    busy: HashSet<ChatId>,
    /// Waiting actions that a later one may replace, by key.
    replaceable: HashMap<String, Ticket>,
}

struct Held {
    ask: Ask,
    state: State,
    /// The platform refused it because of its rate; not before this time.
    not_before_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    InFlight,
    /// Between two of these.
    Neither,
}

struct Bucket {
    rate: Rate,
    /// When it is full again, by our own count.
    full_at_ms: u64,
    /// Pause demanded by the vendor.
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
    /// Nothing waits, nothing is in flight, and no limit is in effect.
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

    pub fn is_in_flight(&self, ticket: Ticket) -> bool {
        self.held.get(&ticket).is_some_and(|held| held.state == State::InFlight)
    }

    pub fn ask(&mut self, ask: Ask, now_ms: u64) -> Result<Admission, Refusal> {
        let tenant = self.tenants.get(&ask.tenant);
        let replaced = |tenant: &Tenant| tenant.replaceable.get(ask.cost.replaces.as_ref()?).copied();
        let supersedes = tenant.and_then(replaced);
        let freed_bytes = supersedes.and_then(|old| self.held.get(&old)).map_or(0, |old| old.ask.bytes);
        let is_full = |it: &Tenant| {
            let has_no_place = supersedes.is_none() && it.count >= WAITING_MAX;
            has_no_place || it.bytes.saturating_sub(freed_bytes) + ask.bytes > WAITING_MAX_BYTES
        };
        if tenant.map_or(ask.bytes > WAITING_MAX_BYTES, is_full) {
            return Err(Refusal::Full);
        }
        if supersedes.is_none() {
            let starts_ms = self.expected_ms(&ask, now_ms);
            if starts_ms > ask.deadline_ms {
                return Err(Refusal::TooLong { wait_ms: starts_ms - now_ms });
            }
        }
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        // It takes the place in the queue of the one that it replaces.
        let place = supersedes.and_then(|old| self.leave_queue(old));
        let old = supersedes.and_then(|old| self.held.remove(&old));
        let not_before_ms = old.map_or(0, |old| old.not_before_ms);
        if let Some(key) = &ask.cost.replaces {
            self.tenants.entry(ask.tenant.clone()).or_default().replaceable.insert(key.clone(), ticket);
        }
        self.held.insert(ticket, Held { ask, state: State::Neither, not_before_ms });
        self.enter_queue(ticket, place);
        Ok(Admission { ticket, supersedes })
    }

    /// The actions to start now. They are in flight from here on.
    pub fn grants(&mut self, now_ms: u64) -> Grants {
        let mut grants = Grants::default();
        if self.waiting == 0 {
            return grants;
        }
        if self.paused_until_ms > now_ms {
            grants.again_ms = Some(self.paused_until_ms);
            return grants;
        }
        for line in 0..self.turns.len() {
            self.grant_line(line, now_ms, &mut grants);
        }
        if self.buckets.len() > BUCKETS_MAX {
            self.buckets.retain(|_, bucket| !bucket.is_full(now_ms));
        }
        grants
    }

    /// Round-robin: a tenant that starts an action goes to the end of the queue.
    fn grant_line(&mut self, line: usize, now_ms: u64, grants: &mut Grants) {
        let mut index = 0;
        while let Some(name) = self.turns[line].get(index) {
            let Some(ticket) = self.first_ready(line, name, now_ms, &mut grants.again_ms) else {
                index += 1;
                continue;
            };
            let name = name.clone();
            self.start(ticket, now_ms);
            grants.start.push(ticket);
            let turns = &mut self.turns[line];
            if turns.get(index) == Some(&name) {
                turns.remove(index); // it has more waiting
                turns.push_back(name);
            }
        }
    }

    /// The tenant's first action of this priority whose chat is free and whose buckets have a token. An action that
    /// waits for its bucket blocks its chat, so that the order within a chat is kept.
    fn first_ready(&self, line: usize, name: &str, now_ms: u64, again_ms: &mut Option<u64>) -> Option<Ticket> {
        let tenant = self.tenants.get(name).filter(|tenant| tenant.in_flight < IN_FLIGHT_MAX)?;
        let mut held_up: HashSet<&str> = HashSet::new();
        for ticket in &tenant.waiting[line] {
            let Some(held) = self.held.get(ticket) else { continue };
            let chat = held.ask.chat_id.as_str();
            if tenant.busy.contains(chat) || held_up.contains(chat) {
                continue;
            }
            let ready_ms = self.ready_ms(&held.ask.cost, now_ms).max(held.not_before_ms);
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

    fn start(&mut self, ticket: Ticket, now_ms: u64) {
        self.leave_queue(ticket);
        let Some(Held { ask, state, .. }) = self.held.get_mut(&ticket) else { return };
        *state = State::InFlight;
        for (name, rate) in &ask.cost.buckets {
            if let Some(bucket) = self.buckets.get_mut(name) {
                bucket.rate = *rate;
                bucket.take(now_ms);
            } else {
                let mut bucket = Bucket::new(*rate);
                bucket.take(now_ms);
                self.buckets.insert(name.clone(), bucket);
            }
        }
        let tenant = self.tenants.entry(ask.tenant.clone()).or_default();
        tenant.in_flight += 1;
        if is_ordered(&ask.cost) {
            tenant.busy.insert(ask.chat_id.clone());
        }
    }

    /// A started action has ended. Limits that its platform reported apply from now on.
    pub fn finished(&mut self, ticket: Ticket, pace: &Pace, now_ms: u64) {
        self.obey(pace, now_ms);
        self.withdraw(ticket);
    }

    /// A granted action was refused for its rate and not sent: it waits again, before all others of its tenant.
    /// `false`: it could not start before its deadline, and is dropped.
    pub fn again(&mut self, ticket: Ticket, pace: &Pace, now_ms: u64) -> bool {
        self.obey(pace, now_ms);
        self.end_flight(ticket);
        let Some(held) = self.held.get_mut(&ticket) else { return false };
        // Also if the vendor names a bucket that we do not count.
        held.not_before_ms = now_ms + pace.retry_after_ms.unwrap_or(0).clamp(RETRY_MIN_MS, PAUSE_MAX_MS);
        let held = &self.held[&ticket];
        let ready_ms = self.ready_ms(&held.ask.cost, now_ms).max(held.not_before_ms).max(self.paused_until_ms);
        if ready_ms > held.ask.deadline_ms {
            self.withdraw(ticket);
            return false;
        }
        if let Some(key) = held.ask.cost.replaces.clone() {
            // If a later edit waits already, that one remains replaceable.
            let tenant = self.tenants.entry(held.ask.tenant.clone()).or_default();
            tenant.replaceable.entry(key).or_insert(ticket);
        }
        self.enter_queue(ticket, Some(0));
        true
    }

    /// The caller is gone, or the deadline has passed.
    pub fn withdraw(&mut self, ticket: Ticket) {
        if self.is_waiting(ticket) {
            self.leave_queue(ticket);
        } else {
            self.end_flight(ticket);
        }
        if let Some(Held { ask, .. }) = self.held.remove(&ticket)
            && self.tenants.get(&ask.tenant).is_some_and(|it| it.count == 0 && it.in_flight == 0)
        {
            self.tenants.remove(&ask.tenant);
        }
    }

    fn obey(&mut self, pace: &Pace, now_ms: u64) {
        let Some(pause_ms) = pace.retry_after_ms.max(pace.pause_ms) else { return };
        let until_ms = now_ms + pause_ms.min(PAUSE_MAX_MS);
        match &pace.bucket {
            Some(name) => {
                let bucket = self.buckets.entry(name.clone()).or_insert_with(|| Bucket::new(UNLIMITED));
                bucket.paused_until_ms = bucket.paused_until_ms.max(until_ms);
            }
            None => self.paused_until_ms = self.paused_until_ms.max(until_ms),
        }
    }

    /// When this action and those that follow it would begin, if nothing of a higher priority comes in between. Tenants
    /// take turns, so no more of another tenant goes before than of this one.
    fn expected_ms(&self, ask: &Ask, now_ms: u64) -> u64 {
        let mut latest_ms = self.paused_until_ms.max(now_ms);
        for (name, rate) in &ask.cost.buckets {
            let ahead = if self.waiting == 0 { 0 } else { self.ahead(ask, name) };
            let at_ms = match self.buckets.get(name) {
                Some(bucket) => bucket.ready_at_ms(ahead + ask.more, now_ms),
                None => Bucket::new(*rate).ready_at_ms(ahead + ask.more, now_ms),
            };
            latest_ms = latest_ms.max(at_ms);
        }
        latest_ms
    }

    /// Waiting actions that take a token of this bucket before this one does.
    fn ahead(&self, ask: &Ask, bucket: &str) -> u64 {
        let priority = ask.cost.priority;
        let mut higher = 0;
        let mut same: HashMap<&str, u64> = HashMap::new();
        for Held { ask: other, state, .. } in self.held.values() {
            let shares = || other.cost.buckets.iter().any(|(name, _)| name == bucket);
            if *state != State::Waiting || other.cost.priority > priority || !shares() {
                continue;
            }
            if other.cost.priority < priority {
                higher += 1;
            } else {
                *same.entry(&other.tenant).or_default() += 1;
            }
        }
        let own = same.remove(ask.tenant.as_str()).unwrap_or(0);
        higher + own + same.values().map(|count| (*count).min(own + 1)).sum::<u64>()
    }

    /// Waits in the line of its priority, at this place or at the end.
    fn enter_queue(&mut self, ticket: Ticket, place: Option<usize>) {
        let Some(held) = self.held.get_mut(&ticket) else { return };
        held.state = State::Waiting;
        let ask = &held.ask;
        let line = ask.cost.priority as usize;
        let tenant = self.tenants.entry(ask.tenant.clone()).or_default();
        let queue = &mut tenant.waiting[line];
        if queue.is_empty() {
            self.turns[line].push_back(ask.tenant.clone());
        }
        queue.insert(place.unwrap_or(queue.len()).min(queue.len()), ticket);
        tenant.count += 1;
        tenant.bytes += ask.bytes;
        self.waiting += 1;
    }

    /// Waits no longer. Returns its place in the line.
    fn leave_queue(&mut self, ticket: Ticket) -> Option<usize> {
        let held = self.held.get_mut(&ticket).filter(|held| held.state == State::Waiting)?;
        held.state = State::Neither;
        let ask = &held.ask;
        let line = ask.cost.priority as usize;
        let tenant = self.tenants.get_mut(&ask.tenant)?;
        let queue = &mut tenant.waiting[line];
        let place = queue.iter().position(|known| *known == ticket)?;
        queue.remove(place);
        if queue.is_empty() {
            self.turns[line].retain(|name| *name != ask.tenant);
        }
        tenant.count -= 1;
        tenant.bytes -= ask.bytes;
        self.waiting -= 1;
        if let Some(key) = &ask.cost.replaces
            && tenant.replaceable.get(key) == Some(&ticket)
        {
            tenant.replaceable.remove(key);
        }
        Some(place)
    }

    fn end_flight(&mut self, ticket: Ticket) {
        let Some(held) = self.held.get_mut(&ticket).filter(|held| held.state == State::InFlight) else { return };
        held.state = State::Neither;
        let ask = &held.ask;
        let Some(tenant) = self.tenants.get_mut(&ask.tenant) else { return };
        tenant.in_flight -= 1;
        if is_ordered(&ask.cost) {
            tenant.busy.remove(&ask.chat_id);
        }
    }
}

/// A bucket that only limits reported by the vendor apply to.
const UNLIMITED: Rate = Rate { burst: u32::MAX, every_ms: 0 };

/// Texts, prompts and edits in one chat keep their order; the rest may overtake.
fn is_ordered(cost: &Cost) -> bool {
    cost.priority <= Priority::Edit
}

#[cfg(test)]
mod tests;
