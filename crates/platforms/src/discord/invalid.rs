//! Requests that Discord refused. More than 10,000 of them in ten minutes ban the address of the server; calls stop long
//! before that.

use std::sync::{Mutex, PoisonError};

const WINDOW_MS: u64 = 600_000;
const STOP_AT: u32 = 2_000;

/// Counted in windows of ten minutes for all bots together, because they share the address.
#[derive(Default)]
pub(super) struct InvalidRequests(Mutex<(u64, u32)>);

impl InvalidRequests {
    pub(super) fn note(&self, now_ms: u64) {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ms.saturating_sub(window.0) >= WINDOW_MS {
            *window = (now_ms, 0);
        }
        window.1 += 1;
        if window.1 == STOP_AT {
            tracing::error!(
                "Discord refused {STOP_AT} requests in ten minutes; calls stop until the ten minutes are over"
            );
        }
    }

    pub(super) fn may_call(&self, now_ms: u64) -> bool {
        let window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.1 < STOP_AT || now_ms.saturating_sub(window.0) >= WINDOW_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_stop_below_the_line_and_go_on_later() {
        let invalid = InvalidRequests::default();
        for _ in 0..STOP_AT {
            assert!(invalid.may_call(5));
            invalid.note(5);
        }
        assert!(!invalid.may_call(6));
        assert!(invalid.may_call(WINDOW_MS + 5));
        invalid.note(WINDOW_MS + 5);
        assert!(invalid.may_call(WINDOW_MS + 6));
    }
}
