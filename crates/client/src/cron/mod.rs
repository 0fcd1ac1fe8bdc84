//! Jobs that run while the agent sleeps: the desk is asked to arm exactly one shot per job at its real next
//! time, fires it at the agent's door (or down its relay socket), and the agent arms the next one.
//!
//! [`Provider`] keeps desired and armed in step. [`door`] is the HTTP door for fires, [`FireVerifier`] what it
//! believes. Without a desk, [`Provider::tick`] runs the same jobs in the process.

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
