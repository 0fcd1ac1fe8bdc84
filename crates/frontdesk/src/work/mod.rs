//! The desk's own errands: waking sleepers, ringing alarms, telling those who wait, forgetting what is old.
//!
//! Tasks are spawned here and in relay sessions only; each is tracked and ends when the desk stops.

mod agents;
mod alarms;

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::meters::Why;
use frontdesk_core::port::outcall::OutcallError;
use frontdesk_core::port::store::Retention;
use frontdesk_core::wake::{Errand, Waker};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::edge::RetentionDays;

/// Pokes under way at once; more wait for their turn.
const POKES_MAX: usize = 64;
/// A wake's answer is read no further than this.
const POKE_ANSWER_BYTES: usize = 4096;
const PURGE_EVERY: Duration = Duration::from_mins(1);
const DAY_MS: u64 = 86_400_000;
/// The longest nap of the wake loop, so that a jump of the clock is noticed.
const NAP_MAX: Duration = Duration::from_secs(30);

pub(crate) fn begin(desk: &Arc<Desk>, retention: RetentionDays, tracker: &TaskTracker, stop: &CancellationToken) {
    tracker.spawn(wake_sleepers(desk.clone(), tracker.clone(), stop.clone()));
    tracker.spawn(agents::poke_agents(desk.clone(), tracker.clone(), stop.clone()));
    tracker.spawn(alarms::ring(desk.clone(), tracker.clone(), stop.clone()));
    tracker.spawn(forget_old(desk.clone(), retention, stop.clone()));
}

async fn wake_sleepers(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut waker = Waker::new(desk.rules.wake);
    let (done, mut ended) = mpsc::channel(POKES_MAX);
    match desk.store.waiting().await {
        Ok(waiting) => waiting.iter().for_each(|row| desk.switchboard.note_unserved(row.instance)),
        Err(error) => tracing::error!(%error, "it is unknown who has mail waiting; new mail will tell"),
    }
    loop {
        let nap = waker
            .next_due_ms()
            .map_or(NAP_MAX, |due_ms| Duration::from_millis(due_ms.saturating_sub(desk.env.now_ms())).min(NAP_MAX));
        tokio::select! {
            () = desk.switchboard.unserved_bell.notified() => {}
            Some((instance, how)) = ended.recv() => match how {
                Poked::Answered => waker.poked(instance, true, desk.env.now_ms()),
                Poked::Failed => waker.poked(instance, false, desk.env.now_ms()),
                Poked::NoWay => waker.unwakeable(instance),
            },
            () = tokio::time::sleep(nap) => {}
            () = stop.cancelled() => return,
        }
        for instance in desk.switchboard.take_unserved() {
            match desk.store.pending(instance, 0, 1).await {
                Ok(rows) => {
                    if let Some((_, oldest)) = rows.first() {
                        let seen_ms = desk.switchboard.presence(instance).seen_ms;
                        waker.mail_waits(instance, oldest.at_ms, seen_ms, desk.env.now_ms());
                    }
                }
                Err(error) => tracing::error!(%error, "it is unknown whether mail waits; new mail will tell"),
            }
        }
        let served: Vec<u64> = waker.sleepers().filter(|instance| desk.switchboard.is_served(*instance)).collect();
        for instance in served {
            waker.settled(instance);
        }
        for errand in waker.due(desk.env.now_ms()) {
            let (desk, done) = (desk.clone(), done.clone());
            match errand {
                Errand::Poke(instance) => drop(tracker.spawn(async move {
                    let how = poke(&desk, instance).await;
                    let _ = done.send((instance, how)).await; // the loop may have ended
                })),
                Errand::Notice(instance) => drop(tracker.spawn(async move {
                    if let Err(error) = desk.notify_waiting(instance).await {
                        tracing::error!(%error, "people could not be told that their agent is away");
                    }
                })),
            }
        }
    }
}

enum Poked {
    Answered,
    Failed,
    NoWay,
}

/// GET the wake URL: payload-free, unsigned, through the guarded client.
async fn poke(desk: &Desk, instance_no: u64) -> Poked {
    let found = desk.registry.read(|view| view.instance_no(instance_no).cloned());
    let Some(instance) = found else { return Poked::NoWay };
    let Some(url) = &instance.wake_url else {
        desk.meters.wakes.get_or_create(&Why { why: "no_wake_url" }).inc();
        desk.say_wake(instance_no, "wake_failed", "it has no wake URL; it must dial by itself").await;
        return Poked::NoWay;
    };
    desk.say_wake(instance_no, "waking", "its wake URL is being called").await;
    let (how, why) = call_wake_url(desk, url).await;
    if let Some(why) = why {
        tracing::warn!(tenant = instance.tenant, instance = instance.name, why, "an agent could not be woken");
        desk.say_wake(instance_no, "wake_failed", &why).await;
    }
    how
}

/// How it went, and why not.
async fn call_wake_url(desk: &Desk, url: &str) -> (Poked, Option<String>) {
    let (how, why, text) = match desk.outcall.get(url, POKE_ANSWER_BYTES).await {
        // An answer over the limit is an answer.
        Ok(answer) if (200..300).contains(&answer.status) => (Poked::Answered, "answered", None),
        Err(OutcallError::TooLarge(_)) => (Poked::Answered, "answered", None),
        Ok(answer) => (Poked::Failed, "bad_status", Some(format!("its wake URL answered {}", answer.status))),
        Err(OutcallError::Refused) => {
            (Poked::Failed, "refused", Some("its wake URL is not an allowed destination".into()))
        }
        Err(error) => (Poked::Failed, "failed", Some(error.to_string())),
    };
    desk.meters.wakes.get_or_create(&Why { why }).inc();
    (how, text)
}

async fn forget_old(desk: Arc<Desk>, days: RetentionDays, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(PURGE_EVERY) => {}
            () = stop.cancelled() => return,
        }
        let now_ms = desk.env.now_ms();
        let before = |days: u64| now_ms.saturating_sub(days.saturating_mul(DAY_MS));
        let or_never = |days: u64| if days == 0 { 0 } else { before(days) };
        let retention = Retention {
            now_ms,
            events_before_ms: before(days.dedup),
            verdicts_before_ms: before(days.explain),
            letters_before_ms: or_never(days.inbox),
            journal_before_ms: or_never(days.journal),
            chat_before_ms: or_never(days.chat),
            reach_before_ms: or_never(days.reach),
        };
        // Each step is small, so that mail goes between.
        while !stop.is_cancelled() {
            match desk.store.purge(retention).await {
                Ok(step) if step.more => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "retention run failed; it is tried again in a minute");
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use frontdesk_core::Rules;
    use frontdesk_core::desk::Speaker;
    use frontdesk_store::memory::MemoryStore;
    use frontdesk_testkit::TestEnv;
    use frontdesk_testkit::desk::desk_over;
    use frontdesk_wire::agents::{AgentPut, DeliveryMeta, DeliveryPayload, PortableData};

    use super::*;

    /// Until it has been at work once, on a clock that moves by itself.
    async fn forget_once(desk: &Arc<Desk>, days: RetentionDays) {
        let stop = CancellationToken::new();
        let forgetting = tokio::spawn(forget_old(desk.clone(), days, stop.clone()));
        tokio::time::sleep(PURGE_EVERY + PURGE_EVERY / 2).await;
        stop.cancel();
        forgetting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn inboxes_are_kept_for_so_many_days_or_for_ever() {
        let env = Arc::new(TestEnv::default());
        let desk = desk_over(Arc::new(MemoryStore::new(1)), env.clone(), Rules::default()).await;
        desk.create_tenant("home").await.unwrap();
        let who = Speaker { tenant: "home", ..Speaker::default() };
        desk.put_agent(who, "alice", AgentPut::default()).await.unwrap();
        let word = |text: &str| {
            let meta = DeliveryMeta { dispatch_id: text.into(), ..DeliveryMeta::default() };
            DeliveryPayload::Augment { content: text.into(), meta }
        };
        desk.deliver(who, "alice", &word("old")).await.unwrap();
        env.advance_ms(2 * DAY_MS);
        desk.deliver(who, "alice", &word("young")).await.unwrap();
        for (inbox, left) in [(0, vec!["old", "young"]), (3, vec!["old", "young"]), (2, vec!["young"])] {
            env.advance_ms(1);
            forget_once(&desk, RetentionDays { dedup: 30, explain: 7, inbox, journal: 0, chat: 0, reach: 0 }).await;
            let texts: Vec<String> =
                desk.inbox(who, "alice", 0).await.unwrap().messages.into_iter().map(|it| it.text).collect();
            assert_eq!(texts, left, "kept for {inbox} days");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn everything_that_is_old_is_forgotten_at_once() {
        let desk = desk_over(Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()), Rules::default()).await;
        for number in 0..500 {
            let row = PortableData { id: number.to_string(), expires_at: Some(1), ..PortableData::default() };
            desk.store.data_put("acme", row).await.unwrap();
        }
        forget_once(&desk, RetentionDays { dedup: 30, explain: 7, inbox: 0, journal: 0, chat: 0, reach: 0 }).await;
        let left = Retention { now_ms: desk.env.now_ms(), ..Retention::default() };
        assert_eq!(desk.store.purge(left).await.unwrap().gone, 0, "more may expire in a minute than one purge takes");
    }
}
