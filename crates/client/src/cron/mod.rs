//! Jobs that run while the agent sleeps: the agent arms one alarm per job for its next time, the server calls the agent
//! (by HTTP or through its relay socket), and the agent arms the next one.
//!
//! [`Provider`] keeps jobs and armed alarms in sync. [`door`] is the HTTP endpoint for alarm calls, [`FireVerifier`]
//! verifies them. Without a server, [`Provider::tick`] runs the same jobs in the process.

mod desk;
pub mod door;
mod jobs;
mod provider;
mod timing;
mod verify;

pub use desk::{CronDesk, CronDeskError, HttpCronDesk};
pub use jobs::{FileJobs, Job, JobStore, JobsError, MemoryJobs};
pub use provider::{Clock, Provider, Work, machine_clock};
pub use timing::{BadTiming, Timing};
pub use verify::{FireVerifier, KeySource, NotAFire, UrlKeys};
