//! The alarm clock's hand: takes what is due, claims it, fires it, and notes how it ended.
//!
//! Claimed before it is fired and ended after, both durable: a crash in between fires it again, and
//! after a noted 2xx it never goes again.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::alarms::schedule::Next;
use frontdesk_core::alarms::{conclude, is_missed};
use frontdesk_core::desk::{LEASE_MS, Loading};
use frontdesk_core::port::alarms::{Conclusion, Shot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Shots claimed in one commit.
const BATCH: usize = 256;
/// The longest nap, so that a jump of the clock or a sleep of the machine is noticed.
const NAP_MAX: Duration = Duration::from_millis(500);
/// How often the armed ones are counted.
const COUNT_EVERY_MS: u64 = 15_000;
/// A store that does not answer is asked again after this.
const STORE_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn ring(desk: Arc<Desk>, tracker: TaskTracker, stop: CancellationToken) {
    let mut loading = Loading::default();
    let mut counted_ms = 0;
    let mut swept_ms = desk.env.now_ms();
    loop {
        if loading.done && desk.env.now_ms() >= desk.next_load_ms() {
            loading = desk.begin_load(&loading);
        }
        if !loading.done
            && let Err(error) = desk.load_shots(&mut loading).await
        {
            tracing::error!(%error, "armed shots cannot be read; trying again");
            tokio::time::sleep(STORE_PAUSE).await;
        }
        // Somebody may have claimed a shot and gone; its time in the schedule is over by then.
        if desk.env.now_ms().saturating_sub(swept_ms) > LEASE_MS {
            swept_ms = desk.env.now_ms();
            if let Err(error) = desk.find_forgotten_shots().await {
                tracing::error!(%error, "overdue shots cannot be looked for");
            }
        }
        let took = fire_due(&desk, &tracker).await;
        if desk.env.now_ms().saturating_sub(counted_ms) > COUNT_EVERY_MS {
            counted_ms = desk.env.now_ms();
            if let Ok(armed) = desk.store.armed_count().await {
                desk.meters.alarms_armed.set(i64::try_from(armed).unwrap_or(i64::MAX));
            }
        }
        if (took > 0 || !loading.done) && !stop.is_cancelled() {
            continue;
        }
        let now_ms = desk.env.now_ms();
        let next_ms = desk.alarms.schedule().next_ms();
        let nap = next_ms.map_or(NAP_MAX, |at| Duration::from_millis(at.saturating_sub(now_ms)).min(NAP_MAX));
        tokio::select! {
            () = desk.alarms.bell.notified() => {}
            () = tokio::time::sleep(nap) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Claims and fires what is due and may go. Returns how many were taken from the schedule.
async fn fire_due(desk: &Arc<Desk>, tracker: &TaskTracker) -> usize {
    let now_ms = desk.env.now_ms();
    let due = desk.alarms.due(now_ms, BATCH);
    if due.is_empty() {
        return 0;
    }
    let ids = due.iter().map(|next| next.id).collect();
    let claimed = match desk.store.claim_shots(ids, now_ms, now_ms, now_ms + LEASE_MS).await {
        Ok(claimed) => claimed,
        Err(error) => {
            tracing::error!(%error, "due shots cannot be claimed; they stay armed");
            let mut schedule = desk.alarms.schedule();
            for next in due {
                schedule.finished(next.lane);
                schedule.put_back(next, now_ms + 1_000);
            }
            return 0;
        }
    };
    let mut claimed: std::collections::HashMap<u64, Shot> = claimed.into_iter().map(|shot| (shot.id, shot)).collect();
    for next in &due {
        match claimed.remove(&next.id) {
            Some(shot) => {
                let desk = desk.clone();
                let lane = next.lane;
                tracker.spawn(async move { fire(&desk, shot, lane).await });
            }
            None => desk.alarms.schedule().finished(next.lane), // cancelled, replaced, or somebody else's
        }
    }
    due.len()
}

async fn fire(desk: &Arc<Desk>, shot: Shot, lane: u32) {
    let began_ms = desk.env.now_ms();
    let late_ms = began_ms.saturating_sub(shot.next_ms);
    let end = if is_missed(&shot, began_ms) {
        Conclusion::Skipped { note: format!("it came {} s too late", late_ms / 1000) }
    } else {
        let answer = desk.fire(&shot).await;
        let mut dice = [0; 8];
        desk.env.fill(&mut dice);
        conclude(&shot, &answer, desk.env.now_ms(), u64::from_le_bytes(dice))
    };
    desk.alarms.schedule().answered(lane);
    desk.alarms.bell.notify_one();
    // What happened must be written down, however long the store takes: otherwise it happens again.
    while let Err(error) = desk.store.conclude(vec![(shot.clone(), end.clone())], desk.env.now_ms()).await {
        tracing::error!(%error, job = shot.job_id, "the end of a fire cannot be written down; trying again");
        tokio::time::sleep(STORE_PAUSE).await;
    }
    desk.note_fire(&shot, &end, late_ms);
    {
        let mut schedule = desk.alarms.schedule();
        schedule.noted();
        if let Conclusion::Retry { next_ms, .. } = end {
            schedule.put_back(Next { id: shot.id, lane }, next_ms);
        }
    }
    desk.alarms.bell.notify_one();
}
