//! Ids that grow with the time that the fake is told, and times as the API writes them.

use serde_json::Value;

/// The first second of 2015.
const EPOCH_MS: u64 = 1_420_070_400_000;

/// As a number; the API writes it as a text.
pub type Id = u64;

#[derive(Debug, Default)]
pub(super) struct Snowflakes {
    last: Id,
}

impl Snowflakes {
    pub(super) fn next(&mut self, now_ms: u64) -> Id {
        let first = now_ms.saturating_sub(EPOCH_MS) << 22;
        self.last = first.max(self.last + 1);
        self.last
    }
}

pub(super) fn millis_of(id: Id) -> u64 {
    (id >> 22) + EPOCH_MS
}

pub(super) fn text(id: Id) -> Value {
    Value::String(id.to_string())
}

pub(super) fn texts(ids: impl IntoIterator<Item = Id>) -> Value {
    ids.into_iter().map(text).collect()
}

/// Clients write ids as texts; some write numbers.
pub(super) fn read(value: &Value) -> Option<Id> {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_u64())
}

pub(super) fn iso(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_and_carry_the_time() {
        let mut ids = Snowflakes::default();
        let first = ids.next(1_700_000_000_123);
        assert_eq!(millis_of(first), 1_700_000_000_123);
        assert_eq!(ids.next(1_700_000_000_123), first + 1);
        assert!(ids.next(1_600_000_000_000) > first + 1, "never less than before, also when the clock goes back");
    }

    #[test]
    fn times_are_written_with_an_offset() {
        assert_eq!(iso(1_700_000_000_120), "2023-11-14T22:13:20.120000+00:00");
        assert_eq!(iso(1_700_000_000_000), "2023-11-14T22:13:20.000000+00:00");
    }
}
