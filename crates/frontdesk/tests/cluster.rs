//! Several servers as processes over one Postgres: what one accepts reaches the socket at another, and what one forbids
//! is forbidden everywhere. With each bus, and without one.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use frontdesk_testkit::postgres::TestSchema;
use frontdesk_testkit::proxy::{CUT_TO_CLIENT, CUT_TO_SERVER, Proxy};
use frontdesk_testkit::redis;
use process::cluster::{BusKind, Cluster, SOON, dial};
use process::{Desk, Received, Socket, person, until};
use reqwest::Method;
use tokio::time::timeout;

async fn what_one_server_accepts_reaches_the_socket_at_another(bus: BusKind) {
    let mut cluster = Cluster::start_over(bus, &["desk-a", "desk-b"], &[]).await;
    let (a, b) = (&cluster.desks[0], &cluster.desks[1]);
    let account = a.api.add_gateway("ann", None).await;
    let mut socket = dial(a, &account).await;
    // The second server posts once it has read of the link.
    let user = person("ann");
    let known = async || (b.api.look("/admin/v1/bindings").await["bindings"].as_array()?.len() == 1).then_some(());
    until("the link is known", SOON, known).await;
    for number in 0..50 {
        let (at, id) = (&cluster.desks[number % 2], format!("m{number}"));
        let answer = at.api.post("c", &user, &id, &id).await;
        assert_eq!(answer["verdict"]["outcome"], "delivered", "{}", cluster.logs());
    }
    let ids: Vec<String> = (0..50).map(|number| format!("m{number}")).collect();
    assert_eq!(socket.take(50).await, ids, "in order\n{}", cluster.logs());
    for desk in &cluster.desks {
        until("all is settled", SOON, async || (desk.api.waiting("ann").await == 0).then_some(())).await;
    }

    // What is not acked when a server is killed comes from the other one, in order.
    let mut left = Vec::new();
    for number in 50..60 {
        let id = format!("m{number}");
        cluster.desks[1].api.post("c", &user, &id, &id).await;
        left.push(id);
    }
    assert!(socket.row(SOON).await.is_some(), "received, not acked");
    cluster.desks[0].kill().await;
    let mut socket = dial(&cluster.desks[1], &account).await;
    assert_eq!(socket.take(10).await, left, "{}", cluster.logs());
    let b = &cluster.desks[1];
    until("all is settled", SOON, async || (b.api.waiting("ann").await == 0).then_some(())).await;
    let rows = b.api.mail("ann", "").await;
    assert_eq!(rows.len(), 60, "each message once");
    let gone = async || (b.api.look("/admin/v1/desks").await["desks"].as_array()?.len() == 1).then_some(());
    until("the lease of the killed server ends", SOON, gone).await;
    cluster.check_bus().await;
}

async fn a_gateway_revoked_at_one_server_is_disconnected_at_another(bus: BusKind) {
    let cluster = Cluster::start_over(bus, &["desk-a", "desk-b"], &[]).await;
    let (a, b) = (&cluster.desks[0], &cluster.desks[1]);
    let account = a.api.add_gateway("ann", None).await;
    let mut socket = dial(a, &account).await;
    let known = async || {
        let (status, _) = b.api.ask(Method::GET, "/admin/v1/gateways/ann", &b.api.admin, None).await.ok()?;
        (status == 200).then_some(())
    };
    until("the gateway is known", SOON, known).await;
    let (status, revoked) = b.api.ask(Method::POST, "/admin/v1/gateways/ann/revoke", &b.api.admin, None).await.unwrap();
    assert_eq!((status, &revoked["unconfirmed"]), (200, &serde_json::json!([])), "{revoked} {}", cluster.logs());
    let closed = timeout(SOON, async {
        loop {
            if let Received::Closed(code) = socket.receive().await {
                return code;
            }
        }
    });
    assert_eq!(closed.await.unwrap(), Some(4401));
    for desk in &cluster.desks {
        let refused = Socket::dial(&desk.api.url, &account).await;
        assert!(refused.is_err(), "confirmed by all servers, so no server accepts it");
    }
    cluster.check_bus().await;
}

/// The newest socket wins, wherever it is.
async fn a_socket_at_another_server_replaces_the_one_before(bus: BusKind) {
    let cluster = Cluster::start_over(bus, &["desk-a", "desk-b"], &[]).await;
    let (a, b) = (&cluster.desks[0], &cluster.desks[1]);
    let account = a.api.add_gateway("ann", None).await;
    let mut before = dial(a, &account).await;
    let mut after = dial(b, &account).await;
    let closed = timeout(SOON, async {
        loop {
            if let Received::Closed(code) = before.receive().await {
                return code;
            }
        }
    });
    assert!(closed.await.unwrap().is_some(), "{}", cluster.logs());
    a.api.post("c", &person("ann"), "m", "m").await;
    assert_eq!(after.take(1).await, ["m"]);
    let list = a.api.look("/admin/v1/instances").await;
    assert_eq!(list["instances"][0]["connected"], true, "told by a server that does not have the socket: {list}");
    cluster.check_bus().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_other_keys_is_refused() {
    let cluster = Cluster::start(&["desk-a"], &[]).await;
    let other = tempfile::tempdir().unwrap();
    let url = cluster.schema.url();
    let file = |name: &str| other.path().join(name).to_str().unwrap().to_owned();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_frontdesk"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(other.path());
    command.env("FRONTDESK_STORE_URL", &url).env("FRONTDESK_PUBLIC_URL", "http://desk.example");
    command.env("FRONTDESK_KEYS_MASTER_FILE", file("m")).env("FRONTDESK_KEYS_ADMIN_TOKEN_FILE", file("t"));
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && text.contains("master key") && text.contains("keys.master_file"), "{text}");
}

/// Revocations at another server may be unknown to it.
async fn a_server_without_its_database_authenticates_nobody(bus: BusKind) {
    let (schema, keys) = (TestSchema::create(), tempfile::tempdir().unwrap());
    let (proxy, url) = Proxy::before(&schema.url()).await;
    let file = |name: &str| keys.path().join(name).to_str().unwrap().to_owned();
    let bus_url = if bus == BusKind::Notify { String::new() } else { redis::url() };
    let desk = Desk::start(&[
        ("STORE_URL", url.as_str()),
        ("BUS_URL", &bus_url),
        ("KEYS_MASTER_FILE", &file("master.key")),
        ("KEYS_ADMIN_TOKEN_FILE", &file("admin.token")),
        ("PUBLIC_URL", "http://desk.example"),
    ])
    .await;
    let ask = async |path: &str| desk.api.ask(Method::GET, path, &desk.api.admin, None).await.unwrap();
    assert_eq!(ask("/admin/v1/tenants").await.0, 200);
    proxy.cut(CUT_TO_CLIENT | CUT_TO_SERVER);
    let refused = async || Some(ask("/admin/v1/tenants").await).filter(|(status, _)| *status == 503);
    let (_, body) = until("it authenticates nobody", SOON, refused).await;
    assert_eq!(body["code"], "unavailable", "{body}");
    assert!(body["detail"].as_str().unwrap().starts_with("this server has not reached its database"), "{body}");
    let (status, body) = ask("/v1/agents/alice").await;
    assert_eq!(
        (status, &body["error"]["class"]),
        (503, &serde_json::json!("UnavailableError")),
        "in the form of its route: {body}"
    );
    assert_eq!(ask("/healthz").await.0, 200);
    proxy.cut(0);
    proxy.hang_up();
    let accepted = async || (ask("/admin/v1/tenants").await.0 == 200).then_some(());
    until("it is back", SOON * 2, accepted).await;
}

macro_rules! with {
    ($module:ident, $bus:expr, $($test:ident)*) => {
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($bus).await;
            })*
        }
    };
}

with! { notify, super::BusKind::Notify,
    what_one_server_accepts_reaches_the_socket_at_another
    a_gateway_revoked_at_one_server_is_disconnected_at_another
    a_socket_at_another_server_replaces_the_one_before
    a_server_without_its_database_authenticates_nobody
}

with! { over_redis, super::BusKind::Redis,
    what_one_server_accepts_reaches_the_socket_at_another
    a_gateway_revoked_at_one_server_is_disconnected_at_another
    a_socket_at_another_server_replaces_the_one_before
    a_server_without_its_database_authenticates_nobody
}

with! { redis_cut, super::BusKind::RedisCut,
    what_one_server_accepts_reaches_the_socket_at_another
    a_gateway_revoked_at_one_server_is_disconnected_at_another
    a_socket_at_another_server_replaces_the_one_before
}
