//! What belonged to a removed agent or instance goes, however much it is: a store deletes it in steps, and a desk asks
//! for all of them. So does the desk that starts after one that stopped in between.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use frontdesk_core::agents::AgentsCaller;
use frontdesk_core::directory::Identity;
use frontdesk_core::port::alarms::Alarm;
use frontdesk_core::port::inbox::InboxMessage;
use frontdesk_core::port::media::{MediaPut, body_of};
use frontdesk_core::port::store::{Acceptance, Store};
use frontdesk_core::port::upkeep::STEP_MAX_ROWS;
use frontdesk_core::{Desk, DeskError, Rules};
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_over;
use frontdesk_testkit::store_suite::acceptance;
use frontdesk_testkit::store_suite::alarms::alarm;
use frontdesk_wire::agents::AgentPut;
use frontdesk_wire::{InboxSeq, InstanceNo, TenantId};

/// More than two steps.
const MANY: u64 = 2 * STEP_MAX_ROWS + 1;

struct Scene {
    store: Arc<MemoryStore>,
    env: Arc<TestEnv>,
    desk: Arc<Desk>,
    home: TenantId,
}

impl Scene {
    async fn open(rules: Rules) -> Self {
        let (store, env) = (Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()));
        let desk = desk_over(store.clone(), env.clone(), rules).await;
        let home = TenantId::from("home");
        desk.directory().create_tenant(&home).await.unwrap();
        Self { store, env, desk, home }
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    async fn messages(&self, agent: InstanceNo, first: u64) {
        let message = |number| InboxMessage { agent, kind: "augment".into(), ..with_id(number) };
        let one = |number| Acceptance { message: Some(message(number)), ..acceptance(number, &[]) };
        self.store().accept((first..first + MANY).map(one).collect()).await.unwrap();
    }

    async fn alarms(&self, instance: InstanceNo) {
        let all = (1..=MANY).map(|number| Alarm { instance, ..alarm(number, 1 << 50) }).collect();
        self.store().arm(all).await.unwrap();
    }
}

fn with_id(number: u64) -> InboxMessage {
    InboxMessage { delivery_id: format!("d-{number}"), receipts: "[]".into(), ..InboxMessage::default() }
}

#[tokio::test]
async fn a_deleted_agent_leaves_no_messages_and_no_alarms() {
    let scene = Scene::open(Rules::default()).await;
    let who = AgentsCaller::operator(&scene.home);
    let put = async || scene.desk.agents().put_agent(who, &"alice".into(), AgentPut::default()).await.unwrap();
    let number = || scene.desk.inboxes().inbox_of(&scene.home, "alice").unwrap().1.unwrap();
    put().await;
    let first = number();
    scene.messages(first, 1).await;
    scene.alarms(first).await;
    scene.desk.agents().delete_agent(who, &"alice".into()).await.unwrap();
    assert_eq!(scene.store().inboxes().await.unwrap(), []);
    assert_eq!(scene.store().armed_counts().await.unwrap(), []);
    put().await;
    assert_ne!(number(), first, "what is stored for the number of before is not for an agent of the same name");
    assert_eq!(scene.store().messages(number(), InboxSeq(0), 9).await.unwrap(), []);
}

#[tokio::test]
async fn a_removed_instance_leaves_no_alarms() {
    let scene = Scene::open(Rules::default()).await;
    let who = Identity { tenant: scene.home.clone(), instance: Some("sleeper".into()) };
    let proven = scene.desk.directory().proven_instance(&who).await.unwrap();
    scene.alarms(proven.instance.no).await;
    scene.desk.deprovision(&proven).await.unwrap();
    assert_eq!(scene.store().armed_counts().await.unwrap(), []);
}

#[tokio::test]
async fn an_interrupted_deletion_is_finished() {
    let scene = Scene::open(Rules::default()).await;
    let gone = InstanceNo(1 << 60);
    scene.messages(gone, 1).await;
    scene.alarms(gone).await;
    assert!(scene.store().drop_inbox(gone).await.unwrap().more);
    assert!(scene.store().disarm_some(gone, &"".into(), 1).await.unwrap().next.is_some());
    let again = desk_over(scene.store.clone(), scene.env.clone(), Rules::default()).await;
    assert_eq!(scene.store().inboxes().await.unwrap(), []);
    again.cron().count_armed().await.unwrap();
    assert_eq!(scene.store().armed_counts().await.unwrap(), []);
}

#[tokio::test]
async fn the_number_of_files_of_a_tenant_is_limited() {
    let scene = Scene::open(Rules { media_tenant_files: 2, ..Rules::default() }).await;
    let put = |tenant: &str| scene.desk.media().put(tenant.into(), "image/png".into(), None, body_of("x"));
    for _ in 0..2 {
        assert!(matches!(put("home").await, Ok((_, MediaPut::Stored(1)))));
    }
    let Err(DeskError::TooLarge(text)) = put("home").await else { panic!("a third file was stored") };
    assert!(text.contains("stores 2 files") && text.contains("media.per_tenant_files (2)"), "{text}");
    assert!(matches!(put("other").await, Ok((_, MediaPut::Stored(1)))), "each tenant has its own");
}
