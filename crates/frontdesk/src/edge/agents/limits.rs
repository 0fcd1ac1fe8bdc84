//! The rate limit of each token. In its own module, because the state of the whole edge contains it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::http::HeaderName;

/// Above this number the rate state of tokens that are not in use is removed.
const PACES_MAX: usize = 10_000;

/// Request rate per token, and the header with the caller's name.
pub struct Limits {
    per_s: f64,
    burst: f64,
    caller_header: HeaderName,
    paces: Mutex<HashMap<String, Pace>>,
}

/// A token bucket.
struct Pace {
    left: f64,
    at_ms: u64,
}

impl Limits {
    /// `per_s` 0: no limit.
    pub(crate) fn new(per_s: u32, burst: u32, caller_header: HeaderName) -> Self {
        let burst = f64::from(burst.max(per_s).max(1));
        Self { per_s: f64::from(per_s), burst, caller_header, paces: Mutex::default() }
    }

    pub(super) fn caller_header(&self) -> &HeaderName {
        &self.caller_header
    }

    #[allow(clippy::cast_precision_loss)] // milliseconds between two requests
    fn is_full(&self, pace: &Pace, now_ms: u64) -> bool {
        pace.left + now_ms.saturating_sub(pace.at_ms) as f64 / 1000.0 * self.per_s >= self.burst
    }

    pub(super) fn admit(&self, token: &str, now_ms: u64) -> bool {
        if self.per_s <= 0.0 {
            return true;
        }
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        if paces.len() >= PACES_MAX {
            // A bucket that is full again is the same as none. The rest is bounded by the number of tokens.
            paces.retain(|_, pace| !self.is_full(pace, now_ms));
        }
        if !paces.contains_key(token) {
            paces.insert(token.to_owned(), Pace { left: self.burst, at_ms: now_ms });
        }
        let Some(pace) = paces.get_mut(token) else { return true };
        #[allow(clippy::cast_precision_loss)] // milliseconds between two requests
        let since_s = now_ms.saturating_sub(pace.at_ms) as f64 / 1000.0;
        pace.left = (pace.left + since_s * self.per_s).min(self.burst);
        pace.at_ms = now_ms;
        let admitted = pace.left >= 1.0;
        if admitted {
            pace.left -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_burst_and_then_a_rate() {
        let limits = Limits::new(10, 20, HeaderName::from_static("x-agent-id"));
        assert!((0..20).all(|_| limits.admit("a", 1_000)) && !limits.admit("a", 1_000));
        assert!(limits.admit("b", 1_000), "each token has its own bucket");
        assert!(limits.admit("a", 1_100) && !limits.admit("a", 1_100), "ten per second");
        assert!(!limits.admit("a", 500), "a clock that goes back adds nothing");
        assert!(limits.admit("a", 600) && !limits.admit("a", 600), "and goes on from there");
        let open = Limits::new(0, 0, HeaderName::from_static("x-agent-id"));
        assert!((0..10_000).all(|_| open.admit("a", 0)));
    }
}
