//! The writer thread, with group commit.
//!
//! A job that returns a conflict must leave the database unchanged. Any other error rolls back the whole group, and all
//! callers in it get the error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use frontdesk_core::port::store::{StoreError, Stored};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::heads::Ledgers;
use super::watch::Watched;
use super::{fault, gone};
use crate::erased::{Erased, answer, erase};

/// Jobs in the queue; further callers wait, which slows down the sources.
const QUEUE_MAX: usize = 4096;
/// Jobs per transaction: enough to share an fsync, few enough for low latency.
const GROUP_MAX: usize = 512;

type Work = Box<dyn FnOnce(&mut Books) -> Result<Erased, StoreError> + Send>;

struct WriteJob {
    work: Work,
    /// Called with the result once it is durable.
    after: Box<dyn FnOnce(&Erased) + Send>,
    answer: oneshot::Sender<Result<Erased, StoreError>>,
}

/// A job that was run, and waits for the commit.
struct Done {
    /// Its value, or a conflict.
    result: Result<Erased, StoreError>,
    after: Box<dyn FnOnce(&Erased) + Send>,
    answer: oneshot::Sender<Result<Erased, StoreError>>,
}

impl Done {
    fn end(self, committed: Result<(), StoreError>) {
        let result = committed.and(self.result);
        if let Ok(value) = &result {
            (self.after)(value);
        }
        let _ = self.answer.send(result); // the caller may be gone
    }
}

/// State of the writer: the connection, and a cache of the ledgers.
pub(super) struct Books {
    pub(super) connection: Connection,
    pub(super) ledgers: Ledgers,
}

/// A queue of jobs and its thread. Drop waits for the thread, because the folder can be used again only after its
/// files are closed.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<WriteJob>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None; // closing the queue ends the thread
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was already reported
        }
    }
}

impl Writer {
    pub(super) fn start(connection: Connection, watched: Watched) -> Result<Self, StoreError> {
        let books = Books { connection, ledgers: Ledgers::default() };
        let (jobs, queue) = mpsc::channel(QUEUE_MAX);
        let thread = std::thread::Builder::new().name("store-writer".into());
        let thread = thread.spawn(move || write_groups(books, watched, queue));
        let thread = thread.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `work` in the next group. `after` runs on the writer thread once it is durable, in commit order. If the
    /// caller is dropped, a job in the queue still runs, and so does `after`.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Books) -> Result<T, StoreError> + Send + 'static,
        after: impl FnOnce(&T) + Send + 'static,
    ) -> Stored<'_, T> {
        let after = move |value: &Erased| {
            if let Some(value) = value.downcast_ref() {
                after(value);
            }
        };
        answer(self.run(Box::new(move |books| work(books).map(erase)), Box::new(after)))
    }

    fn run(&self, work: Work, after: Box<dyn FnOnce(&Erased) + Send>) -> Stored<'_, Erased> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let jobs = self.jobs.as_ref().ok_or_else(gone)?;
            jobs.send(WriteJob { work, after, answer }).await.map_err(|_| gone())?;
            answered.await.map_err(|_| StoreError::Unknown("the writer thread of the store ended".into()))?
        })
    }
}

fn panicked() -> StoreError {
    StoreError::Unavailable("a write panicked (a bug in Frontdesk); nothing of its group was written".into())
}

fn write_groups(mut books: Books, mut watched: Watched, mut queue: mpsc::Receiver<WriteJob>) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while queue.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
        let mut done = Vec::with_capacity(group.len());
        let mut jobs = group.drain(..);
        let mut outcome = watched.look();
        if outcome.is_ok() {
            outcome = books.connection.execute_batch("BEGIN IMMEDIATE").map_err(fault);
        }
        if outcome.is_ok() {
            for WriteJob { work, after, answer } in jobs.by_ref() {
                // A panic rolls back the group like any other failure, and the thread continues.
                let result = catch_unwind(AssertUnwindSafe(|| work(&mut books)));
                match result {
                    Ok(result @ (Ok(_) | Err(StoreError::Conflict))) => done.push(Done { result, after, answer }),
                    Ok(Err(error)) => {
                        let _ = answer.send(Err(error.clone()));
                        outcome = Err(error);
                        break;
                    }
                    Err(_) => {
                        let _ = answer.send(Err(panicked()));
                        outcome = Err(panicked());
                        break;
                    }
                }
            }
        }
        if outcome.is_ok() {
            outcome = books.connection.execute_batch("COMMIT").map_err(fault);
        }
        if let Err(error) = &outcome {
            tracing::error!(%error, jobs = done.len(), "a group of writes was rolled back");
            books.ledgers.forget();
            if !books.connection.is_autocommit() {
                let _ = books.connection.execute_batch("ROLLBACK"); // if this fails, so does the next BEGIN
            }
        }
        for done in done {
            // A caller whose callback panics gets no answer: what it asked for may have been written.
            let _ = catch_unwind(AssertUnwindSafe(|| done.end(outcome.clone())));
        }
        if let Err(error) = outcome {
            for job in jobs {
                let _ = job.answer.send(Err(error.clone())); // it did not run
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_queue::SERVER;
    use crate::sqlite::SqliteStore;

    #[tokio::test]
    async fn a_panic_fails_one_job_and_the_threads_continue() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), 1).unwrap();
        for _ in 0..3 {
            let broken = store.writer.write(
                |books| {
                    books.connection.execute("INSERT INTO meta (key, value) VALUES ('half', 1)", []).map_err(fault)?;
                    panic!("on purpose")
                },
                |(): &()| unreachable!("nothing was committed"),
            );
            assert!(matches!(broken.await, Err(StoreError::Unavailable(_))));
            let broken = store.readers.read::<()>(SERVER, |_| panic!("on purpose"));
            assert!(matches!(broken.await, Err(StoreError::Unavailable(_))));
        }
        let count = |connection: &Connection| {
            connection.query_row("SELECT COUNT(*) FROM meta WHERE key = 'half'", [], |row| row.get(0)).map_err(fault)
        };
        let halves: i64 = store.writer.write(move |books| count(&books.connection), |_| {}).await.unwrap();
        assert_eq!(halves, 0, "the partial write was rolled back");
        assert_eq!(store.readers.read::<i64>(SERVER, count).await.unwrap(), 0);
    }
}
