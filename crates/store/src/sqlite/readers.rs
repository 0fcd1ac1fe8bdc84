//! Reader threads. Jobs are in one queue; whose job comes next is decided by [`ReadQueue`].

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use frontdesk_core::port::store::{StoreError, Stored};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{connect, gone};
use crate::erased::{Erased, answer, erase};
use crate::read_queue::{Owner, Pending, ReadPermit, ReadQueue};

const READERS: usize = 2;
/// Jobs in the queue or under way: enough that no thread waits for the next one.
const JOBS_MAX: usize = 8;

type Work = Box<dyn FnOnce(&Connection) -> Result<Erased, StoreError> + Send>;
type Job = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    /// Jobs that had their turn.
    #[cfg(test)]
    turns: std::sync::atomic::AtomicU64,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the store is closed and the queue is empty, so the thread ends.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A read that waits for its turn.
struct PendingRead {
    work: Work,
    answer: oneshot::Sender<Result<Erased, StoreError>>,
    shared: Arc<Shared>,
}

impl Pending for PendingRead {
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn begin(self: Box<Self>, permit: ReadPermit) -> Result<(), ReadPermit> {
        let Self { work, answer, shared } = *self;
        let job: Job = Box::new(move |connection| {
            if !answer.is_closed() {
                let _ = answer.send(work(connection)); // the caller may be gone
            }
            drop(permit);
        });
        #[cfg(test)]
        shared.turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        shared.queue().jobs.push_back(job);
        shared.more.notify_one();
        Ok(())
    }
}

pub(super) struct Readers {
    shared: Arc<Shared>,
    read_queue: ReadQueue,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::default());
        let mut readers = Self { shared, read_queue: ReadQueue::new(JOBS_MAX), threads: Vec::new() };
        for number in 0..READERS {
            let connection = connect(path, true)?;
            let shared = readers.shared.clone();
            let work = move || {
                while let Some(job) = shared.next() {
                    // A panic fails only this job: its caller gets an error, and the thread continues.
                    let _ = catch_unwind(AssertUnwindSafe(|| job(&connection)));
                }
            };
            let thread = std::thread::Builder::new().name(format!("store-reader-{number}")).spawn(work);
            readers.threads.push(thread.map_err(|error| StoreError::Unavailable(error.to_string()))?);
        }
        Ok(readers)
    }

    #[cfg(test)]
    pub(super) fn turns(&self) -> u64 {
        self.shared.turns.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Runs `work` when it is the turn of this owner.
    pub(super) fn read<T: Send + 'static>(
        &self,
        owner: Owner,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Stored<'_, T> {
        answer(self.run(owner, Box::new(move |connection| work(connection).map(erase))))
    }

    fn run(&self, owner: Owner, work: Work) -> Stored<'_, Erased> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.read_queue.begin(owner, Box::new(PendingRead { work, answer, shared: self.shared.clone() }));
            answered.await.map_err(|_| gone())?
        })
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic was already reported
        }
    }
}
