//! Waking instances that have mail and no socket, and telling the people who wait for them.

use std::time::Duration;

use super::DeliveryPlane;
use super::switchboard::Unserved;
use super::wake::{Ended, Errand, Waker};
use crate::meters::Why;
use crate::port::outcall::OutcallError;

/// A wake's answer is read no further than this.
const ANSWER_MAX_BYTES: usize = 4096;
/// The longest pause between two looks, so that a jump of the clock is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(30);

impl DeliveryPlane {
    /// The wakes of a desk that starts: whoever has mail is looked at first.
    pub async fn new_waker(&self) -> Waker {
        match self.ledger.waiting().await {
            Ok(waiting) => {
                for row in waiting {
                    self.switchboard.note_unserved(row.instance, Unserved::NewMail);
                }
            }
            Err(error) => tracing::error!(%error, "reading who has mail waiting failed; new mail will tell"),
        }
        Waker::new(self.rules.wake)
    }

    /// Returns when an instance got mail that no socket of it takes.
    pub async fn unserved(&self) {
        self.switchboard.unserved_bell.notified().await;
    }

    /// Until the next errand of a waker, on a steady clock.
    pub fn pause(&self, waker: &Waker) -> Duration {
        let until = |due_ms: u64| Duration::from_millis(due_ms.saturating_sub(self.env.steady_ms()));
        waker.next_due_ms().map_or(PAUSE_MAX, until).min(PAUSE_MAX)
    }

    /// Tells the waker of instances that got mail while no socket served them, and returns what is to be done now.
    pub async fn wake_errands(&self, waker: &mut Waker) -> Vec<Errand> {
        for (instance, why) in self.switchboard.take_unserved() {
            match self.ledger.pending(instance, 0, 1).await {
                Ok(rows) => match rows.first() {
                    Some((_, oldest)) => {
                        // A time that lies ahead was written before the clock was set back.
                        let waited_ms = self.env.now_ms().saturating_sub(oldest.at_ms);
                        let dials = self.switchboard.dials(instance);
                        let is_new = why == Unserved::NewMail;
                        waker.mail_waits(instance, waited_ms, dials, is_new, self.env.steady_ms());
                    }
                    None => waker.settled(instance),
                },
                Err(error) => tracing::error!(%error, "reading whether mail waits failed; new mail will tell"),
            }
        }
        waker.due(self.env.steady_ms())
    }

    /// Runs an errand, unless the instance came meanwhile and has acked everything.
    pub async fn run(&self, errand: Errand) -> (u64, Ended) {
        let (Errand::Poke(instance, call) | Errand::Notice(instance, call)) = errand;
        if !self.is_needed(instance).await {
            return (call, Ended::NotNeeded);
        }
        let how = match errand {
            Errand::Poke(..) => self.poke(instance).await,
            Errand::Notice(..) => {
                if let Err(error) = self.notify_waiting(instance).await {
                    tracing::error!(%error, "telling people that their agent is away failed");
                }
                Ended::Noticed
            }
        };
        (call, how)
    }

    async fn is_needed(&self, instance: u64) -> bool {
        if self.switchboard.is_served(instance) {
            return false;
        }
        match self.ledger.pending(instance, 0, 1).await {
            Ok(rows) => !rows.is_empty(),
            Err(error) => {
                tracing::error!(%error, "reading whether mail waits failed; the agent is woken all the same");
                true
            }
        }
    }

    async fn poke(&self, instance_no: u64) -> Ended {
        let found = self.directory.read(|view| view.instance_no(instance_no).cloned());
        let Some(instance) = found else { return Ended::NoWay };
        let Some(url) = &instance.wake_url else {
            self.meters.wakes.get_or_create(&Why { why: "no_wake_url" }).inc();
            self.say_wake(instance_no, "wake_failed", "it has no wake URL; it must dial by itself").await;
            return Ended::NoWay;
        };
        self.say_wake(instance_no, "waking", "its wake URL is being called").await;
        let (how, why) = self.call_wake_url(url).await;
        self.note_wake_failure(instance_no, why.as_deref());
        if let Some(why) = why {
            tracing::warn!(tenant = instance.tenant, instance = instance.name, why, "waking an agent failed");
            self.say_wake(instance_no, "wake_failed", &why).await;
        }
        how
    }

    /// GET the wake URL: payload-free, unsigned, through the guarded client. How it went, and why not.
    pub(crate) async fn call_wake_url(&self, url: &str) -> (Ended, Option<String>) {
        let (how, why, text) = match self.outcall.get(url, ANSWER_MAX_BYTES).await {
            // An answer over the limit is an answer.
            Ok(answer) if (200..300).contains(&answer.status) => (Ended::Answered, "answered", None),
            Err(OutcallError::TooLarge(_)) => (Ended::Answered, "answered", None),
            Ok(answer) => (Ended::Failed, "bad_status", Some(format!("its wake URL answered {}", answer.status))),
            Err(OutcallError::Refused) => {
                (Ended::Failed, "refused", Some("its wake URL is not an allowed destination".into()))
            }
            Err(error) => (Ended::Failed, "failed", Some(error.to_string())),
        };
        self.meters.wakes.get_or_create(&Why { why }).inc();
        (how, text)
    }
}
