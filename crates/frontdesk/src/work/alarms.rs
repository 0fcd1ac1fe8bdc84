//! The alarm clock's hand: takes what is due, claims it, fires it, and notes how it ended.
//!
//! Claimed before it is fired and ended after, both durable: a crash in between fires it again, and
//! after a noted 2xx it never goes again.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::cron::schedule::Next;
use frontdesk_core::cron::{ClockWatch, LEASE_MS, Loading};
use frontdesk_core::port::alarms::{Conclusion, Shot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Shots claimed in one commit.
const BATCH: usize = 256;
/// The longest nap, so that a jump of the clock or a sleep of the machine is noticed.
const NAP_MAX: Duration = Duration::from_millis(500);
/// How often the armed ones are counted: a look at all of them.
const COUNT_EVERY_MS: u64 = 60_000;
/// How soon they are counted for the first time; until then a tenant's quota counts from nought.
const FIRST_COUNT_MS: u64 = 2_000;
/// A store that does not answer is asked again after this.
const STORE_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn ring(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut loading = Loading::default();
    // What is waited for here is measured by a clock that nobody sets.
    // Not at once: what is overdue after a restart goes first.
    let (mut counted_ms, mut is_counted) = (desk.env().steady_ms(), false);
    let mut swept_ms = desk.env().steady_ms();
    let mut watch = ClockWatch::new(desk.env().now_ms(), desk.env().steady_ms());
    // The clock may have been set back while the desk was down.
    let mut set_back = true;
    loop {
        if let Some(again) = desk.cron().reload(&loading) {
            loading = again;
        }
        set_back |= desk.cron().watch_clock(&mut watch);
        if set_back {
            match desk.cron().hasten_retries().await {
                Ok(()) => set_back = false,
                Err(error) => {
                    tracing::error!(%error, "retries planned before the clock was set back cannot be read; trying again");
                    tokio::time::sleep(STORE_PAUSE).await;
                }
            }
        }
        if loading.done && desk.env().now_ms() >= desk.cron().next_load_ms() {
            loading = desk.cron().begin_load(&loading);
        }
        if !loading.done
            && let Err(error) = desk.cron().load_shots(&mut loading).await
        {
            tracing::error!(%error, "armed shots cannot be read; trying again");
            tokio::time::sleep(STORE_PAUSE).await;
        }
        // Somebody may have claimed a shot and gone; its time in the schedule is over by then.
        if desk.env().steady_ms().saturating_sub(swept_ms) > LEASE_MS {
            swept_ms = desk.env().steady_ms();
            if let Err(error) = desk.cron().find_forgotten_shots().await {
                tracing::error!(%error, "overdue shots cannot be looked for");
            }
        }
        let took = fire_due(&desk, &tracker).await;
        let until_count_ms = if is_counted { COUNT_EVERY_MS } else { FIRST_COUNT_MS };
        if desk.env().steady_ms().saturating_sub(counted_ms) > until_count_ms {
            (counted_ms, is_counted) = (desk.env().steady_ms(), true);
            if let Ok(armed) = desk.cron().count_armed().await {
                desk.meters().alarms_armed.set(i64::try_from(armed).unwrap_or(i64::MAX));
            }
        }
        if (took > 0 || !loading.done) && !stop.is_cancelled() {
            continue;
        }
        let now_ms = desk.env().now_ms();
        let next_ms = desk.cron().clock().schedule().next_ms();
        let nap = next_ms.map_or(NAP_MAX, |at| Duration::from_millis(at.saturating_sub(now_ms)).min(NAP_MAX));
        tokio::select! {
            () = desk.cron().clock().bell.notified() => {}
            () = tokio::time::sleep(nap) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Claims and fires what is due and may go. Returns how many were taken from the schedule.
async fn fire_due(desk: &Arc<Desk>, tracker: &TaskTracker) -> usize {
    let now_ms = desk.env().now_ms();
    let due = desk.cron().clock().due(now_ms, BATCH);
    if due.is_empty() {
        return 0;
    }
    let ids = due.iter().map(|next| next.id).collect();
    let claimed = match desk.stores().alarms.claim_shots(ids, now_ms, now_ms, now_ms + LEASE_MS).await {
        Ok(claimed) => claimed,
        Err(error) => {
            tracing::error!(%error, "due shots cannot be claimed; they stay armed");
            let mut schedule = desk.cron().clock().schedule();
            for next in due {
                schedule.put_back(next, now_ms + 1_000);
                schedule.finished(next);
            }
            return 0;
        }
    };
    let mut claimed: std::collections::HashMap<u64, Shot> = claimed.into_iter().map(|shot| (shot.id, shot)).collect();
    for next in &due {
        match claimed.remove(&next.id) {
            Some(shot) => {
                let desk = desk.clone();
                let next = *next;
                tracker.spawn(async move { fire(&desk, shot, next).await });
            }
            None => desk.cron().clock().schedule().finished(*next), // cancelled, replaced, or somebody else's
        }
    }
    due.len()
}

async fn fire(desk: &Arc<Desk>, shot: Shot, next: Next) {
    let answered = || {
        desk.cron().clock().schedule().answered(next.lane);
        desk.cron().clock().bell.notify_one();
    };
    let end = desk.cron().try_shot(&shot, answered).await;
    {
        let mut schedule = desk.cron().clock().schedule();
        if let Conclusion::Retry { next_ms, .. } = end {
            schedule.put_back(next, next_ms);
        }
        schedule.noted(next);
    }
    desk.cron().clock().bell.notify_one();
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use frontdesk_core::cron::retry::RETRY_LONGEST_MS;
    use frontdesk_core::directory::{Guest, Identity};
    use frontdesk_core::meters::Why;
    use frontdesk_core::port::Soon;
    use frontdesk_core::port::outcall::{Answer, Call, Outcall, OutcallError};
    use frontdesk_core::vault::Sealer;
    use frontdesk_core::{Env as _, Parts, Rules};
    use frontdesk_store::memory::MemoryStore;
    use frontdesk_testkit::TestEnv;
    use frontdesk_wire::cron::ProvisionShot;
    use zeroize::Zeroizing;

    use super::*;

    /// Notes which jobs were fired, and takes them all unless told otherwise. A job called `hangs` is never answered.
    #[derive(Default)]
    struct Taken(Mutex<Vec<String>>, std::sync::atomic::AtomicBool);

    impl Outcall for Taken {
        fn check(&self, _: &str) -> Result<(), OutcallError> {
            Ok(())
        }

        fn call<'a>(&'a self, call: Call<'a>) -> Soon<'a, Result<Answer, OutcallError>> {
            let body: serde_json::Value = serde_json::from_str(call.json.unwrap()).unwrap();
            if body["job_id"] == "hangs" {
                return Box::pin(std::future::pending());
            }
            self.0.lock().unwrap().push(body["job_id"].as_str().unwrap().to_owned());
            let status = if self.1.load(std::sync::atomic::Ordering::SeqCst) { 503 } else { 202 };
            Box::pin(async move { Ok(Answer { status, content_type: None, body: Vec::new() }) })
        }
    }

    struct Clock {
        desk: Arc<Desk>,
        env: Arc<TestEnv>,
        taken: Arc<Taken>,
        guest: Guest,
        stop: CancellationToken,
    }

    impl Clock {
        async fn running(rules: Rules) -> Self {
            let (env, taken) = (Arc::new(TestEnv::default()), Arc::new(Taken::default()));
            let (store, sealer) = (Arc::new(MemoryStore::new(1)), Sealer::new(Zeroizing::new([1; 32])));
            let desk = Desk::open(store, Parts::new(env.clone(), sealer, taken.clone(), rules)).await.unwrap();
            desk.directory().create_tenant("home").await.unwrap();
            let who = Identity { tenant: "home".into(), instance: Some("sleeper".into()) };
            let guest = desk.directory().guest_of(&who).await.unwrap();
            let (desk, stop) = (Arc::new(desk), CancellationToken::new());
            tokio::spawn(ring(desk.clone(), TaskTracker::new(), stop.clone()));
            Self { desk, env, taken, guest, stop }
        }

        async fn arm(&self, job: &str, in_ms: u64) {
            let due_ms = i64::try_from(self.env.now_ms() + in_ms).unwrap();
            let ask = ProvisionShot {
                job_id: job.into(),
                fire_at: jiff::Timestamp::from_millisecond(due_ms).unwrap().to_string(),
                agent_callback_url: "https://agent.example".into(),
                dedup_key: None,
                misfire: None,
            };
            self.desk.cron().provision_shot(&self.guest, ask).await.unwrap();
        }

        /// The loop has had several naps; what it would do it has done. Time is paused, so this takes none.
        async fn settled(&self) -> Vec<String> {
            tokio::time::sleep(NAP_MAX * 4).await;
            self.taken.0.lock().unwrap().clone()
        }
    }

    const HOUR_MS: u64 = 3_600_000;

    /// A clock set forward, or a machine that was suspended: what came due meanwhile is fired, once.
    #[tokio::test(start_paused = true)]
    async fn a_jump_forward_is_noticed() {
        let clock = Clock::running(Rules::default()).await;
        clock.arm("soon", 60_000).await;
        clock.arm("beyond the window", 2 * HOUR_MS).await;
        clock.arm("tomorrow", 24 * HOUR_MS).await;
        assert!(clock.settled().await.is_empty(), "not early");
        clock.env.advance_ms(3 * HOUR_MS);
        let mut fired = clock.settled().await;
        fired.sort();
        assert_eq!(fired, ["beyond the window", "soon"]);
        clock.env.advance_ms(3 * HOUR_MS);
        assert_eq!(clock.settled().await.len(), 2, "once each");
        clock.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_jump_backward_shots_wait_for_their_time() {
        let clock = Clock::running(Rules::default()).await;
        clock.arm("tea", 10_000).await;
        clock.arm("now", 0).await;
        assert_eq!(clock.settled().await, ["now"]);
        let before_ms = clock.env.now_ms();
        clock.env.set_ms(before_ms - HOUR_MS);
        clock.env.advance_ms(HOUR_MS - 1_000);
        assert_eq!(clock.settled().await, ["now"], "nothing fires twice, nothing early");
        clock.env.advance_ms(11_001);
        assert_eq!(clock.settled().await, ["now", "tea"]);
        clock.stop.cancel();
    }

    /// A refused shot is planned by the clock that showed the later time. Without a restart, and not before
    /// its time either.
    #[tokio::test(start_paused = true)]
    async fn after_a_jump_backward_retries_do_not_wait_for_the_old_time() {
        let clock = Clock::running(Rules::default()).await;
        clock.taken.1.store(true, std::sync::atomic::Ordering::SeqCst);
        clock.arm("tea", 0).await;
        clock.arm("tomorrow", 24 * HOUR_MS).await;
        assert_eq!(clock.settled().await, ["tea"]);
        clock.taken.1.store(false, std::sync::atomic::Ordering::SeqCst);
        clock.env.set_ms(clock.env.now_ms() - 2 * HOUR_MS);
        assert_eq!(clock.settled().await, ["tea"], "the step is noticed; nothing is fired because of it");
        clock.env.advance_ms(RETRY_LONGEST_MS);
        assert_eq!(clock.settled().await, ["tea", "tea"]);
        assert_eq!(clock.desk.meters().clock_steps.get_or_create(&Why { why: "back" }).get(), 1);
        clock.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_spreads_fires_and_never_before_their_moment() {
        let clock = Clock::running(Rules { fire_jitter_ms: 10_000, ..Rules::default() }).await;
        for number in 0..50 {
            clock.arm(&number.to_string(), 1_000).await;
        }
        clock.env.advance_ms(999);
        assert!(clock.settled().await.is_empty());
        clock.env.advance_ms(5_001);
        let half = clock.settled().await.len();
        assert!((10..40).contains(&half), "{half} of 50 in the first half");
        clock.env.advance_ms(5_001);
        assert_eq!(clock.settled().await.len(), 50);
        clock.stop.cancel();
    }

    /// A claim that nobody ended, as a broken-off relay call leaves it: found again, without a restart.
    #[tokio::test(start_paused = true)]
    async fn a_shot_that_somebody_claimed_and_left_is_found_again() {
        let clock = Clock::running(Rules::default()).await;
        clock.arm("tea", 1_000).await;
        let id = clock.desk.stores().alarms.armed(clock.guest.instance.no, 0, 9).await.unwrap()[0].id;
        let now_ms = clock.env.now_ms();
        clock.desk.stores().alarms.claim_shots(vec![id], now_ms + 9_999, now_ms, now_ms + LEASE_MS).await.unwrap();
        clock.env.advance_ms(2_000);
        assert!(clock.settled().await.is_empty(), "it is somebody's");
        clock.env.advance_ms(2 * LEASE_MS);
        assert_eq!(clock.settled().await, ["tea"]);
        clock.stop.cancel();
    }

    /// The same while other shots are due and being fired: a busy desk forgets nothing either.
    #[tokio::test(start_paused = true)]
    async fn a_shot_that_somebody_left_is_found_on_a_busy_desk_too() {
        let clock = Clock::running(Rules::default()).await;
        clock.arm("tea", 1_000).await;
        let id = clock.desk.stores().alarms.armed(clock.guest.instance.no, 0, 9).await.unwrap()[0].id;
        let now_ms = clock.env.now_ms();
        clock.desk.stores().alarms.claim_shots(vec![id], now_ms + 9_999, now_ms, now_ms + LEASE_MS).await.unwrap();
        clock.arm("hangs", 0).await;
        clock.env.advance_ms(2_000);
        assert!(clock.settled().await.is_empty(), "it is somebody's");
        clock.env.advance_ms(2 * LEASE_MS);
        clock.arm("later", 60_000).await; // and one that waits for its time
        assert_eq!(clock.settled().await, ["tea"]);
        clock.stop.cancel();
    }

    /// A job that is armed again for another time leaves nothing behind for long.
    #[tokio::test(start_paused = true)]
    async fn what_replaced_shots_left_in_the_schedule_is_freed() {
        let clock = Clock::running(Rules::default()).await;
        clock.settled().await; // from here on what is armed goes into the schedule
        for number in 0..3_000 {
            clock.arm("tea", 60_000 + number).await;
        }
        clock.settled().await;
        let held = clock.desk.cron().clock().schedule().len();
        assert!(held < 2_000, "{held} entries for one shot");
        clock.env.advance_ms(70_000);
        assert_eq!(clock.settled().await, ["tea"]);
        clock.stop.cancel();
    }

    /// The clock was set back while nobody watched it: the loop begins with a look at what was planned.
    #[tokio::test(start_paused = true)]
    async fn a_clock_set_back_while_the_desk_was_down_delays_no_retry() {
        let clock = Clock::running(Rules::default()).await;
        clock.taken.1.store(true, std::sync::atomic::Ordering::SeqCst);
        clock.arm("tea", 0).await;
        assert_eq!(clock.settled().await, ["tea"]);
        clock.stop.cancel();
        clock.settled().await;
        clock.taken.1.store(false, std::sync::atomic::Ordering::SeqCst);
        clock.env.set_ms(clock.env.now_ms() - 2 * HOUR_MS);
        let stop = CancellationToken::new();
        tokio::spawn(ring(clock.desk.clone(), TaskTracker::new(), stop.clone()));
        clock.settled().await;
        clock.env.advance_ms(RETRY_LONGEST_MS);
        assert_eq!(clock.settled().await, ["tea", "tea"]);
        stop.cancel();
    }
}
