//! One round of the alarm loop: reads due alarms, claims them, and afterwards stores the results.
//!
//! Claim and result are both durable: after a crash in between an alarm fires again; after a stored 2xx it never does.

use std::collections::HashMap;
use std::time::Duration;

use super::buckets::Buckets;
use super::clock::ClockWatch;
use super::schedule::Next;
use super::{CronPlane, LEASE_MS, Loading, STORE_PAUSE};
use crate::port::alarms::{Alarm, Conclusion};

/// Alarms claimed in one commit.
const BATCH: usize = 256;
/// Longest pause, so that a clock step or a suspend of the machine is noticed.
pub const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Delay before a failed claim is repeated.
const CLAIM_PAUSE_MS: u64 = 1_000;

/// State of the loop between rounds. Times are of the monotonic clock.
pub struct AlarmLoop {
    loading: Loading,
    /// The buckets with which the schedule was loaded.
    buckets: Buckets,
    swept_ms: u64,
    watch: ClockWatch,
    /// The clock was set back, or may have been while the server was down.
    set_back: bool,
}

/// An alarm that this process may fire.
pub struct Claimed {
    alarm: Alarm,
    next: Next,
}

/// What one round of the loop took.
pub struct ClaimRound {
    pub claimed: Vec<Claimed>,
    /// Time until the next alarm is due; `None`: call again at once.
    pub pause: Option<Duration>,
}

impl CronPlane {
    pub fn new_loop(&self) -> AlarmLoop {
        let steady_ms = self.env.steady_ms();
        AlarmLoop {
            loading: Loading::default(),
            buckets: Buckets::of(&self.lease),
            swept_ms: steady_ms,
            watch: ClockWatch::new(self.env.now_ms(), steady_ms),
            set_back: true,
        }
    }

    /// Returns when an alarm may be due earlier than expected.
    pub async fn changed(&self) {
        self.clock.notify.notified().await;
    }

    pub async fn round(&self, state: &mut AlarmLoop) -> ClaimRound {
        if let Some(again) = self.reload(&state.loading, &mut state.buckets) {
            state.loading = again;
        }
        state.set_back |= self.watch_clock(&mut state.watch);
        if state.set_back {
            match self.hasten_retries().await {
                Ok(()) => state.set_back = false,
                Err(error) => {
                    tracing::error!(%error, "moving retries after a clock step failed; retrying");
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        }
        if state.loading.done && self.env.now_ms() >= self.next_load_ms() {
            state.loading = self.begin_load(&state.loading);
        }
        if !state.loading.done
            && let Err(error) = self.load_alarms(&mut state.loading).await
        {
            tracing::error!(%error, "reading armed alarms failed; retrying");
            tokio::time::sleep(STORE_PAUSE).await;
        }
        // A worker may have claimed an alarm and stopped; then the alarm is no longer in the schedule.
        if self.env.steady_ms().saturating_sub(state.swept_ms) > LEASE_MS {
            state.swept_ms = self.env.steady_ms();
            if let Err(error) = self.find_forgotten_alarms().await {
                tracing::error!(%error, "reading overdue alarms failed");
            }
        }
        let (claimed, taken) = self.claim_due().await;
        if taken > 0 || !state.loading.done {
            return ClaimRound { claimed, pause: None };
        }
        let now_ms = self.env.now_ms();
        let until = |at: u64| Duration::from_millis(at.saturating_sub(now_ms)).min(PAUSE_MAX);
        let pause = self.clock.schedule().next_ms().map_or(PAUSE_MAX, until);
        ClaimRound { claimed, pause: Some(pause) }
    }

    /// Claims due alarms. Also returns how many were taken from the schedule.
    async fn claim_due(&self) -> (Vec<Claimed>, usize) {
        let now_ms = self.env.now_ms();
        let due = self.clock.due(now_ms, BATCH);
        if due.is_empty() {
            return (Vec::new(), 0);
        }
        let ids = due.iter().map(|next| next.id).collect();
        let claimed = match self.alarms.claim_alarms(ids, now_ms, now_ms, now_ms + LEASE_MS).await {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::error!(%error, "claiming due alarms failed; they stay armed");
                let mut schedule = self.clock.schedule();
                for next in due {
                    schedule.put_back(next, now_ms + CLAIM_PAUSE_MS);
                    schedule.finished(next);
                }
                return (Vec::new(), 0);
            }
        };
        let mut claimed: HashMap<u64, Alarm> = claimed.into_iter().map(|alarm| (alarm.id, alarm)).collect();
        let mut ours = Vec::with_capacity(claimed.len());
        let mut schedule = self.clock.schedule();
        for next in &due {
            match claimed.remove(&next.id) {
                Some(alarm) => ours.push(Claimed { alarm, next: *next }),
                None => schedule.finished(*next), // cancelled, moved, or claimed by another process
            }
        }
        (ours, due.len())
    }

    pub async fn fire_claimed(&self, Claimed { alarm, next }: Claimed) {
        let answered = || {
            self.clock.schedule().answered(next.lane);
            self.clock.notify.notify_one();
        };
        let end = self.try_alarm(&alarm, answered).await;
        {
            let mut schedule = self.clock.schedule();
            if let Conclusion::Retry { next_ms, .. } = end {
                schedule.put_back(next, next_ms);
            }
            schedule.noted(next);
        }
        self.clock.notify.notify_one();
    }
}
