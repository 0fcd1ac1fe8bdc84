//! One listener per bot, started again when it ends.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::directory::ListenerFailure;
use frontdesk_core::inbound::BotInlet;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::meters::Why;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Bot, Change, Ended, Gap, Inlet, LateReceipt, Platform};
use frontdesk_core::port::store::StoreError;
use frontdesk_core::{Desk, DeskError};
use frontdesk_wire::DeskNo;
use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often the listeners are compared with the bots, and with the duties of this desk.
const TICK: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// A listener that ran this long is well: the next pause is short again.
const WELL_AFTER: Duration = Duration::from_mins(1);
/// Listeners that are started at once begin one after another, this far apart, and none later than `STAGGER_MAX`.
const STAGGER: Duration = Duration::from_millis(100);
const STAGGER_MAX: Duration = Duration::from_secs(5);

/// A listener that runs, for this version of its bot, under this number of the desk.
struct Running {
    bot: Arc<Bot>,
    desk: DeskNo,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// (platform, bot id)
type Name = (String, String);

pub(super) async fn listen(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut running: HashMap<Name, Running> = HashMap::new();
    loop {
        let wanted = match desk.lease().is_good() {
            true => bots(&desk),
            false => HashMap::new(), // another desk may run them by now
        };
        stop_unwanted(&desk, &wanted, &mut running).await;
        let mut delay = Duration::ZERO;
        for (name, (platform, bot)) in wanted {
            // One that was told to stop may still be at work; two would read from one cursor.
            if running.contains_key(&name) {
                continue;
            }
            let Some((me, token)) = take_duty(&desk, &name).await else { continue };
            let inlet = Arc::new(desk.inbound().listener_inlet(&name.0, &bot, token));
            let listener = Listener {
                inlet: TrackedInlet { inlet, tracker: tracker.clone() },
                desk: desk.clone(),
                platform,
                bot: bot.clone(),
                stop: stop.child_token(),
                delay,
            };
            delay = (delay + STAGGER).min(STAGGER_MAX);
            let stop = listener.stop.clone();
            let task = tracker.spawn(listener.run());
            running.insert(name, Running { bot, desk: me, stop, task });
        }
        tokio::select! {
            () = desk.directory().bots().changed() => {}
            () = tokio::time::sleep(TICK) => {}
            () = stop.cancelled() => return,
        }
    }
}

type Bots = HashMap<Name, (Arc<dyn Platform>, Arc<Bot>)>;

fn bots(desk: &Desk) -> Bots {
    let mut found = HashMap::new();
    for platform in desk.platforms().all().filter(|platform| platform.listens()) {
        let name = &platform.descriptor().platform;
        let all = desk.directory().bots().all(name);
        platform.know_bots(&all);
        for bot in all {
            found.insert((name.clone(), bot.id.clone()), (platform.clone(), bot));
        }
    }
    found
}

/// Ends the listeners of bots that were changed or removed, or that another desk has. Those that have ended are
/// forgotten, so that they are started again.
async fn stop_unwanted(desk: &Desk, wanted: &Bots, running: &mut HashMap<Name, Running>) {
    for (name, listener) in running.iter_mut() {
        let is_wanted = wanted.get(name).is_some_and(|(_, bot)| Arc::ptr_eq(bot, &listener.bot));
        // With another number the duty is not ours any more. If it is still free, a listener begins under a new token,
        // where the last holder ended.
        if !is_wanted || listener.desk != desk.lease().me() {
            listener.stop.cancel();
        }
    }
    let mut ended = Vec::new();
    running.retain(|name, listener| {
        let is_over = listener.task.is_finished();
        if is_over {
            if !listener.stop.is_cancelled() {
                desk.meters().listener_ends.get_or_create(&Why { why: "panicked" }).inc();
                tracing::error!(platform = name.0, bot = name.1, "the listener of a bot panicked; it is started again");
            }
            ended.push(name.clone());
        }
        !is_over
    });
    for name in ended.into_iter().filter(|name| !wanted.contains_key(name)) {
        let dropped = tokio::time::timeout(TICK, desk.lease().drop_duty(&duty(&name))).await;
        if let Ok(Err(error)) = dropped {
            tracing::warn!(%error, platform = name.0, bot = name.1, "giving up the listener of a bot failed");
        }
    }
}

fn duty((platform, bot): &Name) -> String {
    format!("listen {platform} {bot}")
}

/// The number of the desk that has the duty now, ours as it was when we asked, and the token of the duty. `None`: another
/// desk has it.
async fn take_duty(desk: &Desk, name: &Name) -> Option<(DeskNo, u64)> {
    let me = desk.lease().me();
    match tokio::time::timeout(TICK, desk.lease().take_duty(&duty(name))).await {
        Ok(Ok(token)) => token.map(|token| (me, token)),
        Ok(Err(error)) => {
            tracing::warn!(%error, platform = name.0, bot = name.1, "taking over the listener of a bot failed");
            None
        }
        Err(_) => None,
    }
}

struct Listener {
    desk: Arc<Desk>,
    platform: Arc<dyn Platform>,
    bot: Arc<Bot>,
    inlet: TrackedInlet,
    stop: CancellationToken,
    /// Before it begins.
    delay: Duration,
}

impl Listener {
    /// Runs it, and again after it ended, with a growing pause.
    async fn run(self) {
        let Self { desk, platform, bot, inlet, stop, delay } = self;
        let name = &platform.descriptor().platform;
        let mut pause = PAUSE_MIN;
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = stop.cancelled() => return,
        }
        loop {
            let mut is_well = false;
            let listening = listen_once(&desk, &*platform, &bot, &inlet);
            let well_after = async {
                tokio::time::sleep(WELL_AFTER).await;
                is_well = true;
                desk.directory().bots().note_listener(name, &bot.id, None);
                std::future::pending::<()>().await;
            };
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                ended = listening => ended,
                () = well_after => return, // never
            };
            let lost = if ended.is_ok() { "lost" } else { "panicked" };
            let note = |why: &str, is_final| {
                let failure = ListenerFailure { why: why.to_owned(), at_ms: desk.env().now_ms(), is_final };
                desk.directory().bots().note_listener(name, &bot.id, Some(failure));
            };
            let count = |why| desk.meters().listener_ends.get_or_create(&Why { why }).inc();
            match ended.unwrap_or_else(Ended::Lost) {
                Ended::Never => {
                    desk.directory().bots().note_listener(name, &bot.id, None);
                    return stop.cancelled().await;
                }
                Ended::Misconfigured(why) => {
                    count("misconfigured");
                    note(&why, true);
                    tracing::error!(
                        platform = name,
                        bot = bot.id,
                        why,
                        "the bot cannot listen; change it with `bot add`"
                    );
                    return stop.cancelled().await;
                }
                Ended::Lost(why) => {
                    count(lost);
                    note(&why, false);
                    if is_well {
                        pause = PAUSE_MIN;
                    }
                    tracing::warn!(
                        platform = name,
                        bot = bot.id,
                        why,
                        ?pause,
                        "the listener of a bot ended; trying again"
                    );
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// `Err`: it panicked. A defect of one platform must not stop its bot for good, nor start it again at once.
async fn listen_once(desk: &Desk, platform: &dyn Platform, bot: &Bot, inlet: &dyn Inlet) -> Result<Ended, String> {
    let listening = async {
        match desk.inbound().cursor(&platform.descriptor().platform, bot).await {
            Ok(cursor) => platform.listen(bot, cursor, inlet).await,
            Err(error) => Ended::Lost(error.to_string()),
        }
    };
    let ended = AssertUnwindSafe(listening).catch_unwind().await;
    ended.map_err(|panic| format!("the listener panicked, which is a defect of the server: {}", text_of(&*panic)))
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it gave no reason")
}

/// What changes state runs to its end also when the listener is stopped in between.
struct TrackedInlet {
    inlet: Arc<BotInlet>,
    tracker: TaskTracker,
}

impl TrackedInlet {
    async fn to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = self.tracker.spawn(work).await;
        ended.unwrap_or_else(|error| Err(StoreError::Unknown(error.to_string())))
    }
}

impl Inlet for TrackedInlet {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        let inlet = self.inlet.clone();
        Box::pin(async move { self.to_end(async move { Ok(inlet.take(intakes).await) }).await? })
    }

    fn changed(&self, change: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        let inlet = self.inlet.clone();
        Box::pin(self.to_end(async move { inlet.changed(change).await }))
    }

    fn receipt<'a>(&'a self, receipt: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        let (inlet, receipt) = (self.inlet.clone(), receipt.clone());
        Box::pin(self.to_end(async move { inlet.receipt(&receipt).await }))
    }

    fn gap(&self, gap: Gap) {
        self.inlet.gap(gap);
    }

    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>> {
        let inlet = self.inlet.clone();
        Box::pin(self.to_end(async move { inlet.save_cursor(cursor).await }))
    }
}

#[cfg(test)]
mod tests;
