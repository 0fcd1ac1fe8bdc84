//! Agents without a socket that are to be woken: their wake URL is called, and called again while nobody
//! comes to look.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::registry::facts::Agent;
use frontdesk_core::wake::{Errand, WakeRules, Waker};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{NAP_MAX, POKES_MAX, Poked, call_wake_url};

pub(super) async fn poke_agents(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    // Nobody waits in a chat for these: there is no notice to give.
    let mut waker = Waker::new(WakeRules { notice_after_ms: u64::MAX >> 1, ..desk.rules.wake });
    let (done, mut ended) = mpsc::channel(POKES_MAX);
    desk.called_agents().into_iter().for_each(|agent| desk.rooms.ask_for_poke(agent));
    loop {
        let nap = waker
            .next_due_ms()
            .map_or(NAP_MAX, |due_ms| Duration::from_millis(due_ms.saturating_sub(desk.env.now_ms())).min(NAP_MAX));
        tokio::select! {
            () = desk.rooms.poke_bell.notified() => {}
            Some((agent, how)) = ended.recv() => match how {
                Poked::Answered => waker.poked(agent, true, desk.env.now_ms()),
                Poked::Failed => waker.poked(agent, false, desk.env.now_ms()),
                Poked::NoWay => waker.settled(agent),
            },
            () = tokio::time::sleep(nap) => {}
            () = stop.cancelled() => return,
        }
        let now_ms = desk.env.now_ms();
        for agent in desk.rooms.take_pokes() {
            waker.mail_waits(agent, now_ms, desk.rooms.attendance.traffic_ms(agent), now_ms);
        }
        // Whoever listens or looked since has been woken, by us or not.
        let awake: Vec<u64> = waker.sleepers().filter(|agent| came(&desk, &waker, *agent)).collect();
        for agent in awake {
            waker.settled(agent);
            desk.note_called(agent, false).await;
        }
        for errand in waker.due(now_ms) {
            let Errand::Poke(agent) = errand else { continue };
            let (desk, done) = (desk.clone(), done.clone());
            drop(tracker.spawn(async move {
                let how = poke(&desk, agent).await;
                let _ = done.send((agent, how)).await; // the loop may have ended
            }));
        }
    }
}

fn came(desk: &Desk, waker: &Waker, agent: u64) -> bool {
    desk.came_since(agent, waker.born_ms(agent).unwrap_or(u64::MAX))
}

async fn poke(desk: &Desk, no: u64) -> Poked {
    let found = desk.registry.read(|view| view.agent_no(no).cloned());
    let Some((agent, url)) = found.and_then(|it: Arc<Agent>| it.wake_url.clone().map(|url| (it, url))) else {
        return Poked::NoWay;
    };
    desk.say_poke(&agent, "waking", "its wake URL is being called");
    let (how, why) = call_wake_url(desk, &url).await;
    if let Some(why) = why {
        tracing::warn!(tenant = agent.tenant, agent = agent.id, why, "an agent could not be woken");
        desk.say_poke(&agent, "wake_failed", &why);
    }
    how
}
