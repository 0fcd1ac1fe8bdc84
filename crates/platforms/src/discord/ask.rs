//! Requests to Discord that are repeated after a temporary failure: the delays that it demands are kept, within a
//! limit.

use std::time::Duration;

use frontdesk_core::port::platform::Bot;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Discord;
use super::api::{Answered, ApiError};

const PAUSE: Duration = Duration::from_millis(100);

/// How often it is asked, and how long in all.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryBudget {
    attempts: u32,
    time: Duration,
}

impl RetryBudget {
    /// While messages wait for the answer.
    pub(super) const SHORT: Self = Self { attempts: 5, time: Duration::from_secs(3) };
    pub(super) const FEW: Self = Self { attempts: 5, time: Duration::from_secs(15) };
    /// When no message waits for the answer.
    pub(super) const LONG: Self = Self { attempts: 8, time: Duration::from_mins(2) };

    /// Waits for the lock. Returns the budget that is left; `None`: none is.
    pub(super) async fn lock(self, turn: &Mutex<()>) -> Option<(MutexGuard<'_, ()>, Self)> {
        let began = Instant::now();
        let held = timeout(self.time, turn.lock()).await.ok()?;
        Some((held, Self { time: self.time.saturating_sub(began.elapsed()), ..self }))
    }
}

impl ApiError {
    /// The same request may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Limited { .. } | Self::NoAnswer { .. } | Self::TooManyRefused)
    }

    /// The pause before the next attempt, after this many. `None`: another one would not help.
    fn pause(&self, attempts: u32) -> Option<Duration> {
        match self {
            Self::Limited { retry_after_ms, .. } => Some(Duration::from_millis(*retry_after_ms)),
            Self::NoAnswer { .. } => Some(PAUSE * 2_u32.saturating_pow(attempts.min(8))),
            Self::Refused { .. } | Self::TooManyRefused => None,
        }
    }
}

impl Discord {
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        bot: &Bot,
        path: &str,
        budget: RetryBudget,
    ) -> Result<T, ApiError> {
        self.ask_paced(bot, path, budget).await.map(|answered| answered.value)
    }

    /// With the pause that the route needs after it.
    pub(super) async fn ask_paced<T: DeserializeOwned>(
        &self,
        bot: &Bot,
        path: &str,
        budget: RetryBudget,
    ) -> Result<Answered<T>, ApiError> {
        let until = Instant::now() + budget.time;
        let mut attempts = 0;
        loop {
            let api = self.api_or(bot)?;
            let late = || ApiError::NoAnswer { may_be_done: false, why: "it took too long".into() };
            let asked = timeout_at(until, api.get_paced(path)).await.unwrap_or_else(|_| Err(late()));
            let error = match asked {
                Ok(answered) => return Ok(answered),
                Err(error) => error,
            };
            attempts += 1;
            match error.pause(attempts) {
                Some(pause) if attempts < budget.attempts && Instant::now() + pause < until => sleep(pause).await,
                _ => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_awaited_no_longer_than_the_patience_lasts() {
        let (turn, began) = (Mutex::new(()), Instant::now());
        let (held, left) = RetryBudget::LONG.lock(&turn).await.unwrap();
        assert_eq!(left.time, RetryBudget::LONG.time);
        assert!(RetryBudget::SHORT.lock(&turn).await.is_none());
        assert_eq!(began.elapsed().as_secs(), RetryBudget::SHORT.time.as_secs());
        let release = async {
            sleep(Duration::from_secs(5)).await;
            drop(held);
        };
        let (turn, ()) = tokio::join!(RetryBudget::FEW.lock(&turn), release);
        assert_eq!(turn.unwrap().1.time, Duration::from_secs(10), "both together");
    }
}
