//! One listener, restarted after it ended, with a growing pause.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::directory::ListenerFailure;
use frontdesk_core::port::platform::{Bot, ListenEnd, Platform};
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::coordinator::{Coordinator, Taken};
use super::duties::Duties;
use super::inlet::TrackedInlet;
use frontdesk_core::inbound::restart::{HEALTHY_AFTER, Restarts};
use frontdesk_core::inbound::share::PartName;

pub(super) struct Listener {
    pub(super) name: PartName,
    pub(super) desk: Arc<Desk>,
    pub(super) platform: Arc<dyn Platform>,
    pub(super) bot: Arc<Bot>,
    pub(super) inlet: TrackedInlet,
    pub(super) stop: CancellationToken,
    /// Before it begins.
    pub(super) delay: Duration,
    pub(super) duties: Arc<Duties>,
    /// Told when the number of parts changed.
    pub(super) changed: Arc<Notify>,
}

impl Listener {
    pub(super) async fn run(self) {
        let mut taken = Taken::default();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.run_again(&mut taken) => {} // only a stop ends it
        }
        taken.give_up(&self.duties).await;
    }

    /// Runs it, and restarts it after it ended, with a growing pause.
    async fn run_again(&self, taken: &mut Taken) {
        let Self { desk, bot, .. } = self;
        let PartName { platform, part, .. } = &self.name;
        let mut restarts = Restarts::default();
        tokio::time::sleep(self.delay).await;
        loop {
            let mut is_well = false;
            let well_after = async {
                tokio::time::sleep(HEALTHY_AFTER).await;
                is_well = true;
                self.note(None);
                std::future::pending::<()>().await;
            };
            let ended = tokio::select! {
                biased;
                ended = self.listen_once(taken) => ended,
                () = well_after => return, // never
            };
            let lost = if ended.is_ok() { "lost" } else { "panicked" };
            let pause = match ended.unwrap_or_else(ListenEnd::Lost) {
                ListenEnd::Never => {
                    self.note(None);
                    std::future::pending().await
                }
                ListenEnd::Misconfigured(why) => {
                    desk.meters().listener_ended("misconfigured");
                    tracing::error!(
                        platform,
                        bot = bot.id.as_str(),
                        %part,
                        why,
                        "the listener of a bot failed permanently; change the bot with `bot add`"
                    );
                    self.note(Some((why, true)));
                    std::future::pending().await
                }
                ListenEnd::Lost(why) => {
                    desk.meters().listener_ended(lost);
                    let pause = restarts.after(is_well);
                    tracing::warn!(platform, bot = bot.id.as_str(), %part, why, ?pause, "the listener of a bot ended; trying again");
                    self.note(Some((why, false)));
                    pause
                }
            };
            taken.give_up(&self.duties).await; // other servers may continue with it
            tokio::time::sleep(pause).await;
        }
    }

    /// Why it ended, and whether that is final. `None`: it is healthy.
    fn note(&self, failure: Option<(String, bool)>) {
        let at_ms = self.desk.env().now_ms();
        let failure = failure.map(|(why, is_final)| ListenerFailure { why, at_ms, is_final });
        note(&self.desk, &self.name, failure);
    }

    /// `Err`: it panicked. A defect of one platform must not stop its bot for good, nor restart it at once.
    async fn listen_once(&self, taken: &mut Taken) -> Result<ListenEnd, String> {
        let Self { name, desk, platform, bot, inlet, duties, changed, .. } = self;
        let listening = async {
            if let Some(partitioned) = platform.partitioned().filter(|_| name.part.is_whole()) {
                let coordinator = Coordinator { name, desk, bot, inlet, duties, changed, partitioned };
                if let Err(ended) = coordinator.keep(taken).await {
                    return ended;
                }
            }
            match desk.inbound().cursor(&name.platform, bot, name.part).await {
                Ok(cursor) => platform.listen(bot, name.part, cursor, inlet).await,
                Err(error) => ListenEnd::Lost(error.to_string()),
            }
        };
        let ended = AssertUnwindSafe(listening).catch_unwind().await;
        ended.map_err(|panic| format!("the listener panicked, which is a defect of the server: {}", text_of(&*panic)))
    }
}

/// Notes the state that `bot check`, `doctor` and the metrics report.
pub(super) fn note(desk: &Desk, name: &PartName, failure: Option<ListenerFailure>) {
    let PartName { platform, bot, part } = name;
    desk.meters().set_listener_failing(platform, bot, *part, failure.is_some());
    desk.directory().bots().note_listener(platform, bot, *part, failure);
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
