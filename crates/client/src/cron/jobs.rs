//! Jobs and their storage. Runs are claimed by compare-and-set, so that with many replicas and repeated calls each run
//! happens once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::timing::Timing;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    pub timing: Timing,
    #[serde(default)]
    pub paused: bool,
    /// Number of runs left; `None`: unlimited.
    #[serde(default)]
    pub times_left: Option<u32>,
    /// Time of the next run. Sent to the server as exactly this text.
    #[serde(default)]
    pub next_run_at: Option<Timestamp>,
    /// The task for the agent; opaque for the provider.
    #[serde(default)]
    pub task: serde_json::Value,
}

impl Job {
    pub fn new(id: impl Into<String>, timing: Timing, now: Timestamp) -> Self {
        let next_run_at = match &timing {
            Timing::At { time } => Some(*time), // a time in the past runs now
            other => other.next_after(now),
        };
        let (id, task) = (id.into(), serde_json::Value::Null);
        Self { id, timing, paused: false, times_left: None, next_run_at, task }
    }

    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times_left: Some(times), ..self }
    }

    /// When the server should fire it, if at all.
    pub fn wanted(&self) -> Option<Timestamp> {
        self.next_run_at.filter(|_| !self.paused && self.times_left != Some(0))
    }

    /// The job after a run that was claimed now; `None`: it is finished.
    fn advanced(&self, now: Timestamp) -> Option<Self> {
        let times_left = self.times_left.map(|times| times.saturating_sub(1));
        if times_left == Some(0) || !self.timing.repeats() {
            return None;
        }
        let next_run_at = self.timing.next_after(now)?;
        Some(Self { times_left, next_run_at: Some(next_run_at), ..self.clone() })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    #[error("reading or writing the jobs failed: {0}")]
    Io(#[from] std::io::Error),
    #[error("the jobs file is not valid JSON: {0}")]
    Broken(#[from] serde_json::Error),
}

pub trait JobStore: Send + Sync {
    fn load(&self) -> Result<Vec<Job>, JobsError>;
    fn put(&self, job: Job) -> Result<(), JobsError>;
    fn remove(&self, id: &str) -> Result<bool, JobsError>;
    /// Claims the run of this job at this time, for one caller only. Atomically sets the next time, or removes a
    /// finished job. `fire_at` must equal the stored time; without it, the job must be due.
    fn claim(&self, id: &str, fire_at: Option<Timestamp>, now: Timestamp) -> Result<Option<Job>, JobsError>;
}

type Jobs = BTreeMap<String, Job>;

fn claim_in(jobs: &mut Jobs, id: &str, fire_at: Option<Timestamp>, now: Timestamp) -> Option<Job> {
    let job = jobs.get(id)?.clone();
    let wanted = job.wanted()?;
    let meant = fire_at.map_or(wanted <= now, |fire_at| fire_at == wanted);
    if !meant {
        return None;
    }
    // From the planned time, so that intervals do not drift; from now, if that is already past.
    match job.advanced(now.max(wanted)) {
        Some(next) => drop(jobs.insert(id.to_owned(), next)),
        None => drop(jobs.remove(id)),
    }
    Some(job)
}

/// For tests, and for agents that get their jobs from elsewhere at each start.
#[derive(Default)]
pub struct MemoryJobs {
    jobs: Mutex<Jobs>,
}

impl MemoryJobs {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobStore for MemoryJobs {
    fn load(&self) -> Result<Vec<Job>, JobsError> {
        Ok(self.jobs().values().cloned().collect())
    }

    fn put(&self, job: Job) -> Result<(), JobsError> {
        self.jobs().insert(job.id.clone(), job);
        Ok(())
    }

    fn remove(&self, id: &str) -> Result<bool, JobsError> {
        Ok(self.jobs().remove(id).is_some())
    }

    fn claim(&self, id: &str, fire_at: Option<Timestamp>, now: Timestamp) -> Result<Option<Job>, JobsError> {
        Ok(claim_in(&mut self.jobs(), id, fire_at, now))
    }
}

/// One JSON file, replaced atomically; a lock file beside it excludes other replicas.
pub struct FileJobs {
    path: PathBuf,
    lock: PathBuf,
}

impl FileJobs {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { lock: path.with_extension("lock"), path }
    }

    /// Reads, changes and writes under the lock. Writes only if something changed.
    fn change<T>(&self, change: impl FnOnce(&mut Jobs) -> T) -> Result<T, JobsError> {
        let lock = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&self.lock)?;
        lock.lock()?; // released when the file is closed, also by a crash
        let before = self.read()?;
        let mut jobs = before.clone();
        let answer = change(&mut jobs);
        if jobs != before {
            let fresh = self.path.with_extension("new");
            let file = std::fs::File::create(&fresh)?;
            serde_json::to_writer_pretty(&file, &jobs)?;
            file.sync_all()?;
            std::fs::rename(&fresh, &self.path)?;
        }
        Ok(answer)
    }

    fn read(&self) -> Result<Jobs, JobsError> {
        match std::fs::read(&self.path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Jobs::new()),
            Err(error) => Err(error.into()),
        }
    }
}

impl JobStore for FileJobs {
    fn load(&self) -> Result<Vec<Job>, JobsError> {
        Ok(self.read()?.into_values().collect())
    }

    fn put(&self, job: Job) -> Result<(), JobsError> {
        self.change(|jobs| drop(jobs.insert(job.id.clone(), job)))
    }

    fn remove(&self, id: &str) -> Result<bool, JobsError> {
        self.change(|jobs| jobs.remove(id).is_some())
    }

    fn claim(&self, id: &str, fire_at: Option<Timestamp>, now: Timestamp) -> Result<Option<Job>, JobsError> {
        self.change(|jobs| claim_in(jobs, id, fire_at, now))
    }
}
