//! Signed webhooks: only genuine ones are taken, once each, for the agents that are linked to the bot.

mod harness;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk::app::FIRST_TENANT;
use frontdesk_platforms::shared::standard_webhooks::sign;
use harness::{Harness, Reply, Seat};
use serde_json::{Value, json};

const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

/// The text of a refusal.
#[track_caller]
fn detail(reply: &Reply, status: u16) -> String {
    reply.problem(status);
    reply.json()["detail"].as_str().unwrap().to_owned()
}

async fn add(house: &Harness, bot: &str, tenant: Option<&str>) {
    let ask =
        json!({ "platform": "hooks", "id": bot, "tenant": tenant, "secrets": { "key": str::from_utf8(KEY).unwrap() } });
    house.admin("POST", "/bots", &ask).await.expect(201);
}

async fn bind(house: &Harness, tenant: &str, bot: &str, instance: &str) {
    let link = json!({ "tenant": tenant, "platform": "hooks", "user_id": bot, "instance": instance });
    house.admin("POST", "/bindings", &link).await.expect(201);
}

async fn post(house: &Harness, bot: &str, id: &str, key: &[u8], body: &str) -> Reply {
    let now_s = house.app.desk.env().now_s();
    post_signed(house, bot, id, now_s, &sign(key, id, now_s, body.as_bytes()), body).await
}

async fn post_signed(house: &Harness, bot: &str, id: &str, stamp_s: u64, signature: &str, body: &str) -> Reply {
    let request = house.request("POST", &format!("/hooks/{bot}"));
    let request = request.header("webhook-id", id).header("webhook-timestamp", stamp_s.to_string());
    house.send(request.header("webhook-signature", signature).body(body.to_owned())).await
}

/// (message id, text) of the webhooks that this agent has.
async fn received(house: &Harness, seat: &Seat) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for row in house.mail(seat).await.iter().filter(|row| row["platform"] == "hooks") {
        let shown = house.admin("GET", &format!("/mail/{}", row["id"].as_str().unwrap()), &Value::Null).await;
        found.push((text(&row["message_id"]), text(&shown.expect(200)["event"]["text"])));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_genuine_webhook_reaches_every_linked_agent_once_also_after_a_restart() {
    let house = Harness::open().await;
    let (ann, ben) = (house.seat("ann").await, house.seat("ben").await);
    let other = house.seat("other").await;
    add(&house, "builds", Some(FIRST_TENANT)).await;
    bind(&house, FIRST_TENANT, "builds", "ann").await;
    bind(&house, FIRST_TENANT, "builds", "ben").await;
    let body = r#"{"type":"build.failed","data":{"n":1}}"#;
    let answer = post(&house, "builds", "msg_1", KEY, body).await.expect(202);
    assert_eq!((&answer["outcome"], &answer["duplicate"]), (&json!("delivered"), &json!(false)), "{answer}");
    let again = post(&house, "builds", "msg_1", KEY, body).await.expect(202);
    assert_eq!((&again["duplicate"], &again["event_id"]), (&json!(true), &answer["event_id"]), "{again}");
    let house = Harness::again(house.finish().await, |_| {}).await;
    assert_eq!(post(&house, "builds", "msg_1", KEY, body).await.expect(202)["duplicate"], true);
    for seat in [&ann, &ben] {
        assert_eq!(received(&house, seat).await, [("msg_1".to_owned(), body.to_owned())]);
    }
    assert!(received(&house, &other).await.is_empty());
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_genuine_is_refused_with_its_reason_and_leaves_nothing() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    add(&house, "builds", Some(FIRST_TENANT)).await;
    bind(&house, FIRST_TENANT, "builds", "ann").await;
    let now_s = house.app.desk.env().now_s();
    let good = sign(KEY, "m", now_s, b"x");
    for (what, reply, status) in [
        ("signature", post(&house, "builds", "m", b"another key", "x").await, 401),
        ("signature", post_signed(&house, "builds", "m", now_s, &good, "y").await, 401),
        ("signature", post_signed(&house, "builds", "n", now_s, &good, "x").await, 401),
        ("300 s", post_signed(&house, "builds", "m", now_s - 400, &good, "x").await, 401),
        ("header", house.send(house.request("POST", "/hooks/builds").body("x")).await, 401),
        ("\"absent\"", post(&house, "absent", "m", KEY, "x").await, 404),
        ("empty", post(&house, "builds", "m", KEY, " ").await, 400),
        ("larger", post(&house, "builds", "m", KEY, &"x".repeat((256 << 10) + 1)).await, 413),
    ] {
        let text = detail(&reply, status);
        assert!(text.contains(what), "{what}: {text}");
    }
    let bytes = [0xff, 0xfe];
    let request = house.request("POST", "/hooks/builds").header("webhook-id", "m");
    let request = request.header("webhook-timestamp", now_s.to_string());
    let request = request.header("webhook-signature", sign(KEY, "m", now_s, &bytes));
    let reply = house.send(request.body(bytes.to_vec())).await;
    assert!(detail(&reply, 400).contains("UTF-8"));
    house.get("/hooks/builds", "").await.problem(405);
    assert!(received(&house, &ann).await.is_empty());
    assert_eq!(house.metric("frontdesk_requests_refused_total{why=\"unauthorized\"}").await, 5);
    // The same id is not used up by what was refused.
    assert_eq!(post(&house, "builds", "m", KEY, "x").await.expect(202)["duplicate"], false);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_nobody_gets_says_so_and_how_to_change_that() {
    let house = Harness::open().await;
    add(&house, "builds", Some(FIRST_TENANT)).await;
    let answer = post(&house, "builds", "m", KEY, "x").await.expect(202);
    assert_eq!(answer["outcome"], "withheld");
    let text = answer["text"].as_str().unwrap();
    assert!(text.contains("frontdesk bind hooks builds"), "{text}");
    add(&house, "shared", None).await;
    let text = post(&house, "shared", "m", KEY, "x").await.expect(202)["text"].as_str().unwrap().to_owned();
    assert!(text.contains("frontdesk route add hooks shared"), "{text}");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_webhook_is_its_own_and_a_shared_one_is_its_routes() {
    let house = Harness::open().await;
    let red = house.seat_in("red", "red-agent").await;
    let blue = house.seat_in("blue", "blue-agent").await;
    add(&house, "builds", Some("red")).await;
    bind(&house, "red", "builds", "red-agent").await;
    bind(&house, "blue", "builds", "blue-agent").await;
    post(&house, "builds", "m1", KEY, "x").await.expect(202);
    let route = json!({ "platform": "hooks", "key": "builds", "tenant": "blue" });
    house.admin("POST", "/routes", &route).await.expect(201);
    post(&house, "builds", "m2", KEY, "x").await.expect(202);
    let ids = |rows: Vec<(String, String)>| rows.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(ids(received(&house, &red).await), ["m1", "m2"], "the bot is red's, whatever routes say");
    assert!(received(&house, &blue).await.is_empty());
    add(&house, "shared", None).await;
    bind(&house, "blue", "shared", "blue-agent").await;
    bind(&house, "red", "shared", "red-agent").await;
    let route = json!({ "platform": "hooks", "key": "shared", "tenant": "blue" });
    house.admin("POST", "/routes", &route).await.expect(201);
    post(&house, "shared", "m1", KEY, "x").await.expect(202);
    assert_eq!(ids(received(&house, &blue).await), ["m1"], "another bot's message of the same id is another one");
    assert_eq!(ids(received(&house, &red).await), ["m1", "m2"]);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_is_added_with_its_key_and_with_nothing_unknown() {
    let house = Harness::open().await;
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
        let text = detail(&house.admin("POST", "/bots", &ask).await, 400);
        assert!(text.contains(what), "{text}");
    }
    for weak in ["short", "whsec_AAAA", "whsec_not base64", "whsec_!"] {
        let ask = json!({ "platform": "hooks", "id": "b", "secrets": { "key": weak } });
        let text = detail(&house.admin("POST", "/bots", &ask).await, 400);
        assert!(text.contains("at least 16 bytes"), "{weak}: {text}");
    }
    // Two keys while one replaces the other; then the bot is gone.
    let [old, new] = [b"the old key of the hook", b"the new key of the hook"].map(|key| key.as_slice());
    let [old_text, new_text] = [old, new].map(|key| format!("whsec_{}", STANDARD.encode(key)));
    let added = async |key: &str| {
        let ask = json!({ "platform": "hooks", "id": "b", "tenant": FIRST_TENANT, "secrets": { "key": key } });
        house.admin("POST", "/bots", &ask).await.expect(201);
    };
    added(&format!("{old_text} {new_text}")).await;
    post(&house, "b", "m1", old, "x").await.expect(202);
    post(&house, "b", "m2", new, "x").await.expect(202);
    added(&new_text).await;
    post(&house, "b", "m3", old, "x").await.problem(401);
    post(&house, "b", "m3", new, "x").await.expect(202);
    // A text with spaces is one key and not several.
    added("correct horse battery staple").await;
    post(&house, "b", "m4", b"correct horse battery staple", "x").await.expect(202);
    for word in [b"correct".as_slice(), b"horse", b"staple"] {
        post(&house, "b", "m5", word, "x").await.problem(401);
    }
    assert_eq!(house.admin("DELETE", "/bots/hooks/b", &Value::Null).await.status, 204);
    post(&house, "b", "m6", new, "x").await.problem(404);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_sends_is_no_command() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    add(&house, "builds", Some(FIRST_TENANT)).await;
    bind(&house, FIRST_TENANT, "builds", "ann").await;
    for (id, text) in [("m1", "/unlink"), ("m2", "/link ABCD-EFGH"), ("m3", "/whoami"), ("m4", "/stop")] {
        let answer = post(&house, "builds", id, KEY, text).await.expect(202);
        assert_eq!(answer["outcome"], "delivered", "{text}: {answer}");
    }
    let texts: Vec<String> = received(&house, &ann).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["/unlink", "/link ABCD-EFGH", "/whoami", "/stop"]);
    house.finish().await;
}
