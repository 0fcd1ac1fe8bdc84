//! The time plane's rules: when shots are due, in which order they are fired, when a failed one is tried
//! again, and the token by which an agent knows that it was us.

use crate::port::alarms::{Conclusion, Shot};

/// The first retry comes after this; each further one after twice as long, up to the longest.
const RETRY_FIRST_MS: u64 = 1_000;
pub const RETRY_LONGEST_MS: u64 = 300_000;
/// Retries are spread by up to a quarter: none is planned further ahead than this.
pub const RETRY_AHEAD_MAX_MS: u64 = RETRY_LONGEST_MS + RETRY_LONGEST_MS / 4;

/// The grace is counted in whole seconds: within one, nothing is late.
const ON_TIME_MS: u64 = 1_000;

/// What an agent, or the way to it, answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FireAnswer {
    /// Any 2xx: it has the shot now.
    Taken(u16),
    Refused(u16),
    Failed(String),
}

/// A shot that comes so late that its job would rather not have it.
pub fn is_missed(shot: &Shot, now_ms: u64) -> bool {
    shot.skip_missed && shot.attempts == 0 && now_ms > expected_ms(shot).saturating_add(shot.grace_ms.max(ON_TIME_MS))
}

/// A time in the past means now; it cannot be expected before it was asked for, nor before its first try was
/// planned.
fn expected_ms(shot: &Shot) -> u64 {
    let planned_ms = if shot.attempts == 0 { shot.next_ms } else { 0 };
    shot.due_ms.max(shot.armed_ms).max(planned_ms)
}

/// What becomes of a shot after this answer. `dice` spreads retries by up to a quarter.
pub fn conclude(shot: &Shot, answer: &FireAnswer, now_ms: u64, dice: u64) -> Conclusion {
    let note = match answer {
        FireAnswer::Taken(status) => return Conclusion::Fired { note: format!("answered {status}") },
        FireAnswer::Refused(status) => format!("answered {status}"),
        FireAnswer::Failed(why) => why.clone(),
    };
    let first_ms = if shot.first_ms == 0 { now_ms } else { shot.first_ms };
    let limit_ms = expected_ms(shot).max(first_ms).saturating_add(shot.grace_ms);
    let wait_ms = RETRY_FIRST_MS.saturating_mul(1 << shot.attempts.min(20)).min(RETRY_LONGEST_MS);
    let next_ms = now_ms + wait_ms + dice % (wait_ms / 4 + 1);
    match next_ms <= limit_ms {
        true => Conclusion::Retry { next_ms, note },
        false => Conclusion::Dead { note: format!("{note}; given up after {} tries", shot.attempts + 1) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::alarms::ShotState;

    fn shot() -> Shot {
        Shot {
            id: 1,
            instance: 1,
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
            state: ShotState::Armed,
            note: String::new(),
            claim: 0,
        }
    }

    #[test]
    fn every_2xx_ends_it_and_everything_else_is_tried_again_until_the_limit() {
        let fired = conclude(&shot(), &FireAnswer::Taken(202), 100_000, 0);
        assert_eq!(fired, Conclusion::Fired { note: "answered 202".into() });
        let (mut now, mut tried, mut gaps) = (100_000, shot(), Vec::new());
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
        assert_eq!(gaps, [1_000, 2_000, 4_000, 8_000, 16_000], "the next would be past the limit");
        let failed = conclude(&shot(), &FireAnswer::Failed("no answer".into()), 100_000, 999_999);
        let Conclusion::Retry { next_ms, note } = failed else { panic!("{failed:?}") };
        assert!((101_000..=101_250).contains(&next_ms), "spread by up to a quarter");
        assert_eq!(note, "no answer");
    }

    #[test]
    fn a_shot_found_late_is_fired_unless_its_job_would_rather_not() {
        let late_ms = 100_000 + 60_000 + 1;
        assert!(!is_missed(&shot(), late_ms), "late is better than never");
        let picky = Shot { skip_missed: true, ..shot() };
        assert!(is_missed(&picky, late_ms) && !is_missed(&picky, late_ms - 1));
        assert!(!is_missed(&Shot { attempts: 1, ..picky.clone() }, late_ms), "it was tried in time");
        assert!(!is_missed(&Shot { armed_ms: late_ms, ..picky }, late_ms), "a time in the past means now");
        // After an outage longer than the limit it still has its tries.
        let long_after = conclude(&shot(), &FireAnswer::Refused(500), 9_000_000, 0);
        assert!(matches!(long_after, Conclusion::Retry { .. }));
    }
}
