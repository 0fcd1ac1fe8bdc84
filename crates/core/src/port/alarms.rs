//! Alarms in the store: one alarm per job of an instance, claimed by lease, ended once.

use frontdesk_wire::{InstanceNo, JobId};
use serde::{Deserialize, Serialize};

use super::stored::Stored;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// Assigned by the store for every arming, and never reused: a late result for an old alarm cannot affect the one
    /// that replaced it.
    pub id: u64,
    pub instance: InstanceNo,
    pub job_id: JobId,
    /// As the agent wrote it, byte for byte.
    pub fire_at: String,
    pub due_ms: u64,
    /// When it is tried next.
    pub next_ms: u64,
    pub armed_ms: u64,
    /// When it was tried first; 0 is not yet.
    pub first_ms: u64,
    pub attempts: u32,
    pub grace_ms: u64,
    pub skip_missed: bool,
    pub callback: String,
    pub schedule_id: String,
    pub state: AlarmState,
    /// Why the last try failed.
    pub note: String,
    /// How often it was claimed. Serves as the token of the current claim.
    pub claim: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlarmState {
    Armed,
    /// The agent accepted it. Kept, so that arming the same time again is recognised.
    Fired,
    Dead,
}

/// When an alarm is due, and which instance and callback it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlarmTime {
    pub next_ms: u64,
    pub id: u64,
    pub instance: InstanceNo,
    pub callback: String,
}

/// The result of an arming.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arming {
    pub id: u64,
    pub schedule_id: String,
    /// False: this alarm was armed, or fired, before.
    pub fresh: bool,
    /// It replaced an armed alarm of the same job.
    pub replaced: bool,
}

/// How a try, or an alarm, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conclusion {
    Fired { note: String },
    Retry { next_ms: u64, note: String },
    Dead { note: String },
    Skipped { note: String },
}

/// A finished alarm, for the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedAlarm {
    pub id: u64,
    pub instance: InstanceNo,
    pub job_id: JobId,
    pub fire_at: String,
    pub schedule_id: String,
    /// fired, dead, skipped, cancelled, replaced
    pub outcome: String,
    pub attempts: u32,
    pub at_ms: u64,
    pub note: String,
}

/// Whether the result of a try was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concluded {
    /// The alarm is in its new state.
    Ended,
    /// The alarm was replaced or cancelled in the meantime: the result is only recorded in the history.
    Noted,
    /// The alarm has ended or was claimed again since: nothing was written.
    Stale,
}

/// What one step of cancelling did. Between two steps other writers get their turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disarmed {
    pub gone: u64,
    /// The job after which the next step begins; `None`: no jobs are left.
    pub next: Option<JobId>,
}

/// Numbers of agents have this bit set, which separates them from those of instances; the 52 bits below are random. Their
/// alarms are planned wakes, each a job of its own, so the stores have an index of those that are armed.
pub const AGENT_NUMBERS: u64 = 1 << 52;

/// So many jobs of an instance are looked at for one page of its armed alarms. Those that fired are kept for a month.
pub const JOBS_SCANNED_MAX: usize = 5_000;

/// Armed alarms of an instance, in order of job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArmedPage {
    pub alarms: Vec<Alarm>,
    /// The job after which the next page begins, which may have none; `None`: there are no further jobs.
    pub next: Option<JobId>,
}

impl ArmedPage {
    /// From jobs in order, at most [`JOBS_SCANNED_MAX`] of them: each alarm, or the name of a job that is not armed.
    pub fn of(jobs: impl IntoIterator<Item = Result<Alarm, JobId>>, limit: usize) -> Self {
        let mut page = Self::default();
        for (number, job) in jobs.into_iter().enumerate() {
            let job_id = match job {
                Ok(alarm) => {
                    let job_id = alarm.job_id.clone();
                    page.alarms.push(alarm);
                    job_id
                }
                Err(job_id) => job_id,
            };
            if page.alarms.len() == limit || number + 1 == JOBS_SCANNED_MAX {
                page.next = Some(job_id);
                break;
            }
        }
        page
    }
}

pub trait Alarms: Send + Sync {
    /// Upsert by (instance, job). The same `fire_at`, while armed or after it fired, is the same alarm; its callback
    /// and misfire rule are updated. Another `fire_at`, or a dead alarm, is replaced.
    fn arm(&self, alarms: Vec<Alarm>) -> Stored<'_, Vec<Arming>>;
    /// The armed alarm of a job ends as cancelled. False: there was none.
    fn disarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId, now_ms: u64) -> Stored<'a, bool>;
    /// One step: cancels the armed alarms among the next jobs of an instance, in order of jobs. Starts after the job `after`,
    /// or at the first one if it is empty.
    fn disarm_some<'a>(&'a self, instance: InstanceNo, after: &'a JobId, now_ms: u64) -> Stored<'a, Disarmed>;
    /// Armed alarms of an instance in order of jobs, after the job `after`, or from the first one if it is empty.
    fn armed<'a>(&'a self, instance: InstanceNo, after: &'a JobId, limit: usize) -> Stored<'a, ArmedPage>;
    fn alarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId) -> Stored<'a, Option<Alarm>>;
    /// Armed alarms in order of (`next_ms`, id), after this one, not beyond `until_ms`.
    fn next_alarms(&self, after: (u64, u64), until_ms: u64, limit: usize) -> Stored<'_, Vec<AlarmTime>>;
    /// Claims until `until_ms` those alarms that are armed, due by `due_by_ms` and not claimed at `now_ms`.
    fn claim_alarms(&self, ids: Vec<u64>, due_by_ms: u64, now_ms: u64, until_ms: u64) -> Stored<'_, Vec<Alarm>>;
    /// Applies results of tries, and returns for each whether it was applied. For an alarm that was replaced or cancelled in
    /// the meantime the result is only recorded. Success is accepted from any server; any other result only from the holder
    /// of the claim, so that a slow server does not arm a finished alarm again.
    fn conclude(&self, ends: Vec<(Alarm, Conclusion)>, now_ms: u64) -> Stored<'_, Vec<Concluded>>;
    /// Arms a dead alarm again, due now. `None`: there is no dead alarm with this id.
    fn revive_alarm(&self, id: u64, now_ms: u64) -> Stored<'_, Option<Alarm>>;
    /// After the clock was set back: armed alarms that were tried before, and whose next try is after
    /// `ahead_ms`, are tried at `next_ms` instead; claims that end after `claims_ms` end then. Returns the
    /// alarms that were moved.
    fn hasten_retries(&self, ahead_ms: u64, next_ms: u64, claims_ms: u64) -> Stored<'_, Vec<AlarmTime>>;
    fn dead_alarms(&self, instance: Option<InstanceNo>, limit: usize) -> Stored<'_, Vec<Alarm>>;
    /// Newest first.
    fn ended_alarms<'a>(
        &'a self,
        instance: InstanceNo,
        job_id: Option<&'a JobId>,
        limit: usize,
    ) -> Stored<'a, Vec<EndedAlarm>>;
    /// How many are armed, by instance.
    fn armed_counts(&self) -> Stored<'_, Vec<(InstanceNo, u64)>>;
}
