//! When a listener that ended is started again: after a pause that grows until one is healthy.

use std::time::Duration;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// A listener that runs this long is healthy.
pub const HEALTHY_AFTER: Duration = Duration::from_mins(1);

pub struct Restarts {
    pause: Duration,
}

impl Default for Restarts {
    fn default() -> Self {
        Self { pause: PAUSE_MIN }
    }
}

impl Restarts {
    /// How long to wait before the next start.
    pub fn after(&mut self, was_healthy: bool) -> Duration {
        let pause = if was_healthy { PAUSE_MIN } else { self.pause };
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_until_one_is_healthy() {
        let mut restarts = Restarts::default();
        let pauses: Vec<u64> = (0..8).map(|_| restarts.after(false).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((restarts.after(true).as_secs(), restarts.after(false).as_secs()), (1, 2));
    }
}
