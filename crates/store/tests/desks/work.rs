//! Two servers over one store: alarms that one of them is slow with, and inboxes that both write.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::agents::AgentsCaller;
use frontdesk_core::directory::Identity;
use frontdesk_core::port::alarms::{Alarm, Concluded, Conclusion};
use frontdesk_core::port::store::Store;
use frontdesk_wire::agents::{AgentPut, DeliveryMeta, DeliveryPayload, Origin};
use frontdesk_wire::cron::ProvisionAlarm;
use frontdesk_wire::{InboxSeq, TenantId};

use crate::changes::two_desks;

over_each_store!(
    a_slow_server_does_not_arm_again_what_another_one_fired,
    a_reader_misses_nothing_that_two_servers_write_to_one_inbox,
);

async fn a_slow_server_does_not_arm_again_what_another_one_fired(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    one.directory().create_tenant(&"acme".into()).await.unwrap();
    let who = Identity { tenant: "acme".into(), instance: Some("sleeper".into()) };
    let proven = one.directory().proven_instance(&who).await.unwrap();
    let ask: ProvisionAlarm =
        serde_json::from_str(r#"{"job_id":"tea","fire_at":"2030-01-01T00:00:00Z","agent_callback_url":"relay:"}"#)
            .unwrap();
    one.cron().provision_alarm(&proven, ask).await.unwrap();
    let armed = one.stores().alarms.armed(proven.instance.no, &"".into(), 9).await.unwrap().alarms.remove(0);
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
        assert_eq!(desk.stores().alarms.armed(proven.instance.no, &"".into(), 9).await.unwrap().alarms, []);
        assert_eq!(desk.stores().alarms.ended_alarms(proven.instance.no, None, 9).await.unwrap().len(), 1);
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
