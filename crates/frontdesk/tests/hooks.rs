//! Signed webhooks: only genuine ones are taken, once each, for the agents that are linked to the bot.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk::app::FIRST_TENANT;
use frontdesk_platforms::shared::standard_webhooks::sign;
use harness::{GatewayAccount, Harness, Reply};
use serde_json::{Value, json};

const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

/// The text of a refusal.
#[track_caller]
fn detail(reply: &Reply, status: u16) -> String {
    reply.problem(status);
    reply.json()["detail"].as_str().unwrap().to_owned()
}

async fn add(harness: &Harness, bot: &str, tenant: Option<&str>) {
    let ask =
        json!({ "platform": "hooks", "id": bot, "tenant": tenant, "secrets": { "key": str::from_utf8(KEY).unwrap() } });
    harness.admin("POST", "/bots", &ask).await.expect(201);
}

async fn bind(harness: &Harness, tenant: &str, bot: &str, instance: &str) {
    let link = json!({ "tenant": tenant, "platform": "hooks", "user_id": bot, "instance": instance });
    harness.admin("POST", "/bindings", &link).await.expect(201);
}

async fn post(harness: &Harness, bot: &str, id: &str, key: &[u8], body: &str) -> Reply {
    let now_s = harness.app.desk.env().now_s();
    post_signed(harness, bot, id, now_s, &sign(key, id, now_s, body.as_bytes()), body).await
}

async fn post_signed(harness: &Harness, bot: &str, id: &str, stamp_s: u64, signature: &str, body: &str) -> Reply {
    let request = harness.request("POST", &format!("/hooks/{bot}"));
    let request = request.header("webhook-id", id).header("webhook-timestamp", stamp_s.to_string());
    harness.send(request.header("webhook-signature", signature).body(body.to_owned())).await
}

/// (message id, text) of the webhooks that this agent has.
async fn received(harness: &Harness, account: &GatewayAccount) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for row in harness.mail(account).await.iter().filter(|row| row["platform"] == "hooks") {
        let shown = harness.admin("GET", &format!("/mail/{}", row["id"].as_str().unwrap()), &Value::Null).await;
        found.push((text(&row["message_id"]), text(&shown.expect(200)["event"]["text"])));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_genuine_webhook_reaches_every_linked_agent_once_also_after_a_restart() {
    let harness = Harness::open().await;
    let (ann, ben) = (harness.add_gateway("ann").await, harness.add_gateway("ben").await);
    let other = harness.add_gateway("other").await;
    add(&harness, "builds", Some(FIRST_TENANT)).await;
    bind(&harness, FIRST_TENANT, "builds", "ann").await;
    bind(&harness, FIRST_TENANT, "builds", "ben").await;
    let body = r#"{"type":"build.failed","data":{"n":1}}"#;
    let answer = post(&harness, "builds", "msg_1", KEY, body).await.expect(202);
    assert_eq!((&answer["outcome"], &answer["duplicate"]), (&json!("delivered"), &json!(false)), "{answer}");
    assert_eq!(answer["delivery"], "queued", "{answer}");
    let mut sockets = Vec::new();
    for (number, account, delivery) in [(2, &ann, "partly_pushed"), (3, &ben, "pushed")] {
        sockets.push(harness.socket(account).await);
        let answer = post(&harness, "builds", &format!("msg_{number}"), KEY, "more").await.expect(202);
        assert_eq!(answer["delivery"], delivery, "{answer}");
    }
    drop(sockets);
    let again = post(&harness, "builds", "msg_1", KEY, body).await.expect(202);
    assert_eq!((&again["duplicate"], &again["event_id"]), (&json!(true), &answer["event_id"]), "{again}");
    let harness = Harness::again(harness.finish().await, |_| {}).await;
    assert_eq!(post(&harness, "builds", "msg_1", KEY, body).await.expect(202)["duplicate"], true);
    for account in [&ann, &ben] {
        let received = received(&harness, account).await;
        assert_eq!((received.len(), &received[0]), (3, &("msg_1".to_owned(), body.to_owned())));
    }
    assert!(received(&harness, &other).await.is_empty());
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_genuine_is_refused_with_its_reason_and_leaves_nothing() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    add(&harness, "builds", Some(FIRST_TENANT)).await;
    bind(&harness, FIRST_TENANT, "builds", "ann").await;
    let now_s = harness.app.desk.env().now_s();
    let good = sign(KEY, "m", now_s, b"x");
    for (what, reply, status) in [
        ("signature", post(&harness, "builds", "m", b"another key", "x").await, 401),
        ("signature", post_signed(&harness, "builds", "m", now_s, &good, "y").await, 401),
        ("signature", post_signed(&harness, "builds", "n", now_s, &good, "x").await, 401),
        ("300 s", post_signed(&harness, "builds", "m", now_s - 400, &good, "x").await, 401),
        ("header", harness.send(harness.request("POST", "/hooks/builds").body("x")).await, 401),
        ("\"absent\"", post(&harness, "absent", "m", KEY, "x").await, 404),
        ("empty", post(&harness, "builds", "m", KEY, " ").await, 400),
        ("larger", post(&harness, "builds", "m", KEY, &"x".repeat((256 << 10) + 1)).await, 413),
    ] {
        let text = detail(&reply, status);
        assert!(text.contains(what), "{what}: {text}");
    }
    let bytes = [0xff, 0xfe];
    let request = harness.request("POST", "/hooks/builds").header("webhook-id", "m");
    let request = request.header("webhook-timestamp", now_s.to_string());
    let request = request.header("webhook-signature", sign(KEY, "m", now_s, &bytes));
    let reply = harness.send(request.body(bytes.to_vec())).await;
    assert!(detail(&reply, 400).contains("UTF-8"));
    assert_eq!(harness.get("/hooks/builds", "").await.problem(405), "bad_request", "one of the documented codes");
    assert!(received(&harness, &ann).await.is_empty());
    assert_eq!(harness.metric("frontdesk_requests_refused_total{why=\"unauthorized\"}").await, 5);
    // The same id is not used up by what was refused.
    assert_eq!(post(&harness, "builds", "m", KEY, "x").await.expect(202)["duplicate"], false);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_body_is_a_setting() {
    let harness = Harness::with(|config| config.platform["hooks"]["max_bytes"] = 8.into()).await;
    add(&harness, "builds", Some(FIRST_TENANT)).await;
    post(&harness, "builds", "m1", KEY, "12345678").await.expect(202);
    let text = detail(&post(&harness, "builds", "m2", KEY, "123456789").await, 413);
    assert!(text.contains("larger"), "{text}");
    let page = harness.get("/openapi.json", "").await.expect(200);
    let described = page["paths"]["/hooks/{bot}"]["post"]["description"].as_str().unwrap();
    assert!(described.contains("at most 8 bytes"), "{described}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_nobody_gets_says_so_and_how_to_change_that() {
    let harness = Harness::open().await;
    add(&harness, "builds", Some(FIRST_TENANT)).await;
    let answer = post(&harness, "builds", "m", KEY, "x").await.expect(202);
    assert_eq!(answer["outcome"], "withheld");
    let text = answer["text"].as_str().unwrap();
    assert!(text.contains("frontdesk bind hooks builds"), "{text}");
    add(&harness, "shared", None).await;
    let text = post(&harness, "shared", "m", KEY, "x").await.expect(202)["text"].as_str().unwrap().to_owned();
    assert!(text.contains("frontdesk route add hooks shared"), "{text}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_webhook_is_its_own_and_a_shared_one_is_its_routes() {
    let harness = Harness::open().await;
    let red = harness.add_gateway_in("red", "red-agent").await;
    let blue = harness.add_gateway_in("blue", "blue-agent").await;
    add(&harness, "builds", Some("red")).await;
    bind(&harness, "red", "builds", "red-agent").await;
    bind(&harness, "blue", "builds", "blue-agent").await;
    post(&harness, "builds", "m1", KEY, "x").await.expect(202);
    let route = json!({ "platform": "hooks", "key": "builds", "tenant": "blue" });
    harness.admin("POST", "/routes", &route).await.expect(201);
    post(&harness, "builds", "m2", KEY, "x").await.expect(202);
    let ids = |rows: Vec<(String, String)>| rows.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(ids(received(&harness, &red).await), ["m1", "m2"], "the bot is red's, whatever routes say");
    assert!(received(&harness, &blue).await.is_empty());
    add(&harness, "shared", None).await;
    bind(&harness, "blue", "shared", "blue-agent").await;
    bind(&harness, "red", "shared", "red-agent").await;
    let route = json!({ "platform": "hooks", "key": "shared", "tenant": "blue" });
    harness.admin("POST", "/routes", &route).await.expect(201);
    post(&harness, "shared", "m1", KEY, "x").await.expect(202);
    assert_eq!(ids(received(&harness, &blue).await), ["m1"], "another bot's message of the same id is another one");
    assert_eq!(ids(received(&harness, &red).await), ["m1", "m2"]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_is_added_with_its_key_and_with_nothing_unknown() {
    let harness = Harness::open().await;
    for (ask, what) in [
        (json!({ "platform": "hooks", "id": "b" }), "\"key\" is missing; give it with --secret key="),
        (
            json!({ "platform": "hooks", "id": "b", "secrets": { "key": "k", "token": "t" } }),
            "unknown secret \"token\"",
        ),
        (
            json!({ "platform": "hooks", "id": "b", "secrets": { "key": "k" }, "settings": { "url": "x" } }),
            "unknown setting \"url\"",
        ),
    ] {
        let text = detail(&harness.admin("POST", "/bots", &ask).await, 400);
        assert!(text.contains(what), "{text}");
    }
    for weak in ["", "  ", "short", "whsec_AAAA", "whsec_not base64", "whsec_!"] {
        let ask = json!({ "platform": "hooks", "id": "b", "secrets": { "key": weak } });
        let text = detail(&harness.admin("POST", "/bots", &ask).await, 400);
        assert!(text.contains("at least 16 bytes"), "{weak}: {text}");
    }
    // Two keys while one replaces the other; then the bot is gone.
    let [old, new] = [b"the old key of the hook", b"the new key of the hook"].map(<[u8; 23]>::as_slice);
    let [old_text, new_text] = [old, new].map(|key| format!("whsec_{}", STANDARD.encode(key)));
    let added = async |key: &str| {
        let ask = json!({ "platform": "hooks", "id": "b", "tenant": FIRST_TENANT, "secrets": { "key": key } });
        harness.admin("POST", "/bots", &ask).await.expect(201);
    };
    added(&format!("{old_text} {new_text}")).await;
    post(&harness, "b", "m1", old, "x").await.expect(202);
    post(&harness, "b", "m2", new, "x").await.expect(202);
    added(&new_text).await;
    post(&harness, "b", "m3", old, "x").await.problem(401);
    post(&harness, "b", "m3", new, "x").await.expect(202);
    // A text with spaces is one key and not several.
    added("correct horse battery staple").await;
    post(&harness, "b", "m4", b"correct horse battery staple", "x").await.expect(202);
    for word in [b"correct".as_slice(), b"horse", b"staple"] {
        post(&harness, "b", "m5", word, "x").await.problem(401);
    }
    assert_eq!(harness.admin("DELETE", "/bots/hooks/b", &Value::Null).await.status, 204);
    post(&harness, "b", "m6", new, "x").await.problem(404);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_sends_is_no_command() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    add(&harness, "builds", Some(FIRST_TENANT)).await;
    bind(&harness, FIRST_TENANT, "builds", "ann").await;
    for (id, text) in [("m1", "/unlink"), ("m2", "/link ABCD-EFGH"), ("m3", "/whoami"), ("m4", "/stop")] {
        let answer = post(&harness, "builds", id, KEY, text).await.expect(202);
        assert_eq!(answer["outcome"], "delivered", "{text}: {answer}");
    }
    let texts: Vec<String> = received(&harness, &ann).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["/unlink", "/link ABCD-EFGH", "/whoami", "/stop"]);
    harness.finish().await;
}
