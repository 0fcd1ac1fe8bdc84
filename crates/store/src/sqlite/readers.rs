//! Reader threads. Jobs are in one queue in which owners take turns, so that an owner with many jobs delays only
//! itself.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use frontdesk_core::port::store::{StoreError, Stored};
use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot};

use super::{connect, gone};

const READERS: usize = 2;
/// Jobs in the queue; further callers wait.
const QUEUE_MAX: usize = 4096;

/// Owner of jobs of the server itself.
pub(super) const DESK: u64 = 0;

/// Owner number of a tenant. Instances and agents use their own numbers.
pub(super) fn turn(tenant: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    tenant.hash(&mut hasher);
    hasher.finish()
}

type Job = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Default)]
struct Queue {
    waiting: HashMap<u64, VecDeque<Job>>,
    /// Owners with jobs, in the order of their turns.
    turns: VecDeque<u64>,
    is_closed: bool,
}

impl Queue {
    fn push(&mut self, turn: u64, job: Job) {
        let jobs = self.waiting.entry(turn).or_default();
        if jobs.is_empty() {
            self.turns.push_back(turn);
        }
        jobs.push_back(job);
    }

    fn pop(&mut self) -> Option<Job> {
        let turn = self.turns.pop_front()?;
        let jobs = self.waiting.get_mut(&turn)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.waiting.remove(&turn);
        } else {
            self.turns.push_back(turn);
        }
        job
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the store is closed and the queue is empty, so the thread ends.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.pop() {
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

pub(super) struct Readers {
    shared: Arc<Shared>,
    room: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::default());
        let mut readers = Self { shared, room: Arc::new(Semaphore::new(QUEUE_MAX)), threads: Vec::new() };
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

    /// Runs `work` when it is the turn of this owner.
    pub(super) fn read<T: Send + 'static>(
        &self,
        turn: impl Into<u64>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Stored<'_, T> {
        let turn = turn.into();
        Box::pin(async move {
            let room = self.room.clone().acquire_owned().await.map_err(|_| gone())?;
            let (answer, answered) = oneshot::channel();
            let job: Job = Box::new(move |connection| {
                if !answer.is_closed() {
                    let _ = answer.send(work(connection)); // the caller may be gone
                }
                drop(room);
            });
            self.shared.queue().push(turn, job);
            self.shared.more.notify_one();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_take_turns_whatever_their_number_of_jobs() {
        let mut queue = Queue::default();
        let order: Arc<Mutex<Vec<&str>>> = Arc::default();
        let connection = Connection::open_in_memory().unwrap();
        for (turn, name) in [(1, "a"), (1, "a"), (1, "a"), (2, "b"), (3, "c"), (2, "b")] {
            let order = order.clone();
            queue.push(turn, Box::new(move |_| order.lock().unwrap().push(name)));
        }
        while let Some(job) = queue.pop() {
            job(&connection);
        }
        assert_eq!(*order.lock().unwrap(), ["a", "b", "c", "a", "b", "a"]);
        assert!(queue.waiting.is_empty() && queue.turns.is_empty());
    }
}
