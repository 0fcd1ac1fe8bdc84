//! Jobs, claims and reconciliation, with a server that is only a list.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_client::cron::{
    Clock, CronDesk, CronDeskError, FileJobs, Job, JobStore, MemoryJobs, Provider, Timing, Work,
};
use frontdesk_client::transport::BoxFuture;
use frontdesk_wire::cron::{ArmedAlarm, FireBody, ProvisionAlarm, Provisioned};
use frontdesk_wire::frame::PassthroughForward;
use jiff::Timestamp;

/// Armed alarms, the number of requests, and whether it responds.
#[derive(Default)]
struct ListDesk {
    armed: Mutex<BTreeMap<String, String>>,
    calls: AtomicUsize,
    away: Mutex<bool>,
}

impl ListDesk {
    fn armed(&self) -> Vec<(String, String)> {
        self.armed.lock().unwrap().clone().into_iter().collect()
    }

    fn answer<T: Send + 'static>(&self, answer: impl FnOnce() -> T) -> BoxFuture<'static, Result<T, CronDeskError>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let away = *self.away.lock().unwrap();
        let answer = if away { Err(CronDeskError::Away("down".into())) } else { Ok(answer()) };
        Box::pin(std::future::ready(answer))
    }
}

impl CronDesk for ListDesk {
    fn provision(&self, alarm: ProvisionAlarm) -> BoxFuture<'_, Result<Provisioned, CronDeskError>> {
        assert_eq!(alarm.dedup_key, Some(format!("{}:{}", alarm.job_id, alarm.fire_at)));
        self.answer(|| {
            self.armed.lock().unwrap().insert(alarm.job_id.into(), alarm.fire_at);
            Provisioned { schedule_id: "s".into() }
        })
    }

    fn cancel<'a>(&'a self, job_id: &'a str) -> BoxFuture<'a, Result<(), CronDeskError>> {
        self.answer(|| drop(self.armed.lock().unwrap().remove(job_id)))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ArmedAlarm>, CronDeskError>> {
        let alarm =
            |(id, fire_at): (String, String)| ArmedAlarm { job_id: id.into(), fire_at, schedule_id: "s".into() };
        self.answer(|| self.armed().into_iter().map(alarm).collect())
    }
}

struct Agent {
    provider: Provider,
    jobs: Arc<dyn JobStore>,
    desk: Arc<ListDesk>,
    ran: Arc<Mutex<Vec<String>>>,
    now: Arc<AtomicI64>,
}

const START: &str = "2026-03-01T00:00:00Z";

fn agent_with(jobs: Arc<dyn JobStore>, desk: Arc<ListDesk>, is_configured: bool) -> Agent {
    let ran: Arc<Mutex<Vec<String>>> = Arc::default();
    let now = Arc::new(AtomicI64::new(START.parse::<Timestamp>().unwrap().as_second()));
    let (noted, hands) = (ran.clone(), now.clone());
    let work: Work = Arc::new(move |job| {
        noted.lock().unwrap().push(job.id);
        Box::pin(std::future::ready(()))
    });
    let clock: Clock = Arc::new(move || Timestamp::from_second(hands.load(Ordering::SeqCst)).unwrap());
    let configured = is_configured.then(|| desk.clone() as Arc<dyn CronDesk>);
    let provider = Provider::new(jobs.clone(), configured, "https://agent.example", work, clock);
    Agent { provider, jobs, desk, ran, now }
}

fn agent() -> Agent {
    agent_with(Arc::new(MemoryJobs::default()), Arc::default(), true)
}

impl Agent {
    fn at(&self) -> Timestamp {
        Timestamp::from_second(self.now.load(Ordering::SeqCst)).unwrap()
    }

    fn job(&self, id: &str, timing: &str) -> Job {
        Job::new(id, Timing::parse(timing, "UTC", self.at()).unwrap(), self.at())
    }

    /// Fires like the server: a fired alarm is no longer armed.
    async fn fire(&self, id: &str, fire_at: &str) -> bool {
        self.desk.armed.lock().unwrap().retain(|job, at| job != id || at != fire_at);
        let due: Timestamp = fire_at.parse().unwrap();
        self.now.fetch_max(due.as_second(), Ordering::SeqCst);
        self.provider.fire(&FireBody { job_id: id.into(), fire_at: fire_at.into() }).await.unwrap()
    }

    fn armed(&self) -> Vec<(String, String)> {
        self.desk.armed()
    }
}

fn pair(id: &str, at: &str) -> (String, String) {
    (id.into(), at.into())
}

#[tokio::test]
async fn one_alarm_per_job_at_its_next_time_and_the_next_one_after_a_fire() {
    let agent = agent();
    agent.provider.put(agent.job("tea", "every 10m")).await.unwrap();
    agent.provider.put(agent.job("post", "0 9 * * *")).await.unwrap();
    let first = [pair("post", "2026-03-01T09:00:00Z"), pair("tea", "2026-03-01T00:10:00Z")];
    assert_eq!(agent.armed(), first);
    assert!(agent.fire("tea", "2026-03-01T00:10:00Z").await);
    assert_eq!(agent.armed()[1], pair("tea", "2026-03-01T00:20:00Z"));
    assert!(!agent.fire("tea", "2026-03-01T00:10:00Z").await, "the same fire again");
    assert!(!agent.fire("nothing", "2026-03-01T00:10:00Z").await);
    assert_eq!(*agent.ran.lock().unwrap(), ["tea"]);
    agent.provider.remove("tea").await.unwrap();
    assert_eq!(agent.armed(), [pair("post", "2026-03-01T09:00:00Z")]);
}

#[tokio::test]
async fn a_job_with_a_limit_ends() {
    let agent = agent();
    agent.provider.put(agent.job("once", "30m")).await.unwrap();
    agent.provider.put(agent.job("twice", "every 1h").times(2)).await.unwrap();
    assert!(agent.fire("once", "2026-03-01T00:30:00Z").await);
    assert!(agent.fire("twice", "2026-03-01T01:00:00Z").await);
    assert_eq!(agent.armed(), [pair("twice", "2026-03-01T02:00:00Z")]);
    assert!(agent.fire("twice", "2026-03-01T02:00:00Z").await);
    assert_eq!(agent.armed(), [], "no alarm is left");
    assert_eq!(agent.jobs.load().unwrap(), []);
    assert_eq!(*agent.ran.lock().unwrap(), ["once", "twice", "twice"]);
}

#[tokio::test]
async fn a_paused_job_is_not_armed_and_a_resumed_one_starts_from_now() {
    let agent = agent();
    agent.provider.put(agent.job("tea", "every 10m")).await.unwrap();
    assert!(agent.provider.pause("tea", true).await.unwrap());
    assert_eq!(agent.armed(), []);
    assert!(!agent.fire("tea", "2026-03-01T00:10:00Z").await);
    assert!(agent.provider.pause("tea", false).await.unwrap());
    assert_eq!(agent.armed(), [pair("tea", "2026-03-01T00:20:00Z")]);
    assert!(!agent.provider.pause("nothing", true).await.unwrap());
}

#[tokio::test]
async fn an_alarm_that_failed_to_arm_is_armed_next_time() {
    let agent = agent();
    *agent.desk.away.lock().unwrap() = true;
    agent.provider.put(agent.job("tea", "every 10m")).await.unwrap();
    assert_eq!(agent.armed(), []);
    *agent.desk.away.lock().unwrap() = false;
    agent.provider.reconcile().await.unwrap();
    assert_eq!(agent.armed().len(), 1);
    let calls = agent.desk.calls.load(Ordering::SeqCst);
    agent.provider.reconcile().await.unwrap();
    assert_eq!(agent.desk.calls.load(Ordering::SeqCst), calls, "an armed alarm is not sent again");
}

#[tokio::test(start_paused = true)]
async fn the_next_alarm_is_armed_once_the_server_is_back() {
    let agent = agent();
    agent.provider.put(agent.job("tea", "every 10m")).await.unwrap();
    *agent.desk.away.lock().unwrap() = true;
    assert!(agent.fire("tea", "2026-03-01T00:10:00Z").await, "it returns although the server is away");
    let back = async {
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!((agent.armed(), agent.ran.lock().unwrap().len()), (vec![], 1));
        *agent.desk.away.lock().unwrap() = false;
    };
    let (done, again, ()) = tokio::join!(agent.provider.arm_until_done(), agent.provider.arm_until_done(), back);
    assert!(done.is_ok() && again.is_ok());
    assert_eq!(agent.armed(), [pair("tea", "2026-03-01T00:20:00Z")]);
}

#[tokio::test]
async fn a_new_process_lists_alarms_and_cancels_orphans() {
    let desk: Arc<ListDesk> = Arc::default();
    desk.armed.lock().unwrap().insert("orphan".into(), "2026-03-01T00:10:00Z".into());
    let agent = agent_with(Arc::new(MemoryJobs::default()), desk, true);
    let tea = agent.job("tea", "every 10m");
    agent.desk.armed.lock().unwrap().insert("tea".into(), tea.next_run_at.unwrap().to_string());
    agent.jobs.put(tea).unwrap();
    agent.provider.reconcile().await.unwrap();
    assert_eq!(agent.armed(), [pair("tea", "2026-03-01T00:10:00Z")]);
    assert_eq!(agent.desk.calls.load(Ordering::SeqCst), 2, "a list and a cancel; the other time was already correct");
}

#[test]
fn of_many_replicas_one_runs_a_fire() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.json");
    let now: Timestamp = START.parse().unwrap();
    let job = Job::new("tea", Timing::parse("every 10m", "UTC", now).unwrap(), now);
    let fire_at = job.next_run_at;
    FileJobs::new(&path).put(job).unwrap();
    let wins = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let replica = FileJobs::new(&path);
                let won = replica.claim("tea", fire_at, fire_at.unwrap()).unwrap();
                wins.fetch_add(usize::from(won.is_some()), Ordering::SeqCst);
            });
        }
    });
    assert_eq!(wins.load(Ordering::SeqCst), 1);
    let kept = FileJobs::new(&path).load().unwrap();
    assert_eq!(kept[0].next_run_at, Some("2026-03-01T00:20:00Z".parse().unwrap()));
    std::fs::write(&path, "{").unwrap();
    assert!(FileJobs::new(&path).load().is_err(), "an invalid file is an error, not an empty list");
}

#[tokio::test]
async fn without_a_server_the_process_runs_jobs_by_itself() {
    let agent = agent_with(Arc::new(MemoryJobs::default()), Arc::default(), false);
    agent.provider.put(agent.job("tea", "every 10m")).await.unwrap();
    agent.now.fetch_add(601, Ordering::SeqCst);
    let ticking = agent.provider.tick();
    let ran = async {
        while agent.ran.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = ticking => panic!("{ended:?}"),
        () = ran => {}
    }
    assert_eq!(agent.desk.calls.load(Ordering::SeqCst), 0);
}

#[test]
fn a_fire_on_the_socket_is_recognized_by_its_path() {
    let forward = |platform: &str, path: &str, body: &str| PassthroughForward {
        platform: platform.into(),
        bot_id: "desk".into(),
        method: "POST".into(),
        path: path.into(),
        headers: Vec::new(),
        body_b64: base64::Engine::encode(&base64::engine::general_purpose::STANDARD, body),
    };
    let body = "{\"job_id\":\"tea\",\"fire_at\":\"2026-03-01T00:10:00Z\"}";
    let fire = Provider::relayed(&forward("cron", "/api/cron/fire", body)).unwrap();
    assert_eq!((fire.job_id.as_str(), fire.fire_at.as_str()), ("tea", "2026-03-01T00:10:00Z"));
    assert!(Provider::relayed(&forward("discord", "/api/cron/fire", body)).is_none());
    assert!(Provider::relayed(&forward("cron", "/other", body)).is_none());
    assert!(Provider::relayed(&forward("cron", "/api/cron/fire", "{}")).is_none());
}
