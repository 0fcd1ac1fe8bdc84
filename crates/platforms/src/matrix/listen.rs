//! The listener of a bot: polls, and does its tasks beside that.
//!
//! A plain account gets everything by polls. To an application service the homeserver pushes, and a rare poll finds what it
//! did not push: Synapse forgets events that it was about to push when it stops, and after a failure it may wait minutes.

use std::future::pending;
use std::time::Duration;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Ended, Inlet};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;

use super::Homeservers;
use super::account::{Account, Mode};
use super::client::{Client, Fault};
use super::deadline::Deadline;
use super::gather::Gathered;
use super::inspect::greet;
use super::store::{Stop, note, save, store};
use super::sync::{News, POLL_MS, next_news};
use super::task::{ATTEMPTS_MAX, Cursor, Task, pause};

/// Between two polls of an application service.
const PUSH_CHECK: Duration = Duration::from_mins(1);
const READS_AT_ONCE: usize = 8;
const OTHERS_AT_ONCE: usize = 8;

/// A task, how often it was tried, and the token up to which it reads.
struct Try {
    task: Task,
    until: String,
    attempts: u32,
    /// Those that reached the homeserver.
    counted: u32,
}

impl Try {
    fn new(task: Task, cursor: &mut Cursor) -> Self {
        if task.is_behind() {
            cursor.skipped.remove(task.room_id()); // it is read up to the latest token
        }
        Self { task, until: cursor.since.clone().unwrap_or_default(), attempts: 0, counted: 0 }
    }
}

fn begun(tasks: Vec<Task>, cursor: &mut Cursor) -> Vec<Try> {
    tasks.into_iter().map(|task| Try::new(task, cursor)).collect()
}

/// Tasks that run at once. Joins have their own, because strangers can make them take long.
struct Slots {
    reads: Semaphore,
    others: Semaphore,
}

impl Slots {
    fn new() -> Self {
        Self { reads: Semaphore::new(READS_AT_ONCE), others: Semaphore::new(OTHERS_AT_ONCE) }
    }

    fn of(&self, task: &Task) -> &Semaphore {
        if task.is_behind() { &self.reads } else { &self.others }
    }
}

type Tried = (Try, Result<Vec<Task>, Stop>);
type Running<'a> = FuturesUnordered<BoxFuture<'a, Tried>>;

impl Homeservers {
    pub(super) async fn listen_as(&self, account: &Account<'_>, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
        let mut client = Client::new(&*self.outcall, account);
        client.is_patient = true;
        if let Err(why) = self.clash_with_known(account.bot) {
            return Ended::Misconfigured(why);
        }
        if let Err(fault) = greet(&client).await {
            return ended(fault);
        }
        match self.run(&client, Cursor::read(cursor), inlet).await {
            Stop::Fault(fault) => ended(fault),
            Stop::Store(why) => Ended::Lost(format!("the events were not stored: {why}")),
        }
    }

    /// Goes on until something fails.
    async fn run(&self, client: &Client<'_>, mut cursor: Cursor, inlet: &dyn Inlet) -> Stop {
        let mut handed = self.tasks.open(&client.account.bot.id);
        let slots = Slots::new();
        let mut running = Running::new();
        let left = begun(cursor.tasks.clone(), &mut cursor);
        running.extend(left.into_iter().map(|this| self.attempt(client, inlet, &slots, this)));
        let mut polling = poll(client, &cursor, Duration::ZERO);
        loop {
            let done = tokio::select! {
                biased;
                Some(tried) = running.next() => self.tried(&mut cursor, tried, inlet).await,
                Some((task, told)) = handed.recv() => {
                    let new = note(&mut cursor, vec![task], inlet, self.env.now_ms());
                    let saved = save(&cursor, inlet).await;
                    if saved.is_ok() {
                        let _ = told.send(()); // who asked may be gone
                    }
                    saved.map(|()| begun(new, &mut cursor))
                }
                news = &mut polling => {
                    let is_useless = matches!(&news, Err(fault) if is_refused_poll(client, fault));
                    let taken = match news {
                        Ok(news) => self.take_news(client, &mut cursor, news, inlet).await,
                        Err(_) if is_useless => Ok(Vec::new()),
                        Err(fault) => Err(fault.into()),
                    };
                    polling = if is_useless { Box::pin(pending()) } else { poll(client, &cursor, PUSH_CHECK) };
                    taken.map(|new| begun(new, &mut cursor))
                }
            };
            match done {
                Ok(next) => running.extend(next.into_iter().map(|next| self.attempt(client, inlet, &slots, next))),
                Err(stop) => return stop,
            }
        }
    }

    /// One attempt, after the pause that it needs.
    fn attempt<'a>(
        &'a self,
        client: &'a Client<'a>,
        inlet: &'a dyn Inlet,
        slots: &'a Slots,
        mut this: Try,
    ) -> BoxFuture<'a, Tried> {
        Box::pin(async move {
            if this.attempts > 0 {
                tokio::time::sleep(pause(this.attempts)).await;
            }
            let _slot = slots.of(&this.task).acquire().await;
            this.attempts += 1;
            let deadline = if this.counted + 1 < ATTEMPTS_MAX { Deadline::later() } else { Deadline::last() };
            let mut gathered = Gathered::default();
            let done = self.try_task(client, &this.task, &this.until, deadline, &mut gathered).await;
            let done = match done {
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
                cursor.remove(&this.task);
                let more = unread_since(cursor, &this);
                let next = note(cursor, next.into_iter().chain(more).collect(), inlet, self.env.now_ms());
                save(cursor, inlet).await?;
                return Ok(begun(next, cursor));
            }
            Err(Stop::Fault(fault)) if !fault.is_token() => fault,
            Err(stop) => return Err(stop),
        };
        if !fault.is_elsewhere() {
            this.counted += 1;
        }
        if this.counted < ATTEMPTS_MAX {
            tracing::warn!(%fault, task = ?this.task, attempts = this.attempts, "a task failed; trying again");
            return Ok(vec![this]);
        }
        inlet.gap(this.task.loss(&fault, self.env.now_ms()));
        cursor.remove(&this.task);
        save(cursor, inlet).await?;
        Ok(Vec::new())
    }
}

/// The next answer; that of an application service is asked for after a pause.
fn poll<'a>(client: &'a Client<'a>, cursor: &Cursor, pause: Duration) -> BoxFuture<'a, Result<News, Fault>> {
    let since = cursor.since.clone();
    match client.account.mode {
        Mode::Sync => Box::pin(next_news(client, since, POLL_MS)),
        Mode::AppService => Box::pin(async move {
            tokio::time::sleep(pause).await;
            next_news(client, since, 0).await
        }),
    }
}

/// A homeserver that does not let application services poll pushes all the same.
fn is_refused_poll(client: &Client<'_>, fault: &Fault) -> bool {
    let is_refused = client.account.mode == Mode::AppService && !fault.is_token() && !fault.is_passing();
    if is_refused {
        let bot = &client.account.bot.id;
        tracing::warn!(%fault, bot, "the homeserver does not let the application service poll; it relies on pushes alone");
    }
    is_refused
}

/// A room that was read up to a token has more since then if polls left it out in the meantime.
fn unread_since(cursor: &Cursor, this: &Try) -> Option<Task> {
    let Task::Behind { room_id, .. } = &this.task else { return None };
    let is_more = cursor.skipped.contains(room_id);
    is_more.then(|| Task::Behind { room_id: room_id.clone(), since: this.until.clone() })
}

fn ended(fault: Fault) -> Ended {
    match fault.is_token() {
        true => {
            Ended::Misconfigured(format!("{fault}; get a new token from the homeserver and add the bot again with it"))
        }
        false => Ended::Lost(fault.to_string()),
    }
}
