//! `[ledger]`, `[journal]` and `[explain]`: how long things are kept, and the loop that deletes what is older.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::{Desk, RetentionDays};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

const PURGE_EVERY: Duration = Duration::from_mins(1);
/// One server at a time deletes old rows.
const DUTY: &str = "retention";

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    pub dedup_days: u64,
    pub reach_days: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    pub retention_days: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    pub retention_days: u64,
}

pub(super) async fn forget_old(desk: Arc<Desk>, days: RetentionDays, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(PURGE_EVERY) => {}
            () = stop.cancelled() => return,
        }
        desk.delivery().sockets().forget_finished(desk.env().now_ms(), desk.env().steady_ms()); // of this server
        match desk.lease().take_duty(DUTY).await {
            Ok(Some(_)) => {}
            Ok(None) => continue, // another server does it
            Err(error) => {
                tracing::warn!(%error, "retention run failed; retrying in one minute");
                continue;
            }
        }
        if let Err(error) = desk.exchanges().finish_left().await {
            tracing::warn!(%error, "delivering late answers failed; retrying in one minute");
        }
        let retention = days.at(desk.env().now_ms(), desk.rules().media_ttl_ms);
        // Each step is small, so that mail is stored in between.
        while !stop.is_cancelled() {
            match desk.upkeep().purge(retention).await {
                Ok(step) if step.more => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "retention run failed; retrying in one minute");
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use frontdesk_core::Rules;
    use frontdesk_core::agents::AgentsCaller;
    use frontdesk_core::port::store::Retention;
    use frontdesk_store::memory::MemoryStore;
    use frontdesk_testkit::TestEnv;
    use frontdesk_testkit::desk::desk_over;
    use frontdesk_wire::agents::{AgentPut, DeliveryMeta, DeliveryPayload, PortableData};
    use frontdesk_wire::{InboxSeq, TenantId};

    use super::*;

    /// Until one round has run, on a clock that advances by itself.
    async fn forget_once(desk: &Arc<Desk>, days: RetentionDays) {
        desk.lease().renew().await.unwrap(); // the clock of the test runs ahead of it
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
        desk.directory().create_tenant(&"home".into()).await.unwrap();
        let home = TenantId::from("home");
        let who = AgentsCaller::of(&home);
        desk.agents().put_agent(who, &"alice".into(), AgentPut::default()).await.unwrap();
        let payload = |text: &str| {
            let meta = DeliveryMeta { dispatch_id: text.into(), ..DeliveryMeta::default() };
            DeliveryPayload::Augment { content: text.into(), meta }
        };
        desk.messages().deliver(who, "alice", &payload("old")).await.unwrap();
        env.advance_ms(2 * 86_400_000);
        desk.messages().deliver(who, "alice", &payload("young")).await.unwrap();
        for (inbox, left) in [(0, vec!["old", "young"]), (3, vec!["old", "young"]), (2, vec!["young"])] {
            env.advance_ms(1);
            forget_once(&desk, RetentionDays { dedup: 30, explain: 7, inbox, journal: 0, chat: 0, reach: 0 }).await;
            let texts: Vec<String> = desk
                .inboxes()
                .inbox(who, "alice", InboxSeq(0))
                .await
                .unwrap()
                .messages
                .into_iter()
                .map(|it| it.text)
                .collect();
            assert_eq!(texts, left, "kept for {inbox} days");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn everything_that_is_old_is_forgotten_at_once() {
        let desk = desk_over(Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()), Rules::default()).await;
        for number in 0..500 {
            let row = PortableData { id: number.to_string(), expires_at: Some(1), ..PortableData::default() };
            desk.stores().data.data_put(&"acme".into(), row).await.unwrap();
        }
        forget_once(&desk, RetentionDays { dedup: 30, explain: 7, inbox: 0, journal: 0, chat: 0, reach: 0 }).await;
        let left = Retention { now_ms: desk.env().now_ms(), ..Retention::default() };
        assert_eq!(
            desk.upkeep().purge(left).await.unwrap().gone,
            0,
            "more may expire in a minute than one purge takes"
        );
    }
}
