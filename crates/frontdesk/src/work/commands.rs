//! Declares the commands of bots at their platforms, and stores what agents offer.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::declarations::{Declarations, Due, Report};
use frontdesk_core::port::platform::{Platform, PlatformBot};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often lists are compared with the directory.
const TICK: Duration = Duration::from_secs(1);
/// A platform that does not answer by then has failed.
const CALL_TIME: Duration = Duration::from_secs(30);
/// A store that does not answer by then is asked again later.
const STORE_TIME: Duration = Duration::from_secs(5);
/// Concurrent calls to all platforms together.
const CALLS_MAX: usize = 16;

type Ended = (Due, Result<(), String>);

pub(super) async fn declare(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut platforms = desk.platforms().all();
    if !platforms.any(|platform| platform.declares_commands()) {
        return; // none has a list
    }
    let mut declaring = Declaring { plan: Declarations::default(), seen: None, in_flight: 0, is_failing: false };
    let (done, mut ended) = mpsc::channel(CALLS_MAX);
    loop {
        tokio::select! {
            Some(call) = ended.recv() => declaring.note(&desk, call),
            () = tokio::time::sleep(TICK) => {}
            () = stop.cancelled() => return,
        }
        declaring.store_offers(&desk).await;
        declaring.look(&desk).await;
        if !desk.lease().is_good() {
            continue; // another server may declare them by now
        }
        for due in declaring.begin(&desk).await {
            let (desk, tracker, done, stop) = (desk.clone(), tracker.clone(), done.clone(), stop.clone());
            drop(tracker.clone().spawn(async move {
                // In a task of its own, so that a panic of an adapter is a failure, and the call is retried.
                let call = tracker.spawn(call(desk, due.clone(), stop)).await;
                let how = call.unwrap_or_else(|error| Err(error.to_string()));
                let _ = done.send((due, how)).await; // the loop may have ended
            }));
        }
    }
}

struct Declaring {
    plan: Declarations,
    /// The version of the directory that the lists were made of.
    seen: Option<u64>,
    in_flight: usize,
    is_failing: bool,
}

impl Declaring {
    async fn store_offers(&mut self, desk: &Desk) {
        let stored = tokio::time::timeout(STORE_TIME, desk.directory().offers().store()).await;
        let error = match stored {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the store did not answer in time".into()),
        };
        if let Some(error) = error.as_ref().filter(|_| !self.is_failing) {
            tracing::warn!(error, "storing the commands of agents failed; retrying");
        }
        self.is_failing = error.is_some();
    }

    /// Compares the lists with the directory, if that has changed.
    async fn look(&mut self, desk: &Desk) {
        let version = desk.directory().version();
        if self.seen.replace(version) == Some(version) {
            return;
        }
        let lists = desk.directory().offers().lists(desk.directory().bots());
        for name in self.plan.want(lists, desk.env().steady_ms()) {
            let dropped = tokio::time::timeout(STORE_TIME, desk.lease().drop_duty(&duty(&name))).await;
            if let Ok(Err(error)) = dropped {
                tracing::warn!(%error, platform = name.0, bot = name.1.as_str(), "giving up the commands of a bot failed");
            }
        }
    }

    /// The calls that are due and assigned to this server.
    async fn begin(&mut self, desk: &Desk) -> Vec<Due> {
        let mut ours = Vec::new();
        for due in self.plan.due(desk.env().steady_ms(), CALLS_MAX - self.in_flight) {
            let (platform, bot) = &due.name;
            match tokio::time::timeout(STORE_TIME, desk.lease().take_duty(&duty(&due.name))).await {
                Ok(Ok(Some(_))) => {
                    self.in_flight += 1;
                    ours.push(due);
                    continue;
                }
                Ok(Ok(None)) | Err(_) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, platform, bot = bot.as_str(), "taking over the commands of a bot failed");
                }
            }
            self.plan.put_off(&due, desk.env().steady_ms());
        }
        ours
    }

    fn note(&mut self, desk: &Desk, (due, how): Ended) {
        self.in_flight -= 1;
        let (platform, bot, count) = (&due.name.0, &due.name.1, due.commands.len());
        let outcome = if how.is_ok() { "declared" } else { "failed" };
        desk.meters().commands_declared(outcome);
        match (self.plan.ended(&due, how.is_ok(), desk.env().steady_ms()), how) {
            (Some(Report::Declared), _) => {
                tracing::info!(platform, bot = bot.as_str(), count, "the commands of a bot were declared");
            }
            (Some(Report::Failed { again_in_ms }), Err(why)) => {
                tracing::warn!(
                    platform,
                    bot = bot.as_str(),
                    why,
                    again_in_ms,
                    "declaring the commands of a bot failed; retrying"
                );
            }
            (_, Err(why)) => {
                tracing::debug!(platform, bot = bot.as_str(), why, "declaring the commands of a bot failed again");
            }
            (_, Ok(())) => {}
        }
    }
}

fn duty((platform, bot): &PlatformBot) -> String {
    format!("commands {platform} {bot}")
}

async fn call(desk: Arc<Desk>, due: Due, stop: CancellationToken) -> Result<(), String> {
    let platform: Option<&Arc<dyn Platform>> = desk.platforms().get(&due.name.0);
    let platform = platform.ok_or("this server does not run the platform")?;
    tokio::select! {
        declared = platform.declare_commands(&due.bot, &due.commands) => declared,
        () = tokio::time::sleep(CALL_TIME) => Err(format!("the platform did not answer within {CALL_TIME:?}")),
        () = stop.cancelled() => Err("the server is stopping".into()), // the next start declares it again
    }
}

#[cfg(test)]
mod tests;
