//! Several servers as processes over one Postgres: a message that one accepts reaches the socket at another, and a
//! revocation at one holds at all. With each bus, and without one.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use frontdesk::env::SystemEnv;
use frontdesk_core::Env as _;
use frontdesk_testkit::fakes::discord::{FakeDiscord, Limits, public_key, signature_headers};
use frontdesk_testkit::postgres::TestSchema;
use frontdesk_testkit::proxy::{CUT_TO_CLIENT, CUT_TO_SERVER, Proxy};
use frontdesk_testkit::redis;
use frontdesk_wire::frame::GatewayLine;
use futures_util::future::join_all;
use process::cluster::{BusKind, Cluster, SOON, dial};
use process::{Desk, Received, Socket, TENANT, person, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

const BOT: u64 = 1_100_000_000_000_000_001;
const BOT_TOKEN: &str = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-the-first-bot-of-the-fake-x";
const ANN: u64 = 1_100_000_000_000_000_011;
const GUILD: u64 = 1_100_000_000_000_000_100;
const CHANNEL: u64 = 1_100_000_000_000_000_101;

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
    let (status, revoked) = b.api.answer(Method::POST, "/admin/v1/gateways/ann/revoke", &b.api.admin, None).await;
    assert_eq!((status, &revoked["unconfirmed"]), (200, &json!([])), "{revoked} {}", cluster.logs());
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
        (503, &json!("UnavailableError")),
        "in the form of its route: {body}"
    );
    assert_eq!(ask("/healthz").await.0, 200);
    proxy.cut(0);
    proxy.hang_up();
    let accepted = async || (ask("/admin/v1/tenants").await.0 == 200).then_some(());
    until("it is back", SOON * 2, accepted).await;
}

/// Ann uses a command or presses a button: what Discord posts, signed, to this server. Returns the answer.
async fn interact(desk: &Desk, id: u64, kind: u8, fields: Value) -> Value {
    let mut body = json!({ "id": id.to_string(), "application_id": BOT.to_string(), "type": kind,
        "token": format!("aW50ZXJhY3Rpb246{id}"), "guild_id": GUILD.to_string(), "channel_id": CHANNEL.to_string(),
        "channel": { "id": CHANNEL.to_string(), "type": 0, "name": "general" },
        "member": { "user": { "id": ANN.to_string(), "username": "ann" } } });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let (body, now_ms) = (body.to_string(), SystemEnv.now_ms());
    let mut request = desk.api.client.post(format!("{}/interactions/dc", desk.api.url));
    for (name, value) in signature_headers(BOT, now_ms, body.as_bytes()) {
        request = request.header(name, value);
    }
    let answer = request.header("content-type", "application/json").body(body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.json().await.unwrap()
}

/// A frame of this type; what comes before it is skipped, rows are acked.
async fn next_of(socket: &mut Socket, kind: &str) -> Value {
    let found = timeout(SOON, async {
        loop {
            match socket.receive().await {
                Received::Frame(frame) if frame["type"] == kind => return frame,
                Received::Frame(_) => {}
                Received::Row { buffer_id, .. } => socket.ack(&buffer_id).await.unwrap(),
                closed @ Received::Closed(_) => panic!("{closed:?} before {kind}"),
            }
        }
    });
    found.await.unwrap_or_else(|_| panic!("no {kind}"))
}

/// Which press was first is decided by the commit, so it does not matter which server gets which.
async fn a_button_pressed_at_all_servers_at_once_is_one_answer(bus: BusKind) {
    let cluster = Cluster::start_over(bus, &["desk-a", "desk-b"], &[]).await;
    let (a, b) = (&cluster.desks[0], &cluster.desks[1]);
    let fake = FakeDiscord::new();
    fake.set_limits(Limits::off());
    let discord = fake.serve().await.unwrap();
    for act in [
        json!({ "act": "add_bot", "id": BOT, "token": BOT_TOKEN, "username": "desk" }),
        json!({ "act": "add_user", "id": ANN, "username": "ann" }),
        json!({ "act": "add_guild", "id": GUILD, "name": "Guild", "owner": BOT,
            "members": [{ "user": BOT }, { "user": ANN }], "channels": [{ "id": CHANNEL, "name": "general" }] }),
    ] {
        discord.fake.act(0, serde_json::from_value(act).unwrap()).unwrap();
    }
    let account = a.api.add_gateway("ann", None).await;
    let admin = async |path: &str, body: Value| {
        let (status, said) = a.api.answer(Method::POST, path, &a.api.admin, Some(&body)).await;
        assert_eq!(status, 201, "{path}: {said}");
    };
    let settings = json!({ "base_url": discord.base_url, "application_id": BOT.to_string(), "socket": "off",
        "public_key": public_key(BOT) });
    let link = json!({ "tenant": TENANT, "platform": "discord", "user_id": ANN.to_string(), "instance": "ann" });
    admin("/admin/v1/bindings", link).await;
    let bot = json!({ "platform": "discord", "id": "dc", "tenant": TENANT, "settings": settings,
        "secrets": { "token": BOT_TOKEN } });
    admin("/admin/v1/bots", bot).await;
    let known = async || (b.api.look("/admin/v1/bots").await["bots"].as_array()?.len() == 1).then_some(());
    until("the bot is known", SOON, known).await;

    let mut agent = dial(a, &account).await;
    let hello = GatewayLine::Hello { platform: "discord", bot_id: "dc", ready: true };
    agent.say(&hello.line()).await.unwrap();
    next_of(&mut agent, "descriptor").await;
    // The agent may write where it was reached.
    interact(a, 1, 2, json!({ "data": { "id": "1", "name": "ask", "type": 1 } })).await;
    next_of(&mut agent, "passthrough_forward").await;
    let prompt = json!({ "op": "prompt", "chat_id": CHANNEL.to_string(), "prompt_kind": "choice", "prompt_id": "p1",
        "content": "Which?", "options": [{ "id": "yes", "label": "Yes" }, { "id": "no", "label": "No" }] });
    let action =
        GatewayLine::Outbound { request_id: "r1", action: &prompt, platform: Some("discord"), bot_id: Some("dc") };
    agent.say(&action.line()).await.unwrap();
    let asked = next_of(&mut agent, "outbound_result").await["result"].take();
    assert_eq!(asked["success"], true, "{asked}\n{}", cluster.logs());

    let button = |id: &str| json!({ "type": 2, "style": 2, "label": id, "custom_id": format!("hp1:p1:{id}") });
    let press = json!({ "data": { "custom_id": "hp1:p1:yes", "component_type": 2 },
        "message": { "id": asked["message_id"], "channel_id": CHANNEL.to_string(), "content": "Which?",
            "components": [{ "type": 1, "components": [button("yes"), button("no")] }] } });
    let presses = (2..10).map(|id| interact(&cluster.desks[usize::from(id % 2 == 1)], id, 3, press.clone()));
    let answers = join_all(presses).await;
    let (first, late): (Vec<&Value>, Vec<&Value>) = answers.iter().partition(|it| it["type"] == 7);
    assert_eq!((first.len(), late.len()), (1, 7), "{answers:?}\n{}", cluster.logs());
    for answer in late {
        assert_eq!(answer["data"]["content"], "This was answered already.", "{answer}");
    }
    assert!(agent.take(1).await[0].starts_with("press-"));
    let rows = b.api.mail("ann", "").await;
    assert_eq!(rows.len(), 2, "the command and one answer: {rows:?}");
    cluster.check_bus().await;
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
    a_button_pressed_at_all_servers_at_once_is_one_answer
}

with! { over_redis, super::BusKind::Redis,
    what_one_server_accepts_reaches_the_socket_at_another
    a_gateway_revoked_at_one_server_is_disconnected_at_another
    a_socket_at_another_server_replaces_the_one_before
    a_server_without_its_database_authenticates_nobody
    a_button_pressed_at_all_servers_at_once_is_one_answer
}

with! { redis_cut, super::BusKind::RedisCut,
    what_one_server_accepts_reaches_the_socket_at_another
    a_gateway_revoked_at_one_server_is_disconnected_at_another
    a_socket_at_another_server_replaces_the_one_before
    a_button_pressed_at_all_servers_at_once_is_one_answer
}
