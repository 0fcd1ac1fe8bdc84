//! Wakes instances that have mail and no socket, and notifies the users who wait for them.

use std::time::Duration;

use frontdesk_wire::InstanceNo;

use super::DeliveryPlane;
use super::unserved::Unserved;
use super::wake::{Waits, WakeOutcome, WakeTask, Waker};
use crate::meters::Why;
use crate::port::outcall::OutcallError;

/// Maximum size of the response of a wake URL that is read.
const ANSWER_MAX_BYTES: usize = 4096;
/// A claim whose answer took longer than this may have ended meanwhile.
const CLAIM_MS: u64 = 2_000;
/// Pause before mail is looked for again that could not be read.
const RETRY_TIME: Duration = Duration::from_secs(1);
/// Longest pause between two checks, so that a clock step is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(30);

impl DeliveryPlane {
    /// State at start: all instances with waiting mail are checked first.
    pub async fn new_waker(&self) -> Waker {
        if let Err(error) = self.served.look_for_unserved().await {
            tracing::error!(%error, "reading instances with mail failed; retrying when mail arrives");
        }
        Waker::new(self.rules.wake)
    }

    /// Returns when an instance must be checked for waiting mail.
    pub async fn unserved(&self) {
        self.sockets.unserved().changed().await;
    }

    /// Time until the next task of a waker.
    pub fn pause(&self, waker: &Waker) -> Duration {
        let until = |due_ms: u64| Duration::from_millis(due_ms.saturating_sub(self.env.steady_ms()));
        let longest = if self.sockets.unserved().is_empty() { PAUSE_MAX } else { RETRY_TIME };
        waker.next_due_ms().map_or(longest, until).min(longest)
    }

    /// Passes instances with waiting mail to the waker, and returns the tasks that are due.
    pub async fn due_wake_tasks(&self, waker: &mut Waker) -> Vec<WakeTask> {
        for (instance, why) in self.sockets.unserved().take() {
            match self.served.unserved_mail(instance).await {
                Ok(Some(oldest)) => {
                    // A time in the future was stored before the clock was set back; it counts as no wait.
                    let waited_ms = self.env.now_ms().saturating_sub(oldest.at_ms);
                    let dials = self.sockets.dials(instance);
                    let is_new = why == Unserved::NewMail;
                    if why == Unserved::NewUrl {
                        waker.url_changed(instance, self.env.steady_ms());
                    }
                    let tenant = &self.directory.tenant_of_no(instance);
                    let waiting = Waits { tenant, waited_ms, dials, fresh: is_new };
                    waker.mail_waits(instance, waiting, self.env.steady_ms());
                }
                Ok(None) => waker.settled(instance),
                Err(error) => {
                    tracing::error!(%error, "reading waiting mail failed; retrying");
                    self.sockets.unserved().keep(instance, why);
                }
            }
        }
        waker.due(self.env.steady_ms())
    }

    /// Runs a wake task, unless the instance has connected and acked everything.
    pub async fn run(&self, task: WakeTask) -> (u64, WakeOutcome) {
        let (WakeTask::Poke(instance, call) | WakeTask::Notice(instance, call)) = task;
        if !self.is_needed(instance).await {
            return (call, WakeOutcome::NotNeeded);
        }
        let how = match task {
            WakeTask::Poke(..) => self.poke(instance).await,
            WakeTask::Notice(..) => {
                if let Err(error) = self.notify_waiting(instance).await {
                    tracing::error!(%error, "sending notices that an agent is away failed");
                }
                WakeOutcome::Noticed
            }
        };
        (call, how)
    }

    async fn is_needed(&self, instance: InstanceNo) -> bool {
        match self.served.unserved_mail(instance).await {
            Ok(oldest) => oldest.is_some(),
            Err(error) => {
                tracing::error!(%error, "reading waiting mail failed; the agent is woken anyway");
                true
            }
        }
    }

    async fn poke(&self, instance_no: InstanceNo) -> WakeOutcome {
        let found = self.directory.read(|view| view.instance_no(instance_no).cloned());
        let Some(instance) = found else { return WakeOutcome::NoWay };
        let Some(url) = &instance.wake_url else {
            self.meters.wakes.get_or_create(&Why { why: "no_wake_url" }).inc();
            self.publish_wake(instance_no, "wake_failed", "no wake URL; the agent must connect by itself").await;
            return WakeOutcome::NoWay;
        };
        let began_ms = self.env.steady_ms();
        match self.served.claim_wake(instance_no).await {
            Ok(true) if self.served.may_act() && self.env.steady_ms().saturating_sub(began_ms) < CLAIM_MS => {}
            // This server was cut off from the store: others may wake the agent. It claims again.
            Ok(true) => return WakeOutcome::Failed,
            // Another server calls it. If the agent does not come, this one looks again after the cool-down.
            Ok(false) => return WakeOutcome::Answered,
            Err(error) => {
                tracing::warn!(%error, "claiming a wake failed; trying again");
                return WakeOutcome::Failed;
            }
        }
        self.publish_wake(instance_no, "waking", "its wake URL is being called").await;
        let (how, why) = self.call_wake_url(url).await;
        self.note_wake_failure(instance_no, why.as_deref());
        if let Some(why) = why {
            tracing::warn!(
                tenant = instance.tenant.as_str(),
                instance = instance.name.as_str(),
                why,
                "waking an agent failed"
            );
            self.publish_wake(instance_no, "wake_failed", &why).await;
        }
        how
    }

    /// Calls the wake URL with GET, without payload and signature, through the guarded client. Returns the result, and
    /// the reason of a failure.
    pub(crate) async fn call_wake_url(&self, url: &str) -> (WakeOutcome, Option<String>) {
        let (how, why, text) = match self.outcall.get(url, ANSWER_MAX_BYTES).await {
            // A response above the limit is still a response.
            Ok(answer) if (200..300).contains(&answer.status) => (WakeOutcome::Answered, "answered", None),
            Err(OutcallError::TooLarge(_)) => (WakeOutcome::Answered, "answered", None),
            Ok(answer) => (WakeOutcome::Failed, "bad_status", Some(format!("its wake URL answered {}", answer.status))),
            Err(OutcallError::Refused) => {
                (WakeOutcome::Failed, "refused", Some("its wake URL is not an allowed destination".into()))
            }
            Err(error) => (WakeOutcome::Failed, "failed", Some(error.to_string())),
        };
        self.meters.wakes.get_or_create(&Why { why }).inc();
        (how, text)
    }
}
