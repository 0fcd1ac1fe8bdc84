//! Agents without a socket that are to be woken: their wake URL is called, and called again while nobody
//! comes to look.

use std::sync::Arc;

use super::{AgentsPlane, Messages};
use crate::delivery::wake::{Ended, Errand, Waker};
use crate::directory::facts::Agent;
use crate::rules::WakeRules;

/// Agents that are being called, and when all of them were last looked at.
pub struct Calls {
    pub waker: Waker,
    swept_ms: u64,
}

impl Messages {
    /// The wakes of a desk that starts: whoever was being called is called again.
    pub fn new_calls(&self) -> Calls {
        self.called_agents().into_iter().for_each(|agent| self.agents.live.ask_for_poke(agent));
        // Nobody waits in a chat for these: there is no notice to give.
        let rules = WakeRules { notice_after_ms: u64::MAX >> 1, ..self.rules.wake };
        Calls { waker: Waker::new(rules), swept_ms: 0 }
    }

    /// Returns when an agent is to be called.
    pub async fn called(&self) {
        self.agents.live.poke_bell.notified().await;
    }

    /// What is to be done now: each with the agent's traces when it was first to be woken.
    pub async fn call_errands(&self, calls: &mut Calls) -> Vec<(Errand, Option<u64>)> {
        let Calls { waker, swept_ms } = calls;
        // Whoever listens or looked since has been woken, by us or not. The more there are, the more seldom
        // all of them are looked at; each is looked at before it is called in any case.
        let now_ms = self.env.steady_ms();
        if now_ms.saturating_sub(*swept_ms) > waker.sleepers().count() as u64 {
            *swept_ms = now_ms;
            let awake: Vec<u64> =
                waker.sleepers().filter(|agent| came(&self.agents, *agent, waker.dials(*agent))).collect();
            for agent in awake {
                waker.settled(agent);
                self.note_called(agent, false).await;
            }
        }
        for agent in self.agents.live.take_pokes() {
            waker.mail_waits(agent, 0, self.agents.traces_of(agent), true, now_ms);
        }
        let due = waker.due(self.env.steady_ms());
        due.into_iter().map(|errand| (errand, waker.dials(errand.of()))).collect()
    }

    pub async fn run(&self, errand: Errand, since: Option<u64>) -> (u64, Ended) {
        let (Errand::Poke(agent, call) | Errand::Notice(agent, call)) = errand;
        let how = if came(&self.agents, agent, since) { Ended::NotNeeded } else { self.poke(agent).await };
        if matches!(how, Ended::NotNeeded | Ended::NoWay) {
            self.note_called(agent, false).await;
        }
        (call, how)
    }

    async fn poke(&self, no: u64) -> Ended {
        let found = self.directory.read(|view| view.agent_no(no).cloned());
        let Some((agent, url)) = found.and_then(|it: Arc<Agent>| it.wake_url.clone().map(|url| (it, url))) else {
            return Ended::NoWay;
        };
        self.say_poke(&agent, "waking", "its wake URL is being called");
        let (how, why) = self.delivery.call_wake_url(&url).await;
        if let Some(why) = why {
            tracing::warn!(tenant = agent.tenant, agent = agent.id, why, "waking an agent failed");
            self.say_poke(&agent, "wake_failed", &why);
        }
        how
    }
}

/// `since`: its traces when it was first to be woken.
fn came(agents: &AgentsPlane, agent: u64, since: Option<u64>) -> bool {
    agents.is_here(agent) || since != Some(agents.traces_of(agent))
}
