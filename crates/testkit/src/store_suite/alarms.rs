//! Rules for alarms: one per job, claimed once, ended once.

use frontdesk_core::port::alarms::{
    AGENT_NUMBERS, Alarm, AlarmState, Concluded, Conclusion, Disarmed, JOBS_SCANNED_MAX,
};
use frontdesk_core::port::store::{Retention, Store};
use frontdesk_core::port::upkeep::STEP_MAX_ROWS;
use frontdesk_wire::{InstanceNo, JobId};

use super::Harness;

/// Job `j-{number}` of instance 7, due at `due_ms`.
pub fn alarm(number: u64, due_ms: u64) -> Alarm {
    Alarm {
        id: 0,
        instance: InstanceNo(7),
        job_id: format!("j-{number}").into(),
        fire_at: format!("at {due_ms}"),
        due_ms,
        next_ms: due_ms,
        armed_ms: 10,
        first_ms: 0,
        attempts: 0,
        grace_ms: 60_000,
        skip_missed: false,
        callback: "https://a.example".into(),
        schedule_id: format!("s-{number}-{due_ms}"),
        state: AlarmState::Armed,
        note: String::new(),
        claim: 0,
    }
}

async fn arm(store: &dyn Store, alarm: Alarm) -> (u64, String, bool) {
    let arming = store.arm(vec![alarm]).await.unwrap().remove(0);
    (arming.id, arming.schedule_id, arming.fresh)
}

async fn claim(store: &dyn Store, id: u64, now_ms: u64) -> Option<Alarm> {
    store.claim_alarms(vec![id], now_ms, now_ms, now_ms + 1_000).await.unwrap().pop()
}

async fn ended(store: &dyn Store) -> Vec<(String, String)> {
    let ends = store.ended_alarms(InstanceNo(7), None, 99).await.unwrap();
    ends.into_iter().map(|end| (end.schedule_id, end.outcome)).collect()
}

fn fired() -> Conclusion {
    Conclusion::Fired { note: "answered 202".into() }
}

pub async fn the_same_time_again_is_the_same_alarm(Harness { store, .. }: Harness) {
    let (id, schedule, fresh) = arm(&*store, alarm(1, 100)).await;
    assert!(fresh);
    let again =
        Alarm { schedule_id: "other".into(), callback: "https://b.example".into(), grace_ms: 5, ..alarm(1, 100) };
    assert_eq!(arm(&*store, again).await, (id, schedule, false));
    let kept = store.armed(InstanceNo(7), &JobId::default(), 99).await.unwrap().alarms;
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].callback.as_str(), kept[0].grace_ms), ("https://b.example", 5), "the latest values");
    assert_eq!(kept[0].fire_at, "at 100");
    assert_eq!(ended(&*store).await, []);
}

pub async fn another_time_replaces_the_alarm(Harness { store, .. }: Harness) {
    let (first, ..) = arm(&*store, alarm(1, 100)).await;
    let (second, schedule, fresh) = arm(&*store, alarm(1, 200)).await;
    assert!(fresh && second > first);
    let armed: Vec<String> = store
        .armed(InstanceNo(7), &JobId::default(), 99)
        .await
        .unwrap()
        .alarms
        .into_iter()
        .map(|it| it.schedule_id)
        .collect();
    assert_eq!(armed, [schedule]);
    assert_eq!(claim(&*store, first, 500).await, None, "the old one cannot be claimed");
    assert_eq!(ended(&*store).await, [("s-1-100".into(), "replaced".into())]);
    // Jobs and instances are independent.
    arm(&*store, alarm(2, 100)).await;
    arm(&*store, Alarm { instance: InstanceNo(8), ..alarm(1, 100) }).await;
    assert_eq!(
        (
            store.armed(InstanceNo(7), &JobId::default(), 99).await.unwrap().alarms.len(),
            store.armed(InstanceNo(8), &JobId::default(), 99).await.unwrap().alarms.len()
        ),
        (2, 1)
    );
    assert_eq!(store.armed_counts().await.unwrap(), [(InstanceNo(7), 2), (InstanceNo(8), 1)]);
}

pub async fn a_cancelled_alarm_is_gone_and_may_be_armed_again(Harness { store, .. }: Harness) {
    let (id, ..) = arm(&*store, alarm(1, 100)).await;
    assert!(store.disarm(InstanceNo(7), &"j-1".into(), 50).await.unwrap());
    assert!(!store.disarm(InstanceNo(7), &"j-1".into(), 50).await.unwrap(), "it was already cancelled");
    assert!(!store.disarm(InstanceNo(7), &"nothing".into(), 50).await.unwrap());
    assert_eq!(claim(&*store, id, 500).await, None);
    assert_eq!(ended(&*store).await, [("s-1-100".into(), "cancelled".into())]);
    let (again, _, fresh) = arm(&*store, alarm(1, 100)).await;
    assert!(fresh && again > id, "ids are never reused");
}

pub async fn an_instance_that_leaves_has_nothing_armed(Harness { store, .. }: Harness) {
    let (first, ..) = arm(&*store, alarm(1, 100)).await;
    arm(&*store, alarm(2, 200)).await;
    arm(&*store, Alarm { instance: InstanceNo(8), ..alarm(1, 100) }).await;
    assert_eq!(
        store.disarm_some(InstanceNo(7), &JobId::default(), 50).await.unwrap(),
        Disarmed { gone: 2, next: None }
    );
    assert_eq!(
        (
            store.armed(InstanceNo(7), &JobId::default(), 99).await.unwrap().alarms.len(),
            store.armed(InstanceNo(8), &JobId::default(), 99).await.unwrap().alarms.len()
        ),
        (0, 1)
    );
    assert_eq!(claim(&*store, first, 500).await, None);
    let outcomes: Vec<String> = ended(&*store).await.into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, ["cancelled", "cancelled"]);
}

/// Others write between two steps.
pub async fn many_alarms_are_cancelled_in_small_steps(Harness { store, .. }: Harness) {
    store.arm((1..=1_100).map(|number| alarm(number, 100)).collect()).await.unwrap();
    arm(&*store, Alarm { instance: InstanceNo(8), ..alarm(1, 100) }).await;
    let ids = store.next_alarms((0, 0), 100, 300).await.unwrap().into_iter().map(|it| it.id).collect();
    let claimed = store.claim_alarms(ids, 100, 100, 1_100).await.unwrap();
    let over = claimed.into_iter().map(|alarm| (alarm, fired())).collect();
    store.conclude(over, 100).await.unwrap(); // these stay
    let (mut cancelled, mut steps, mut after) = (0, 0, Some(JobId::default()));
    while let Some(job) = after {
        let step = store.disarm_some(InstanceNo(7), &job, 50).await.unwrap();
        assert!(step.gone <= STEP_MAX_ROWS && step.next.as_ref().is_none_or(|next| *next > job), "{step:?}");
        (cancelled, steps, after) = (cancelled + step.gone, steps + 1, step.next);
    }
    assert_eq!(store.armed_counts().await.unwrap().iter().map(|(no, _)| no.0).collect::<Vec<_>>(), [8]);
    assert!(cancelled == 800 && steps > 1, "{cancelled} in {steps} steps");
    let ends = store.ended_alarms(InstanceNo(7), None, 9_999).await.unwrap();
    assert_eq!(ends.iter().filter(|end| end.outcome == "cancelled").count(), 800);
    assert_eq!(
        store.disarm_some(InstanceNo(99), &JobId::default(), 50).await.unwrap(),
        Disarmed { gone: 0, next: None }
    );
}

pub async fn an_alarm_is_claimed_by_one_and_not_before_its_time(Harness { store, .. }: Harness) {
    let (id, ..) = arm(&*store, alarm(1, 100)).await;
    assert_eq!(claim(&*store, id, 99).await, None, "not early");
    let taken = claim(&*store, id, 100).await.unwrap();
    assert_eq!(taken, Alarm { id, claim: 1, ..alarm(1, 100) });
    assert_eq!(claim(&*store, id, 100).await, None, "it is already claimed");
    assert_eq!(claim(&*store, id, 1_099).await, None);
    let early = store.claim_alarms(vec![id], 9_999, 1_099, 9_999).await.unwrap();
    assert_eq!(early, [], "a claim excludes others");
    assert!(claim(&*store, id, 1_100).await.is_some(), "the claim has expired");
}

pub async fn a_fired_alarm_is_never_claimed_again(harness: Harness) {
    let (id, schedule, _) = arm(&*harness.store, alarm(1, 100)).await;
    let taken = claim(&*harness.store, id, 100).await.unwrap();
    harness.store.conclude(vec![(taken, fired())], 150).await.unwrap();
    let harness = harness.reopened();
    assert_eq!(claim(&*harness.store, id, 9_999).await, None);
    assert_eq!(harness.store.armed(InstanceNo(7), &JobId::default(), 99).await.unwrap().alarms, []);
    assert_eq!(harness.store.next_alarms((0, 0), u64::MAX >> 1, 9).await.unwrap(), []);
    assert_eq!(arm(&*harness.store, alarm(1, 100)).await, (id, schedule, false), "the same time is the same alarm");
    assert_eq!(claim(&*harness.store, id, 9_999).await, None);
    let past = harness.store.ended_alarms(InstanceNo(7), Some(&"j-1".into()), 9).await.unwrap();
    assert_eq!((past.len(), past[0].outcome.as_str(), past[0].attempts, past[0].at_ms), (1, "fired", 1, 150));
    assert_eq!(past[0].note, "answered 202");
    assert!(arm(&*harness.store, alarm(1, 300)).await.2, "another time is another alarm");
}

pub async fn a_retry_comes_at_its_time_and_remembers(Harness { store, .. }: Harness) {
    let (id, ..) = arm(&*store, alarm(1, 100)).await;
    let taken = claim(&*store, id, 100).await.unwrap();
    let retry = Conclusion::Retry { next_ms: 400, note: "answered 503".into() };
    store.conclude(vec![(taken, retry)], 120).await.unwrap();
    assert_eq!(claim(&*store, id, 399).await, None);
    let again = claim(&*store, id, 400).await.unwrap();
    assert_eq!((again.attempts, again.first_ms, again.next_ms, again.due_ms), (1, 120, 400, 100));
    assert_eq!(again.note, "answered 503");
    assert_eq!(ended(&*store).await, [], "a retry is not an end");
    store.conclude(vec![(again, fired())], 450).await.unwrap();
    assert_eq!(store.ended_alarms(InstanceNo(7), None, 9).await.unwrap()[0].attempts, 2);
}

/// A worker whose claim has expired must not undo what happened since.
pub async fn a_stale_claim_ends_nothing(Harness { store, .. }: Harness) {
    let (id, ..) = arm(&*store, alarm(1, 100)).await;
    let slow = claim(&*store, id, 100).await.unwrap();
    let quick = claim(&*store, id, 1_100).await.unwrap(); // the first claim has run out
    let retry = || Conclusion::Retry { next_ms: 5_000, note: "slow".into() };
    let dead = Conclusion::Dead { note: "slow".into() };
    assert_eq!(
        store.conclude(vec![(slow.clone(), retry()), (slow.clone(), dead)], 1_150).await.unwrap(),
        [Concluded::Stale, Concluded::Stale]
    );
    assert_eq!(claim(&*store, id, 1_200).await, None, "the second claim is valid");
    assert_eq!(store.conclude(vec![(quick, fired())], 1_250).await.unwrap(), [Concluded::Ended]);
    assert_eq!(
        store.conclude(vec![(slow, retry())], 1_300).await.unwrap(),
        [Concluded::Stale],
        "a fired alarm is over"
    );
    assert_eq!(claim(&*store, id, 99_999).await, None);
    assert_eq!(ended(&*store).await.len(), 1);
}

/// Once the agent has accepted an alarm, it never fires again, whoever reports the result.
pub async fn a_fired_alarm_is_over_also_by_a_stale_claim(Harness { store, .. }: Harness) {
    let (id, ..) = arm(&*store, alarm(1, 100)).await;
    let slow = claim(&*store, id, 100).await.unwrap();
    let quick = claim(&*store, id, 1_100).await.unwrap();
    assert_eq!(store.conclude(vec![(slow, fired())], 1_150).await.unwrap(), [Concluded::Ended]);
    let retry = Conclusion::Retry { next_ms: 1_200, note: String::new() };
    assert_eq!(store.conclude(vec![(quick, retry)], 1_160).await.unwrap(), [Concluded::Stale]);
    assert_eq!(claim(&*store, id, 99_999).await, None);
}

pub async fn an_end_does_not_touch_the_alarm_that_replaced_it(Harness { store, .. }: Harness) {
    let (id, ..) = arm(&*store, alarm(1, 100)).await;
    let taken = claim(&*store, id, 100).await.unwrap();
    let (next, ..) = arm(&*store, alarm(1, 200)).await; // armed again while it was being fired
    assert_eq!(store.conclude(vec![(taken.clone(), fired())], 150).await.unwrap(), [Concluded::Noted]);
    assert!(claim(&*store, next, 200).await.is_some(), "the new one is armed");
    let outcomes: Vec<String> = ended(&*store).await.into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, ["fired", "replaced"], "both ends are recorded");
    let retry = Conclusion::Retry { next_ms: 1, note: String::new() };
    store.conclude(vec![(taken, retry)], 160).await.unwrap();
    assert_eq!(store.armed(InstanceNo(7), &JobId::default(), 99).await.unwrap().alarms.len(), 1);
}

pub async fn a_dead_alarm_is_listed_and_can_be_revived(Harness { store, .. }: Harness) {
    let (id, ..) = arm(&*store, alarm(1, 100)).await;
    let taken = claim(&*store, id, 100).await.unwrap();
    store.conclude(vec![(taken, Conclusion::Dead { note: "gone".into() })], 150).await.unwrap();
    assert_eq!(claim(&*store, id, 9_999).await, None);
    let dead = store.dead_alarms(None, 9).await.unwrap();
    assert_eq!((dead.len(), dead[0].id, dead[0].note.as_str()), (1, id, "gone"));
    assert_eq!(store.dead_alarms(Some(InstanceNo(8)), 9).await.unwrap(), []);
    let revived = store.revive_alarm(id, 700).await.unwrap().unwrap();
    assert_eq!((revived.id, revived.state, revived.next_ms), (id, AlarmState::Armed, 700));
    assert_eq!(store.revive_alarm(id, 700).await.unwrap(), None, "it lives");
    let again = claim(&*store, id, 700).await.unwrap();
    assert_eq!(again.first_ms, 0, "its attempts start again");
    store.conclude(vec![(again, Conclusion::Dead { note: "gone".into() })], 750).await.unwrap();
    let (next, _, fresh) = arm(&*store, alarm(1, 100)).await;
    assert!(fresh && next > id, "arming a dead one creates a new alarm");
}

pub async fn the_next_alarms_come_in_order_and_in_pages(Harness { store, .. }: Harness) {
    for (number, due) in [(1, 300), (2, 100), (3, 200), (4, 100), (5, 900)] {
        arm(&*store, alarm(number, due)).await;
    }
    let page = async |after, until, limit| {
        let found = store.next_alarms(after, until, limit).await.unwrap();
        found.into_iter().map(|it| (it.next_ms, it.id)).collect::<Vec<_>>()
    };
    let first = page((0, 0), 500, 2).await;
    assert_eq!(first.iter().map(|it| it.0).collect::<Vec<_>>(), [100, 100]);
    let second = page(first[1], 500, 9).await;
    assert_eq!(second.iter().map(|it| it.0).collect::<Vec<_>>(), [200, 300]);
    assert_eq!(page(second[1], 500, 9).await, []);
    assert_eq!(page((500, u64::MAX >> 1), 1_000, 9).await.len(), 1);
}

/// Jobs that fired are kept, so there may be many between those that are armed.
pub async fn a_page_of_armed_alarms_looks_at_a_bounded_number_of_jobs(Harness { store, .. }: Harness) {
    for planner in [InstanceNo(7), InstanceNo(AGENT_NUMBERS | 7)] {
        let of =
            |number: usize, job: String| Alarm { instance: planner, job_id: job.into(), ..alarm(number as u64, 100) };
        let over = (0..JOBS_SCANNED_MAX).map(|number| of(number, format!("a-{number:05}"))).collect::<Vec<_>>();
        for some in over.chunks(500) {
            let ids = store.arm(some.to_vec()).await.unwrap().into_iter().map(|it| it.id).collect();
            let taken = store.claim_alarms(ids, 100, 100, 1_100).await.unwrap();
            store.conclude(taken.into_iter().map(|it| (it, fired())).collect(), 150).await.unwrap();
        }
        for number in 1..=3 {
            arm(&*store, of(number, format!("b-{number}"))).await;
        }
        let (mut found, mut after) = (Vec::new(), Some(JobId::default()));
        let mut pages = 0;
        while let Some(job) = after {
            let page = store.armed(planner, &job, 2).await.unwrap();
            assert!(page.alarms.len() <= 2);
            found.extend(page.alarms.into_iter().map(|it| it.job_id.to_string()));
            (after, pages) = (page.next, pages + 1);
        }
        assert_eq!(found, ["b-1", "b-2", "b-3"]);
        assert!(pages <= 4, "{pages}");
    }
    let mut counts = store.armed_counts().await.unwrap();
    counts.sort_unstable();
    assert_eq!(counts, [(InstanceNo(7), 3), (InstanceNo(AGENT_NUMBERS | 7), 3)]);
}

pub async fn ended_alarms_are_deleted(Harness { store, .. }: Harness) {
    let (id, ..) = arm(&*store, alarm(1, 100)).await;
    arm(&*store, alarm(2, 100)).await;
    let taken = claim(&*store, id, 100).await.unwrap();
    store.conclude(vec![(taken, fired())], 150).await.unwrap();
    let keep = |before| Retention {
        now_ms: 9_000,
        events_before_ms: before,
        verdicts_before_ms: before,
        ..Retention::default()
    };
    super::purge(&*store, keep(100)).await;
    assert_eq!(ended(&*store).await.len(), 1);
    super::purge(&*store, keep(1_000)).await;
    assert_eq!(ended(&*store).await, []);
    assert_eq!(store.armed_counts().await.unwrap(), [(InstanceNo(7), 1)], "armed alarms stay at any age");
    assert!(arm(&*store, alarm(1, 100)).await.2, "the fired time was deleted");
}

/// An alarm may end before its time (fired by another scheduler, or the clock was set back), and may be armed for a time that
/// is older than what is kept.
pub async fn a_fired_alarm_is_kept_as_long_as_its_result(Harness { store, .. }: Harness) {
    for (number, due_ms) in [(1, 900), (2, 10)] {
        let (id, ..) = arm(&*store, alarm(number, due_ms)).await;
        let taken = store.claim_alarms(vec![id], 900, 150, 1_150).await.unwrap().remove(0);
        store.conclude(vec![(taken, fired())], 150).await.unwrap();
    }
    let keep = |before| Retention { now_ms: 9_000, verdicts_before_ms: before, ..Retention::default() };
    super::purge(&*store, keep(150)).await;
    assert!(!arm(&*store, alarm(1, 900)).await.2 && !arm(&*store, alarm(2, 10)).await.2, "both are known");
    super::purge(&*store, keep(151)).await;
    assert!(arm(&*store, alarm(1, 900)).await.2 && arm(&*store, alarm(2, 10)).await.2, "both are forgotten");
}

/// After the clock was set back, retries and claims must not wait for the old time.
pub async fn retries_are_hastened_and_first_tries_keep_their_time(Harness { store, .. }: Harness) {
    let (first, ..) = arm(&*store, alarm(1, 900_000)).await;
    let (tried, ..) = arm(&*store, alarm(2, 100)).await;
    let (soon, ..) = arm(&*store, alarm(3, 100)).await;
    for (id, next_ms) in [(tried, 7_200_000), (soon, 300_000)] {
        let retry = Conclusion::Retry { next_ms, note: String::new() };
        let alarm = claim(&*store, id, 1_000).await.unwrap();
        store.conclude(vec![(alarm, retry)], 1_000).await.unwrap();
    }
    let (left, ..) = arm(&*store, alarm(4, 100)).await;
    store.claim_alarms(vec![left], 7_200_000, 7_200_000, 7_260_000).await.unwrap();
    assert!(claim(&*store, left, 70_000).await.is_none());

    let moved = store.hasten_retries(375_000, 310_000, 60_000).await.unwrap();
    assert_eq!(moved.iter().map(|it| (it.id, it.next_ms)).collect::<Vec<_>>(), [(tried, 310_000)]);
    let times = store.next_alarms((0, 0), u64::MAX >> 1, 99).await.unwrap();
    let times: Vec<(u64, u64)> = times.iter().map(|it| (it.id, it.next_ms)).collect();
    assert_eq!(times, [(left, 100), (soon, 300_000), (tried, 310_000), (first, 900_000)]);
    assert!(claim(&*store, left, 60_000).await.is_some(), "its claim has expired");
}
