//! One turn of the alarm loop: reads what comes due, claims it, fires it, and notes how it ended.
//!
//! Claimed before it is fired and ended after, both durable: a crash in between fires it again, and
//! after a noted 2xx it never goes again.

use std::collections::HashMap;
use std::time::Duration;

use super::clock::ClockWatch;
use super::schedule::Next;
use super::{CronPlane, LEASE_MS, Loading, STORE_PAUSE};
use crate::port::alarms::{Conclusion, Shot};

/// Shots claimed in one commit.
const BATCH: usize = 256;
/// The longest pause, so that a jump of the clock or a sleep of the machine is noticed.
pub const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often the armed ones are counted: a look at all of them.
const COUNT_EVERY_MS: u64 = 60_000;
/// How soon they are counted for the first time; until then a tenant's quota counts from nought.
const FIRST_COUNT_MS: u64 = 2_000;
/// A claim that failed is tried again after this.
const CLAIM_PAUSE_MS: u64 = 1_000;

/// What the loop remembers between its turns. Times are of a clock that nobody sets.
pub struct Ring {
    loading: Loading,
    counted_ms: u64,
    is_counted: bool,
    swept_ms: u64,
    watch: ClockWatch,
    /// The clock may have been set back while the desk was down.
    set_back: bool,
}

/// A shot that is ours to fire.
pub struct Claimed {
    shot: Shot,
    next: Next,
}

/// What a turn found.
pub struct Turn {
    pub claimed: Vec<Claimed>,
    /// How long nothing is due; `None`: there is more to do now.
    pub pause: Option<Duration>,
}

impl CronPlane {
    pub fn new_ring(&self) -> Ring {
        let steady_ms = self.env.steady_ms();
        Ring {
            loading: Loading::default(),
            counted_ms: steady_ms, // not at once: what is overdue after a restart goes first
            is_counted: false,
            swept_ms: steady_ms,
            watch: ClockWatch::new(self.env.now_ms(), steady_ms),
            set_back: true,
        }
    }

    /// Returns when something may be due sooner than was thought.
    pub async fn rung(&self) {
        self.clock.bell.notified().await;
    }

    pub async fn turn(&self, ring: &mut Ring) -> Turn {
        if let Some(again) = self.reload(&ring.loading) {
            ring.loading = again;
        }
        ring.set_back |= self.watch_clock(&mut ring.watch);
        if ring.set_back {
            match self.hasten_retries().await {
                Ok(()) => ring.set_back = false,
                Err(error) => {
                    tracing::error!(%error, "reading retries planned before the clock was set back failed; trying again");
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        }
        if ring.loading.done && self.env.now_ms() >= self.next_load_ms() {
            ring.loading = self.begin_load(&ring.loading);
        }
        if !ring.loading.done
            && let Err(error) = self.load_shots(&mut ring.loading).await
        {
            tracing::error!(%error, "reading armed shots failed; trying again");
            tokio::time::sleep(STORE_PAUSE).await;
        }
        // Somebody may have claimed a shot and gone; its time in the schedule is over by then.
        if self.env.steady_ms().saturating_sub(ring.swept_ms) > LEASE_MS {
            ring.swept_ms = self.env.steady_ms();
            if let Err(error) = self.find_forgotten_shots().await {
                tracing::error!(%error, "looking for overdue shots failed");
            }
        }
        let until_count_ms = if ring.is_counted { COUNT_EVERY_MS } else { FIRST_COUNT_MS };
        if self.env.steady_ms().saturating_sub(ring.counted_ms) > until_count_ms {
            (ring.counted_ms, ring.is_counted) = (self.env.steady_ms(), true);
            if let Ok(armed) = self.count_armed().await {
                self.meters.alarms_armed.set(i64::try_from(armed).unwrap_or(i64::MAX));
            }
        }
        let (claimed, taken) = self.claim_due().await;
        if taken > 0 || !ring.loading.done {
            return Turn { claimed, pause: None };
        }
        let now_ms = self.env.now_ms();
        let until = |at: u64| Duration::from_millis(at.saturating_sub(now_ms)).min(PAUSE_MAX);
        let pause = self.clock.schedule().next_ms().map_or(PAUSE_MAX, until);
        Turn { claimed, pause: Some(pause) }
    }

    /// Claims what is due and may go, and says how many were taken from the schedule.
    async fn claim_due(&self) -> (Vec<Claimed>, usize) {
        let now_ms = self.env.now_ms();
        let due = self.clock.due(now_ms, BATCH);
        if due.is_empty() {
            return (Vec::new(), 0);
        }
        let ids = due.iter().map(|next| next.id).collect();
        let claimed = match self.alarms.claim_shots(ids, now_ms, now_ms, now_ms + LEASE_MS).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::error!(%error, "claiming due shots failed; they stay armed");
                let mut schedule = self.clock.schedule();
                for next in due {
                    schedule.put_back(next, now_ms + CLAIM_PAUSE_MS);
                    schedule.finished(next);
                }
                return (Vec::new(), 0);
            }
        };
        let mut claimed: HashMap<u64, Shot> = claimed.into_iter().map(|shot| (shot.id, shot)).collect();
        let mut ours = Vec::with_capacity(claimed.len());
        let mut schedule = self.clock.schedule();
        for next in &due {
            match claimed.remove(&next.id) {
                Some(shot) => ours.push(Claimed { shot, next: *next }),
                None => schedule.finished(*next), // cancelled, replaced, or somebody else's
            }
        }
        (ours, due.len())
    }

    pub async fn fire_claimed(&self, Claimed { shot, next }: Claimed) {
        let answered = || {
            self.clock.schedule().answered(next.lane);
            self.clock.bell.notify_one();
        };
        let end = self.try_shot(&shot, answered).await;
        {
            let mut schedule = self.clock.schedule();
            if let Conclusion::Retry { next_ms, .. } = end {
                schedule.put_back(next, next_ms);
            }
            schedule.noted(next);
        }
        self.clock.bell.notify_one();
    }
}
