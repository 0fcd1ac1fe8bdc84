//! The thread that talks to Postgres: a few pinned connections, each with one use. There is no pool.
//!
//! A caller hands its work over and waits. Work that began runs to its end, also if the caller is gone: a commit in
//! flight is never cancelled.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use frontdesk_core::port::store::{StoreError, Stored};
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use super::connection::{Connection, Fault, Target};
use crate::erased::{Erased, answer, erase, typed};
use crate::read_queue::{Owner, Pending, ReadPermit, ReadQueue};

/// Unfinished jobs; further callers wait, which slows down the sources of messages.
const JOBS_MAX: usize = 4096;
/// Connections for transactions.
const WRITERS: usize = 4;
/// Connections for reads, each shared by all that read.
const READERS: usize = 4;
/// Concurrent reads over all of these connections. [`ReadQueue`] decides which one is next.
const READS_MAX: usize = 64;
/// Time limit for the statements of a transaction. The time limit of Postgres for one statement is shorter.
const WORK_MAX: Duration = Duration::from_secs(12);
const COMMIT_MAX: Duration = Duration::from_secs(12);
/// Attempts for a transaction that conflicts with another one.
const ATTEMPTS: usize = 5;

type Job = Box<dyn FnOnce(Rc<Database>) -> LocalBoxFuture<'static, ()> + Send>;
/// A job with its result.
type JobWork = Box<dyn FnOnce(Rc<Database>) -> LocalBoxFuture<'static, Result<Erased, StoreError>> + Send>;

/// A queue of jobs and its thread. Drop waits until the jobs in it are done and the connections are closed.
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    /// Started reads, at most `READS_MAX`.
    reads: Option<mpsc::UnboundedSender<Read>>,
    read_queue: ReadQueue,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        (self.jobs, self.reads) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was already reported
        }
    }
}

impl Worker {
    pub(super) fn start(target: Target) -> Result<Self, StoreError> {
        let unable = |error: std::io::Error| StoreError::Unavailable(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unable)?;
        let (jobs, queue) = mpsc::channel(JOBS_MAX);
        let (reads, reading) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name("store-postgres".into());
        let thread =
            thread.spawn(move || runtime.block_on(tokio::task::LocalSet::new().run_until(run(target, queue, reading))));
        let (jobs, reads, read_queue) = (Some(jobs), Some(reads), ReadQueue::new(READS_MAX));
        Ok(Self { jobs, reads, read_queue, thread: Some(thread.map_err(unable)?) })
    }

    /// Hands work to the thread, and waits for its answer.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Stored<'_, T> {
        let work = move |database: Rc<Database>| -> LocalBoxFuture<'static, Result<Erased, StoreError>> {
            Box::pin(async move { work(&database).await.map(erase) })
        };
        answer(self.run(Box::new(work)))
    }

    fn run(&self, work: JobWork) -> Stored<'_, Erased> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let job: Job = Box::new(move |database| {
                Box::pin(async move {
                    let _ = answer.send(work(database).await); // the caller may be gone
                })
            });
            self.jobs.as_ref().ok_or_else(gone)?.send(job).await.map_err(|_| gone())?;
            answered.await.map_err(panicked)?
        })
    }

    /// For tasks that live longer than the borrow of the worker.
    pub(super) fn asker(&self) -> Result<Asker, StoreError> {
        Ok(Asker { reads: self.reads.as_ref().ok_or_else(gone)?.downgrade(), read_queue: self.read_queue.clone() })
    }

    /// Like `ask`, before there is a runtime to wait in.
    pub(super) fn ask_blocking<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = std::sync::mpsc::channel();
        let job: Job = Box::new(move |database| {
            Box::pin(async move {
                let _ = answer.send(work(&database).await);
            })
        });
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.try_send(job).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }

    /// Reads, outside of a transaction: each statement sees what is committed when it runs. Repeated once if the
    /// connection was lost.
    pub(super) fn read<T: Send + 'static>(
        &self,
        owner: Owner,
        work: impl AsyncFn(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Stored<'_, T> {
        let work = Box::new(TypedWork::new(work));
        answer(Box::pin(async move { self.asker()?.run(owner, work).await }))
    }

    /// A transaction. It may be repeated, if it conflicted with another one.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Stored<'_, T> {
        answer(self.run(writing(Box::new(TypedWork::new(work)))))
    }
}

fn writing(work: Box<dyn Work + Send>) -> JobWork {
    Box::new(move |database| Box::pin(async move { database.writers.run_transaction(&*work).await }))
}

/// A read, with its permit.
struct Read {
    work: Box<dyn Work + Send>,
    answer: oneshot::Sender<Result<Erased, StoreError>>,
    permit: ReadPermit,
}

impl Read {
    async fn run(self, database: Rc<Database>) {
        let done = database.run_read(&*self.work).await;
        drop(self.permit);
        let _ = self.answer.send(done); // the caller may be gone
    }
}

/// A read that waits for its turn.
struct PendingRead {
    work: Box<dyn Work + Send>,
    answer: oneshot::Sender<Result<Erased, StoreError>>,
    reads: mpsc::WeakUnboundedSender<Read>,
}

impl Pending for PendingRead {
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn begin(self: Box<Self>, permit: ReadPermit) -> Result<(), ReadPermit> {
        let Self { work, answer, reads } = *self;
        let read = Read { work, answer, permit };
        let unsent = match reads.upgrade() {
            Some(reads) => reads.send(read).err().map(|unsent| unsent.0),
            None => Some(read),
        };
        let Some(Read { answer, permit, .. }) = unsent else { return Ok(()) };
        let _ = answer.send(Err(gone()));
        Err(permit)
    }
}

/// Reads for as long as the thread runs, and keeps it running only until a read is in the queue.
pub(super) struct Asker {
    reads: mpsc::WeakUnboundedSender<Read>,
    read_queue: ReadQueue,
}

impl Asker {
    pub(super) async fn read<T: Send + 'static>(
        &self,
        owner: Owner,
        work: impl AsyncFn(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(owner, Box::new(TypedWork::new(work))).await.and_then(typed)
    }

    async fn run(&self, owner: Owner, work: Box<dyn Work + Send>) -> Result<Erased, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.read_queue.begin(owner, Box::new(PendingRead { work, answer, reads: self.reads.clone() }));
        answered.await.map_err(panicked)?
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the store was shut down".into())
}

pub(super) fn panicked(_: oneshot::error::RecvError) -> StoreError {
    StoreError::Unknown("a database operation panicked (a bug in Frontdesk)".into())
}

/// A connection that does not answer in time counts as lost.
async fn in_time<T>(limit: Duration, working: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let late = |_| Err(Fault::Lost("Postgres did not answer in time".into()));
    tokio::time::timeout(limit, working).await.unwrap_or_else(late)
}

/// Work on a connection, without the type of its result.
trait Work {
    fn run<'a>(&'a self, connection: &'a Connection) -> LocalBoxFuture<'a, Result<Erased, Fault>>;
}

struct TypedWork<T, W> {
    work: W,
    _type: PhantomData<fn() -> T>,
}

impl<T: Send + 'static, W: AsyncFn(&Connection) -> Result<T, Fault>> TypedWork<T, W> {
    fn new(work: W) -> Self {
        Self { work, _type: PhantomData }
    }
}

impl<T: Send + 'static, W: AsyncFn(&Connection) -> Result<T, Fault>> Work for TypedWork<T, W> {
    fn run<'a>(&'a self, connection: &'a Connection) -> LocalBoxFuture<'a, Result<Erased, Fault>> {
        Box::pin(async move { (self.work)(connection).await.map(erase) })
    }
}

async fn run(target: Target, mut queue: mpsc::Receiver<Job>, mut reads: mpsc::UnboundedReceiver<Read>) {
    let database = Rc::new(Database::new(target));
    let jobs = stream::poll_fn(|context| queue.poll_recv(context)).map(|job| job(database.clone()));
    let reads =
        stream::poll_fn(|context| reads.poll_recv(context)).map(|read| read.run(database.clone()).boxed_local());
    tokio::join!(work_off(jobs, JOBS_MAX), work_off(reads, READS_MAX)); // reads do not wait behind writes
}

/// Runs all works, so many at a time, until the stream ends and all of them have ended.
async fn work_off(mut works: impl Stream<Item = LocalBoxFuture<'static, ()>> + Unpin, max: usize) {
    let room = Arc::new(Semaphore::new(max));
    while let Some(work) = works.next().await {
        // The semaphore is never closed.
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        tokio::task::spawn_local(async move {
            work.await;
            drop(permit);
        });
    }
    let _all = room.acquire_many(u32::try_from(max).unwrap_or(u32::MAX)).await;
}

/// The connections, on the thread of the worker.
pub(super) struct Database {
    target: Target,
    /// For transactions of any kind.
    pub(super) writers: Writers,
    /// Leases and duties. Nothing else may delay them.
    pub(super) leases: Writers,
    /// One transaction at a time, so that rows are reported in the order of their commits.
    pub(super) ledger: Writers,
    pub(super) ledger_turn: Mutex<()>,
    pub(super) settlements: Writers,
    pub(super) settle_turn: Mutex<()>,
    readers: [Mutex<Option<Rc<Connection>>>; READERS],
    turn: Cell<usize>,
}

impl Database {
    fn new(target: Target) -> Self {
        let writers = |count| Writers::new(target.clone(), count);
        Self {
            writers: writers(WRITERS),
            leases: writers(1),
            ledger: writers(1),
            settlements: writers(1),
            ledger_turn: Mutex::default(),
            settle_turn: Mutex::default(),
            readers: Default::default(),
            turn: Cell::default(),
            target,
        }
    }

    /// A connection of its own, which the caller keeps.
    pub(super) async fn connect(&self) -> Result<Connection, StoreError> {
        self.target.connect().await.map_err(Fault::unwritten)
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.run_read(&TypedWork::new(work)).await.and_then(typed)
    }

    fn run_read<'a>(&'a self, work: &'a dyn Work) -> LocalBoxFuture<'a, Result<Erased, StoreError>> {
        Box::pin(async move {
            self.turn.set((self.turn.get() + 1) % READERS);
            let reader = &self.readers[self.turn.get()];
            let mut is_again = false;
            loop {
                let connection = self.reader(reader).await?;
                match in_time(WORK_MAX, work.run(&connection)).await {
                    Ok(value) => return Ok(value),
                    Err(Fault::Lost(_)) if !is_again => {
                        forget(reader, &connection).await;
                        is_again = true;
                    }
                    Err(fault) => return Err(fault.unwritten()),
                }
            }
        })
    }

    async fn reader(&self, reader: &Mutex<Option<Rc<Connection>>>) -> Result<Rc<Connection>, StoreError> {
        let mut reader = reader.lock().await;
        if let Some(connection) = reader.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connection = Rc::new(self.connect().await?);
        *reader = Some(connection.clone());
        Ok(connection)
    }
}

/// The next reader gets a new connection.
async fn forget(reader: &Mutex<Option<Rc<Connection>>>, lost: &Rc<Connection>) {
    let mut reader = reader.lock().await;
    if reader.as_ref().is_some_and(|current| Rc::ptr_eq(current, lost)) {
        *reader = None;
    }
}

/// Connections that run one transaction at a time each.
pub(super) struct Writers {
    target: Target,
    free: Semaphore,
    idle: RefCell<Vec<Connection>>,
}

impl Writers {
    fn new(target: Target, count: usize) -> Self {
        Self { target, free: Semaphore::new(count), idle: RefCell::default() }
    }

    /// A connection, and whether it was idle before: an idle one may have been lost unnoticed.
    async fn connection(&self) -> Result<(Connection, bool), Fault> {
        let idle = std::iter::from_fn(|| self.idle.borrow_mut().pop()).find(|connection| !connection.is_closed());
        match idle {
            Some(connection) => Ok((connection, true)),
            None => Ok((self.target.connect().await?, false)),
        }
    }

    /// BEGIN, the work, COMMIT.
    pub(super) async fn transaction<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.run_transaction(&TypedWork::new(work)).await.and_then(typed)
    }

    fn run_transaction<'a>(&'a self, work: &'a dyn Work) -> LocalBoxFuture<'a, Result<Erased, StoreError>> {
        Box::pin(async move {
            let _turn = self.free.acquire().await;
            let mut attempt = 0;
            loop {
                attempt += 1;
                let (connection, was_idle) = self.connection().await.map_err(Fault::unwritten)?;
                let working = async {
                    // Sent together: the work's first statement does not wait for the answer to BEGIN.
                    let (begun, done) = tokio::join!(biased; connection.batch("BEGIN"), work.run(&connection));
                    begun.and(done)
                };
                let failed = match in_time(WORK_MAX, working).await {
                    Ok(value) => return self.commit(connection).await.map(|()| value),
                    Err(failed) => failed,
                };
                if matches!(failed, Fault::Lost(_)) {
                    // Dropped, not kept: its transaction ends with it. Nothing was committed.
                    if was_idle && attempt == 1 {
                        continue;
                    }
                    return Err(failed.unwritten());
                }
                if in_time(COMMIT_MAX, connection.batch("ROLLBACK")).await.is_ok() {
                    self.idle.borrow_mut().push(connection); // otherwise it is dropped, and its transaction with it
                }
                match failed {
                    Fault::Retry(why) if attempt < ATTEMPTS => {
                        tracing::debug!(why, "a transaction failed; repeating it");
                    }
                    failed => return Err(failed.unwritten()),
                }
            }
        })
    }

    async fn commit(&self, connection: Connection) -> Result<(), StoreError> {
        let committed = in_time(COMMIT_MAX, connection.batch("COMMIT")).await;
        if !matches!(committed, Err(Fault::Lost(_))) {
            self.idle.borrow_mut().push(connection);
        }
        committed.map_err(Fault::maybe_written)
    }

    /// One statement that is a transaction of its own. It may have been written although its answer was lost.
    pub(super) async fn statement<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.run_statement(&TypedWork::new(work)).await.and_then(typed)
    }

    fn run_statement<'a>(&'a self, work: &'a dyn Work) -> LocalBoxFuture<'a, Result<Erased, StoreError>> {
        Box::pin(async move {
            let _turn = self.free.acquire().await;
            let mut attempt = 0;
            loop {
                attempt += 1;
                let (connection, _) = self.connection().await.map_err(Fault::unwritten)?;
                let worked = in_time(WORK_MAX, work.run(&connection)).await;
                if !matches!(worked, Err(Fault::Lost(_))) {
                    self.idle.borrow_mut().push(connection);
                }
                match worked {
                    Err(Fault::Retry(_)) if attempt < ATTEMPTS => {}
                    worked => return worked.map_err(Fault::maybe_written),
                }
            }
        })
    }
}
