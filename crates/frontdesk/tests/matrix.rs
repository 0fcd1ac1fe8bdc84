//! An application service end to end: what a homeserver pushes, what agents get of it, and what goes back. The
//! homeserver is a stub; `tests/vendors/matrix.py` runs the same against Synapse.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use frontdesk::app::FIRST_TENANT;
use harness::homeserver::{ANN, ME, Seen, homeserver};
use harness::{GatewayAccount, Harness, Reply};
use serde_json::{Value, json};

const ROOM: &str = "!room:example.org";

async fn scene() -> (Harness, GatewayAccount, Seen) {
    let (url, seen) = homeserver().await;
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let bot = json!({
        "platform": "matrix", "id": "b", "tenant": FIRST_TENANT,
        "settings": { "homeserver_url": url, "user_id": ME, "mode": "appservice" },
        "secrets": { "as_token": "ours", "hs_token": "theirs" },
    });
    harness.admin("POST", "/bots", &bot).await.expect(201);
    let link = json!({ "tenant": FIRST_TENANT, "platform": "matrix", "user_id": ANN, "instance": "g" });
    harness.admin("POST", "/bindings", &link).await.expect(201);
    (harness, account, seen)
}

fn event(id: &str, kind: &str, content: Value) -> Value {
    json!({ "event_id": id, "room_id": ROOM, "sender": ANN, "type": kind, "content": content })
}

fn text(id: &str, body: &str) -> Value {
    event(id, "m.room.message", json!({ "msgtype": "m.text", "body": body }))
}

async fn push(harness: &Harness, token: &str, txn: &str, events: Value) -> Reply {
    let request = harness.request("PUT", &format!("/_matrix/app/v1/transactions/{txn}"));
    let request = if token.is_empty() { request } else { request.header("authorization", format!("Bearer {token}")) };
    harness.send(request.body(json!({ "events": events }).to_string())).await
}

async fn mail(harness: &Harness, account: &GatewayAccount) -> Vec<String> {
    let rows = harness.mail(account).await;
    rows.iter().map(|row| row["message_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_stored_once_also_if_it_comes_again_after_a_restart() {
    let (harness, account, _) = scene().await;
    let events = json!([text("$1", "one"), text("$2", "two")]);
    for _ in 0..2 {
        assert_eq!(push(&harness, "theirs", "1", events.clone()).await.expect(200), json!({}));
    }
    let harness = Harness::again(harness.finish().await, |_| {}).await;
    push(&harness, "theirs", "1", events).await.expect(200);
    assert_eq!(mail(&harness, &account).await, ["$1", "$2"]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_homeserver_may_push() {
    let (harness, account, _) = scene().await;
    for (token, status) in [("", 401), ("wrong", 403), ("ours", 403)] {
        let reply = push(&harness, token, "1", json!([text("$1", "forged")])).await;
        assert_eq!((reply.status, &reply.json()["errcode"]), (status, &json!("M_FORBIDDEN")));
    }
    assert!(mail(&harness, &account).await.is_empty());
    let ping = harness.request("POST", "/_matrix/app/v1/ping").header("authorization", "Bearer theirs").body("{}");
    harness.send(ping).await.expect(200);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_is_explained_and_does_not_come_again() {
    let (harness, account, seen) = scene().await;
    let secret = event("$1", "m.room.encrypted", json!({ "ciphertext": "x" }));
    push(&harness, "theirs", "1", json!([secret])).await.expect(200);
    // An id that is too long is refused by the server; alone in its transaction it must not be pushed for ever.
    push(&harness, "theirs", "2", json!([text(&"$".repeat(300), "long")])).await.expect(200);
    push(&harness, "theirs", "3", json!([text("$3", "good")])).await.expect(200);
    assert_eq!(mail(&harness, &account).await, ["$3"]);
    let mut reasons = Vec::new();
    for number in 1..20 {
        let reply = harness.admin("GET", &format!("/events/ev-{number}/explain"), &Value::Null).await;
        if reply.status == 200 {
            reasons.push(reply.json()["instances"][0]["text"].as_str().unwrap().to_owned());
        }
    }
    assert!(reasons.iter().any(|text| text.contains("the room is encrypted")), "{reasons:?}");
    assert!(reasons.iter().any(|text| text.contains("message_id")), "{reasons:?}");
    let notices = seen.lock().unwrap().iter().filter(|it| it.contains("/send/m.room.message/")).count();
    assert_eq!(notices, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_of_each_message_has_a_key_of_its_own() {
    let (harness, account, seen) = scene().await;
    push(&harness, "theirs", "1", json!([text("$1", "hello")])).await.expect(200);
    let mut socket = harness.dial(&account.bearer()).await;
    socket.hello("matrix", "b").await;
    socket.event().await;
    for content in ["short".to_owned(), "long ".repeat(4_000), "short".to_owned()] {
        let result = socket.act(json!({ "op": "send", "chat_id": ROOM, "content": content })).await;
        assert_eq!(result["success"], true, "{result}");
    }
    let keys: Vec<String> = {
        let seen = seen.lock().unwrap();
        let sent = seen.iter().filter(|it| it.contains("/send/m.room.message/"));
        sent.map(|it| it.rsplit('/').next().unwrap().to_owned()).collect()
    };
    let mut different = keys.clone();
    different.sort();
    different.dedup();
    assert_eq!((keys.len(), different.len()), (4, 4), "{keys:?}");
    let (first, second) = (&keys[1], &keys[2]);
    assert!(first.ends_with(".0") && second.ends_with(".1"), "{keys:?}");
    assert_eq!(first.strip_suffix(".0"), second.strip_suffix(".1"), "parts of one journal entry");
    assert!(
        seen.lock().unwrap().iter().any(|it| it.ends_with("/receipt/m.read/%241")),
        "the message is marked as read"
    );
    harness.finish().await;
}

/// Regression: the second of two bots with one token never got anything.
#[tokio::test(flavor = "multi_thread")]
async fn two_bots_cannot_share_a_token_of_the_homeserver() {
    let (harness, _, _) = scene().await;
    let bot = |id: &str, token: &str| {
        json!({
            "platform": "matrix", "id": id, "tenant": FIRST_TENANT,
            "settings": { "homeserver_url": "http://127.0.0.1:1", "user_id": "@two:example.org", "mode": "appservice" },
            "secrets": { "as_token": "ours", "hs_token": token },
        })
    };
    let refused = harness.admin("POST", "/bots", &bot("two", "theirs")).await;
    assert_eq!(refused.status, 400);
    let text = refused.json().to_string();
    assert!(text.contains("same hs_token") && text.contains("registration of its own"), "{text}");
    harness.admin("POST", "/bots", &bot("two", "others")).await.expect(201);
    harness.finish().await;
}

/// Regression: two bots of one server in a room answered each other for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_another_bot_of_this_server_is_recorded_and_not_delivered() {
    let (harness, account, _) = scene().await;
    let other = json!({
        "platform": "matrix", "id": "two", "tenant": FIRST_TENANT,
        "settings": { "homeserver_url": "http://127.0.0.1:1", "user_id": "@two:example.org" },
        "secrets": { "access_token": "x" },
    });
    harness.admin("POST", "/bots", &other).await.expect(201);
    let link = json!({ "tenant": FIRST_TENANT, "platform": "matrix", "user_id": "@two:example.org", "instance": "g" });
    harness.admin("POST", "/bindings", &link).await.expect(201);
    let mut explained = Value::Null;
    // The platform learns of new bots within a second.
    for number in 1..50 {
        let mut said = text(&format!("${number}"), "hello bot");
        said["sender"] = "@two:example.org".into();
        push(&harness, "theirs", &number.to_string(), json!([said])).await.expect(200);
        let reply = harness.admin("GET", &format!("/events/ev-{number}/explain"), &Value::Null).await;
        explained = if reply.status == 200 { reply.json() } else { Value::Null };
        if explained.to_string().contains("another bot of this server") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(explained.to_string().contains("another bot of this server"), "{explained}");
    drop(account);
    harness.finish().await;
}
