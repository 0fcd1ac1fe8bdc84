//! Agents without a socket that are to be woken: their wake URL is called, and called again while nobody
//! comes to look.

use std::sync::Arc;

use frontdesk_core::Desk;
use frontdesk_core::delivery::wake::{Ended, Errand, POKES_MAX, WakeRules, Waker};
use frontdesk_core::directory::facts::Agent;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{call_wake_url, nap};

pub(super) async fn poke_agents(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    // Nobody waits in a chat for these: there is no notice to give.
    let mut waker = Waker::new(WakeRules { notice_after_ms: u64::MAX >> 1, ..desk.rules().wake });
    let (done, mut ended) = mpsc::channel(POKES_MAX);
    let mut swept_ms = 0;
    desk.messages().called_agents().into_iter().for_each(|agent| desk.agents().live().ask_for_poke(agent));
    loop {
        tokio::select! {
            () = desk.agents().live().poke_bell.notified() => {}
            Some((call, how)) = ended.recv() => waker.ended(call, how, desk.env().steady_ms()),
            () = tokio::time::sleep(nap(&desk, &waker)) => {}
            () = stop.cancelled() => return,
        }
        // Whoever listens or looked since has been woken, by us or not. The more there are, the more seldom
        // all of them are looked at; each is looked at before it is called in any case.
        let now_ms = desk.env().steady_ms();
        if now_ms.saturating_sub(swept_ms) > waker.sleepers().count() as u64 {
            swept_ms = now_ms;
            let awake: Vec<u64> = waker.sleepers().filter(|agent| came(&desk, *agent, waker.dials(*agent))).collect();
            for agent in awake {
                waker.settled(agent);
                desk.messages().note_called(agent, false).await;
            }
        }
        for agent in desk.agents().live().take_pokes() {
            waker.mail_waits(agent, 0, desk.agents().traces_of(agent), true, now_ms);
        }
        for errand in waker.due(desk.env().steady_ms()) {
            let Errand::Poke(agent, call) = errand else { continue };
            let since = waker.dials(agent);
            let (desk, done) = (desk.clone(), done.clone());
            drop(tracker.spawn(async move {
                let how = if came(&desk, agent, since) { Ended::NotNeeded } else { poke(&desk, agent).await };
                if matches!(how, Ended::NotNeeded | Ended::NoWay) {
                    desk.messages().note_called(agent, false).await;
                }
                let _ = done.send((call, how)).await; // the loop may have ended
            }));
        }
    }
}

/// `since`: its traces when it was first to be woken.
fn came(desk: &Desk, agent: u64, since: Option<u64>) -> bool {
    desk.agents().is_here(agent) || since != Some(desk.agents().traces_of(agent))
}

async fn poke(desk: &Desk, no: u64) -> Ended {
    let found = desk.directory().read(|view| view.agent_no(no).cloned());
    let Some((agent, url)) = found.and_then(|it: Arc<Agent>| it.wake_url.clone().map(|url| (it, url))) else {
        return Ended::NoWay;
    };
    desk.messages().say_poke(&agent, "waking", "its wake URL is being called");
    let (how, why) = call_wake_url(desk, &url).await;
    if let Some(why) = why {
        tracing::warn!(tenant = agent.tenant, agent = agent.id, why, "an agent could not be woken");
        desk.messages().say_poke(&agent, "wake_failed", &why);
    }
    how
}
