//! The listener of a bot: polls, and runs its tasks beside that.
//!
//! A plain account gets everything by polls. To an application service the homeserver pushes, and a rare poll finds what it
//! did not push: Synapse forgets events that it was about to push when it stops, and after a failure it may wait minutes.

use std::sync::Mutex;
use std::time::Duration;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Gap, Inlet, ListenEnd};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::Homeservers;
use super::account::{Account, Mode, server_of};
use super::client::{Client, Fault};
use super::deadline::Deadline;
use super::gather::Gathered;
use super::inspect::{check_account, token_checked};
use super::lock::locked;
use super::store::{Stop, note, save, store};
use super::sync::{News, POLL_MS, next_news};
use super::task::{ATTEMPTS_MAX, Cursor, PAUSE_MAX, QueuedTask, Task, pause};

/// Between two polls of an application service.
const PUSH_CHECK: Duration = Duration::from_mins(1);
/// The same after the homeserver refused one.
const REFUSED_CHECK: Duration = Duration::from_mins(30);
const READS_AT_ONCE: usize = 8;
/// More than `BY_ONE_MAX`, so that one other server cannot take all slots.
const OTHERS_AT_ONCE: usize = 16;

/// A task, how often it was tried, and the token up to which it reads.
struct Try {
    task: Task,
    until: String,
    attempts: u32,
    /// Attempts that reached the homeserver; only these count towards giving up.
    counted: u32,
    /// Delay before the next attempt.
    pause: Duration,
}

impl Try {
    fn new(task: Task, cursor: &mut Cursor) -> Self {
        if task.is_behind() {
            cursor.skipped.remove(task.room_id()); // it is read up to the latest token
        }
        let until = cursor.since.clone().filter(|_| !cursor.reads_to_now).unwrap_or_default();
        Self { task, until, attempts: 0, counted: 0, pause: Duration::ZERO }
    }
}

fn begun(tasks: Vec<Task>, cursor: &mut Cursor) -> Vec<Try> {
    let free: Vec<Task> = tasks.into_iter().filter(|task| cursor.begin(task)).collect();
    free.into_iter().map(|task| Try::new(task, cursor)).collect()
}

/// Tasks that run at once. Joins have their own slots, because users of other servers can make them take long.
struct Slots {
    reads: Semaphore,
    others: Semaphore,
    /// The tasks of the cursor. A task that is not among them was replaced and is not started.
    wanted: Mutex<Vec<Task>>,
    changed: Notify,
}

impl Slots {
    fn new() -> Self {
        Self {
            reads: Semaphore::new(READS_AT_ONCE),
            others: Semaphore::new(OTHERS_AT_ONCE),
            wanted: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn of(&self, task: &Task) -> &Semaphore {
        if task.is_read() { &self.reads } else { &self.others }
    }

    fn want(&self, tasks: &[Task]) {
        let mut wanted = locked(&self.wanted);
        if *wanted != tasks {
            tasks.clone_into(&mut wanted);
            self.changed.notify_waiters();
        }
    }

    fn is_wanted(&self, task: &Task) -> bool {
        locked(&self.wanted).contains(task)
    }

    /// Ends early if the task is replaced.
    async fn rest(&self, this: &Try) {
        let until = Instant::now() + this.pause;
        loop {
            let changed = self.changed.notified();
            if this.pause.is_zero() || !self.is_wanted(&this.task) {
                return;
            }
            tokio::select! {
                () = sleep_until(until) => return,
                () = changed => {}
            }
        }
    }
}

type Tried = (Try, Result<Vec<Task>, Stop>);
type Running<'a> = FuturesUnordered<BoxFuture<'a, Tried>>;

impl Homeservers {
    pub(super) async fn listen_as(
        &self,
        account: &Account<'_>,
        cursor: Option<String>,
        inlet: &dyn Inlet,
    ) -> ListenEnd {
        let mut client = Client::new(&*self.outcall, account);
        client.is_patient = true;
        if let Err(why) = self.clash_with_known(account.bot) {
            return ListenEnd::Lost(why); // until the other bot is removed
        }
        if let Err(fault) = check_account(&client).await {
            return ended(fault);
        }
        let (mut cursor, unread) = Cursor::read(cursor);
        cursor.own_server = server_of(account.user_id).unwrap_or_default().to_owned();
        cursor.reads_to_now = account.mode == Mode::AppService;
        for reason in unread {
            inlet.gap(Gap { since_ms: 0, until_ms: self.env.now_ms(), reason });
        }
        match self.run(&client, cursor, inlet).await {
            Stop::Fault(fault) => ended(fault),
            Stop::Store(why) => ListenEnd::Lost(format!("the events were not stored: {why}")),
        }
    }

    /// Runs until something fails.
    async fn run(&self, client: &Client<'_>, mut cursor: Cursor, inlet: &dyn Inlet) -> Stop {
        let mut handed = self.tasks.open(&client.account.bot.id);
        let slots = Slots::new();
        let mut running = Running::new();
        let mut next = begun(cursor.tasks.clone(), &mut cursor);
        let mut polling = poll(client, &cursor, Duration::ZERO);
        loop {
            slots.want(&cursor.tasks);
            running.extend(next.into_iter().map(|this| self.attempt(client, inlet, &slots, this)));
            let done = tokio::select! {
                biased;
                Some(tried) = running.next() => self.tried(&mut cursor, tried, inlet).await,
                Some(task) = handed.recv() => self.take_handed(&mut cursor, task, inlet).await,
                news = &mut polling => self.polled(client, &mut cursor, news, inlet).await.map(|(new, pause)| {
                    polling = poll(client, &cursor, pause);
                    begun(new, &mut cursor)
                }),
            };
            next = match done {
                Ok(next) => next,
                Err(stop) => return stop,
            };
        }
    }

    /// Stores a task that a push caused, so that the push can be answered.
    async fn take_handed(&self, cursor: &mut Cursor, handed: QueuedTask, inlet: &dyn Inlet) -> Result<Vec<Try>, Stop> {
        let (mut task, confirm) = handed;
        if confirm.is_closed() {
            return Ok(Vec::new()); // the caller stopped waiting and does the task itself
        }
        if let Task::Behind { room_id, since } = &mut task {
            if cursor.is_behind(room_id) {
                cursor.skipped.insert(room_id.clone()); // read again after the current task
            } else if cursor.free_behind() == 0 {
                return Ok(Vec::new());
            }
            match &cursor.since {
                Some(token) => since.clone_from(token),
                None => return Ok(Vec::new()),
            }
        }
        let new = note(cursor, vec![task], inlet, self.env.now_ms());
        save(cursor, inlet).await?;
        let _ = confirm.send(()); // the caller may be gone
        Ok(begun(new, cursor))
    }

    /// New tasks, and the pause before the next poll. To an application service the homeserver pushes all the same if a
    /// poll fails.
    async fn polled(
        &self,
        client: &Client<'_>,
        cursor: &mut Cursor,
        news: Result<News, Fault>,
        inlet: &dyn Inlet,
    ) -> Result<(Vec<Task>, Duration), Stop> {
        let taken = match news {
            Ok(news) => self.take_news(client, cursor, news, inlet).await,
            Err(fault) => Err(fault.into()),
        };
        match taken {
            Ok(new) => Ok((new, PUSH_CHECK)),
            Err(Stop::Fault(fault)) if client.account.mode == Mode::AppService && !fault.is_token() => {
                Ok((Vec::new(), pause_after(client, &fault)))
            }
            Err(stop) => Err(stop),
        }
    }

    /// One attempt, after the pause that it needs.
    fn attempt<'a>(
        &'a self,
        client: &'a Client<'a>,
        inlet: &'a dyn Inlet,
        slots: &'a Slots,
        this: Try,
    ) -> BoxFuture<'a, Tried> {
        Box::pin(async move {
            slots.rest(&this).await;
            let _slot = slots.of(&this.task).acquire().await;
            if !slots.is_wanted(&this.task) {
                return (this, Ok(Vec::new()));
            }
            let deadline = if this.counted + 1 < ATTEMPTS_MAX { Deadline::later() } else { Deadline::last() };
            let mut gathered = Gathered::default();
            // A join that the homeserver limits gives its slot to others while it waits.
            let impatient = Client::new(client.outcall, client.account);
            let client = if this.task.is_read() { client } else { &impatient };
            let done = self.try_task(client, &this.task, &this.until, deadline, &mut gathered).await;
            let done = match token_checked(client, done).await {
                Ok(next) => store(gathered, inlet).await.map(|more| next.into_iter().chain(more).collect()),
                Err(fault) => Err(fault.into()),
            };
            (this, done)
        })
    }

    /// What follows from an attempt.
    async fn tried(&self, cursor: &mut Cursor, tried: Tried, inlet: &dyn Inlet) -> Result<Vec<Try>, Stop> {
        let (mut this, done) = tried;
        let fault = match done {
            Ok(next) => {
                let newer = cursor.end(&this.task);
                let more = unread_since(cursor, &this);
                let mut next = note(cursor, next.into_iter().chain(more).collect(), inlet, self.env.now_ms());
                next.extend(newer);
                save(cursor, inlet).await?;
                return Ok(begun(next, cursor));
            }
            Err(Stop::Fault(fault)) if !fault.is_token() => fault,
            Err(stop) => return Err(stop),
        };
        if cursor.is_replaced(&this.task) {
            let newer = cursor.end(&this.task);
            return Ok(begun(newer.into_iter().collect(), cursor));
        }
        if !fault.is_elsewhere() {
            this.counted += 1;
        }
        if this.counted < ATTEMPTS_MAX {
            this.attempts += 1;
            this.pause = match fault {
                Fault::Limited { retry_after_ms } => Duration::from_millis(retry_after_ms).min(PAUSE_MAX),
                _ => pause(this.attempts),
            };
            tracing::warn!(%fault, task = ?this.task, attempts = this.attempts, "a task failed; trying again");
            return Ok(vec![this]);
        }
        inlet.gap(this.task.loss(&fault, self.env.now_ms()));
        cursor.end(&this.task);
        save(cursor, inlet).await?;
        Ok(Vec::new())
    }
}

/// The next answer; that of an application service is asked for after a pause.
fn poll<'a>(client: &'a Client<'a>, cursor: &Cursor, pause: Duration) -> BoxFuture<'a, Result<News, Fault>> {
    let since = cursor.since.clone();
    Box::pin(async move {
        let news = match client.account.mode {
            Mode::Sync => next_news(client, since, POLL_MS).await,
            Mode::AppService => {
                tokio::time::sleep(pause).await;
                next_news(client, since, 0).await
            }
        };
        token_checked(client, news).await
    })
}

/// Before the next poll of an application service, after one that failed.
fn pause_after(client: &Client<'_>, fault: &Fault) -> Duration {
    let bot = &client.account.bot.id;
    if fault.is_passing() {
        tracing::warn!(%fault, bot = bot.as_str(), "a poll of an application service failed; it is repeated");
        return PUSH_CHECK;
    }
    let retry_s = REFUSED_CHECK.as_secs();
    let is_judged = matches!(fault, Fault::Refused { errcode, .. } if errcode.starts_with("M_"));
    // Else perhaps what is before the homeserver answered.
    let what = match is_judged {
        true => "the homeserver does not let the application service poll",
        false => "a poll of the application service had an unexpected answer",
    };
    tracing::warn!(%fault, bot = bot.as_str(), retry_s, "{what}; until the next attempt it relies on pushes alone");
    REFUSED_CHECK
}

/// A room that was read up to a token has more since then if polls left it out in the meantime.
fn unread_since(cursor: &Cursor, this: &Try) -> Option<Task> {
    let Task::Behind { room_id, since } = &this.task else { return None };
    let is_more = cursor.skipped.contains(room_id);
    let since = if this.until.is_empty() { since } else { &this.until };
    is_more.then(|| Task::Behind { room_id: room_id.clone(), since: since.clone() })
}

fn ended(fault: Fault) -> ListenEnd {
    match fault.is_token() {
        true => ListenEnd::Misconfigured(format!(
            "{fault}; get a new token from the homeserver and add the bot again with it"
        )),
        false => ListenEnd::Lost(fault.to_string()),
    }
}
