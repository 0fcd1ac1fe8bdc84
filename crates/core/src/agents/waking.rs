//! Calls the wake URLs of agents without a socket, and repeats the call until the agent connects or reads its inbox.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_wire::InstanceNo;

use super::{AgentsPlane, Messages};
use crate::delivery::DeliveryPlane;
use crate::delivery::wake::{Waits, WakeOutcome, WakeTask, Waker};
use crate::directory::facts::Agent;
use crate::rules::WakeRules;

/// Agents whose wake URL is being called, and the time of the last check of all of them.
pub struct Calls {
    waker: Waker,
    swept_ms: u64,
}

impl Calls {
    /// Time until the next task is due, unless a wake is requested before.
    pub fn pause(&self, delivery: &DeliveryPlane) -> Duration {
        delivery.pause(&self.waker)
    }

    pub fn ended(&mut self, call: u64, how: WakeOutcome, now_ms: u64) {
        self.waker.ended(call, how, now_ms);
    }
}

impl Messages {
    /// State at start: wakes that were pending at the last shutdown continue.
    pub fn new_calls(&self) -> Calls {
        self.called_agents().into_iter().for_each(|agent| self.agents.live.ask_for_poke(agent));
        // These agents have no chats with waiting users, so no notice is sent.
        let rules = WakeRules { notice_after_ms: u64::MAX >> 1, ..self.rules.wake };
        Calls { waker: Waker::new(rules), swept_ms: 0 }
    }

    /// Returns when a wake was requested.
    pub async fn called(&self) {
        self.agents.live.poke_notify.notified().await;
    }

    /// The calls that are due, each with the agent's traces at the time of the wake request.
    pub async fn due_wake_tasks(&self, calls: &mut Calls) -> Vec<(WakeTask, Option<u64>)> {
        let Calls { waker, swept_ms } = calls;
        // Agents that connected or read their inbox since the request are awake. The interval of this check over all agents
        // grows with their number; each agent is also checked right before its call.
        let now_ms = self.env.steady_ms();
        if now_ms.saturating_sub(*swept_ms) > waker.sleepers().count() as u64 {
            *swept_ms = now_ms;
            let awake: Vec<InstanceNo> =
                waker.sleepers().filter(|agent| came(&self.agents, *agent, waker.dials(*agent))).collect();
            for agent in awake {
                waker.settled(agent);
                self.note_called(agent, false).await;
            }
        }
        for agent in self.agents.live.take_pokes() {
            let (tenant, dials) = (self.directory.tenant_of_no(agent), self.agents.traces_of(agent));
            waker.mail_waits(agent, Waits { tenant: &tenant, waited_ms: 0, dials, fresh: true }, now_ms);
        }
        let due = waker.due(self.env.steady_ms());
        due.into_iter().map(|task| (task, waker.dials(task.of()))).collect()
    }

    pub async fn run(&self, task: WakeTask, since: Option<u64>) -> (u64, WakeOutcome) {
        let (WakeTask::Poke(agent, call) | WakeTask::Notice(agent, call)) = task;
        let is_awake = came(&self.agents, agent, since) || self.agents.has_read_all(agent).await;
        let how = if is_awake { WakeOutcome::NotNeeded } else { self.poke(agent).await };
        if matches!(how, WakeOutcome::NotNeeded | WakeOutcome::NoWay) {
            self.note_called(agent, false).await;
        }
        (call, how)
    }

    async fn poke(&self, no: InstanceNo) -> WakeOutcome {
        let found = self.directory.read(|view| view.agent_no(no).cloned());
        let Some((agent, url)) = found.and_then(|it: Arc<Agent>| it.wake_url.clone().map(|url| (it, url))) else {
            return WakeOutcome::NoWay;
        };
        match self.delivery.served().claim_wake(no).await {
            Ok(true) => {}
            Ok(false) => return WakeOutcome::Answered, // another server calls it
            Err(error) => {
                tracing::warn!(%error, "claiming a wake failed; trying again");
                return WakeOutcome::Failed;
            }
        }
        self.publish_poke(&agent, "waking", "its wake URL is being called");
        let (how, why) = self.delivery.call_wake_url(&url).await;
        if let Some(why) = why {
            tracing::warn!(tenant = agent.tenant.as_str(), agent = agent.id.as_str(), why, "waking an agent failed");
            self.publish_poke(&agent, "wake_failed", &why);
        }
        how
    }
}

/// `since`: traces of the agent at the time of the wake request.
fn came(agents: &AgentsPlane, agent: InstanceNo, since: Option<u64>) -> bool {
    agents.is_here(agent) || since != Some(agents.traces_of(agent))
}
