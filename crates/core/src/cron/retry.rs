//! When a failed alarm call is retried, and when the alarm is given up.

use crate::port::alarms::{Alarm, Conclusion};

/// Delay of the first retry; doubled for each further one up to `RETRY_LONGEST_MS`.
const RETRY_FIRST_MS: u64 = 1_000;
pub const RETRY_LONGEST_MS: u64 = 300_000;
/// Retries are delayed randomly by up to a quarter more, so this is the maximum.
pub const RETRY_AHEAD_MAX_MS: u64 = RETRY_LONGEST_MS + RETRY_LONGEST_MS / 4;

/// The grace has a resolution of seconds: alarms less than one second late are on time.
const ON_TIME_MS: u64 = 1_000;

/// Result of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FireAnswer {
    /// Any 2xx: the agent accepted it.
    Taken(u16),
    Refused(u16),
    Failed(String),
}

/// Whether the alarm is so late that its job wants it skipped.
pub fn is_missed(alarm: &Alarm, now_ms: u64) -> bool {
    alarm.skip_missed
        && alarm.attempts == 0
        && now_ms > expected_ms(alarm).saturating_add(alarm.grace_ms.max(ON_TIME_MS))
}

/// When the first call was expected. Not before the alarm was armed (a time in the past means now), nor before the
/// first attempt was planned.
fn expected_ms(alarm: &Alarm) -> u64 {
    let planned_ms = if alarm.attempts == 0 { alarm.next_ms } else { 0 };
    alarm.due_ms.max(alarm.armed_ms).max(planned_ms)
}

/// What follows from an answer. `random` delays retries by up to a quarter more.
pub fn conclude(alarm: &Alarm, answer: &FireAnswer, now_ms: u64, random: u64) -> Conclusion {
    let note = match answer {
        FireAnswer::Taken(status) => return Conclusion::Fired { note: format!("answered {status}") },
        FireAnswer::Refused(status) => format!("answered {status}"),
        FireAnswer::Failed(why) => why.clone(),
    };
    let first_ms = if alarm.first_ms == 0 { now_ms } else { alarm.first_ms };
    let limit_ms = expected_ms(alarm).max(first_ms).saturating_add(alarm.grace_ms);
    let wait_ms = RETRY_FIRST_MS.saturating_mul(1 << alarm.attempts.min(20)).min(RETRY_LONGEST_MS);
    let next_ms = now_ms + wait_ms + random % (wait_ms / 4 + 1);
    match next_ms <= limit_ms {
        true => Conclusion::Retry { next_ms, note },
        false => Conclusion::Dead { note: format!("{note}; given up after {} tries", alarm.attempts + 1) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::alarms::AlarmState;
    use frontdesk_wire::InstanceNo;

    fn alarm() -> Alarm {
        Alarm {
            id: 1,
            instance: InstanceNo(1),
            job_id: "j".into(),
            fire_at: "x".into(),
            due_ms: 100_000,
            next_ms: 100_000,
            armed_ms: 0,
            first_ms: 0,
            attempts: 0,
            grace_ms: 60_000,
            skip_missed: false,
            callback: "https://a".into(),
            schedule_id: "s".into(),
            state: AlarmState::Armed,
            note: String::new(),
            claim: 0,
        }
    }

    #[test]
    fn a_2xx_ends_it_and_all_else_is_retried_until_the_limit() {
        let fired = conclude(&alarm(), &FireAnswer::Taken(202), 100_000, 0);
        assert_eq!(fired, Conclusion::Fired { note: "answered 202".into() });
        let (mut now, mut tried, mut gaps) = (100_000, alarm(), Vec::new());
        loop {
            match conclude(&tried, &FireAnswer::Refused(503), now, 0) {
                Conclusion::Retry { next_ms, .. } => {
                    gaps.push(next_ms - now);
                    if tried.first_ms == 0 {
                        tried.first_ms = now;
                    }
                    tried.attempts += 1;
                    now = next_ms;
                }
                Conclusion::Dead { note } => {
                    assert_eq!(note, "answered 503; given up after 6 tries");
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(gaps, [1_000, 2_000, 4_000, 8_000, 16_000], "the next one would exceed the limit");
        let failed = conclude(&alarm(), &FireAnswer::Failed("no answer".into()), 100_000, 999_999);
        let Conclusion::Retry { next_ms, note } = failed else { panic!("{failed:?}") };
        assert!((101_000..=101_250).contains(&next_ms), "delayed by up to a quarter more");
        assert_eq!(note, "no answer");
    }

    #[test]
    fn a_late_alarm_is_fired_unless_its_job_wants_it_skipped() {
        let late_ms = 100_000 + 60_000 + 1;
        assert!(!is_missed(&alarm(), late_ms), "late alarms are fired by default");
        let picky = Alarm { skip_missed: true, ..alarm() };
        assert!(is_missed(&picky, late_ms) && !is_missed(&picky, late_ms - 1));
        assert!(!is_missed(&Alarm { attempts: 1, ..picky.clone() }, late_ms), "the first attempt was in time");
        assert!(!is_missed(&Alarm { armed_ms: late_ms, ..picky }, late_ms), "a time in the past means now");
        // Alarms that are overdue after an outage still get their retries.
        let long_after = conclude(&alarm(), &FireAnswer::Refused(500), 9_000_000, 0);
        assert!(matches!(long_after, Conclusion::Retry { .. }));
    }
}
