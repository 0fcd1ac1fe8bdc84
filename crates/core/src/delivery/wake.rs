//! When to call the wake URL of a sleeping agent, and when to notify the users who wait for it.
//!
//! No I/O: the caller passes the time of a monotonic clock and gets the tasks that are due. Failed calls are retried
//! with growing delays while mail waits. A call that was answered but did not make the agent connect is repeated after
//! a cooldown; after one that did, the next message calls at once. Users are notified once per wait. Concurrent calls
//! are bounded. Tenants take turns, and neither one tenant nor retries take all slots, so that agents that do not come do not
//! delay one that would.

use std::collections::{BTreeSet, HashMap, VecDeque};

use frontdesk_wire::{InstanceNo, TenantId};

use crate::rules::WakeRules;

/// First retry after a failed call; doubled each time up to `retry_max_ms`.
const RETRY_FIRST_MS: u64 = 1_000;
/// Concurrent calls; more wait.
pub const POKES_MAX: usize = 64;
/// Of these, at most this many for agents that were called before and did not come.
const RETRIES_MAX: usize = 48;
/// The same for one tenant.
pub const POKES_PER_TENANT: usize = 32;
pub const RETRIES_PER_TENANT: usize = 24;
/// Concurrent notices.
const NOTICES_MAX: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeTask {
    /// Call the wake URL of this instance: (instance, number of the call for [`Waker::ended`]).
    Poke(InstanceNo, u64),
    Notice(InstanceNo, u64),
}

impl WakeTask {
    /// The instance.
    pub fn of(self) -> InstanceNo {
        match self {
            Self::Poke(no, _) | Self::Notice(no, _) => no,
        }
    }
}

/// How a wake task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeOutcome {
    /// The wake URL answered, which does not mean that the agent will connect.
    Answered,
    Failed,
    /// The instance has no wake URL: only the notice is left to send.
    NoWay,
    /// Nothing waits any more, or the agent connected by itself.
    NotNeeded,
    /// The notice was sent, or there was none to send.
    Noticed,
}

/// The queue in which a wake task waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Queue {
    First,
    Retry,
    Notice,
}

struct Sleeper {
    tenant: TenantId,
    /// Distinguishes this wait from other ones of the same instance.
    wait: u64,
    /// Number of sockets that the instance had opened when the wait began.
    dials: u64,
    failures: u32,
    unanswered: u32,
    /// Queue and time of the next call; `None` while one is running, or if none is possible.
    poke: Option<(Queue, u64)>,
    notice: Option<u64>,
    /// The wake URL changed while it was called.
    again: bool,
}

/// Mail that waits for an instance.
#[derive(Clone, Copy)]
pub struct Waits<'a> {
    pub tenant: &'a TenantId,
    /// Age of the oldest row.
    pub waited_ms: u64,
    /// Number of sockets that the instance has opened so far. A higher number than at the start of a wait ends that wait and
    /// starts a new one.
    pub dials: u64,
    /// True for mail that no socket of the instance has received yet.
    pub fresh: bool,
}

/// The last call for an instance.
struct LastPoke {
    at_ms: u64,
    /// The agent connected after it.
    came: bool,
}

struct Call {
    instance: InstanceNo,
    tenant: TenantId,
    wait: u64,
    queue: Queue,
}

/// Entries of a queue that are due. Tenants take turns.
#[derive(Default)]
struct Ready {
    waiting: HashMap<TenantId, VecDeque<(u64, InstanceNo)>>,
    turns: VecDeque<TenantId>,
}

impl Ready {
    fn push(&mut self, tenant: &TenantId, entry: (u64, InstanceNo)) {
        let own = self.waiting.entry(tenant.clone()).or_default();
        if own.is_empty() {
            self.turns.push_back(tenant.clone());
        }
        own.push_back(entry);
    }

    /// The next entry of the first tenant that may have a turn.
    fn pop(&mut self, may: impl Fn(&TenantId) -> bool) -> Option<(u64, InstanceNo)> {
        let at = self.turns.iter().position(may)?;
        let tenant = self.turns.remove(at)?;
        let own = self.waiting.get_mut(&tenant)?;
        let entry = own.pop_front();
        if own.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        entry
    }
}

pub struct Waker {
    rules: WakeRules,
    sleepers: HashMap<InstanceNo, Sleeper>,
    /// Pairs of time and instance per queue, in order.
    lines: [BTreeSet<(u64, InstanceNo)>; 3],
    /// Taken from there when their time came. Those of a wait that is over are skipped.
    ready: [Ready; 3],
    calls: HashMap<u64, Call>,
    in_flight: [usize; 3],
    /// Calls of wake URLs by tenant, and how many of them are retries.
    of_tenants: HashMap<TenantId, (usize, usize)>,
    /// Kept for one cooldown.
    poked: HashMap<InstanceNo, LastPoke>,
    last_number: u64,
}

impl Waker {
    pub fn new(rules: WakeRules) -> Self {
        Self {
            rules,
            sleepers: HashMap::new(),
            lines: Default::default(),
            ready: Default::default(),
            calls: HashMap::new(),
            in_flight: [0; 3],
            of_tenants: HashMap::new(),
            poked: HashMap::new(),
            last_number: 0,
        }
    }

    /// Mail waits for an instance without a socket.
    pub fn mail_waits(&mut self, instance: InstanceNo, waiting: Waits<'_>, now_ms: u64) {
        let Waits { tenant, waited_ms, dials, fresh } = waiting;
        if self.sleepers.get(&instance).is_some_and(|sleeper| sleeper.dials != dials) {
            self.settled(instance);
        }
        let quiet_until_ms = match self.poked.get(&instance) {
            Some(last) if last.came && fresh => 0,
            Some(last) => last.at_ms + self.rules.cooldown_ms,
            None => 0,
        };
        let poke_ms = quiet_until_ms.max(now_ms);
        if let Some(sleeper) = self.sleepers.get_mut(&instance) {
            if let Some((queue, at_ms)) = sleeper.poke
                && sleeper.failures + sleeper.unanswered == 0
                && poke_ms < at_ms
            {
                self.lines[queue as usize].remove(&(at_ms, instance));
                self.lines[queue as usize].insert((poke_ms, instance));
                sleeper.poke = Some((queue, poke_ms));
            }
            return;
        }
        let notice_ms = now_ms + self.rules.notice_after_ms.saturating_sub(waited_ms);
        self.lines[Queue::First as usize].insert((poke_ms, instance));
        self.lines[Queue::Notice as usize].insert((notice_ms, instance));
        let (wait, poke) = (self.number(), Some((Queue::First, poke_ms)));
        let (tenant, notice) = (tenant.clone(), Some(notice_ms));
        let sleeper = Sleeper { tenant, wait, dials, failures: 0, unanswered: 0, poke, notice, again: false };
        self.sleepers.insert(instance, sleeper);
    }

    /// It has another wake URL. If mail waits, it is called at once, or after the call that is running.
    pub fn url_changed(&mut self, instance: InstanceNo, now_ms: u64) {
        self.poked.remove(&instance);
        let Some(sleeper) = self.sleepers.get_mut(&instance) else { return };
        (sleeper.failures, sleeper.unanswered) = (0, 0);
        let wait = sleeper.wait;
        let is_running = |call: &Call| call.instance == instance && call.wait == wait && call.queue != Queue::Notice;
        if self.calls.values().any(is_running) {
            sleeper.again = true;
            return;
        }
        if let Some((queue, at_ms)) = sleeper.poke {
            self.lines[queue as usize].remove(&(at_ms, instance));
        }
        sleeper.poke = Some((Queue::First, now_ms));
        self.lines[Queue::First as usize].insert((now_ms, instance));
    }

    /// A socket serves the instance or did so since: ends the wait.
    pub fn settled(&mut self, instance: InstanceNo) {
        self.forget(instance);
        if let Some(last) = self.poked.get_mut(&instance) {
            last.came = true;
        }
    }

    fn forget(&mut self, instance: InstanceNo) {
        let Some(sleeper) = self.sleepers.remove(&instance) else { return };
        if let Some((queue, at_ms)) = sleeper.poke {
            self.lines[queue as usize].remove(&(at_ms, instance));
        }
        if let Some(at_ms) = sleeper.notice {
            self.lines[Queue::Notice as usize].remove(&(at_ms, instance));
        }
    }

    /// Wake tasks that are due now. Each one runs until [`Self::ended`] is called for it.
    pub fn due(&mut self, now_ms: u64) -> Vec<WakeTask> {
        let cooldown_ms = self.rules.cooldown_ms;
        self.poked.retain(|_, last| last.at_ms + cooldown_ms > now_ms);
        let mut tasks = Vec::new();
        for queue in [Queue::First, Queue::Retry, Queue::Notice] {
            while let Some(&entry) = self.lines[queue as usize].first().filter(|(at_ms, _)| *at_ms <= now_ms) {
                self.lines[queue as usize].pop_first();
                if let Some(sleeper) = self.sleepers.get(&entry.1) {
                    self.ready[queue as usize].push(&sleeper.tenant, entry);
                }
            }
            while self.has_room(queue) {
                let of_tenants = &self.of_tenants;
                let may = |tenant: &TenantId| {
                    let (calls, retries) = of_tenants.get(tenant).copied().unwrap_or_default();
                    match queue {
                        Queue::First => calls < POKES_PER_TENANT,
                        Queue::Retry => calls < POKES_PER_TENANT && retries < RETRIES_PER_TENANT,
                        Queue::Notice => true,
                    }
                };
                let Some(entry) = self.ready[queue as usize].pop(may) else { break };
                tasks.extend(self.begin(queue, entry, now_ms));
            }
        }
        tasks
    }

    /// `None`: that wait is over.
    fn begin(&mut self, queue: Queue, (at_ms, instance): (u64, InstanceNo), now_ms: u64) -> Option<WakeTask> {
        let call = self.number();
        let sleeper = self.sleepers.get_mut(&instance)?;
        let is_current = match queue {
            Queue::Notice => sleeper.notice == Some(at_ms),
            _ => sleeper.poke == Some((queue, at_ms)),
        };
        if !is_current {
            return None;
        }
        let tenant = sleeper.tenant.clone();
        self.calls.insert(call, Call { instance, tenant: tenant.clone(), wait: sleeper.wait, queue });
        self.in_flight[queue as usize] += 1;
        if queue == Queue::Notice {
            sleeper.notice = None;
            return Some(WakeTask::Notice(instance, call));
        }
        sleeper.poke = None;
        let (calls, retries) = self.of_tenants.entry(tenant).or_default();
        *calls += 1;
        *retries += usize::from(queue == Queue::Retry);
        self.poked.insert(instance, LastPoke { at_ms: now_ms, came: false });
        Some(WakeTask::Poke(instance, call))
    }

    fn has_room(&self, queue: Queue) -> bool {
        let [first, retry, notice] = self.in_flight;
        match queue {
            Queue::First => first + retry < POKES_MAX,
            Queue::Retry => first + retry < POKES_MAX && retry < RETRIES_MAX,
            Queue::Notice => notice < NOTICES_MAX,
        }
    }

    /// A wake task ended. Results for a wait that is over are ignored.
    pub fn ended(&mut self, call: u64, how: WakeOutcome, now_ms: u64) {
        let Some(Call { instance, tenant, wait, queue }) = self.calls.remove(&call) else { return };
        self.in_flight[queue as usize] -= 1;
        if queue != Queue::Notice
            && let Some((calls, retries)) = self.of_tenants.get_mut(&tenant)
        {
            *calls -= 1;
            *retries -= usize::from(queue == Queue::Retry);
            if *calls == 0 {
                self.of_tenants.remove(&tenant);
            }
        }
        let Some(sleeper) = self.sleepers.get_mut(&instance).filter(|it| it.wait == wait) else { return };
        if queue != Queue::Notice && std::mem::take(&mut sleeper.again) {
            sleeper.poke = Some((Queue::Retry, now_ms));
            self.lines[Queue::Retry as usize].insert((now_ms, instance));
            return;
        }
        let delay_ms = match how {
            WakeOutcome::Answered => {
                sleeper.failures = 0;
                sleeper.unanswered += 1;
                grow(self.rules.cooldown_ms, sleeper.unanswered - 1, self.rules.retry_max_ms)
            }
            WakeOutcome::Failed => {
                sleeper.failures += 1;
                grow(RETRY_FIRST_MS, sleeper.failures - 1, self.rules.retry_max_ms)
            }
            WakeOutcome::NoWay | WakeOutcome::Noticed => return,
            WakeOutcome::NotNeeded => {
                self.forget(instance);
                self.poked.remove(&instance); // the URL was not called
                return;
            }
        };
        let at_ms = now_ms + delay_ms;
        sleeper.poke = Some((Queue::Retry, at_ms));
        self.lines[Queue::Retry as usize].insert((at_ms, instance));
    }

    pub fn next_due_ms(&self) -> Option<u64> {
        let queues = [Queue::First, Queue::Retry, Queue::Notice].into_iter().filter(|queue| self.has_room(*queue));
        queues.filter_map(|queue| self.lines[queue as usize].first().map(|(at_ms, _)| *at_ms)).min()
    }

    /// The value of `dials` when the current wait began.
    pub fn dials(&self, instance: InstanceNo) -> Option<u64> {
        self.sleepers.get(&instance).map(|sleeper| sleeper.dials)
    }

    /// Wake tasks that were handed out and have not ended.
    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    pub fn sleepers(&self) -> impl Iterator<Item = InstanceNo> + '_ {
        self.sleepers.keys().copied()
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

fn grow(first_ms: u64, times: u32, max_ms: u64) -> u64 {
    first_ms.saturating_mul(1 << times.min(20)).min(max_ms.max(first_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: WakeRules = WakeRules { cooldown_ms: 30_000, retry_max_ms: 300_000, notice_after_ms: 120_000 };

    fn waits(waited_ms: u64, dials: u64, fresh: bool) -> Waits<'static> {
        static TENANT: std::sync::LazyLock<TenantId> = std::sync::LazyLock::new(|| "t".into());
        Waits { tenant: &TENANT, waited_ms, dials, fresh }
    }

    /// A waker with waiting mail for instance 1.
    fn waker() -> Waker {
        let mut waker = Waker::new(RULES);
        waker.mail_waits(InstanceNo(1), waits(0, 0, true), 0);
        waker
    }

    /// Carries out the due calls with this result; returns the instances that were called.
    fn poke(waker: &mut Waker, how: WakeOutcome, now_ms: u64) -> Vec<u64> {
        let mut poked = Vec::new();
        for task in waker.due(now_ms) {
            match task {
                WakeTask::Poke(instance, call) => {
                    poked.push(instance.0);
                    waker.ended(call, how, now_ms);
                }
                WakeTask::Notice(_, call) => waker.ended(call, WakeOutcome::Noticed, now_ms),
            }
        }
        poked
    }

    fn notices(waker: &mut Waker, now_ms: u64) -> Vec<u64> {
        let due = waker.due(now_ms);
        due.into_iter()
            .filter_map(|it| if let WakeTask::Notice(instance, _) = it { Some(instance.0) } else { None })
            .collect()
    }

    #[test]
    fn after_a_poke_that_brought_the_agent_the_next_message_pokes_at_once() {
        let mut waker = waker();
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 0), [1]);
        waker.settled(InstanceNo(1));
        waker.mail_waits(InstanceNo(1), waits(0, 1, true), 5_000);
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 5_000), [1]);
    }

    #[test]
    fn an_agent_that_comes_and_leaves_the_same_mail_unacked_waits_for_the_cool_down() {
        let mut waker = waker();
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 0), [1]);
        waker.settled(InstanceNo(1));
        waker.mail_waits(InstanceNo(1), waits(5_000, 1, false), 5_000);
        assert!(poke(&mut waker, WakeOutcome::Answered, 5_000).is_empty());
        assert_eq!(waker.next_due_ms(), Some(30_000));
        waker.mail_waits(InstanceNo(1), waits(0, 1, true), 6_000);
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 6_000), [1], "new mail does not wait for the cooldown");
    }

    #[test]
    fn new_mail_does_not_speed_up_calls_to_an_agent_that_does_not_come() {
        let mut waker = waker();
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 0), [1]);
        waker.mail_waits(InstanceNo(1), waits(1_000, 0, true), 1_000);
        assert!(poke(&mut waker, WakeOutcome::Answered, 29_999).is_empty());
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 30_000), [1]);
    }

    #[test]
    fn one_poke_at_a_time() {
        let mut waker = waker();
        let Some(WakeTask::Poke(InstanceNo(1), call)) = waker.due(0).pop() else { panic!("no poke") };
        assert_eq!((waker.due(60_000), waker.in_flight()), (vec![], 1));
        waker.ended(call, WakeOutcome::Failed, 60_000);
        assert_eq!(poke(&mut waker, WakeOutcome::Failed, 61_000), [1]);
        assert_eq!(waker.in_flight(), 0);
    }

    #[test]
    fn the_end_of_an_older_poke_does_not_delay_the_next_wait() {
        let mut waker = waker();
        let Some(WakeTask::Poke(InstanceNo(1), slow)) = waker.due(0).pop() else { panic!("no poke") };
        // The agent connected, went idle, and got another message while the call was still open.
        waker.mail_waits(InstanceNo(1), waits(0, 1, true), 5_000);
        assert_eq!(poke(&mut waker, WakeOutcome::Failed, 5_000), [1]);
        waker.ended(slow, WakeOutcome::Answered, 5_500);
        assert_eq!(poke(&mut waker, WakeOutcome::Failed, 6_000), [1], "retried after a second, not after the cooldown");
    }

    #[test]
    fn a_new_wake_url_is_called_at_once() {
        for before in [WakeOutcome::NoWay, WakeOutcome::Failed, WakeOutcome::Answered] {
            let mut waker = waker();
            assert_eq!(poke(&mut waker, before, 0), [1]);
            waker.url_changed(InstanceNo(1), 500);
            assert_eq!(poke(&mut waker, WakeOutcome::Failed, 500), [1], "after {before:?}");
            assert_eq!(poke(&mut waker, WakeOutcome::Failed, 1_500), [1], "it is retried like a first one");
        }
        // While the previous one is being called, and when nothing waited.
        let mut waker = waker();
        let Some(WakeTask::Poke(_, previous)) = waker.due(0).pop() else { panic!("no poke") };
        for _ in 0..100 {
            waker.url_changed(InstanceNo(1), 500);
            assert_eq!(waker.due(500), [], "one call at a time");
        }
        waker.ended(previous, WakeOutcome::NoWay, 600);
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 700), [1]);
        waker.settled(InstanceNo(1));
        waker.url_changed(InstanceNo(1), 800);
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 900), [0_u64; 0]);
        waker.mail_waits(InstanceNo(1), waits(0, 1, false), 1_000);
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 1_000), [1], "the cooldown was that of the previous one");
        assert_eq!(notices(&mut waker, 200_000), [1]);
        waker.url_changed(InstanceNo(1), 200_000);
        assert_eq!(notices(&mut waker, 200_000), [0_u64; 0], "people are told once per wait");
    }

    #[test]
    fn not_needed_ends_the_wait() {
        let mut waker = waker();
        assert_eq!(poke(&mut waker, WakeOutcome::NotNeeded, 0), [1]);
        assert_eq!((waker.sleepers().count(), waker.next_due_ms()), (0, None), "no further poke, no notice");
    }

    #[test]
    fn failures_are_retried_with_growing_delays_up_to_the_limit() {
        let mut waker = waker();
        let mut now = 0;
        let mut gaps = Vec::new();
        for _ in 0..12 {
            assert_eq!(poke(&mut waker, WakeOutcome::Failed, now), [1]);
            let next = waker.sleepers[&InstanceNo(1)].poke.unwrap().1;
            gaps.push(next - now);
            now = next;
        }
        assert_eq!(gaps[..4], [1_000, 2_000, 4_000, 8_000]);
        assert_eq!(*gaps.last().unwrap(), 300_000);
    }

    #[test]
    fn an_answered_poke_is_repeated_until_the_agent_connects() {
        let mut waker = waker();
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 0), [1]);
        assert!(poke(&mut waker, WakeOutcome::Answered, 29_999).is_empty());
        assert_eq!(poke(&mut waker, WakeOutcome::Answered, 30_000), [1]);
        assert_eq!(waker.next_due_ms(), Some(90_000), "with growing delays");
    }

    #[test]
    fn people_are_notified_once_per_wait() {
        let mut waker = Waker::new(RULES);
        waker.mail_waits(InstanceNo(1), waits(20_000, 0, true), 1_000);
        assert_eq!(poke(&mut waker, WakeOutcome::NoWay, 1_000), [1]);
        assert_eq!(waker.next_due_ms(), Some(101_000), "the mail had waited for 20 s");
        assert_eq!(notices(&mut waker, 101_000), [1]);
        assert_eq!(waker.due(500_000), []);
    }

    #[test]
    fn a_short_connection_ends_a_wait() {
        let mut waker = waker();
        for now_ms in [0, 1_000, 3_000, 7_000, 15_000, 31_000, 63_000] {
            assert_eq!(poke(&mut waker, WakeOutcome::Failed, now_ms), [1]);
        }
        assert_eq!(notices(&mut waker, 120_000), [1]);
        waker.mail_waits(InstanceNo(1), waits(120_001, 0, true), 120_001);
        assert_eq!(waker.due(120_001), [], "the same wait");
        waker.mail_waits(InstanceNo(1), waits(0, 1, true), 125_000);
        assert_eq!(poke(&mut waker, WakeOutcome::NoWay, 125_000), [1], "a new wait starts without failures");
        assert_eq!(notices(&mut waker, 245_000), [1], "people are told again");
    }

    #[test]
    fn calls_are_bounded_and_retries_leave_room_for_new_ones() {
        let mut waker = Waker::new(RULES);
        let tenants: Vec<TenantId> = (0..10).map(|number| format!("t{number}").into()).collect();
        for instance in 0..300_u64 {
            let tenant = &tenants[usize::try_from(instance % 10).unwrap()];
            waker.mail_waits(InstanceNo(instance), Waits { tenant, ..waits(0, 0, true) }, 0);
        }
        let mut open: Vec<u64> = Vec::new();
        let calls = |tasks: Vec<WakeTask>| {
            tasks.into_iter().map(|it| if let WakeTask::Poke(_, call) = it { call } else { panic!("a notice") })
        };
        open.extend(calls(waker.due(0)));
        let notices_ms = RULES.notice_after_ms;
        assert_eq!((open.len(), waker.next_due_ms()), (POKES_MAX, Some(notices_ms)), "the rest waits");
        for now_ms in 0..300 {
            for call in open.drain(..) {
                waker.ended(call, WakeOutcome::Failed, now_ms);
            }
            open.extend(calls(waker.due(now_ms)));
            assert!(open.len() <= POKES_MAX);
        }
        // All failed once; now their retries hang.
        for call in open.drain(..) {
            waker.ended(call, WakeOutcome::Failed, 300);
        }
        open.extend(calls(waker.due(10_000)));
        assert_eq!(open.len(), RETRIES_MAX);
        waker.mail_waits(InstanceNo(1_000), waits(0, 0, true), 10_001);
        assert_eq!(waker.due(10_001).len(), 1, "a first call does not wait behind retries");
    }

    /// 1,000 agents of one tenant do not answer.
    #[test]
    fn a_tenant_takes_half_of_the_calls_and_tenants_take_turns() {
        let mut waker = Waker::new(RULES);
        let [flood, other, third] = ["flood", "other", "third"].map(TenantId::from);
        for instance in 0..1_000 {
            waker.mail_waits(InstanceNo(instance), Waits { tenant: &flood, ..waits(0, 0, true) }, 0);
        }
        let hanging = waker.due(0);
        assert_eq!(hanging.len(), POKES_PER_TENANT);
        for instance in 1_000..1_040 {
            waker.mail_waits(InstanceNo(instance), Waits { tenant: &other, ..waits(0, 0, true) }, 1);
        }
        assert_eq!(waker.due(1).len(), POKES_MAX - POKES_PER_TENANT, "others are called at once");
        waker.mail_waits(InstanceNo(2_000), Waits { tenant: &third, ..waits(0, 0, true) }, 2);
        assert!(waker.due(2).is_empty());
        let WakeTask::Poke(_, call) = hanging[0] else { panic!("a notice") };
        waker.ended(call, WakeOutcome::Failed, 3);
        let next = waker.due(3);
        assert!(
            matches!(next[..], [WakeTask::Poke(instance, _)] if instance != InstanceNo(2_000)),
            "it is the turn of the first"
        );
        let WakeTask::Poke(_, call) = hanging[1] else { panic!("a notice") };
        waker.ended(call, WakeOutcome::Failed, 4);
        let turns: Vec<u64> = waker.due(4).into_iter().map(|task| task.of().0).collect();
        assert!(turns[0] >= 1_000, "{turns:?}");
        // The wait of one that came is over, wherever it stood.
        waker.settled(InstanceNo(500));
        for task in hanging.iter().skip(2) {
            let WakeTask::Poke(_, call) = task else { panic!("a notice") };
            waker.ended(*call, WakeOutcome::Failed, 5);
        }
        assert!(waker.due(5).iter().all(|task| task.of() != InstanceNo(500)));
    }
}
