//! The threads that touch the file. One writes, in groups; two read.
//!
//! A job of the writer must leave the database as it found it when it answers with an error of its
//! own (a conflict); an error of `SQLite` undoes the whole group, and everyone in it is told.

use std::path::Path;
use std::thread::JoinHandle;

use frontdesk_core::port::store::{StoreError, Stored};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::ledger::Ledgers;
use super::{connect, fault};

/// Jobs that may wait; senders beyond it wait themselves, which slows the sources down.
const QUEUE_MAX: usize = 4096;
/// Jobs in one transaction: enough to share an fsync, few enough to keep its latency low.
const GROUP_MAX: usize = 512;
const READERS: usize = 2;

type After = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
type WriteJob = Box<dyn FnOnce(&mut Books) -> Result<After, StoreError> + Send>;
type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// What the writer works with: the connection, and what it remembers of it.
pub(super) struct Books {
    pub(super) connection: Connection,
    pub(super) ledgers: Ledgers,
}

/// A queue of jobs and the thread that does them. Dropped, it waits for the thread: the folder is
/// free for another desk only when its files are closed.
struct Clerk<Job> {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl<Job: Send + 'static> Clerk<Job> {
    fn start(name: &str, body: impl FnOnce(mpsc::Receiver<Job>) + Send + 'static) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel(QUEUE_MAX);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || body(queue));
        let thread = thread.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    async fn send(&self, job: Job) -> Result<(), StoreError> {
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(job).await.map_err(|_| gone())
    }
}

impl<Job> Drop for Clerk<Job> {
    fn drop(&mut self) {
        self.jobs = None; // the end of its queue ends the thread
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic in it was printed when it happened
        }
    }
}

pub(super) struct Writer {
    clerk: Clerk<WriteJob>,
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self, StoreError> {
        let books = Books { connection, ledgers: Ledgers::default() };
        Ok(Self { clerk: Clerk::start("store-writer", move |queue| write_groups(books, queue))? })
    }

    /// Does `work` in the next group. `after` runs on the writer thread once it is durable, in order.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Books) -> Result<T, StoreError> + Send + 'static,
        after: impl FnOnce(&T) + Send + 'static,
    ) -> Stored<'_, T> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let job: WriteJob = Box::new(move |books| match work(books) {
                Ok(done) => Ok(Box::new(move |committed: Result<(), StoreError>| {
                    if committed.is_ok() {
                        after(&done);
                    }
                    let _ = answer.send(committed.map(|()| done)); // the asker may have gone
                })),
                Err(StoreError::Conflict) => Ok(Box::new(move |committed: Result<(), StoreError>| {
                    let _ = answer.send(Err(committed.err().unwrap_or(StoreError::Conflict)));
                })),
                Err(error) => {
                    let _ = answer.send(Err(error.clone()));
                    Err(error)
                }
            });
            self.clerk.send(job).await?;
            answered.await.map_err(|_| gone())?
        })
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the write was undone or never begun".into())
}

fn write_groups(mut books: Books, mut queue: mpsc::Receiver<WriteJob>) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while queue.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
        let mut afters = Vec::with_capacity(group.len());
        let mut jobs = group.drain(..);
        let mut outcome = books.connection.execute_batch("BEGIN IMMEDIATE").map_err(fault);
        if outcome.is_ok() {
            for job in jobs.by_ref() {
                match job(&mut books) {
                    Ok(after) => afters.push(after),
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
        }
        if outcome.is_ok() {
            outcome = books.connection.execute_batch("COMMIT").map_err(fault);
        }
        if let Err(error) = &outcome {
            tracing::error!(%error, jobs = afters.len(), "a group of writes was undone");
            books.ledgers.forget();
            if !books.connection.is_autocommit() {
                let _ = books.connection.execute_batch("ROLLBACK"); // the next BEGIN tells if this failed
            }
        }
        for after in afters {
            after(outcome.clone());
        }
        drop(jobs); // jobs that never ran: their askers hear that the writer dropped them
    }
}

pub(super) struct Readers {
    clerks: Vec<Clerk<ReadJob>>,
    next: std::sync::atomic::AtomicUsize,
}

impl Readers {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let mut clerks = Vec::new();
        for number in 0..READERS {
            let connection = connect(path, true)?;
            let name = format!("store-reader-{number}");
            clerks.push(Clerk::start(&name, move |mut queue: mpsc::Receiver<ReadJob>| {
                while let Some(job) = queue.blocking_recv() {
                    job(&connection);
                }
            })?);
        }
        Ok(Self { clerks, next: std::sync::atomic::AtomicUsize::new(0) })
    }

    pub(super) fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Stored<'_, T> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let job: ReadJob = Box::new(move |connection| {
                let _ = answer.send(work(connection)); // the asker may have gone
            });
            let turn = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % self.clerks.len();
            self.clerks[turn].send(job).await?;
            answered.await.map_err(|_| gone())?
        })
    }
}
