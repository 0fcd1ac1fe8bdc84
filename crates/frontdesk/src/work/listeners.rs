//! One listener per bot and part, started again when it ends. The parts of a bot are shared among the live servers.

mod coordinator;
mod duties;
mod inlet;
mod listener;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::inbound::share::{PartName, Share};
use frontdesk_core::port::platform::{Bot, Layout, Part, Platform};
use frontdesk_wire::DeskNo;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::duties::Duties;
use self::inlet::TrackedInlet;
use self::listener::Listener;

/// How often the listeners are compared with the bots, and with the duties of this server.
const TICK: Duration = Duration::from_secs(1);
/// Delay between listeners that are started together, up to `STAGGER_MAX` in total.
const STAGGER: Duration = Duration::from_millis(100);
const STAGGER_MAX: Duration = Duration::from_secs(5);

/// A running listener, with the version of its bot and the server number under which it was started.
struct Running {
    bot: Arc<Bot>,
    desk: DeskNo,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// It is stopping so that another server can take it over.
    is_given: bool,
}

type Bots = BTreeMap<PartName, (Arc<dyn Platform>, Arc<Bot>)>;

pub(super) async fn listen(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let listeners = Listeners {
        duties: Arc::new(Duties::new(desk.clone())),
        changed: Arc::default(),
        running: BTreeMap::new(),
        leaving: Vec::new(),
        layouts: BTreeMap::new(),
        share: Share::default(),
        began: Instant::now(),
        desk,
        tracker,
        stop,
    };
    listeners.run().await;
}

struct Listeners {
    desk: Arc<Desk>,
    tracker: TaskTracker,
    stop: CancellationToken,
    duties: Arc<Duties>,
    /// Notified when the number of parts of a bot changed.
    changed: Arc<Notify>,
    running: BTreeMap<PartName, Running>,
    /// Duties that are not wanted any more, and not yet given up.
    leaving: Vec<PartName>,
    /// The layouts read last, by the name of the whole bot.
    layouts: BTreeMap<PartName, Layout>,
    share: Share,
    began: Instant,
}

impl Listeners {
    async fn run(mut self) {
        loop {
            let mut wanted = match self.desk.lease().is_good() {
                true => bots(&self.desk),
                false => Bots::new(), // another server may run them by now
            };
            self.add_parts(&mut wanted).await;
            self.release_surplus(&wanted);
            self.stop_unwanted(&wanted);
            self.leave().await;
            self.start(wanted).await;
            tokio::select! {
                () = self.desk.directory().bots().changed() => {}
                () = self.changed.notified() => {}
                () = tokio::time::sleep(TICK) => {}
                () = self.stop.cancelled() => break,
            }
        }
        // Each listener has a child token of `stop`. After this function returns, the caller may give up the duties.
        for (name, listener) in self.running {
            let _ = listener.task.await; // also after a panic
            listener::note(&self.desk, &name, None); // the next listener, at another server, reports its own state
        }
    }

    /// The parts of bots that have several. While their number changes, none is wanted.
    async fn add_parts(&mut self, wanted: &mut Bots) {
        let whole = wanted.iter().filter(|(_, (platform, _))| platform.partitioned().is_some());
        let whole: Vec<_> =
            whole.map(|(name, (platform, bot))| (name.clone(), platform.clone(), bot.clone())).collect();
        self.layouts.retain(|name, _| wanted.contains_key(name));
        let mut is_read = true;
        for (name, platform, bot) in whole {
            if is_read {
                match tokio::time::timeout(TICK, self.desk.inbound().layout(&name.platform, &bot)).await {
                    Ok(Ok(layout)) => drop(self.layouts.insert(name.clone(), layout)),
                    // Unchanged: without the store the lease ends soon.
                    Ok(Err(_)) | Err(_) => is_read = false,
                }
            }
            let Some(Layout { count, next: None }) = self.layouts.get(&name) else { continue };
            for part in Part::all(*count).filter(|part| !part.is_whole()) {
                wanted.insert(name.with(part), (platform.clone(), bot.clone()));
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn parts_of(&self, name: &PartName) -> impl Iterator<Item = &PartName> {
        self.running.keys().filter(move |it| it.is_same_bot(name) && !it.part.is_whole())
    }

    /// A server that has more parts of a bot than its share, for a while, stops one: another one is free to take it.
    fn release_surplus(&mut self, wanted: &Bots) {
        let live = self.desk.lease().sharers();
        self.share.forget_others(|name| wanted.contains_key(name));
        let now_ms = self.now_ms();
        let last: Vec<PartName> =
            wanted.keys().filter(|it| !it.part.is_whole() && it.part.index == 0).cloned().collect();
        for name in last {
            let held: Vec<PartName> = self.parts_of(&name).cloned().collect();
            let Some(last) = held.last() else { continue };
            if self.share.gives(last, held.len(), live, now_ms)
                && let Some(listener) = self.running.get_mut(last)
            {
                let (platform, bot, part) = (&last.platform, &last.bot, last.part);
                tracing::info!(
                    platform,
                    bot = bot.as_str(),
                    %part,
                    live,
                    "a listener was stopped, so that another server can take it over"
                );
                listener.is_given = true;
            }
        }
    }

    /// Ends the listeners of bots that were changed or removed, or that another server has. Those that have ended are
    /// forgotten, so that they are started again.
    fn stop_unwanted(&mut self, wanted: &Bots) {
        let Self { desk, running, leaving, duties, .. } = self;
        for (name, listener) in running.iter_mut() {
            let is_wanted = wanted.get(name).is_some_and(|(_, bot)| Arc::ptr_eq(bot, &listener.bot));
            // Under a new server number the duty is lost. If it is still free, a new listener takes it with a new token and
            // continues at the saved cursor.
            if !is_wanted || listener.is_given || listener.desk != desk.lease().me() {
                listener.stop.cancel();
            }
        }
        running.retain(|name, listener| {
            if !listener.task.is_finished() {
                return true;
            }
            let (platform, bot, part) = (&name.platform, &name.bot, name.part);
            if !listener.stop.is_cancelled() {
                desk.meters().listener_ended("panicked");
                tracing::error!(platform, bot = bot.as_str(), %part, "the listener of a bot panicked; it is started again");
            }
            listener::note(desk, name, None); // the next listener, here or at another server, reports its own state
            if listener.is_given || !wanted.contains_key(name) {
                leaving.push(name.clone());
            } else {
                duties.release(name);
            }
            false
        });
    }

    /// Gives up duties that are not wanted any more. Retries until the store confirms, because other servers may wait.
    async fn leave(&mut self) {
        let mut is_away = false;
        self.leaving.extend(self.duties.abandoned());
        for name in std::mem::take(&mut self.leaving) {
            if is_away {
                self.leaving.push(name);
                continue;
            }
            match tokio::time::timeout(TICK, self.duties.give_up(&name)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let (platform, bot, part) = (&name.platform, &name.bot, name.part);
                    tracing::warn!(%error, platform, bot = bot.as_str(), %part, "giving up the listener of a bot failed");
                    self.leaving.push(name);
                }
                Err(_) => {
                    is_away = true;
                    self.leaving.push(name);
                }
            }
        }
    }

    async fn start(&mut self, wanted: Bots) {
        let (mut delay, live) = (Duration::ZERO, self.desk.lease().sharers());
        for (name, (platform, bot)) in wanted {
            // A listener that was told to stop may still run, and two must not use one cursor.
            if self.running.contains_key(&name) {
                continue;
            }
            let (held, now_ms) = (self.parts_of(&name).count(), self.now_ms());
            if !self.share.may_take(&name, held, live, now_ms) {
                continue;
            }
            let taken = self.take(&name, &bot).await;
            self.share.tried(&name, taken.is_some());
            let Some((me, token)) = taken else { continue };
            let inlet = self.desk.inbound().listener_inlet(&name.platform, &bot, name.part, token);
            let listener = Listener {
                name: name.clone(),
                inlet: TrackedInlet { inlet: Arc::new(inlet), tracker: self.tracker.clone() },
                desk: self.desk.clone(),
                platform,
                bot: bot.clone(),
                stop: self.stop.child_token(),
                delay,
                duties: self.duties.clone(),
                changed: self.changed.clone(),
            };
            delay = (delay + STAGGER).min(STAGGER_MAX);
            let stop = listener.stop.clone();
            let task = self.tracker.spawn(listener.run());
            self.running.insert(name, Running { bot, desk: me, stop, task, is_given: false });
        }
    }

    /// Takes the duty. Returns our server number at the time of the request, and the token of the duty. `None`: another
    /// server has it.
    async fn take(&mut self, name: &PartName, bot: &Bot) -> Option<(DeskNo, u64)> {
        let (platform, part) = (&name.platform, name.part);
        let taken = match tokio::time::timeout(TICK, self.duties.take(name)).await {
            Ok(Ok(taken)) => taken?,
            Ok(Err(error)) => {
                tracing::warn!(%error, platform, bot = bot.id.as_str(), %part, "taking over the listener of a bot failed");
                return None;
            }
            Err(_) => return None,
        };
        if part.is_whole() {
            return Some(taken);
        }
        // The number of parts may have changed before this server had the duty. From now on only its holder changes it.
        match tokio::time::timeout(TICK, self.desk.inbound().layout(platform, bot)).await {
            Ok(Ok(layout)) if layout.has(part) => Some(taken),
            _ => {
                self.leaving.push(name.clone());
                None
            }
        }
    }
}

fn bots(desk: &Desk) -> Bots {
    let mut found = Bots::new();
    for platform in desk.platforms().all().filter(|platform| platform.listens()) {
        let name = &platform.descriptor().platform;
        let all = desk.directory().bots().all(name);
        platform.know_bots(&all);
        for bot in all {
            let name = PartName { platform: name.clone(), bot: bot.id.clone(), part: Part::WHOLE };
            found.insert(name, (platform.clone(), bot));
        }
    }
    found
}

#[cfg(test)]
mod tests;
