//! Waits for the scheduler of a bot, one future per action. No task of its own: whoever waits moves the queue on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frontdesk_wire::{ActionResult, Code};
use tokio::sync::oneshot;

use super::scheduler::{Ask, Asked, DROP_AFTER_MS, Refusal, Scheduler, Ticket};
use crate::env::Env;
use crate::port::platform::{Acted, Pace};

/// Bots without a waiting action are forgotten when there are this many.
const BOTS_MAX: usize = 1_024;

/// The queues of all bots of this desk.
pub(super) struct Pacer {
    env: Arc<dyn Env>,
    bots: Mutex<HashMap<(String, String), Arc<BotQueue>>>,
}

#[derive(Default)]
struct BotQueue(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    scheduler: Scheduler,
    waiters: HashMap<Ticket, oneshot::Sender<Turn>>,
    /// Results that others wait for: their actions were superseded by this one.
    followers: HashMap<Ticket, Vec<oneshot::Sender<ActionResult>>>,
    again_ms: Option<u64>,
}

enum Turn {
    Go,
    /// A later action of the same kind goes instead; its result comes here.
    Superseded(oneshot::Receiver<ActionResult>),
}

/// An action on its way through the queue of its bot: `turn`, then the platform is asked, then `end`.
pub(super) struct Passage {
    place: Place,
    /// Nothing to wait for: it may go at once.
    turn: Option<oneshot::Receiver<Turn>>,
    asked_ms: u64,
    limit_ms: u64,
    waited_ms: u64,
}

pub(super) enum Turned {
    Go,
    /// A later one was done instead, with this result.
    Superseded(ActionResult),
    /// Nothing was sent: its time is over.
    Expired(Refusal),
}

pub(super) enum Next {
    /// It was done, after waiting so long for the limits of the bot.
    Over { waited_ms: u64 },
    /// The platform refused it for its rate: wait for another turn.
    Again,
    /// The same, and there is no time left to try again.
    Limited { retry_after_ms: u64 },
}

impl Pacer {
    pub(super) fn new(env: Arc<dyn Env>) -> Self {
        Self { env, bots: Mutex::default() }
    }

    fn bot(&self, platform: &str, bot: &str) -> Arc<BotQueue> {
        let mut bots = self.bots.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (platform.to_owned(), bot.to_owned());
        if let Some(found) = bots.get(&key) {
            return found.clone();
        }
        if bots.len() >= BOTS_MAX {
            let now_ms = self.env.steady_ms();
            bots.retain(|_, bot| Arc::strong_count(bot) > 1 || !bot.lock().scheduler.is_idle(now_ms));
        }
        bots.entry(key).or_default().clone()
    }

    /// A place in the queue of a bot. `ask.deadline_ms` is on the steady clock.
    pub(super) fn enter(&self, platform: &str, bot: &str, ask: Ask) -> Result<Passage, Refusal> {
        let (asked_ms, deadline_ms) = (self.env.steady_ms(), ask.deadline_ms);
        let limit_ms = if ask.cost.droppable { deadline_ms.min(asked_ms + DROP_AFTER_MS) } else { deadline_ms };
        let (place, turn) = self.bot(platform, bot).ask(&self.env, ask, asked_ms)?;
        Ok(Passage { place, turn, asked_ms, limit_ms, waited_ms: 0 })
    }
}

impl Passage {
    /// Waits until the action may be done.
    pub(super) async fn turn(&mut self) -> Turned {
        let Some(turn) = self.turn.take() else { return Turned::Go };
        match self.wait(turn).await {
            Some(Turn::Go) => {
                self.waited_ms = self.place.env.steady_ms().saturating_sub(self.asked_ms);
                Turned::Go
            }
            Some(Turn::Superseded(result)) => {
                self.place.is_over = true;
                Turned::Superseded(result.await.unwrap_or_else(|_| unknown()))
            }
            None => {
                let wait_ms = self.place.env.steady_ms().saturating_sub(self.asked_ms);
                Turned::Expired(Refusal::TooLong { wait_ms })
            }
        }
    }

    /// `None`: its time is over.
    async fn wait(&self, mut turn: oneshot::Receiver<Turn>) -> Option<Turn> {
        loop {
            let now_ms = self.place.env.steady_ms();
            if now_ms >= self.limit_ms {
                return turn.try_recv().ok(); // it may have come in this moment
            }
            let until_ms = self.place.queue.move_on(now_ms).map_or(self.limit_ms, |at_ms| at_ms.min(self.limit_ms));
            let pause = Duration::from_millis(until_ms.saturating_sub(now_ms).max(1));
            if let Ok(turn) = tokio::time::timeout(pause, &mut turn).await {
                return turn.ok();
            }
            // The time of somebody has come, perhaps ours.
        }
    }

    /// The platform has answered. What it refused for its rate is tried again while there is time.
    pub(super) fn end(&mut self, acted: &Acted) -> Next {
        let Acted { result, pace, .. } = acted;
        let now_ms = self.place.env.steady_ms();
        let Some(retry_after_ms) = pace.retry_after_ms.filter(|_| !result.success && !result.ambiguous) else {
            self.place.finish(pace, result, now_ms);
            return Next::Over { waited_ms: self.waited_ms };
        };
        self.turn = self.place.again(pace, result, now_ms);
        if self.turn.is_some() { Next::Again } else { Next::Limited { retry_after_ms } }
    }
}

impl BotQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the queue, and what to wait for: nothing if it may go at once.
    fn ask(
        self: &Arc<Self>,
        env: &Arc<dyn Env>,
        ask: Ask,
        now_ms: u64,
    ) -> Result<(Place, Option<oneshot::Receiver<Turn>>), Refusal> {
        let mut queue = self.lock();
        let Asked { ticket, supersedes } = queue.scheduler.ask(ask, now_ms)?;
        if let Some(old) = supersedes {
            let mut followers = queue.followers.remove(&old).unwrap_or_default();
            if let Some(waiter) = queue.waiters.remove(&old) {
                let (follower, result) = oneshot::channel();
                followers.push(follower);
                let _ = waiter.send(Turn::Superseded(result)); // it may be gone
            }
            queue.followers.insert(ticket, followers);
        }
        let turn = queue.turn_of(ticket, now_ms);
        Ok((Place { env: env.clone(), queue: self.clone(), ticket, is_over: false }, turn))
    }

    /// Lets go what may; says when to look again.
    fn move_on(&self, now_ms: u64) -> Option<u64> {
        let mut queue = self.lock();
        if queue.again_ms.is_some_and(|again_ms| again_ms <= now_ms) {
            queue.grant(now_ms, None);
        }
        queue.again_ms
    }
}

impl Queue {
    /// What this one waits for; nothing if it may go at once.
    fn turn_of(&mut self, ticket: Ticket, now_ms: u64) -> Option<oneshot::Receiver<Turn>> {
        if self.grant(now_ms, Some(ticket)) {
            return None;
        }
        let (waiter, turn) = oneshot::channel();
        self.waiters.insert(ticket, waiter);
        Some(turn)
    }

    /// Lets go what may. True: `own` is among them, which nobody waits for yet.
    fn grant(&mut self, now_ms: u64, own: Option<Ticket>) -> bool {
        let mut own_goes = false;
        loop {
            let grants = self.scheduler.grants(now_ms);
            self.again_ms = grants.again_ms;
            let mut is_gone = false;
            for ticket in grants.start {
                if Some(ticket) == own {
                    own_goes = true;
                } else if self.waiters.remove(&ticket).is_none_or(|waiter| waiter.send(Turn::Go).is_err()) {
                    self.scheduler.withdraw(ticket); // whoever asked is gone
                    is_gone = true;
                }
            }
            if !is_gone {
                return own_goes;
            }
        }
    }

    fn tell_followers(&mut self, ticket: Ticket, result: &ActionResult) {
        for follower in self.followers.remove(&ticket).unwrap_or_default() {
            let _ = follower.send(result.clone()); // it may be gone
        }
    }
}

/// A place in a queue. Dropped before it is over, it is given up and the queue moves on.
struct Place {
    env: Arc<dyn Env>,
    queue: Arc<BotQueue>,
    ticket: Ticket,
    is_over: bool,
}

impl Place {
    fn finish(&mut self, pace: &Pace, result: &ActionResult, now_ms: u64) {
        self.is_over = true;
        let mut queue = self.queue.lock();
        queue.scheduler.finished(self.ticket, pace, now_ms);
        queue.tell_followers(self.ticket, result);
        queue.grant(now_ms, None);
    }

    /// Waits once more. `None`: there is no time left for that.
    fn again(&mut self, pace: &Pace, result: &ActionResult, now_ms: u64) -> Option<oneshot::Receiver<Turn>> {
        let mut queue = self.queue.lock();
        if !queue.scheduler.again(self.ticket, pace, now_ms) {
            self.is_over = true;
            queue.tell_followers(self.ticket, result);
            queue.grant(now_ms, None);
            return None;
        }
        let (waiter, turn) = oneshot::channel();
        queue.waiters.insert(self.ticket, waiter);
        queue.grant(now_ms, None);
        Some(turn)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let now_ms = self.env.steady_ms();
        let mut queue = self.queue.lock();
        let result = if queue.scheduler.is_waiting(self.ticket) {
            ActionResult::refused(Code::RateLimited, "a later edit replaced this one and was not sent in time")
        } else {
            unknown()
        };
        queue.scheduler.withdraw(self.ticket);
        queue.waiters.remove(&self.ticket);
        queue.tell_followers(self.ticket, &result);
        queue.grant(now_ms, None);
    }
}

fn unknown() -> ActionResult {
    let text = "timed out: a later edit replaced this one, and its outcome is unknown";
    ActionResult { ambiguous: true, ..ActionResult::refused(Code::Unknown, text) }
}
