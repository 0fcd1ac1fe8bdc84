//! One listener per bot, started again when it ends; and the lease that says that this desk may run it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::meters::Why;
use frontdesk_core::port::platform::{Bot, Ended, Platform};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often the lease is renewed and the listeners are compared with the bots.
const TICK: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// A listener that ran this long was well: the next pause is short again.
const WELL_AFTER_MS: u64 = 60_000;

/// A listener that runs, for this version of its bot.
struct Running {
    bot: Arc<Bot>,
    stop: CancellationToken,
}

/// (platform, bot id)
type Name = (String, String);

pub(super) async fn listen(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut running: HashMap<Name, Running> = HashMap::new();
    loop {
        match desk.lease().renew().await {
            Ok((version, _)) => {
                if let Err(error) = desk.directory().catch_up(version).await {
                    tracing::warn!(%error, "reading the changes of other desks failed");
                }
            }
            Err(error) => tracing::warn!(%error, "renewing the lease of this desk failed"),
        }
        let wanted = match desk.lease().is_good() {
            true => bots(&desk),
            false => HashMap::new(), // another desk may run them by now
        };
        running.retain(|name, listener| {
            let stays = wanted.get(name).is_some_and(|(_, bot)| Arc::ptr_eq(bot, &listener.bot));
            if !stays {
                listener.stop.cancel();
            }
            stays
        });
        for (name, (platform, bot)) in wanted {
            if running.contains_key(&name) || !has_duty(&desk, &name).await {
                continue;
            }
            let stop = stop.child_token();
            running.insert(name.clone(), Running { bot: bot.clone(), stop: stop.clone() });
            tracker.spawn(keep_listening(desk.clone(), platform, bot, stop));
        }
        tokio::select! {
            () = desk.directory().bots_changed() => {}
            () = tokio::time::sleep(TICK) => {}
            () = stop.cancelled() => break,
        }
    }
    if let Err(error) = desk.lease().resign().await {
        tracing::warn!(%error, "giving up the lease of this desk failed; it ends by itself");
    }
}

fn bots(desk: &Desk) -> HashMap<Name, (Arc<dyn Platform>, Arc<Bot>)> {
    let mut found = HashMap::new();
    for platform in desk.platforms().all().filter(|platform| platform.listens()) {
        let name = &platform.descriptor().platform;
        for id in desk.directory().bot_ids(name) {
            if let Some(bot) = desk.directory().added_bot(name, &id) {
                found.insert((name.clone(), id), (platform.clone(), bot));
            }
        }
    }
    found
}

async fn has_duty(desk: &Desk, (platform, bot): &Name) -> bool {
    let taken = desk.lease().take_duty(&format!("listen {platform} {bot}")).await;
    taken
        .unwrap_or_else(|error| {
            tracing::warn!(%error, platform, bot, "taking over the listener of a bot failed");
            None
        })
        .is_some()
}

/// Runs one listener, and again after it ended, with a growing pause.
async fn keep_listening(desk: Arc<Desk>, platform: Arc<dyn Platform>, bot: Arc<Bot>, stop: CancellationToken) {
    let name = platform.descriptor().platform.clone();
    let inlet = desk.inbound().inlet(&name, &bot.id);
    let mut pause = PAUSE_MIN;
    loop {
        let began_ms = desk.env().steady_ms();
        let ended = match desk.inbound().cursor(&name, &bot.id).await {
            Err(error) => Ended::Lost(error.to_string()),
            Ok(cursor) => tokio::select! {
                ended = platform.listen(&bot, cursor, &inlet) => ended,
                () = stop.cancelled() => return,
            },
        };
        let count = |why| desk.meters().listener_ends.get_or_create(&Why { why }).inc();
        match ended {
            Ended::Never => return stop.cancelled().await,
            Ended::Misconfigured(why) => {
                count("misconfigured");
                tracing::error!(platform = name, bot = bot.id, why, "the bot cannot listen; change it with `bot add`");
                return stop.cancelled().await;
            }
            Ended::Lost(why) => {
                count("lost");
                if desk.env().steady_ms().saturating_sub(began_ms) >= WELL_AFTER_MS {
                    pause = PAUSE_MIN;
                }
                tracing::warn!(platform = name, bot = bot.id, why, ?pause, "the listener of a bot ended; trying again");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
