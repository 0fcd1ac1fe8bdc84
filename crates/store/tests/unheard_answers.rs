//! An asker disconnects when its answer was just accepted, and the store refuses to put the answer into its inbox.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::agents::AgentsCaller;
use frontdesk_core::port::store::{
    Acceptance, Accepted, Delivery, DeskNo, InstanceNo, Ledger, Position, RowListener, SentTurn, Seq, SessionNo,
    Settlement, StoreError, Stored, Waiting,
};
use frontdesk_core::port::stores::Stores;
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_over_stores;
use frontdesk_wire::agents::{AgentPut, Class, DeliveryMeta, DeliveryPayload, Origin};
use frontdesk_wire::{InboxSeq, MessageId, TenantId};
use tokio::sync::oneshot;
use tokio::time::Instant;

fn home() -> AgentsCaller<'static> {
    static HOME: LazyLock<TenantId> = LazyLock::new(|| "home".into());
    AgentsCaller::of(&HOME)
}
const TIMEOUT_MS: u64 = 60_000;
/// Longer than the time limit of the exchange and the time after which it counts as left.
const LEFT_S: u64 = 150;

/// A ledger whose next writes fail, as on a full disk.
struct Refusing {
    ledger: Arc<dyn Ledger>,
    left: AtomicU32,
}

impl Ledger for Refusing {
    fn accept(&self, batch: Vec<Acceptance>) -> Stored<'_, Vec<Accepted>> {
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            return self.ledger.accept(batch);
        }
        self.left.store(left - 1, Ordering::SeqCst);
        Box::pin(std::future::ready(Err(StoreError::Unavailable("the disk is full".into()))))
    }

    fn epoch(&self) -> u32 {
        self.ledger.epoch()
    }

    fn attach_listener(&self, listener: Arc<dyn RowListener>) {
        self.ledger.attach_listener(listener);
    }

    fn settle(&self, instance: InstanceNo, settlement: Settlement) -> Stored<'_, bool> {
        self.ledger.settle(instance, settlement)
    }

    fn position(&self, instance: InstanceNo) -> Stored<'_, Position> {
        self.ledger.position(instance)
    }

    fn pending(&self, instance: InstanceNo, after: Seq, limit: usize) -> Stored<'_, Vec<(Seq, Arc<Delivery>)>> {
        self.ledger.pending(instance, after, limit)
    }

    fn owes<'a>(&'a self, instance: InstanceNo, message_id: &'a MessageId) -> Stored<'a, bool> {
        self.ledger.owes(instance, message_id)
    }

    fn heads(&self, me: DeskNo) -> Stored<'_, Vec<(InstanceNo, SessionNo, Seq)>> {
        self.ledger.heads(me)
    }

    fn waiting(&self) -> Stored<'_, Vec<Waiting>> {
        self.ledger.waiting()
    }

    fn sent_turns(&self, instance: InstanceNo, since_ms: u64) -> Stored<'_, Vec<SentTurn>> {
        self.ledger.sent_turns(instance, since_ms)
    }
}

struct Scene {
    desk: Arc<Desk>,
    env: Arc<TestEnv>,
    ledger: Arc<Refusing>,
}

impl Scene {
    async fn open() -> Self {
        let (store, env) = (Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()));
        let ledger = Arc::new(Refusing { ledger: store.clone(), left: AtomicU32::new(0) });
        let stores = Stores { ledger: ledger.clone(), ..Stores::from(store) };
        let desk = desk_over_stores(stores, env.clone()).await;
        desk.directory().create_tenant(&"home".into()).await.unwrap();
        for agent in ["alice", "bob"] {
            desk.agents().put_agent(home(), &agent.into(), AgentPut::default()).await.unwrap();
        }
        Self { desk, env, ledger }
    }

    /// Bob asks alice, and disconnects in the moment in which her reply is accepted. From then on so many writes fail.
    /// Returns when the exchange has ended.
    async fn hang_up_on_the_reply(&self, refused: u32) {
        let origin = Origin { caller_agent_id: Some("bob".into()), ..Origin::default() };
        let correlation_id = Some("c-1".to_owned());
        let meta = DeliveryMeta { dispatch_id: "d".into(), origin, correlation_id, ..DeliveryMeta::default() };
        let payload = DeliveryPayload::Augment { content: "when?".into(), meta };
        let (line, asker) = oneshot::channel();
        let mut asking = Box::pin(self.desk.exchanges().ask(home(), "alice", payload.into(), TIMEOUT_MS, line.into()));
        while self.texts("alice").await.is_empty() {
            assert!(futures_util::poll!(&mut asking).is_pending());
        }
        // The exchange is not polled from here on, so it sees both at once.
        let accepted = self.reply("at noon").await.unwrap();
        assert_eq!(accepted, None, "the reply was accepted for somebody who waits");
        drop(asker);
        self.ledger.left.store(refused, Ordering::SeqCst);
        asking.await;
    }

    async fn reply(&self, content: &str) -> Result<Option<String>, Class> {
        let accepted = self.desk.exchanges().reply(home(), "alice", "c-1", content.into()).await;
        accepted.map(|accepted| accepted.delivered_to).map_err(|fault| fault.class)
    }

    async fn texts(&self, agent: &str) -> Vec<String> {
        let page = self.desk.inboxes().inbox(home(), agent, InboxSeq(0)).await.unwrap();
        page.messages.into_iter().map(|it| it.text).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_could_not_be_stored_is_stored_a_moment_later() {
    for refused in [0, 1, 3] {
        let scene = Scene::open().await;
        let began = Instant::now();
        scene.hang_up_on_the_reply(refused).await;
        assert_eq!(scene.ledger.left.load(Ordering::SeqCst), 0, "as many writes were tried");
        let paused = Duration::from_secs(refused.into());
        assert!(began.elapsed() >= paused, "{refused} failures: a pause before each further attempt");
        assert_eq!(scene.texts("bob").await, ["at noon"], "{refused} failures");
        assert_eq!(scene.reply("at one").await, Err(Class::GoneError), "{refused} failures: one answer");
        scene.desk.exchanges().finish_left().await.unwrap();
        assert_eq!(scene.texts("bob").await, ["at noon"], "{refused} failures: once");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_stored_for_long_is_kept_until_it_can() {
    let scene = Scene::open().await;
    scene.hang_up_on_the_reply(u32::MAX).await;
    let tried = u32::MAX - scene.ledger.left.load(Ordering::SeqCst);
    assert!((2..1_000).contains(&tried), "tried again, and not for ever: {tried} attempts");
    assert_eq!(scene.texts("bob").await, [""; 0]);
    assert_eq!(scene.reply("at one").await, Err(Class::GoneError), "it is answered all the same");

    let pass = async || {
        for _ in 0..LEFT_S {
            scene.env.advance_ms(1_000);
            scene.desk.lease().renew().await.unwrap();
        }
        scene.desk.exchanges().finish_left().await.unwrap();
    };
    pass().await;
    assert_eq!(scene.texts("bob").await, [""; 0], "the store still refuses");
    scene.ledger.left.store(0, Ordering::SeqCst);
    pass().await;
    assert_eq!(scene.texts("bob").await, ["at noon"]);
    pass().await;
    assert_eq!(scene.texts("bob").await, ["at noon"], "once");
    assert_eq!(scene.reply("at one").await, Err(Class::GoneError));
}
