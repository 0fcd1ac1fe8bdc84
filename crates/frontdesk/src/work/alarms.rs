//! Fires alarms when they are due.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often armed alarms are counted, which reads all of them.
const COUNT_EVERY: Duration = Duration::from_mins(1);
/// Delay of the first count, unless an alarm is armed before: alarms overdue after a restart go first.
const FIRST_COUNT: Duration = Duration::from_secs(2);

pub(super) async fn run(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    tokio::select! {
        () = fire(desk.clone(), tracker, stop) => {}
        () = count(&desk) => {}
    }
}

/// Beside the firing, because counting a million takes a while.
async fn count(desk: &Desk) {
    tokio::time::sleep(FIRST_COUNT).await;
    loop {
        if let Err(error) = desk.cron().count_armed().await {
            tracing::warn!(%error, "counting armed alarms failed; it is tried again within a minute");
        }
        tokio::time::sleep(COUNT_EVERY).await;
    }
}

async fn fire(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut state = desk.cron().new_loop();
    loop {
        let round = desk.cron().round(&mut state).await;
        for claimed in round.claimed {
            let desk = desk.clone();
            tracker.spawn(async move { desk.cron().fire_claimed(claimed).await });
        }
        let pause = match round.pause {
            Some(pause) => pause,
            None if stop.is_cancelled() => return,
            None => continue,
        };
        tokio::select! {
            () = desk.cron().changed() => {}
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use frontdesk_core::cron::retry::RETRY_LONGEST_MS;
    use frontdesk_core::cron::{LEASE_MS, PAUSE_MAX};
    use frontdesk_core::directory::{Identity, ProvenInstance};
    use frontdesk_core::port::BoxFuture;
    use frontdesk_core::port::alarms::{
        Alarm, AlarmTime, Alarms, ArmedPage, Arming, Concluded, Conclusion, Disarmed, EndedAlarm,
    };
    use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, Outcall, OutcallError};
    use frontdesk_core::port::store::Stored;
    use frontdesk_core::port::stores::Stores;
    use frontdesk_core::vault::Sealer;
    use frontdesk_core::{Env as _, Parts, Rules};
    use frontdesk_store::memory::MemoryStore;
    use frontdesk_testkit::TestEnv;
    use frontdesk_testkit::metrics::metric;
    use frontdesk_wire::cron::ProvisionAlarm;
    use frontdesk_wire::{InstanceNo, JobId};
    use zeroize::Zeroizing;

    use super::*;

    /// Records fired jobs and accepts all unless told otherwise. A job named `hangs` gets no response.
    #[derive(Default)]
    struct Taken(Mutex<Vec<String>>, std::sync::atomic::AtomicBool);

    impl Outcall for Taken {
        fn check(&self, _: &str) -> Result<(), OutcallError> {
            Ok(())
        }

        fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
            let Body::Json(json) = call.body else { panic!("an alarm has a JSON body") };
            let body: serde_json::Value = serde_json::from_str(json).unwrap();
            if body["job_id"] == "hangs" {
                return Box::pin(std::future::pending());
            }
            self.0.lock().unwrap().push(body["job_id"].as_str().unwrap().to_owned());
            let status = if self.1.load(std::sync::atomic::Ordering::SeqCst) { 503 } else { 202 };
            Box::pin(async move { Ok(HttpAnswer::of(status)) })
        }
    }

    struct Clock {
        desk: Arc<Desk>,
        env: Arc<TestEnv>,
        taken: Arc<Taken>,
        proven: ProvenInstance,
        stop: CancellationToken,
    }

    /// Counting armed alarms never ends.
    struct NeverCounted(Arc<MemoryStore>);

    impl Alarms for NeverCounted {
        fn arm(&self, alarms: Vec<Alarm>) -> Stored<'_, Vec<Arming>> {
            self.0.arm(alarms)
        }

        fn disarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId, now_ms: u64) -> Stored<'a, bool> {
            self.0.disarm(instance, job_id, now_ms)
        }

        fn disarm_some<'a>(&'a self, instance: InstanceNo, after: &'a JobId, now_ms: u64) -> Stored<'a, Disarmed> {
            self.0.disarm_some(instance, after, now_ms)
        }

        fn armed<'a>(&'a self, instance: InstanceNo, after: &'a JobId, limit: usize) -> Stored<'a, ArmedPage> {
            self.0.armed(instance, after, limit)
        }

        fn alarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId) -> Stored<'a, Option<Alarm>> {
            self.0.alarm(instance, job_id)
        }

        fn next_alarms(&self, after: (u64, u64), until_ms: u64, limit: usize) -> Stored<'_, Vec<AlarmTime>> {
            self.0.next_alarms(after, until_ms, limit)
        }

        fn claim_alarms(&self, ids: Vec<u64>, due_by_ms: u64, now_ms: u64, until_ms: u64) -> Stored<'_, Vec<Alarm>> {
            self.0.claim_alarms(ids, due_by_ms, now_ms, until_ms)
        }

        fn conclude(&self, ends: Vec<(Alarm, Conclusion)>, now_ms: u64) -> Stored<'_, Vec<Concluded>> {
            self.0.conclude(ends, now_ms)
        }

        fn revive_alarm(&self, id: u64, now_ms: u64) -> Stored<'_, Option<Alarm>> {
            self.0.revive_alarm(id, now_ms)
        }

        fn hasten_retries(&self, ahead_ms: u64, next_ms: u64, claims_ms: u64) -> Stored<'_, Vec<AlarmTime>> {
            self.0.hasten_retries(ahead_ms, next_ms, claims_ms)
        }

        fn dead_alarms(&self, instance: Option<InstanceNo>, limit: usize) -> Stored<'_, Vec<Alarm>> {
            self.0.dead_alarms(instance, limit)
        }

        fn ended_alarms<'a>(
            &'a self,
            instance: InstanceNo,
            job_id: Option<&'a JobId>,
            limit: usize,
        ) -> Stored<'a, Vec<EndedAlarm>> {
            self.0.ended_alarms(instance, job_id, limit)
        }

        fn armed_counts(&self) -> Stored<'_, Vec<(InstanceNo, u64)>> {
            Box::pin(std::future::pending())
        }
    }

    impl Clock {
        async fn running(rules: Rules) -> Self {
            Self::over(Arc::new(MemoryStore::new(1)), rules).await
        }

        async fn over(store: impl Into<Stores>, rules: Rules) -> Self {
            let (env, taken) = (Arc::new(TestEnv::default()), Arc::new(Taken::default()));
            let sealer = Sealer::new(Zeroizing::new([1; 32]));
            let desk = Desk::open(store, Parts::new(env.clone(), sealer, taken.clone(), rules)).await.unwrap();
            desk.directory().create_tenant(&"home".into()).await.unwrap();
            let who = Identity { tenant: "home".into(), instance: Some("sleeper".into()) };
            let proven = desk.directory().proven_instance(&who).await.unwrap();
            let (desk, stop) = (Arc::new(desk), CancellationToken::new());
            tokio::spawn(run(desk.clone(), TaskTracker::new(), stop.clone()));
            Self { desk, env, taken, proven, stop }
        }

        async fn arm(&self, job: &str, in_ms: u64) {
            let due_ms = i64::try_from(self.env.now_ms() + in_ms).unwrap();
            let ask = ProvisionAlarm {
                job_id: job.into(),
                fire_at: jiff::Timestamp::from_millisecond(due_ms).unwrap().to_string(),
                agent_callback_url: "https://agent.example".into(),
                dedup_key: None,
                misfire: None,
            };
            self.desk.cron().provision_alarm(&self.proven, ask).await.unwrap();
        }

        /// Waits for several rounds of the loop. Time is paused, so this is immediate.
        async fn settled(&self) -> Vec<String> {
            tokio::time::sleep(PAUSE_MAX * 4).await;
            self.taken.0.lock().unwrap().clone()
        }
    }

    const HOUR_MS: u64 = 3_600_000;

    /// Counting a million armed alarms takes a while.
    #[tokio::test(start_paused = true)]
    async fn alarms_fire_while_they_are_counted() {
        let store = Arc::new(MemoryStore::new(1));
        let stores = Stores { alarms: Arc::new(NeverCounted(store.clone())), ..Stores::from(store) };
        let clock = Clock::over(stores, Rules { armed_max: 0, ..Rules::default() }).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        clock.arm("soon", 1_000).await;
        clock.env.advance_ms(1_000);
        assert_eq!(clock.settled().await, ["soon"]);
    }

    /// The clock was set forward, or the machine was suspended: alarms that came due are fired once.
    #[tokio::test(start_paused = true)]
    async fn a_jump_forward_is_noticed() {
        let clock = Clock::running(Rules::default()).await;
        clock.arm("soon", 60_000).await;
        clock.arm("beyond the window", 2 * HOUR_MS).await;
        clock.arm("tomorrow", 24 * HOUR_MS).await;
        assert!(clock.settled().await.is_empty(), "nothing fires early");
        clock.env.advance_ms(3 * HOUR_MS);
        let mut fired = clock.settled().await;
        fired.sort();
        assert_eq!(fired, ["beyond the window", "soon"]);
        clock.env.advance_ms(3 * HOUR_MS);
        assert_eq!(clock.settled().await.len(), 2, "each fired once");
        clock.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_jump_backward_alarms_wait_for_their_time() {
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

    /// The retry of a refused alarm was planned with the clock before the jump. It is replanned without a restart, and
    /// does not fire before its time.
    #[tokio::test(start_paused = true)]
    async fn after_a_jump_backward_retries_do_not_wait_for_the_old_time() {
        let clock = Clock::running(Rules::default()).await;
        clock.taken.1.store(true, std::sync::atomic::Ordering::SeqCst);
        clock.arm("tea", 0).await;
        clock.arm("tomorrow", 24 * HOUR_MS).await;
        assert_eq!(clock.settled().await, ["tea"]);
        clock.taken.1.store(false, std::sync::atomic::Ordering::SeqCst);
        clock.env.set_ms(clock.env.now_ms() - 2 * HOUR_MS);
        assert_eq!(clock.settled().await, ["tea"], "the jump is noticed, but fires nothing");
        clock.env.advance_ms(RETRY_LONGEST_MS);
        assert_eq!(clock.settled().await, ["tea", "tea"]);
        assert_eq!(metric(clock.desk.meters(), "clock_steps_total{why=\"back\"}"), Some(1));
        clock.stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_spreads_fires_and_fires_none_early() {
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

    /// A claim that was never finished, as left by an aborted relay call, is found again without a restart.
    #[tokio::test(start_paused = true)]
    async fn an_abandoned_claim_is_found_again() {
        let clock = Clock::running(Rules::default()).await;
        clock.arm("tea", 1_000).await;
        let id = clock.desk.stores().alarms.armed(clock.proven.instance.no, &JobId::default(), 9).await.unwrap().alarms
            [0]
        .id;
        let now_ms = clock.env.now_ms();
        clock.desk.stores().alarms.claim_alarms(vec![id], now_ms + 9_999, now_ms, now_ms + LEASE_MS).await.unwrap();
        clock.env.advance_ms(2_000);
        assert!(clock.settled().await.is_empty(), "still claimed");
        clock.env.advance_ms(2 * LEASE_MS);
        assert_eq!(clock.settled().await, ["tea"]);
        clock.stop.cancel();
    }

    /// The same while other alarms are due and being fired.
    #[tokio::test(start_paused = true)]
    async fn an_abandoned_claim_is_found_on_a_busy_server() {
        let clock = Clock::running(Rules::default()).await;
        clock.arm("tea", 1_000).await;
        let id = clock.desk.stores().alarms.armed(clock.proven.instance.no, &JobId::default(), 9).await.unwrap().alarms
            [0]
        .id;
        let now_ms = clock.env.now_ms();
        clock.desk.stores().alarms.claim_alarms(vec![id], now_ms + 9_999, now_ms, now_ms + LEASE_MS).await.unwrap();
        clock.arm("hangs", 0).await;
        clock.env.advance_ms(2_000);
        assert!(clock.settled().await.is_empty(), "still claimed");
        clock.env.advance_ms(2 * LEASE_MS);
        clock.arm("later", 60_000).await; // and an alarm that is not due yet
        assert_eq!(clock.settled().await, ["tea"]);
        clock.stop.cancel();
    }

    /// As after a crash between the end of an instance and that of its alarms.
    #[tokio::test(start_paused = true)]
    async fn alarms_of_a_removed_instance_are_not_fired_and_are_cancelled() {
        let clock = Clock::running(Rules { armed_max: 2, ..Rules::default() }).await;
        clock.arm("soon", 1_000).await;
        clock.arm("tomorrow", 24 * HOUR_MS).await;
        clock.desk.management().deprovision(&clock.proven).await.unwrap();
        let armed = async || clock.desk.cron().armed(clock.proven.instance.no, 9).await.unwrap().len();
        assert_eq!(armed().await, 2, "left over");
        clock.env.advance_ms(2_000);
        assert!(clock.settled().await.is_empty(), "nothing is fired");
        clock.env.advance_ms(61_000);
        assert!(clock.settled().await.is_empty());
        assert_eq!(armed().await, 0);
        let ended = clock.desk.stores().alarms.ended_alarms(clock.proven.instance.no, None, 9).await.unwrap();
        assert!(ended.iter().all(|it| it.outcome == "cancelled"), "{ended:?}");
        clock.stop.cancel();
    }

    /// A job that is armed again for another time leaves no old entries behind for long.
    #[tokio::test(start_paused = true)]
    async fn entries_of_replaced_alarms_are_freed() {
        let clock = Clock::running(Rules::default()).await;
        clock.settled().await; // from here on armed alarms go into the schedule
        for number in 0..3_000 {
            clock.arm("tea", 60_000 + number).await;
        }
        clock.settled().await;
        let held = clock.desk.cron().clock().schedule().len();
        assert!(held < 2_000, "{held} entries for one alarm");
        clock.env.advance_ms(70_000);
        assert_eq!(clock.settled().await, ["tea"]);
        clock.stop.cancel();
    }

    /// The clock was set back while the server was down: the loop checks planned times at start.
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
        tokio::spawn(run(clock.desk.clone(), TaskTracker::new(), stop.clone()));
        clock.settled().await;
        clock.env.advance_ms(RETRY_LONGEST_MS);
        assert_eq!(clock.settled().await, ["tea", "tea"]);
        stop.cancel();
    }
}
