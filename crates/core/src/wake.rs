//! When to poke a sleeping agent's wake URL, and when to tell the people who wait for it.
//!
//! Pure: told the time, it says which errands are due. One poke per cooldown; failures are retried
//! with growing delays while mail waits; people are told once per wait.

use std::collections::HashMap;

#[derive(Debug, Clone, Copy)]
pub struct WakeRules {
    pub cooldown_ms: u64,
    pub retry_max_ms: u64,
    pub notice_after_ms: u64,
}

/// First retry after a failed poke; doubled each time up to `retry_max_ms`.
const RETRY_FIRST_MS: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    Poke(u64),
    Notice(u64),
}

struct Sleeper {
    born_ms: u64,
    since_ms: u64,
    failures: u32,
    unanswered: u32,
    next_poke_ms: u64,
    poking: bool,
    noticed: bool,
}

pub struct Waker {
    rules: WakeRules,
    sleepers: HashMap<u64, Sleeper>,
    /// When each instance was last poked, kept through one cooldown.
    poked: HashMap<u64, u64>,
}

impl Waker {
    pub fn new(rules: WakeRules) -> Self {
        Self { rules, sleepers: HashMap::new(), poked: HashMap::new() }
    }

    /// Mail waits for an instance that no socket serves. `since_ms`: how long the oldest has waited.
    /// `seen_ms`: when a socket last served it; a wait that began before has ended, and this is another.
    pub fn mail_waits(&mut self, instance: u64, since_ms: u64, seen_ms: u64, now_ms: u64) {
        if self.sleepers.get(&instance).is_some_and(|sleeper| sleeper.born_ms < seen_ms) {
            self.settled(instance);
        }
        let quiet_until = self.poked.get(&instance).map_or(0, |at| at + self.rules.cooldown_ms);
        self.sleepers.entry(instance).or_insert(Sleeper {
            born_ms: now_ms,
            since_ms,
            failures: 0,
            unanswered: 0,
            next_poke_ms: quiet_until.max(now_ms),
            poking: false,
            noticed: false,
        });
    }

    /// A socket serves it, or nothing waits any more.
    pub fn settled(&mut self, instance: u64) {
        self.sleepers.remove(&instance);
    }

    pub fn due(&mut self, now_ms: u64) -> Vec<Errand> {
        let cooldown_ms = self.rules.cooldown_ms;
        self.poked.retain(|_, at| *at + cooldown_ms > now_ms);
        let mut errands = Vec::new();
        for (instance, sleeper) in &mut self.sleepers {
            if !sleeper.poking && sleeper.next_poke_ms <= now_ms {
                sleeper.poking = true;
                self.poked.insert(*instance, now_ms);
                errands.push(Errand::Poke(*instance));
            }
            if !sleeper.noticed && sleeper.since_ms + self.rules.notice_after_ms <= now_ms {
                sleeper.noticed = true;
                errands.push(Errand::Notice(*instance));
            }
        }
        errands
    }

    /// A poke ended. Also a good one is repeated if no socket comes: an answer is not an agent.
    pub fn poked(&mut self, instance: u64, ok: bool, now_ms: u64) {
        let Some(sleeper) = self.sleepers.get_mut(&instance) else { return };
        sleeper.poking = false;
        let delay_ms = if ok {
            sleeper.failures = 0;
            sleeper.unanswered += 1;
            grow(self.rules.cooldown_ms, sleeper.unanswered - 1, self.rules.retry_max_ms)
        } else {
            sleeper.failures += 1;
            grow(RETRY_FIRST_MS, sleeper.failures - 1, self.rules.retry_max_ms)
        };
        sleeper.next_poke_ms = now_ms + delay_ms;
    }

    /// There is no way to poke it: only the notice remains.
    pub fn unwakeable(&mut self, instance: u64) {
        if let Some(sleeper) = self.sleepers.get_mut(&instance) {
            sleeper.poking = false;
            sleeper.next_poke_ms = u64::MAX;
        }
    }

    pub fn next_due_ms(&self) -> Option<u64> {
        let due = |s: &Sleeper| {
            let poke = if s.poking { u64::MAX } else { s.next_poke_ms };
            let notice = if s.noticed { u64::MAX } else { s.since_ms + self.rules.notice_after_ms };
            poke.min(notice)
        };
        self.sleepers.values().map(due).min().filter(|at| *at != u64::MAX)
    }

    /// Since when it is waited for.
    pub fn born_ms(&self, instance: u64) -> Option<u64> {
        self.sleepers.get(&instance).map(|sleeper| sleeper.born_ms)
    }

    pub fn sleepers(&self) -> impl Iterator<Item = u64> + '_ {
        self.sleepers.keys().copied()
    }
}

fn grow(first_ms: u64, times: u32, max_ms: u64) -> u64 {
    first_ms.saturating_mul(1 << times.min(20)).min(max_ms.max(first_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: WakeRules = WakeRules { cooldown_ms: 30_000, retry_max_ms: 300_000, notice_after_ms: 120_000 };

    #[test]
    fn one_poke_per_cooldown_even_when_it_dials_and_sleeps_again() {
        let mut waker = Waker::new(RULES);
        waker.mail_waits(1, 0, 0, 0);
        assert_eq!(waker.due(0), [Errand::Poke(1)]);
        assert_eq!(waker.due(0), [], "a poke is under way");
        waker.poked(1, true, 10);
        waker.settled(1);
        waker.mail_waits(1, 5_000, 0, 5_000);
        assert_eq!(waker.due(5_000), []);
        assert_eq!(waker.next_due_ms(), Some(30_000));
        assert_eq!(waker.due(30_000), [Errand::Poke(1)]);
    }

    #[test]
    fn failures_are_retried_with_growing_delays_up_to_the_limit() {
        let mut waker = Waker::new(RULES);
        waker.mail_waits(1, 0, 0, 0);
        let mut now = 0;
        let mut gaps = Vec::new();
        for _ in 0..12 {
            assert!(waker.due(now).contains(&Errand::Poke(1)));
            waker.poked(1, false, now);
            let next = waker.sleepers[&1].next_poke_ms;
            gaps.push(next - now);
            now = next;
        }
        assert_eq!(gaps[..4], [1_000, 2_000, 4_000, 8_000]);
        assert_eq!(*gaps.last().unwrap(), 300_000);
    }

    #[test]
    fn an_answer_is_not_an_agent_so_a_good_poke_is_repeated() {
        let mut waker = Waker::new(RULES);
        waker.mail_waits(1, 0, 0, 0);
        waker.due(0);
        waker.poked(1, true, 0);
        assert_eq!(waker.due(29_999), []);
        assert_eq!(waker.due(30_000), [Errand::Poke(1)]);
    }

    #[test]
    fn people_are_told_once_per_wait() {
        let mut waker = Waker::new(RULES);
        waker.mail_waits(1, 1_000, 0, 1_000);
        waker.due(1_000);
        waker.unwakeable(1);
        assert_eq!(waker.next_due_ms(), Some(121_000));
        assert_eq!(waker.due(121_000), [Errand::Notice(1)]);
        assert_eq!(waker.due(500_000), []);
    }

    #[test]
    fn a_socket_that_came_and_went_ends_a_wait_though_nobody_looked_meanwhile() {
        let mut waker = Waker::new(RULES);
        waker.mail_waits(1, 0, 0, 0);
        waker.due(0);
        for _ in 0..9 {
            waker.poked(1, false, 0);
        }
        assert_eq!(waker.due(200_000), [Errand::Notice(1)]);
        waker.mail_waits(1, 0, 0, 200_001);
        assert_eq!(waker.due(200_001), [], "the same wait");
        waker.mail_waits(1, 210_000, 205_000, 210_000);
        assert_eq!(waker.due(210_000), [Errand::Poke(1)], "another one: its failures are forgotten");
        waker.unwakeable(1);
        assert_eq!(waker.due(330_000), [Errand::Notice(1)], "and people are told again");
    }
}
