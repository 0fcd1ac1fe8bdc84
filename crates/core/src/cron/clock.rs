//! Detects that the wall clock was set, while the server runs or while it was down.

use super::retry::{RETRY_AHEAD_MAX_MS, RETRY_LONGEST_MS};
use super::{CronPlane, LEASE_MS, lane_of};
use crate::meters::Why;
use crate::port::store::StoreError;

/// Smaller differences between the two clocks are not a step.
const STEP_MIN_MS: u64 = 5_000;

/// Compares the wall clock with a monotonic one.
pub struct ClockWatch {
    wall_ms: u64,
    steady_ms: u64,
}

impl ClockWatch {
    pub fn new(wall_ms: u64, steady_ms: u64) -> Self {
        Self { wall_ms, steady_ms }
    }

    /// By how much the wall clock was set since the last call; negative: backwards.
    pub fn step_ms(&mut self, wall_ms: u64, steady_ms: u64) -> Option<i64> {
        let passed = i128::from(steady_ms) - i128::from(self.steady_ms);
        let shown = i128::from(wall_ms) - i128::from(self.wall_ms);
        *self = Self { wall_ms, steady_ms };
        let step = i64::try_from(shown - passed).unwrap_or(0);
        (step.unsigned_abs() >= STEP_MIN_MS).then_some(step)
    }
}

impl CronPlane {
    /// Checks whether the clock was set, and logs it. True: it was set back.
    pub(super) fn watch_clock(&self, watch: &mut ClockWatch) -> bool {
        let Some(step_ms) = watch.step_ms(self.env.now_ms(), self.env.steady_ms()) else { return false };
        let why = if step_ms < 0 { "back" } else { "forward" };
        self.meters.clock_steps.get_or_create(&Why { why }).inc();
        tracing::warn!(step_ms, "the system clock was set {why}");
        step_ms < 0
    }

    /// Limits the delay of retries that were planned before the clock was set back. Alarms that were not tried yet keep
    /// their time.
    pub(super) async fn hasten_retries(&self) -> Result<(), StoreError> {
        let now_ms = self.env.now_ms();
        let (ahead_ms, next_ms) = (now_ms + RETRY_AHEAD_MAX_MS, now_ms + RETRY_LONGEST_MS);
        let moved = self.alarms.hasten_retries(ahead_ms, next_ms, now_ms + LEASE_MS).await?;
        if !moved.is_empty() {
            tracing::warn!(count = moved.len(), "retries planned before the clock was set back were brought forward");
        }
        for it in moved {
            self.schedule_alarm(it.next_ms, it.id, &self.directory.tenant_of_no(it.instance), lane_of(&it.callback));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_differs_from_elapsed_time() {
        let mut watch = ClockWatch::new(1_000_000, 0);
        assert_eq!(watch.step_ms(1_500_000, 500_000), None, "a suspended machine is not a step");
        assert_eq!(watch.step_ms(1_504_000, 500_100), None, "a slow correction is not a step");
        assert_eq!(watch.step_ms(504_000, 500_100), Some(-1_000_000));
        assert_eq!(watch.step_ms(504_500, 500_600), None, "told once");
        assert_eq!(watch.step_ms(7_704_500, 500_600), Some(7_200_000));
    }
}
