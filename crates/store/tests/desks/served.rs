//! Two servers over one store: an instance is served by one of them, and the other one leaves it alone.

use std::sync::Arc;

use frontdesk_core::delivery::interrupt::InterruptRequest;
use frontdesk_core::delivery::wake::WakeTask;
use frontdesk_core::directory::Caller;
use frontdesk_core::port::store::{Acceptance, LEASE_MS, Store};
use frontdesk_core::{Desk, Env as _, Rules};
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_over;
use frontdesk_testkit::metrics::metric;
use frontdesk_testkit::session::{caller, carry_out, end, line, serving, written};
use frontdesk_testkit::store_suite::{acceptance, delivery, owed};
use frontdesk_wire::{Close, TenantId};
use serde_json::json;

over_each_store!(
    mail_accepted_at_one_server_is_delivered_by_the_one_that_has_the_socket,
    mail_of_a_server_that_is_gone_is_taken_over,
    a_start_leaves_the_session_of_a_live_server,
    an_idle_session_at_another_server_serves_nobody,
    a_suspended_server_infers_nothing_about_a_replaced_session,
    an_ack_at_a_replaced_session_counts,
    a_turn_is_known_after_its_socket_was_replaced,
    interrupts_for_other_servers_are_bounded,
    a_late_interrupt_stops_no_turn,
);

struct Pair {
    store: Arc<dyn Store>,
    env: Arc<TestEnv>,
    one: Arc<Desk>,
    other: Arc<Desk>,
    caller: Caller,
}

impl Pair {
    async fn open(store: Arc<dyn Store>) -> Self {
        let env = Arc::new(TestEnv::default());
        let rules = || Rules { settle_ms: 0, ..Rules::default() };
        let one = desk_over(store.clone(), env.clone(), rules()).await;
        let caller = caller(&one).await;
        let other = desk_over(store.clone(), env.clone(), rules()).await;
        let pair = Self { store, env, one, other, caller };
        pair.renew().await;
        pair
    }

    /// Both servers see each other.
    async fn renew(&self) {
        for desk in [&self.one, &self.other] {
            desk.lease().renew().await.unwrap();
        }
    }

    async fn accept(&self, number: u64) {
        self.store.accept(vec![acceptance(number, &[self.caller.instance.no.0])]).await.unwrap();
    }
}

/// Wake calls that a server would make now.
async fn pokes(desk: &Desk) -> usize {
    let mut waker = desk.delivery().new_waker().await;
    let tasks = desk.delivery().due_wake_tasks(&mut waker).await;
    tasks.iter().filter(|task| matches!(task, WakeTask::Poke(..))).count()
}

/// Regression: "no socket here" was taken for "no server has its socket", and the wake URL was called.
async fn mail_accepted_at_one_server_is_delivered_by_the_one_that_has_the_socket(store: Arc<dyn Store>) {
    let pair = Pair::open(store).await;
    let mut session = serving(&pair.other, &pair.caller, 0).await;
    pair.accept(1).await;
    assert!(pair.one.delivery().sockets().unserved().take().is_empty(), "left to the other server");
    assert_eq!((pokes(&pair.one).await, pokes(&pair.other).await), (0, 0));
    let outcome = pair.one.delivery().run(WakeTask::Notice(pair.caller.instance.no, 1)).await;
    assert_eq!(
        outcome.1,
        frontdesk_core::delivery::wake::WakeOutcome::NotNeeded,
        "nobody is told that the agent is away"
    );
    carry_out(&pair.other, &mut session, 10).await;
    assert_eq!(written(&mut session, 10)[0]["type"], "inbound");
}

async fn mail_of_a_server_that_is_gone_is_taken_over(store: Arc<dyn Store>) {
    let pair = Pair::open(store).await;
    let _session = serving(&pair.other, &pair.caller, 0).await;
    pair.accept(1).await;
    assert_eq!(pokes(&pair.one).await, 0);
    // The other server does not renew its lease any more.
    for _ in 0..LEASE_MS / 1_000 {
        pair.env.advance_ms(1_000);
        pair.one.lease().renew().await.unwrap();
    }
    assert_eq!(pokes(&pair.one).await, 1);
}

/// Regression: a starting server took all presences for those of a process that had ended.
async fn a_start_leaves_the_session_of_a_live_server(store: Arc<dyn Store>) {
    let pair = Pair::open(store).await;
    let no = pair.caller.instance.no;
    let mut session = serving(&pair.other, &pair.caller, 0).await;
    let before = pair.store.presence(no).await.unwrap();
    assert_eq!(before.served_by, pair.other.lease().me());
    let third = desk_over(pair.store.clone(), pair.env.clone(), Rules::default()).await;
    assert_eq!(pair.store.presence(no).await.unwrap(), before);
    pair.accept(1).await;
    assert_eq!(pokes(&third).await, 0);
    carry_out(&pair.other, &mut session, 10).await;
    assert_eq!(written(&mut session, 10)[0]["type"], "inbound", "its session goes on");
}

/// An agent that said `going_idle` at the other server is woken by the server that accepts its mail.
async fn an_idle_session_at_another_server_serves_nobody(store: Arc<dyn Store>) {
    let pair = Pair::open(store).await;
    let mut session = serving(&pair.other, &pair.caller, 0).await;
    session.take_text(&line(&json!({ "type": "going_idle" })), 5);
    carry_out(&pair.other, &mut session, 5).await;
    pair.accept(1).await;
    assert_eq!(pokes(&pair.other).await, 1);
}

/// Regression: a server that was suspended settled rows of a gateway that does not ack, by a socket that was replaced
/// meanwhile.
async fn a_suspended_server_infers_nothing_about_a_replaced_session(store: Arc<dyn Store>) {
    let pair = Pair::open(store).await;
    let no = pair.caller.instance.no;
    let mut old = serving(&pair.other, &pair.caller, 0).await;
    let mut forward = delivery(1);
    forward.passthrough = true;
    let forward = Acceptance { delivery: forward, ..acceptance(1, &[no.0]) };
    pair.store.accept(vec![forward]).await.unwrap();
    carry_out(&pair.other, &mut old, 10).await;
    assert_eq!(written(&mut old, 10).len(), 1);
    old.tick(5_010);
    old.note_received(5_020, true);
    // The gateway dials the first server, while the other one is stopped.
    let mut new = serving(&pair.one, &pair.caller, 5_000).await;
    old.tick(20_000);
    carry_out(&pair.other, &mut old, 20_000).await;
    assert_eq!(old.closing(), Some(Close::Replaced), "it learns that it does not serve any more");
    assert_eq!(owed(&*pair.store, no.0).await, [1]);
    end(&pair.other, old).await;
    assert_eq!(owed(&*pair.store, no.0).await, [1]);
    assert_eq!(pair.store.presence(no).await.unwrap().served_by, pair.one.lease().me(), "its end changes nothing");
    carry_out(&pair.one, &mut new, 20_001).await;
    assert_eq!(written(&mut new, 20_001).len(), 1, "the row is delivered by the session that serves");
}

/// An ack is a fact, also when it reaches a server that does not serve any more.
async fn an_ack_at_a_replaced_session_counts(store: Arc<dyn Store>) {
    let pair = Pair::open(store).await;
    let mut old = serving(&pair.other, &pair.caller, 0).await;
    pair.accept(1).await;
    carry_out(&pair.other, &mut old, 10).await;
    let frame = written(&mut old, 10).remove(0);
    let _new = serving(&pair.one, &pair.caller, 20).await;
    old.take_text(&line(&json!({ "type": "inbound_ack", "bufferId": frame["bufferId"] })), 30);
    carry_out(&pair.other, &mut old, 30).await;
    assert!(owed(&*pair.store, pair.caller.instance.no.0).await.is_empty());
}

/// The answer of a commit was lost on the network: the event is stored once, and its sender is told so.
#[tokio::test]
async fn an_event_whose_answer_was_lost_is_stored_once() {
    let store = Arc::new(MemoryStore::lossy(1));
    let desk = desk_over(store.clone(), Arc::new(TestEnv::default()), Rules::default()).await;
    let caller = caller(&desk).await;
    let acme = TenantId::from("acme");
    let who = frontdesk_core::agents::AgentsCaller::operator(&acme);
    let body = json!({ "kind": "augment", "content": "hello", "meta":
        { "dispatch_id": "d-1", "sent_at": 1, "origin": {} } });
    store.lose_next_answer();
    let payload = serde_json::from_value(body).unwrap();
    let receipt = desk.messages().deliver(who, &caller.instance.name, &payload).await.unwrap();
    assert!(receipt.delivery_id.is_some());
    assert_eq!(owed(&*store, caller.instance.no.0).await.len(), 1);
}

/// Interrupts that were not passed on, by reason.
fn dropped(pair: &Pair, why: &str) -> u64 {
    metric(pair.one.meters(), &format!("interrupts_dropped_total{{why=\"{why}\"}}")).unwrap_or(0)
}

/// Turns that a server found for interrupts of other servers.
async fn interrupted(pair: &Pair, session_keys: &[&str]) -> u64 {
    let (interrupts, tenant) = (pair.one.delivery().interrupts(), &pair.caller.tenant);
    let count = || metric(pair.one.meters(), "interrupts_total").unwrap();
    let before = count();
    for session_key in session_keys {
        if interrupts.ask(tenant, (*session_key).into()) {
            interrupts.work_off(tenant.clone()).await;
        }
    }
    count() - before
}

/// The ledger has the time at which a row was accepted, which may be long before the agent got it.
async fn a_turn_is_known_after_its_socket_was_replaced(store: Arc<dyn Store>) {
    let pair = Pair::open(store).await;
    pair.env.advance_ms(100_000);
    pair.accept(1).await;
    pair.env.advance_ms(40 * 60_000); // the agent sleeps
    pair.renew().await;
    let mut session = serving(&pair.one, &pair.caller, 0).await;
    carry_out(&pair.one, &mut session, 10).await;
    assert_eq!(written(&mut session, 10).len(), 1);
    assert_eq!(interrupted(&pair, &["k"]).await, 1);
    session.take_text(&line(&json!({ "type": "inbound_ack", "bufferId": "x" })), 20);
    session.hang_up();
    carry_out(&pair.one, &mut session, 20).await;
    end(&pair.one, session).await;
    assert_eq!(interrupted(&pair, &["k"]).await, 0, "no socket");
    pair.one.delivery().sockets().forget_finished(pair.env.now_ms(), pair.env.now_ms());
    let _session = serving(&pair.one, &pair.caller, 1_000).await;
    assert_eq!(interrupted(&pair, &["k", "another"]).await, 1);
}

fn asked(pair: &Pair, session_key: &str) -> InterruptRequest {
    InterruptRequest { session_key: session_key.into(), at_ms: pair.env.steady_ms() }
}

async fn interrupts_for_other_servers_are_bounded(store: Arc<dyn Store>) {
    let pair = Pair::open(store).await;
    let interrupts = pair.one.delivery().interrupts();
    // Of a gateway, in one second: 16 of a tenant are passed to other servers.
    for number in 0..20 {
        assert!(!interrupts.forward(&pair.caller, &asked(&pair, &format!("k-{number}"))).await.unwrap());
    }
    assert_eq!(dropped(&pair, "too_many"), 4);
    pair.env.advance_ms(1_000);
    interrupts.forward(&pair.caller, &asked(&pair, "k")).await.unwrap();
    assert_eq!(dropped(&pair, "too_many"), 4);
    // Of other servers: 32 of a tenant wait.
    let tenant = &pair.caller.tenant;
    let worked_on = (0..40).filter(|number| interrupts.ask(tenant, format!("k-{number}").into())).count();
    assert!(!interrupts.ask(tenant, "k-1".into()), "it waits already");
    assert_eq!((worked_on, dropped(&pair, "queue_full")), (1, 8));
    interrupts.work_off(tenant.clone()).await;
    assert!(interrupts.ask(tenant, "k-1".into()), "the next one is worked on again");
}

async fn a_late_interrupt_stops_no_turn(store: Arc<dyn Store>) {
    let pair = Pair::open(store).await;
    let mut session = serving(&pair.one, &pair.caller, 0).await;
    pair.accept(1).await;
    carry_out(&pair.one, &mut session, 10).await;
    assert_eq!(written(&mut session, 10).len(), 1);
    let (interrupts, tenant) = (pair.one.delivery().interrupts(), &pair.caller.tenant);
    let old = asked(&pair, "k");
    assert!(interrupts.ask(tenant, "k".into()) && !interrupts.ask(tenant, "other".into()));
    pair.env.advance_ms(3_001); // reads took long
    assert!(!interrupts.ask(tenant, "other".into()), "asked again, it is a new one");
    interrupts.work_off(tenant.clone()).await;
    let counts = || (metric(pair.one.meters(), "interrupts_total").unwrap(), dropped(&pair, "late"));
    assert_eq!(counts(), (0, 1));
    assert!(!interrupts.forward(&pair.caller, &old).await.unwrap(), "of a gateway here");
    assert_eq!(counts(), (0, 2));
    assert!(interrupts.forward(&pair.caller, &asked(&pair, "k")).await.unwrap());
    assert_eq!(interrupted(&pair, &["k"]).await, 1);
}
