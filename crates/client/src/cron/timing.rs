//! When a job runs: cron expression, interval, point in time, or delay.

use std::str::FromStr as _;

use croner::Cron;
use croner::parser::{CronParser, Seconds};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Minimum interval and delay.
const SHORTEST_S: i64 = 1;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid schedule: {1}")]
pub struct BadTiming(String, String);

/// Serialized as text, so that people can edit the jobs file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// Five fields, or six with seconds, in a time zone.
    Cron {
        expression: String,
        zone: String,
    },
    Every {
        seconds: i64,
    },
    /// Once.
    At {
        time: Timestamp,
    },
}

impl Timing {
    /// `0 9 * * 1-5`, `every 10m`, `30m` and `+90s` (once, after this delay), or an ISO 8601 time (once). A time
    /// without an offset is in `zone`.
    pub fn parse(text: &str, zone: &str, now: Timestamp) -> Result<Self, BadTiming> {
        let bad = |why: &str| BadTiming(text.chars().take(80).collect(), why.into());
        let plain = text.trim();
        let tz = TimeZone::get(zone).map_err(|_| bad(&format!("unknown time zone {zone:?}")))?;
        if let Some(interval) = plain.strip_prefix("every ") {
            let seconds =
                seconds(interval.trim()).ok_or_else(|| bad("every needs an interval such as 30s, 10m, 2h or 1d"))?;
            return Ok(Self::Every { seconds });
        }
        if let Some(seconds) = seconds(plain.strip_prefix('+').unwrap_or(plain)) {
            let time = now.checked_add(SignedDuration::from_secs(seconds)).map_err(|_| bad("too far in the future"))?;
            return Ok(Self::At { time });
        }
        if let Ok(time) = Timestamp::from_str(plain) {
            return Ok(Self::At { time });
        }
        if let Ok(local) = jiff::civil::DateTime::from_str(plain) {
            let zoned = tz.to_zoned(local).map_err(|_| bad("this local time does not exist in the time zone"))?;
            return Ok(Self::At { time: zoned.timestamp() });
        }
        cron(plain).map_err(|error| bad(&error.to_string()))?;
        Ok(Self::Cron { expression: plain.into(), zone: zone.into() })
    }

    /// The first time after this one. `None`: no further run.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At { time } => (*time > after).then_some(*time),
            Self::Every { seconds } => after.checked_add(SignedDuration::from_secs(*seconds)).ok(),
            Self::Cron { expression, zone } => {
                let from = after.to_zoned(TimeZone::get(zone).ok()?);
                cron(expression).ok()?.find_next_occurrence(&from, false).ok().map(|at| at.timestamp())
            }
        }
    }

    pub fn repeats(&self) -> bool {
        !matches!(self, Self::At { .. })
    }
}

fn cron(expression: &str) -> Result<Cron, croner::errors::CronError> {
    CronParser::builder().seconds(Seconds::Optional).build().parse(expression)
}

/// `90s`, `10m`, `2h`, `1d`.
fn seconds(text: &str) -> Option<i64> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let digits = &text[..text.len() - 1];
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: i64 = digits.parse().ok().filter(|_| plain)?;
    count.checked_mul(unit).filter(|seconds| *seconds >= SHORTEST_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn parse(text: &str) -> Result<Timing, BadTiming> {
        Timing::parse(text, "Europe/Oslo", at("2026-03-01T00:00:00Z"))
    }

    fn runs(text: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let timing = Timing::parse(text, zone, at(from)).unwrap();
        let mut now = at(from);
        let mut next = || {
            now = timing.next_after(now)?;
            Some(now.to_string())
        };
        (0..count).map_while(|_| next()).collect()
    }

    #[test]
    fn every_form_is_understood() {
        assert_eq!(parse("every 10m"), Ok(Timing::Every { seconds: 600 }));
        assert_eq!(parse("30m"), Ok(Timing::At { time: at("2026-03-01T00:30:00Z") }));
        assert_eq!(parse("+90s"), Ok(Timing::At { time: at("2026-03-01T00:01:30Z") }));
        assert_eq!(parse("2026-03-02T10:00:00+05:00"), Ok(Timing::At { time: at("2026-03-02T05:00:00Z") }));
        assert_eq!(parse("2026-07-02T10:00:00"), Ok(Timing::At { time: at("2026-07-02T08:00:00Z") }), "in the zone");
        assert!(matches!(parse("*/5 * * * *"), Ok(Timing::Cron { .. })));
        for bad in
            ["", "soon", "every", "every 0s", "0m", "-5m", "5", "5w", "99 * * * *", "* * *", "9".repeat(400).as_str()]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(Timing::parse("30m", "Europe/Atlantis", at("2026-03-01T00:00:00Z")).is_err());
        assert!(parse("99999999999999d").is_err(), "too far in the future");
    }

    #[test]
    fn a_time_runs_once_and_an_interval_repeats() {
        assert_eq!(runs("30m", "UTC", "2026-03-01T00:00:00Z", 5), ["2026-03-01T00:30:00Z"]);
        let every = ["2026-03-01T00:00:45Z", "2026-03-01T00:01:30Z"];
        assert_eq!(runs("every 45s", "UTC", "2026-03-01T00:00:00Z", 2), every);
    }

    /// Oslo: on 29 March 2026 the clock goes from 2 to 3, on 25 October 2026 from 3 back to 2.
    #[test]
    fn a_daily_job_keeps_its_hour_across_daylight_saving() {
        let spring = ["2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z"];
        assert_eq!(runs("0 9 * * *", "Europe/Oslo", "2026-03-27T12:00:00Z", 3), spring);
        let autumn = ["2026-10-24T07:00:00Z", "2026-10-25T08:00:00Z"];
        assert_eq!(runs("0 9 * * *", "Europe/Oslo", "2026-10-23T12:00:00Z", 2), autumn);
    }

    #[test]
    fn an_hour_that_does_not_exist_or_exists_twice_runs_once_a_day() {
        // 02:30 does not exist on 29 March: it still runs once that day, and once the next day.
        let spring = runs("30 2 * * *", "Europe/Oslo", "2026-03-28T12:00:00Z", 2);
        assert_eq!(spring.len(), 2);
        assert!(spring[0].starts_with("2026-03-29T01:"), "{spring:?}");
        assert_eq!(spring[1], "2026-03-30T00:30:00Z");
        // 02:30 exists twice on 25 October.
        let autumn = runs("30 2 * * *", "Europe/Oslo", "2026-10-24T12:00:00Z", 2);
        assert_eq!(autumn[0], "2026-10-25T00:30:00Z");
        assert_eq!(autumn[1], "2026-10-26T01:30:00Z", "{autumn:?}");
    }
}
