//! Waits for the scheduler of a bot, one future per action. One loop of the server (`release_due`) is the timer of all
//! bots: it starts actions that wait for a token. An action that waits for another one is started when that one ends.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frontdesk_wire::{ActionResult, BotId, Code};
use tokio::sync::{Notify, oneshot};

use super::scheduler::{Admission, Ask, Refusal, Scheduler, Ticket};
use crate::env::Env;
use crate::port::platform::{Acted, Pace, PlatformBot};

/// Above this number, bots without a waiting action are removed.
const BOTS_MAX: usize = 1_024;

/// (platform, bot)
type Name = Arc<PlatformBot>;

/// The queues of all bots of this server.
pub(super) struct Pacer {
    bots: Mutex<AllBots>,
    timer: Arc<Timer>,
}

#[derive(Default)]
struct AllBots {
    by_platform: HashMap<String, HashMap<BotId, Arc<BotQueue>>>,
    /// The server stops: new queues are created closed.
    is_closed: bool,
}

impl AllBots {
    fn get(&self, platform: &str, bot: &BotId) -> Option<&Arc<BotQueue>> {
        self.by_platform.get(platform)?.get(bot)
    }
}

/// When the queues of bots must be looked at.
struct Timer {
    env: Arc<dyn Env>,
    due: Mutex<BTreeSet<(u64, Name)>>,
    /// Notified when an earlier time was set.
    earlier: Notify,
}

struct BotQueue {
    name: Name,
    timer: Arc<Timer>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    scheduler: Scheduler,
    waiters: HashMap<Ticket, oneshot::Sender<WaitEnd>>,
    /// Callers of superseded actions that wait for the result of this one.
    followers: HashMap<Ticket, Vec<oneshot::Sender<ActionResult>>>,
    again_ms: Option<u64>,
    is_closed: bool,
}

/// How waiting for a turn ended.
enum WaitEnd {
    Go,
    /// A later action of the same kind is carried out instead; its result comes here.
    Superseded(oneshot::Receiver<ActionResult>),
    Closed,
}

/// An action on its way through the queue of its bot: `turn`, then the platform is asked, then `end`.
pub(super) struct QueuedAction {
    slot: QueueSlot,
    /// `None`: no wait is needed, it may be carried out at once.
    turn: Option<oneshot::Receiver<WaitEnd>>,
    asked_ms: u64,
    deadline_ms: u64,
    waited_ms: u64,
}

pub(super) enum TurnOutcome {
    Go,
    /// A later one was carried out instead, with this result.
    Superseded(ActionResult),
    /// Nothing was sent.
    NotBegun(NotBegun),
}

/// Why an action was not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotBegun {
    Refused(Refusal),
    /// Its turn did not come in time.
    Late {
        waited_ms: u64,
    },
    /// The server stops.
    Closed,
}

pub(super) enum Next {
    /// The platform has answered. `waited_ms`: time spent in the queue.
    Over { waited_ms: u64 },
    /// The platform limited the rate: wait for another turn.
    Again,
    /// The platform limited the rate, and there is no time left to try again.
    Limited { retry_after_ms: u64 },
}

impl Pacer {
    pub(super) fn new(env: Arc<dyn Env>) -> Self {
        let timer = Timer { env, due: Mutex::default(), earlier: Notify::new() };
        Self { bots: Mutex::default(), timer: Arc::new(timer) }
    }

    fn bot(&self, platform: &str, bot: &BotId) -> Arc<BotQueue> {
        let mut bots = self.bots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = bots.get(platform, bot) {
            return found.clone();
        }
        if bots.by_platform.values().map(HashMap::len).sum::<usize>() >= BOTS_MAX {
            let now_ms = self.timer.env.steady_ms();
            for of in bots.by_platform.values_mut() {
                of.retain(|_, bot| Arc::strong_count(bot) > 1 || !bot.lock().scheduler.is_idle(now_ms));
            }
        }
        let name = Arc::new((platform.to_owned(), bot.clone()));
        let queue = Mutex::new(Queue { is_closed: bots.is_closed, ..Queue::default() });
        let made = Arc::new(BotQueue { name, timer: self.timer.clone(), queue });
        bots.by_platform.entry(platform.to_owned()).or_default().insert(bot.clone(), made.clone());
        made
    }

    /// A slot in the queue of a bot. `ask.deadline_ms` is on the steady clock.
    pub(super) fn enter(&self, platform: &str, bot: &BotId, ask: Ask) -> Result<QueuedAction, NotBegun> {
        let (asked_ms, deadline_ms) = (self.timer.env.steady_ms(), ask.deadline_ms);
        if asked_ms > deadline_ms {
            return Err(NotBegun::Late { waited_ms: 0 });
        }
        let (slot, turn) = self.bot(platform, bot).ask(ask, asked_ms)?;
        Ok(QueuedAction { slot, turn, asked_ms, deadline_ms, waited_ms: 0 })
    }

    /// Starts the actions that are due. Returns the time of the next one.
    pub(super) fn release_due(&self) -> Option<u64> {
        let now_ms = self.timer.env.steady_ms();
        loop {
            let mut due = self.timer.due.lock().unwrap_or_else(PoisonError::into_inner);
            let (at_ms, name) = due.first().cloned()?;
            if at_ms > now_ms {
                return Some(at_ms);
            }
            due.pop_first();
            drop(due);
            let bots = self.bots.lock().unwrap_or_else(PoisonError::into_inner);
            let found = bots.get(&name.0, &name.1).cloned();
            drop(bots);
            if let Some(bot) = found {
                let mut queue = bot.lock();
                queue.again_ms = None;
                bot.grant(&mut queue, now_ms, None);
            }
        }
    }

    /// Returns when `release_due` must be called earlier than it said.
    pub(super) async fn earlier(&self) {
        self.timer.earlier.notified().await;
    }

    /// The server stops: waiting and later actions are refused. Actions at a platform continue.
    pub(super) fn close(&self) {
        let mut bots = self.bots.lock().unwrap_or_else(PoisonError::into_inner);
        bots.is_closed = true;
        let all: Vec<Arc<BotQueue>> = bots.by_platform.values().flat_map(HashMap::values).cloned().collect();
        drop(bots);
        for bot in all {
            let mut queue = bot.lock();
            queue.is_closed = true;
            for (_, waiter) in queue.waiters.drain() {
                let _ = waiter.send(WaitEnd::Closed); // it may be gone
            }
        }
    }
}

impl QueuedAction {
    /// Waits until the action may be done.
    pub(super) async fn turn(&mut self, give_up_ms: u64) -> TurnOutcome {
        let Some(mut turn) = self.turn.take() else { return TurnOutcome::Go };
        let now_ms = self.slot.now_ms();
        let pause = Duration::from_millis(self.deadline_ms.saturating_sub(now_ms));
        let turned = match tokio::time::timeout(pause, &mut turn).await {
            Ok(turned) => turned.ok(),
            Err(_) => turn.try_recv().ok(), // it may have come in this moment
        };
        let waited_ms = self.slot.now_ms().saturating_sub(self.asked_ms);
        match turned {
            Some(WaitEnd::Go) => {
                self.waited_ms = waited_ms;
                TurnOutcome::Go
            }
            Some(WaitEnd::Superseded(result)) => {
                self.slot.is_over = true;
                let left = Duration::from_millis(give_up_ms.saturating_sub(self.slot.now_ms()));
                let result = tokio::time::timeout(left, result).await;
                TurnOutcome::Superseded(result.ok().and_then(Result::ok).unwrap_or_else(unknown))
            }
            Some(WaitEnd::Closed) => TurnOutcome::NotBegun(NotBegun::Closed),
            None => TurnOutcome::NotBegun(NotBegun::Late { waited_ms }),
        }
    }

    /// The platform has answered. An action that was refused for its rate is tried again while there is time.
    pub(super) fn end(&mut self, acted: &Acted) -> Next {
        let Acted { result, pace, .. } = acted;
        let now_ms = self.slot.now_ms();
        let Some(retry_after_ms) = pace.retry_after_ms.filter(|_| !result.success && !result.ambiguous) else {
            self.slot.finish(pace, result, now_ms);
            return Next::Over { waited_ms: self.waited_ms };
        };
        self.turn = self.slot.again(pace, result, now_ms);
        if self.turn.is_some() { Next::Again } else { Next::Limited { retry_after_ms } }
    }
}

impl BotQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot in the queue, and what to wait for: nothing if it may go at once.
    fn ask(
        self: Arc<Self>,
        ask: Ask,
        now_ms: u64,
    ) -> Result<(QueueSlot, Option<oneshot::Receiver<WaitEnd>>), NotBegun> {
        let mut queue = self.lock();
        if queue.is_closed {
            return Err(NotBegun::Closed);
        }
        let Admission { ticket, supersedes } = queue.scheduler.ask(ask, now_ms).map_err(NotBegun::Refused)?;
        if let Some(old) = supersedes {
            let mut followers = queue.followers.remove(&old).unwrap_or_default();
            if let Some(waiter) = queue.waiters.remove(&old) {
                let (follower, result) = oneshot::channel();
                followers.push(follower);
                let _ = waiter.send(WaitEnd::Superseded(result)); // it may be gone
            }
            queue.followers.insert(ticket, followers);
        }
        let goes = self.grant(&mut queue, now_ms, Some(ticket));
        let turn = (!goes).then(|| {
            let (waiter, turn) = oneshot::channel();
            queue.waiters.insert(ticket, waiter);
            turn
        });
        drop(queue);
        Ok((QueueSlot { bot: self, ticket, is_over: false }, turn))
    }

    /// Starts what is due. True: `own` is among it, which has no waiter yet.
    fn grant(&self, queue: &mut Queue, now_ms: u64, own: Option<Ticket>) -> bool {
        let mut own_goes = false;
        let again_ms = loop {
            let grants = queue.scheduler.grants(now_ms);
            let mut is_gone = false;
            for ticket in grants.start {
                if Some(ticket) == own {
                    own_goes = true;
                } else if queue.waiters.remove(&ticket).is_none_or(|waiter| waiter.send(WaitEnd::Go).is_err()) {
                    queue.scheduler.withdraw(ticket); // the caller is gone
                    is_gone = true;
                }
            }
            if !is_gone {
                break grants.again_ms;
            }
        };
        let before = std::mem::replace(&mut queue.again_ms, again_ms);
        if before != again_ms {
            self.timer.set(&self.name, before, again_ms);
        }
        own_goes
    }
}

impl Timer {
    fn set(&self, name: &Name, before: Option<u64>, now: Option<u64>) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = before {
            due.remove(&(before, name.clone()));
        }
        let Some(at_ms) = now else { return };
        due.insert((at_ms, name.clone()));
        if due.first().is_some_and(|(first_ms, first)| *first_ms == at_ms && first == name) {
            self.earlier.notify_one();
        }
    }
}

impl Queue {
    fn notify_followers(&mut self, ticket: Ticket, result: &ActionResult) {
        for follower in self.followers.remove(&ticket).unwrap_or_default() {
            let _ = follower.send(result.clone()); // it may be gone
        }
    }
}

/// A slot in a queue. If it is dropped before its end, it is given up and the queue moves on.
struct QueueSlot {
    bot: Arc<BotQueue>,
    ticket: Ticket,
    is_over: bool,
}

impl QueueSlot {
    fn now_ms(&self) -> u64 {
        self.bot.timer.env.steady_ms()
    }

    fn finish(&mut self, pace: &Pace, result: &ActionResult, now_ms: u64) {
        self.is_over = true;
        let mut queue = self.bot.lock();
        queue.scheduler.finished(self.ticket, pace, now_ms);
        queue.notify_followers(self.ticket, result);
        self.bot.grant(&mut queue, now_ms, None);
    }

    /// Waits once more. `None`: there is no time left for that, or the server stops.
    fn again(&mut self, pace: &Pace, result: &ActionResult, now_ms: u64) -> Option<oneshot::Receiver<WaitEnd>> {
        let mut queue = self.bot.lock();
        if queue.is_closed || !queue.scheduler.again(self.ticket, pace, now_ms) {
            self.is_over = true;
            queue.scheduler.withdraw(self.ticket);
            queue.notify_followers(self.ticket, result);
            self.bot.grant(&mut queue, now_ms, None);
            return None;
        }
        let (waiter, turn) = oneshot::channel();
        queue.waiters.insert(self.ticket, waiter);
        self.bot.grant(&mut queue, now_ms, None);
        Some(turn)
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let now_ms = self.now_ms();
        let mut queue = self.bot.lock();
        // A ticket whose caller was gone when it was granted is not in flight any more: it was not sent.
        let result = if queue.scheduler.is_in_flight(self.ticket) {
            unknown()
        } else {
            ActionResult::refused(
                Code::RateLimited,
                "this edit was replaced by a later one, which was not sent; send the latest text again",
            )
        };
        queue.scheduler.withdraw(self.ticket);
        queue.waiters.remove(&self.ticket);
        queue.notify_followers(self.ticket, &result);
        self.bot.grant(&mut queue, now_ms, None);
    }
}

fn unknown() -> ActionResult {
    let text = "timed out: this edit was replaced by a later one, whose outcome is unknown";
    ActionResult { ambiguous: true, ..ActionResult::refused(Code::Unknown, text) }
}

#[cfg(test)]
mod tests;
