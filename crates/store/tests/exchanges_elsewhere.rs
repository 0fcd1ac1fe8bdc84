//! Two servers over one store: one of them is asked, the other one gets the reply. And one that cannot read the record of an
//! agent.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use frontdesk_core::agents::AgentsCaller;
use frontdesk_core::delivery::wake::{WakeOutcome, WakeTask};
use frontdesk_core::port::bus::{BusEvent, Hint};
use frontdesk_core::port::store::{Change, LEASE_MS};
use frontdesk_core::{Desk, Rules};
use frontdesk_store::bus::LocalHub;
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_on_bus;
use frontdesk_wire::agents::{AgentPut, AgentReply, Class, DeliveryMeta, DeliveryPayload, Fault, Origin};
use frontdesk_wire::{InboxSeq, TenantId};

fn home() -> AgentsCaller<'static> {
    static HOME: LazyLock<TenantId> = LazyLock::new(|| "home".into());
    AgentsCaller::of(&HOME)
}

struct Pair {
    store: Arc<MemoryStore>,
    env: Arc<TestEnv>,
    one: Arc<Desk>,
    other: Arc<Desk>,
}

impl Pair {
    async fn open() -> Self {
        let (store, env, hub) = (Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()), LocalHub::default());
        let one = desk_on_bus(store.clone(), env.clone(), Rules::default(), hub.join()).await;
        one.directory().create_tenant(&"home".into()).await.unwrap();
        for agent in ["alice", "bob"] {
            one.agents().put_agent(home(), &agent.into(), AgentPut::default()).await.unwrap();
        }
        let other = desk_on_bus(store.clone(), env.clone(), Rules::default(), hub.join()).await;
        let pair = Self { store, env, one, other };
        pair.renew().await;
        pair
    }

    async fn renew(&self) {
        for desk in [&self.one, &self.other] {
            desk.lease().renew().await.unwrap();
        }
    }

    /// Bob asks alice at the first server; `meanwhile` runs when the question is stored.
    async fn asked(&self, meanwhile: impl Future<Output = ()>) -> Result<AgentReply, Fault> {
        let payload = question("c-1");
        let ask = self.one.exchanges().exchange(home(), "alice", &payload, 60_000);
        let reply = async {
            while self.texts("alice").await.is_empty() {
                tokio::task::yield_now().await;
            }
            meanwhile.await;
        };
        tokio::join!(ask, reply).0
    }

    async fn reply(&self, content: &str) -> Result<Option<String>, Fault> {
        let accepted = self.other.exchanges().reply(home(), "alice", "c-1", content.into()).await;
        accepted.map(|accepted| accepted.delivered_to)
    }

    async fn texts(&self, agent: &str) -> Vec<String> {
        let page = self.other.inboxes().inbox(home(), agent, InboxSeq(0)).await.unwrap();
        page.messages.into_iter().map(|it| it.text).collect()
    }
}

fn question(correlation_id: &str) -> DeliveryPayload {
    let origin = Origin { caller_agent_id: Some("bob".into()), ..Origin::default() };
    let correlation_id = Some(correlation_id.to_owned());
    let meta = DeliveryMeta { dispatch_id: "d".into(), origin, correlation_id, ..DeliveryMeta::default() };
    DeliveryPayload::Augment { content: "when?".into(), meta }
}

#[tokio::test(start_paused = true)]
async fn a_reply_at_another_server_reaches_the_asker() {
    let pair = Pair::open().await;
    let answer = pair.asked(async {
        assert_eq!(pair.reply("at noon").await.unwrap(), None, "the asker gets it");
        assert_eq!(pair.reply("at one").await.unwrap_err().class, Class::GoneError, "one reply");
        loop {
            let received = pair.one.cluster().next_event().await;
            let is_it = matches!(received, BusEvent::Hint(Hint::Answered(_)));
            pair.one.cluster().take(received).await.unwrap();
            if is_it {
                break;
            }
        }
    });
    assert_eq!(answer.await.unwrap().content, "at noon");
    assert_eq!(pair.texts("bob").await, [""; 0], "not in its inbox as well");
    assert_eq!(pair.reply("late").await.unwrap_err().class, Class::GoneError);
}

#[tokio::test(start_paused = true)]
async fn a_lost_hint_costs_time_and_nothing_else() {
    let pair = Pair::open().await;
    let answer = pair.asked(async {
        pair.reply("at noon").await.unwrap();
        pair.one.cluster().sweep().await.unwrap();
    });
    assert_eq!(answer.await.unwrap().content, "at noon");
}

/// No hint comes and no server sweeps: the time limit comes, and the row has the answer.
#[tokio::test(start_paused = true)]
async fn whoever_gives_up_looks_once_more() {
    let pair = Pair::open().await;
    let answer = pair.asked(async {
        pair.reply("at noon").await.unwrap();
    });
    assert_eq!(answer.await.unwrap().content, "at noon");
}

#[tokio::test(start_paused = true)]
async fn two_servers_do_not_ask_under_one_correlation_id() {
    let pair = Pair::open().await;
    let answer = pair.asked(async {
        let again = pair.other.exchanges().exchange(home(), "alice", &question("c-1"), 50).await;
        assert_eq!(again.unwrap_err().class, Class::ConflictError);
        pair.reply("at noon").await.unwrap();
    });
    answer.await.unwrap();
    let again = pair.other.exchanges().exchange(home(), "alice", &question("c-1"), 50).await;
    assert_eq!(again.unwrap_err().class, Class::TimeoutError, "it may be asked again");
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_server_that_is_gone_reaches_the_asking_agent() {
    let pair = Pair::open().await;
    let question = question("c-1");
    let mut asking = Box::pin(pair.one.exchanges().exchange(home(), "alice", &question, 60_000));
    while pair.texts("alice").await.is_empty() {
        assert!(futures_util::poll!(&mut asking).is_pending());
    }
    assert_eq!(pair.reply("at noon").await.unwrap(), None, "accepted while its server was live");
    drop(asking); // the process ends
    for _ in 0..LEASE_MS / 1_000 {
        pair.env.advance_ms(1_000);
        pair.other.lease().renew().await.unwrap();
    }
    pair.other.exchanges().finish_left().await.unwrap();
    pair.other.exchanges().finish_left().await.unwrap();
    assert_eq!(pair.texts("bob").await, ["at noon"]);
    assert_eq!(pair.reply("at one").await.unwrap_err().class, Class::GoneError, "it was answered");
}

/// Regression: a server that could not read the record of an agent took it for deleted, and erased its inbox at its start.
#[tokio::test]
async fn an_agent_whose_record_cannot_be_read_keeps_its_inbox() {
    let pair = Pair::open().await;
    pair.one.messages().deliver(home(), "alice", &question("c-1")).await.unwrap();
    let (store, version) = (pair.one.stores().directory.clone(), pair.one.directory().version());
    let records = store.changed_since(0).await.unwrap().records;
    let known = records.iter().find(|it| it.kind == "agent" && it.key.ends_with("alice")).unwrap();
    let write = async |version: u64, json: Option<String>| {
        let change = Change { kind: "agent".into(), key: known.key.clone(), json };
        store.amend(version, vec![change], Box::new(|_| {})).await.unwrap();
    };
    write(version, Some("{}".into())).await;
    let older = desk_on_bus(pair.store.clone(), pair.env.clone(), Rules::default(), LocalHub::default().join()).await;
    for address in ["alice", "alice@tab"] {
        let refused = older.messages().deliver(home(), address, &question("c-2")).await.unwrap_err();
        assert_eq!(refused.class, Class::UnavailableError, "not unknown: {refused}");
    }
    write(version + 1, known.json.clone()).await;
    pair.other.directory().refresh().await.unwrap();
    assert_eq!(pair.texts("alice").await, ["when?"]);
}

/// Regression: the server that called the wake URL of an agent went on, although the agent read its inbox at another one.
#[tokio::test(start_paused = true)]
async fn an_agent_that_reads_its_inbox_at_another_server_is_not_woken_here() {
    let pair = Pair::open().await;
    let no = pair.one.directory().read(|view| view.agent(&"home".into(), &"bob".into()).unwrap().no);
    let message = |text: &str| DeliveryPayload::Augment { content: text.into(), meta: DeliveryMeta::default() };
    pair.one.messages().deliver(home(), "bob", &message("first")).await.unwrap();
    let run = async || pair.one.messages().run(WakeTask::Poke(no, 7), Some(pair.one.agents().traces_of(no))).await.1;
    assert!(!matches!(run().await, WakeOutcome::NotNeeded), "it has read nothing");
    assert_eq!(pair.texts("bob").await, ["first"]);
    let hint_taken = async {
        loop {
            let received = pair.one.cluster().next_event().await;
            let is_it = matches!(received, BusEvent::Hint(Hint::InboxRead(agent, _)) if agent == no);
            pair.one.cluster().take(received).await.unwrap();
            if is_it {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), hint_taken).await.expect("no hint");
    assert!(matches!(run().await, WakeOutcome::NotNeeded), "it has read everything");
    pair.one.messages().deliver(home(), "bob", &message("second")).await.unwrap();
    assert!(!matches!(run().await, WakeOutcome::NotNeeded), "another message waits");
}
