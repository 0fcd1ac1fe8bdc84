//! Two servers over one store: alarms that one of them is slow with, and inboxes that both write.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::agents::AgentsCaller;
use frontdesk_core::directory::Identity;
use frontdesk_core::port::alarms::{Alarm, Concluded, Conclusion};
use frontdesk_core::port::store::Store;
use frontdesk_core::{Desk, Rules};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_over;
use frontdesk_wire::agents::{AgentPut, DeliveryMeta, DeliveryPayload, Origin};
use frontdesk_wire::cron::ProvisionAlarm;
use frontdesk_wire::{InboxSeq, TenantId};

use crate::changes::two_desks;

over_each_store!(
    a_slow_server_does_not_arm_again_what_another_one_fired,
    a_start_leaves_claimed_alarms,
    a_reader_misses_nothing_that_two_servers_write_to_one_inbox,
);

/// An alarm of a new agent.
async fn armed(desk: &Desk) -> Alarm {
    desk.directory().create_tenant(&"acme".into()).await.unwrap();
    let who = Identity { tenant: "acme".into(), instance: Some("sleeper".into()) };
    let proven = desk.directory().proven_instance(&who).await.unwrap();
    let ask: ProvisionAlarm =
        serde_json::from_str(r#"{"job_id":"tea","fire_at":"2030-01-01T00:00:00Z","agent_callback_url":"relay:"}"#)
            .unwrap();
    desk.cron().provision_alarm(&proven, ask).await.unwrap();
    desk.cron().armed(proven.instance.no, 9).await.unwrap().remove(0)
}

/// A starting server must not fire what a live one is firing.
async fn a_start_leaves_claimed_alarms(store: Arc<dyn Store>) {
    let env = Arc::new(TestEnv::default());
    let one = desk_over(store.clone(), env.clone(), Rules::default()).await;
    let due_ms = armed(&one).await.next_ms;
    let claim = async |desk: &Desk, id: u64, now_ms: u64| {
        desk.stores().alarms.claim_alarms(vec![id], now_ms, now_ms, now_ms + 1_000).await.unwrap().len()
    };
    let id = one.stores().alarms.next_alarms((0, 0), due_ms, 9).await.unwrap()[0].id;
    assert_eq!(claim(&one, id, due_ms).await, 1);
    let other = desk_over(store, env, Rules::default()).await;
    assert_eq!(claim(&other, id, due_ms + 500).await, 0, "the first server is still at it");
    assert_eq!(claim(&other, id, due_ms + 1_000).await, 1, "its claim ends by itself");
}

async fn a_slow_server_does_not_arm_again_what_another_one_fired(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    let armed = armed(&one).await;
    let claim = async |desk: &Desk, now_ms: u64| -> Vec<Alarm> {
        let due_ms = armed.next_ms.max(now_ms);
        desk.stores().alarms.claim_alarms(vec![armed.id], due_ms, now_ms, now_ms + 1_000).await.unwrap()
    };
    let slow = claim(&one, armed.next_ms).await.remove(0);
    assert_eq!(claim(&other, armed.next_ms + 500).await, [], "it is claimed");
    let quick = claim(&other, armed.next_ms + 1_500).await.remove(0);
    let conclude = async |desk: &Desk, alarm: &Alarm, end: Conclusion| {
        desk.stores().alarms.conclude(vec![(alarm.clone(), end)], armed.next_ms + 1_600).await.unwrap().remove(0)
    };
    let fired = || Conclusion::Fired { note: "202".into() };
    let retry = || Conclusion::Retry { next_ms: armed.next_ms + 9_000, note: "timed out".into() };
    assert_eq!(conclude(&one, &slow, retry()).await, Concluded::Stale);
    assert_eq!(conclude(&other, &quick, fired()).await, Concluded::Ended);
    assert_eq!(conclude(&one, &slow, retry()).await, Concluded::Stale);
    for desk in [&one, &other] {
        assert_eq!(desk.stores().alarms.armed(armed.instance, &"".into(), 9).await.unwrap().alarms, []);
        assert_eq!(desk.stores().alarms.ended_alarms(armed.instance, None, 9).await.unwrap().len(), 1);
    }
}

async fn a_reader_misses_nothing_that_two_servers_write_to_one_inbox(store: Arc<dyn Store>) {
    const EACH: usize = 50;
    let (one, other) = two_desks(store).await;
    one.directory().create_tenant(&"acme".into()).await.unwrap();
    let acme = TenantId::from("acme");
    let operator = AgentsCaller::operator(&acme);
    one.agents().put_agent(operator, &"alice".into(), AgentPut::default()).await.unwrap();
    other.directory().refresh().await.unwrap();
    let write = async |desk: &Desk, name: &str| {
        let meta = |number| DeliveryMeta {
            dispatch_id: format!("{name}-{number}"),
            origin: Origin::default(),
            ..DeliveryMeta::default()
        };
        let deliver = async |number: usize| {
            let payload = DeliveryPayload::Augment { content: format!("{name}-{number}"), meta: meta(number) };
            desk.messages().deliver(AgentsCaller::operator(&acme), "alice", &payload).await.unwrap();
        };
        futures_util::future::join_all((0..EACH).map(deliver)).await;
    };
    let (mut seen, mut after) = (Vec::new(), InboxSeq(0));
    let read = async {
        while seen.len() < 2 * EACH {
            let page = other.inboxes().inbox(AgentsCaller::operator(&acme), "alice", after).await.unwrap();
            for message in page.messages {
                assert!(InboxSeq(message.seq) > after, "numbers rise");
                after = InboxSeq(message.seq);
                seen.push(message.text);
            }
            tokio::task::yield_now().await;
        }
    };
    let all = async { tokio::join!(write(&one, "one"), write(&other, "other"), read) };
    tokio::time::timeout(Duration::from_mins(1), all).await.expect("messages are missing");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2 * EACH, "each message once");
}
