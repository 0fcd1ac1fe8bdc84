//! Servers that lose their lease, or do not know of each other yet. Regressions that the simulation found.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use frontdesk_core::delivery::wake::WakeTask;
use frontdesk_core::directory::{Caller, Unproven};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::store::{LEASE_MS, Store};
use frontdesk_core::{Desk, Rules};
use frontdesk_store::bus::LocalHub;
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_calling;
use frontdesk_testkit::session::{caller, carry_out, serving, written};
use frontdesk_testkit::store_suite::acceptance;
use frontdesk_wire::api::GatewayNew;
use frontdesk_wire::token::mint;
use frontdesk_wire::{Close, Secret};

/// Servers over one store and one bus.
struct Cluster {
    store: Arc<dyn Store>,
    env: Arc<TestEnv>,
    hub: LocalHub,
    calls: Arc<Calls>,
}

/// Counts calls of wake URLs.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Outcall for Calls {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(HttpAnswer::of(200))))
    }
}

impl Cluster {
    fn new() -> Self {
        let (store, hub) = (Arc::new(MemoryStore::new(1)), LocalHub::default());
        Self { store, env: Arc::default(), hub, calls: Arc::default() }
    }

    async fn open(&self, name: &str) -> Arc<Desk> {
        let rules = Rules { settle_ms: 0, desk_name: name.into(), ..Rules::default() };
        desk_calling(self.store.clone(), self.env.clone(), rules, self.hub.join(), self.calls.clone()).await
    }

    /// Time passes, in which only these servers renew their leases.
    async fn pass(&self, ms: u64, desks: &[&Desk]) {
        for _ in 0..ms / 1_000 {
            self.env.advance_ms(1_000);
            for desk in desks {
                renew(desk).await;
            }
        }
    }
}

/// As the loop of the server does.
async fn renew(desk: &Desk) {
    let (version, _) = desk.lease().renew().await.unwrap();
    assert!(desk.directory().version() <= version);
    desk.directory().refresh().await.unwrap();
    desk.lease().note_directory(desk.directory().version());
}

/// A token of another gateway.
async fn bearer(desk: &Desk) -> String {
    let ask = GatewayNew { id: "bot".into(), tenant: "acme".into(), instance: None, wake_url: None };
    let made = desk.directory().add_gateway(ask).await.unwrap();
    mint("bot", &Secret::new(made.secret.as_str()), u64::from(u32::MAX) * 1_000)
}

/// The sessions stayed under the number that was lost: others took their instances for unserved, and no sweep found rows.
#[tokio::test]
async fn sessions_go_on_under_the_new_number() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.open("one").await, cluster.open("other").await);
    let caller: Caller = caller(&one).await;
    renew(&other).await;
    let mut session = serving(&other, &caller, 0).await;
    carry_out(&other, &mut session, 0).await;
    let before = other.lease().me();
    cluster.pass(LEASE_MS + 1_000, &[&one]).await;
    cluster.store.accept(vec![acceptance(1, &[caller.instance.no.0])]).await.unwrap();
    renew(&other).await;
    assert!(other.lease().me() > before);
    other.cluster().tick().await.unwrap();
    assert_eq!(cluster.store.presence(caller.instance.no).await.unwrap().served_by, other.lease().me());
    other.cluster().sweep().await.unwrap();
    carry_out(&other, &mut session, 10).await;
    assert_eq!(written(&mut session, 10).len(), 1);

    // One that was replaced meanwhile learns it.
    cluster.pass(LEASE_MS + 1_000, &[&one]).await;
    let _new = serving(&one, &caller, 0).await;
    renew(&other).await;
    other.cluster().tick().await.unwrap();
    session.turn(20);
    assert_eq!(session.closing(), Some(Close::Replaced));
    assert_eq!(cluster.store.presence(caller.instance.no).await.unwrap().served_by, one.lease().me());
}

/// It would take duties again under the new number, shortly before it ends.
#[tokio::test]
async fn a_server_that_is_leaving_stays_so_under_a_new_number() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.open("one").await, cluster.open("other").await);
    let before = other.lease().me();
    other.lease().leave().await.unwrap();
    cluster.pass(LEASE_MS + 1_000, &[&one]).await;
    renew(&other).await;
    assert!(other.lease().me() > before);
    assert_eq!(other.lease().take_duty("any").await.unwrap(), None);
    renew(&one).await;
    assert_eq!(one.lease().sharers(), 1, "the others do not count on it");
}

/// A revocation does not wait for a server whose lease has run out, so that one authenticates no caller.
#[tokio::test]
async fn a_server_that_may_not_know_of_revocations_lets_nobody_in() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.open("one").await, cluster.open("other").await);
    let caller = caller(&one).await;
    let bearer = bearer(&one).await;
    renew(&other).await;
    let mut session = serving(&other, &caller, 0).await;
    carry_out(&other, &mut session, 0).await;
    assert!(other.directory().prove_gateway(&bearer).is_ok());
    cluster.pass(3_000, &[&one]).await;
    assert_eq!(other.directory().prove_gateway(&bearer).err(), Some(Unproven::Unavailable));
    assert_eq!(other.directory().disproof(&caller), Some(Close::TryLater));
    cluster.store.accept(vec![acceptance(1, &[caller.instance.no.0])]).await.unwrap();
    carry_out(&other, &mut session, 10).await;
    assert!(written(&mut session, 10).is_empty(), "nor does a socket that is open get rows");
    assert!(session.next_tick_ms(10) <= 1_010, "it looks again soon");
    renew(&other).await;
    assert!(other.directory().prove_gateway(&bearer).is_ok());
    carry_out(&other, &mut session, 1_010).await;
    assert_eq!(written(&mut session, 1_010).len(), 1);
    cluster.pass(3_000, &[&one]).await;
    other.lease().renew().await.unwrap();
    assert!(other.directory().prove_gateway(&bearer).is_ok(), "there were no changes to read");
    one.directory().revoke(&"bot".into()).await.unwrap();
    cluster.pass(3_000, &[&one]).await;
    other.lease().renew().await.unwrap();
    let refused = other.directory().prove_gateway(&bearer).err();
    assert_eq!(refused, Some(Unproven::Unavailable), "the lease is good, but the change was not read");
}

/// Regression: a server that did not know of others did not wait for one that had just begun.
#[tokio::test(start_paused = true)]
async fn a_revocation_waits_for_a_server_that_has_just_begun() {
    let cluster = Cluster::new();
    let one = cluster.open("one").await;
    caller(&one).await;
    let other = cluster.open("other").await;
    assert!(one.lease().is_alone(), "as of its last renewal");
    one.directory().revoke(&"gw".into()).await.unwrap();
    let env = cluster.env.clone();
    let waits = async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            env.advance_ms(500);
        }
    };
    let unconfirmed = tokio::select! {
        unconfirmed = one.cluster().unconfirmed() => unconfirmed.unwrap(),
        () = waits => unreachable!("it ends before"),
    };
    assert_eq!(unconfirmed, [""; 0], "its lease has run out");
    assert!(frontdesk_core::Env::steady_ms(&*cluster.env) >= LEASE_MS);
    drop(other);
}

/// The answer was lost when a session began: by the store, the instance is served here.
#[tokio::test]
async fn mail_of_an_instance_without_its_socket_is_found() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.open("one").await, cluster.open("other").await);
    let no = caller(&one).await.instance.no;
    cluster.store.attach(no, other.lease().me(), "gw".into(), 0).await.unwrap();
    cluster.store.accept(vec![acceptance(1, &[no.0])]).await.unwrap();
    other.delivery().sockets().unserved().take(); // as if the hint was lost
    other.cluster().sweep().await.unwrap();
    assert!(other.delivery().sockets().unserved().take().contains_key(&no));
}

/// Regression: a server that did not know of others woke an agent without a claim, and so did one that had just begun.
#[tokio::test]
async fn a_server_that_believes_to_be_alone_claims_a_wake() {
    let cluster = Cluster::new();
    let one = cluster.open("one").await;
    caller(&one).await;
    let wake_url = Some("https://wake.example/bot".into());
    let ask = GatewayNew { id: "bot".into(), tenant: "acme".into(), instance: None, wake_url };
    one.directory().add_gateway(ask).await.unwrap();
    let no = one.directory().read(|view| view.instance(&"acme".into(), &"bot".into()).unwrap().no);
    cluster.store.accept(vec![acceptance(1, &[no.0])]).await.unwrap();
    let other = cluster.open("other").await;
    assert!(one.lease().is_alone(), "as of its last renewal");
    one.delivery().run(WakeTask::Poke(no, 1)).await;
    other.delivery().run(WakeTask::Poke(no, 1)).await;
    assert_eq!(cluster.calls.0.load(Ordering::SeqCst), 1);
}

/// A server whose machine was suspended does not see by its clock that its lease has run out; the store tells it.
#[tokio::test]
async fn a_server_that_lost_its_lease_reads_the_directory_before_it_lets_anybody_in() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.open("one").await, cluster.open("other").await);
    caller(&one).await;
    let bearer = bearer(&one).await;
    renew(&other).await;
    assert!(other.directory().prove_gateway(&bearer).is_ok());
    cluster.store.resign(other.lease().me()).await.unwrap(); // as if the lease had run out; no clock has moved
    one.directory().revoke(&"bot".into()).await.unwrap();
    other.lease().renew().await.unwrap();
    assert_eq!(other.directory().prove_gateway(&bearer).err(), Some(Unproven::Unavailable));
    renew(&other).await;
    assert_eq!(other.directory().prove_gateway(&bearer).err(), Some(Unproven::Unauthorized));
}
