//! The scheduler provider: keeps the alarms at the server in sync with the jobs, and runs jobs when called.
//!
//! It has no timer: it reconciles when the process starts, when jobs change, and after a call.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_wire::cron::{FireBody, ProvisionAlarm};
use frontdesk_wire::frame::PassthroughForward;
use futures_util::FutureExt as _;
use jiff::Timestamp;

use super::desk::{CronDesk, CronDeskError};
use super::jobs::{Job, JobStore, JobsError};
use crate::transport::BoxFuture;

/// Function that runs a job.
pub type Work = Arc<dyn Fn(Job) -> BoxFuture<'static, ()> + Send + Sync>;
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Pauses before further attempts to arm the next alarm, while the caller of a job waits.
const ARM_AGAIN_S: [u64; 3] = [1, 2, 4];
/// Pauses when no caller waits.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Longest sleep of the ticker, so that clock changes are noticed.
const NAP_MAX: Duration = Duration::from_secs(30);

/// The system clock.
pub fn machine_clock() -> Clock {
    #[allow(clippy::disallowed_methods)] // agents use real time; tests pass their own clock
    Arc::new(|| Timestamp::try_from(std::time::SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH))
}

pub struct Provider {
    jobs: Arc<dyn JobStore>,
    /// `None`: no server is configured, and [`Provider::tick`] runs the jobs.
    desk: Option<Arc<dyn CronDesk>>,
    /// Base URL of this agent, or `relay:`.
    callback_url: String,
    work: Work,
    clock: Clock,
    /// Known alarms at the server: job to time, as text.
    armed: Mutex<Option<BTreeMap<String, String>>>,
    /// One reconciliation at a time.
    reconciling: tokio::sync::Mutex<()>,
    /// Held by the one call that arms jobs until it is done.
    arming: tokio::sync::Mutex<()>,
}

impl Provider {
    pub fn new(
        jobs: Arc<dyn JobStore>,
        desk: Option<Arc<dyn CronDesk>>,
        callback_url: impl Into<String>,
        work: Work,
        clock: Clock,
    ) -> Self {
        let (armed, reconciling, arming) =
            (Mutex::default(), tokio::sync::Mutex::default(), tokio::sync::Mutex::default());
        Self { jobs, desk, callback_url: callback_url.into(), work, clock, armed, reconciling, arming }
    }

    fn armed(&self) -> MutexGuard<'_, Option<BTreeMap<String, String>>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- jobs ----------------------------------------------------------------------------

    /// Creates or changes a job, and its alarm.
    pub async fn put(&self, job: Job) -> Result<(), JobsError> {
        self.jobs.put(job)?;
        self.reconcile().await
    }

    /// For jobs that are part of a program, at each start of it: one that is known with the same timing keeps its next
    /// time, so that an alarm that woke the agent is not taken for an old one.
    pub async fn declare(&self, job: Job) -> Result<(), JobsError> {
        let known = self.jobs.load()?;
        if known.iter().any(|it| it.id == job.id && it.timing == job.timing) {
            return self.reconcile().await;
        }
        self.put(job).await
    }

    pub async fn remove(&self, id: &str) -> Result<bool, JobsError> {
        let there = self.jobs.remove(id)?;
        self.reconcile().await?;
        Ok(there)
    }

    /// Pauses or resumes a job. After resuming, its next time is computed from now. False: unknown job.
    pub async fn pause(&self, id: &str, paused: bool) -> Result<bool, JobsError> {
        let Some(job) = self.jobs.load()?.into_iter().find(|job| job.id == id) else { return Ok(false) };
        let next_run_at = match (paused, job.timing.repeats()) {
            (false, true) => job.timing.next_after((self.clock)()),
            _ => job.next_run_at,
        };
        self.put(Job { paused, next_run_at, ..job }).await?;
        Ok(true)
    }

    /// To be called at start. Jobs that were due and are no longer armed were fired while the process was stopping:
    /// they run now, once. Then jobs and alarms are reconciled.
    pub async fn start(&self) -> Result<(), JobsError> {
        if let Some(desk) = &self.desk
            && let Ok(listed) = desk.list().await
        {
            let now = (self.clock)();
            let armed = |id: &str| listed.iter().any(|alarm| alarm.job_id == id);
            let missed = |job: &Job| job.wanted().is_some_and(|at| at <= now) && !armed(&job.id);
            for job in self.jobs.load()?.into_iter().filter(missed) {
                self.fire(&FireBody { job_id: job.id.into(), fire_at: String::new() }).await?;
            }
        }
        self.reconcile().await
    }

    // ---- reconciliation ------------------------------------------------------------------

    /// Arms missing or changed alarms and cancels unwanted ones. Failures are retried at the next call; arming twice is
    /// idempotent.
    pub async fn reconcile(&self) -> Result<(), JobsError> {
        self.try_reconcile().await.map(drop)
    }

    /// False: the server did not take all of it, and may take it later.
    async fn try_reconcile(&self) -> Result<bool, JobsError> {
        let Some(desk) = &self.desk else { return Ok(true) };
        let _one_at_a_time = self.reconciling.lock().await;
        let desired: BTreeMap<String, String> =
            (self.jobs.load()?.iter()).filter_map(|job| Some((job.id.clone(), job.wanted()?.to_string()))).collect();
        let known = self.armed().clone();
        // What the server has is known once it has listed it: only then unwanted alarms can be cancelled.
        let mut is_done = true;
        let (observed, is_complete) = match known {
            Some(known) => (known, true),
            None => match desk.list().await {
                Ok(listed) => (listed.into_iter().map(|alarm| (alarm.job_id.into(), alarm.fire_at)).collect(), true),
                Err(error) => {
                    tracing::warn!(%error, "listing armed alarms failed; arming all jobs again");
                    is_done = !error.is_passing();
                    (BTreeMap::new(), false)
                }
            },
        };
        let mut armed = observed.clone();
        for (id, fire_at) in &desired {
            if observed.get(id) != Some(fire_at) {
                match self.arm(desk, id, fire_at).await {
                    Ok(()) => drop(armed.insert(id.clone(), fire_at.clone())),
                    Err(error) => {
                        tracing::warn!(%error, job = id, "arming a job failed");
                        is_done &= !error.is_passing();
                    }
                }
            }
        }
        for id in observed.keys().filter(|id| !desired.contains_key(*id)) {
            match desk.cancel(id).await {
                Ok(()) => drop(armed.remove(id)),
                Err(error) => {
                    tracing::warn!(%error, job = id, "cancelling an unwanted alarm failed");
                    is_done &= !error.is_passing();
                }
            }
        }
        *self.armed() = is_complete.then_some(armed);
        Ok(is_done)
    }

    async fn arm(&self, desk: &Arc<dyn CronDesk>, id: &str, fire_at: &str) -> Result<(), CronDeskError> {
        let alarm = ProvisionAlarm {
            job_id: id.into(),
            fire_at: fire_at.into(),
            agent_callback_url: self.callback_url.clone(),
            dedup_key: Some(format!("{id}:{fire_at}")),
            misfire: None,
        };
        desk.provision(alarm).await.map(drop)
    }

    // ---- calls ---------------------------------------------------------------------------

    /// Claims and runs the job, then arms the next alarm. False: it was already claimed, or is not wanted.
    pub async fn fire(&self, body: &FireBody) -> Result<bool, JobsError> {
        let Some(job) = self.claim(body)? else { return Ok(false) };
        let mut is_armed = self.run(job).await?;
        for seconds in ARM_AGAIN_S {
            if !is_armed {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                is_armed = self.try_reconcile().await?;
            }
        }
        Ok(true)
    }

    /// The job, if it is to be [run](Self::run) by this process.
    pub fn claim(&self, body: &FireBody) -> Result<Option<Job>, JobsError> {
        let fire_at = body.fire_at.parse().ok();
        let claimed = self.jobs.claim(&body.job_id, fire_at, (self.clock)())?;
        if let (Some(_), Some(armed)) = (&claimed, self.armed().as_mut()) {
            armed.remove(body.job_id.as_str()); // the server has fired this one
        }
        Ok(claimed)
    }

    /// Runs a claimed job, then arms its next alarm. False: the server did not take it, and may take it later: then
    /// [`Self::arm_until_done`], or nothing fires the job before the next change or start.
    pub async fn run(&self, job: Job) -> Result<bool, JobsError> {
        let id = job.id.clone();
        if AssertUnwindSafe(async { (self.work)(job).await }).catch_unwind().await.is_err() {
            tracing::error!(job = id, "a job panicked");
        }
        self.try_reconcile().await
    }

    /// Arms all jobs, again and again until the server has taken or refused them. One call does it for all.
    pub async fn arm_until_done(&self) -> Result<(), JobsError> {
        let Ok(_alone) = self.arming.try_lock() else { return Ok(()) };
        let mut pause = PAUSE_FIRST;
        while !self.try_reconcile().await? {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Ok(())
    }

    /// Parses an alarm call from the relay socket; `None` if the forward is something else.
    pub fn relayed(forward: &PassthroughForward) -> Option<FireBody> {
        if forward.platform != "cron" || forward.path != "/api/cron/fire" {
            return None;
        }
        serde_json::from_slice(&STANDARD.decode(&forward.body_b64).ok()?).ok()
    }

    /// Runs due jobs in this process until it ends; for agents without a server.
    pub async fn tick(&self) -> Result<(), JobsError> {
        loop {
            let now = (self.clock)();
            let jobs = self.jobs.load()?;
            for job in jobs.iter().filter(|job| job.wanted().is_some_and(|at| at <= now)) {
                self.fire(&FireBody { job_id: job.id.as_str().into(), fire_at: String::new() }).await?;
            }
            let next = self.jobs.load()?.iter().filter_map(Job::wanted).min();
            let nap = next.map_or(NAP_MAX, |at| {
                Duration::try_from(at.duration_since((self.clock)())).unwrap_or_default().min(NAP_MAX)
            });
            tokio::time::sleep(nap).await;
        }
    }
}
