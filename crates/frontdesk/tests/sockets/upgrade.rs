//! Upgrades of sockets, and what closes them.

use serde_json::{Value, json};

use crate::harness::Harness;

fn unauthorized() -> (u16, String) {
    (4401, "unauthorized".into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_valid_token_opens_a_socket_and_hello_returns_a_complete_descriptor() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.dial(&account.bearer()).await;
    let descriptor = socket.hello("relay", "").await;
    let expected = [
        "contract_version",
        "platform",
        "label",
        "max_message_length",
        "supports_draft_streaming",
        "supports_edit",
        "supports_threads",
        "markdown_dialect",
        "len_unit",
        "emoji",
        "platform_hint",
        "pii_safe",
        "supports_context",
        "supports_inchannel_continuable",
        "supports_block_formatting",
        "supported_ops",
    ];
    let fields = descriptor.as_object().unwrap();
    for field in expected {
        assert!(fields.get(field).is_some_and(|value| !value.is_null()), "{field} of {descriptor}");
    }
    assert_eq!((&descriptor["contract_version"], &descriptor["platform"]), (&json!(1), &json!("relay")));
    let ops = descriptor["supported_ops"].as_array().unwrap();
    for op in ["send", "edit", "delete", "typing", "react", "prompt", "thread_create", "thread_rename", "draft"] {
        assert!(ops.contains(&json!(op)), "{op} of {ops:?}");
    }
    assert!(ops.contains(&json!("get_chat_info")), "{ops:?}");
    assert!(ops.contains(&json!("send_media")) && ops.contains(&json!("follow_up")), "{ops:?}");
    assert_eq!(harness.metric("frontdesk_sockets_open").await, 1);
    let shown = harness.admin("GET", "/gateways/g", &Value::Null).await.expect(200);
    assert_eq!(shown["connected"], true);
    socket.hang_up().await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_invalid_token_is_upgraded_and_closed_as_unauthorized() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let good = account.bearer();
    let mut forged = account.clone();
    forged.secret = "0".repeat(64);
    let mut nobody = account.clone();
    nobody.gateway = "nobody".into();
    let bad = [
        forged.bearer(),
        nobody.bearer(),
        good[..good.len() - 4].to_owned(),
        format!("{good}AAAA"),
        format!("!{}", &good[1..]),
        "a b c".into(),
        String::new(),
        account.secret.clone(),
        harness.admin.clone(),
        account.chat.clone(),
        "A".repeat(6000),
    ];
    for token in &bad {
        assert_eq!(harness.refusal(token).await, unauthorized(), "{token:?}");
    }
    let mut missing = harness.dial_without_token().await;
    assert_eq!(missing.closed().await, unauthorized());
    let refused = harness.metric("frontdesk_sockets_refused_total{why=\"unauthorized\"}").await;
    assert_eq!(refused, bad.len() as u64 + 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_gateway_that_sends_at_once_still_gets_the_reason() {
    let harness = Harness::open().await;
    for _ in 0..20 {
        let mut socket = harness.dial("rubbish").await;
        socket.try_text("{\"type\":\"hello\",\"platform\":\"relay\",\"botId\":\"\"}\n".repeat(50)).await;
        assert_eq!(socket.closed().await, unauthorized());
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_reported_and_clock_drift_is_tolerated() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let now = harness.app.desk.env().now_s();
    assert_eq!(harness.refusal(&account.bearer_until(now - 125)).await, (4401, "expired".into()));
    assert_eq!(harness.refusal(&account.bearer_until(1)).await, (4401, "expired".into()));
    for good in [now - 90, now + 300, 0] {
        let mut socket = harness.dial(&account.bearer_until(good)).await;
        socket.hello("relay", "").await;
        socket.hang_up().await;
    }
    let mut forged = account.clone();
    forged.secret = "f".repeat(64);
    assert_eq!(harness.refusal(&forged.bearer_until(1)).await, unauthorized(), "the signature is checked first");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_may_be_a_subprotocol() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let token = account.bearer();
    for offered in [format!("frontdesk.relay, bearer.{token}"), format!("bearer.{token},frontdesk.relay")] {
        let mut socket = harness.dial_by_protocol(&offered).await;
        socket.hello("relay", "").await;
        socket.hang_up().await;
    }
    for offered in ["frontdesk.relay, bearer.x", "frontdesk.relay, bearer.", "frontdesk.relay", &token] {
        assert_eq!(harness.dial_by_protocol(offered).await.closed().await, unauthorized(), "{offered}");
    }
    // Of what was offered only the name is repeated, and browsers need it also where they are refused.
    for offered in ["x", &token] {
        let asked = harness.request("GET", "/relay").header("connection", "Upgrade").header("upgrade", "websocket");
        let asked = asked.header("sec-websocket-version", "13").header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let asked = asked.header("sec-websocket-protocol", format!("frontdesk.relay, bearer.{offered}"));
        let answer = harness.response(asked).await;
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["sec-websocket-protocol"].to_str().unwrap()),
            (101, "frontdesk.relay")
        );
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_id_may_contain_colons() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("home:agent:1700000000:7").await;
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "hi").await;
    assert_eq!(socket.event().await.text(), "hi");
    let path = format!("/gateways/{}/revoke", "home%3Aagent%3A1700000000%3A7");
    harness.admin("POST", &path, &json!({})).await.expect(200);
    assert_eq!(socket.closed().await, unauthorized());
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_at_any_other_path_is_a_bad_request() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    for path in ["/relay/other", "/relay/", "/socket", "/", "/healthz", "/relay/provision", "/chat"] {
        let asked = harness.request("GET", path).bearer_auth(account.bearer());
        let asked = asked.header("connection", "Upgrade").header("upgrade", "websocket");
        let asked = asked.header("sec-websocket-version", "13").header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(harness.send(asked).await.status, 400, "{path}");
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoke_closes_the_live_socket_and_refuses_the_next() {
    let harness = Harness::open().await;
    let (account, other) = (harness.add_gateway("g").await, harness.add_gateway("other").await);
    let (mut socket, mut bystander) = (harness.socket(&account).await, harness.socket(&other).await);
    harness.admin("POST", "/gateways/g/revoke", &json!({})).await.expect(200);
    assert_eq!(socket.closed().await, unauthorized());
    assert_eq!(harness.refusal(&account.bearer()).await, unauthorized());
    let policy = json!({ "platform": "relay" });
    assert_eq!(harness.post("/relay/policy", &account.bearer(), &policy).await.status, 401, "and all other routes");
    bystander.settle().await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_opened_before_the_revoke_cannot_send_hello_after_it() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.dial(&account.bearer()).await;
    socket.settle().await;
    harness.admin("POST", "/gateways/g/revoke", &json!({})).await.expect(200);
    harness.say(&account, "c", "not for the revoked").await;
    socket.try_text("{\"type\":\"hello\",\"platform\":\"relay\",\"botId\":\"\"}\n").await;
    assert_eq!(socket.closed().await, unauthorized());
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deprovisioning_closes_the_socket_revokes_the_secret_and_drops_the_links() {
    let harness = Harness::open().await;
    let (account, other) = (harness.add_gateway("g").await, harness.add_gateway("other").await);
    let (mut socket, mut bystander) = (harness.socket(&account).await, harness.socket(&other).await);
    assert_eq!(harness.say(&account, "c", "one").await["verdict"]["outcome"], "delivered");
    assert_eq!(harness.post("/manage/deprovision", "rubbish", &json!({})).await.status, 401);
    harness.post("/manage/deprovision", &account.bearer(), &json!({})).await.expect(200);
    assert_eq!(socket.closed().await, unauthorized());
    assert_eq!(harness.refusal(&account.bearer()).await, unauthorized());
    let links = harness.admin("GET", "/bindings", &Value::Null).await.expect(200);
    let left: Vec<&Value> = links["bindings"].as_array().unwrap().iter().collect();
    assert!(left.iter().all(|link| link["instance"] == "other") && left.len() == 1, "{left:?}");
    assert_eq!(harness.say(&account, "c", "two").await["verdict"]["outcome"], "withheld");
    harness.say(&other, "d", "three").await;
    assert_eq!(bystander.event().await.text(), "three");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_are_valid_during_a_rotation_overlap() {
    let harness = Harness::open().await;
    let old = harness.add_gateway("g").await;
    let mut live = harness.socket(&old).await;
    let rotated = harness.admin("POST", "/gateways/g/rotate", &json!({})).await.expect(200);
    let day_ms = 86_400_000;
    let until = rotated["overlap_until"].as_u64().unwrap();
    assert!(until.abs_diff(harness.app.desk.env().now_ms() + day_ms) < 60_000, "{until}");
    let mut new = old.clone();
    new.secret = rotated["secret"].as_str().unwrap().into();
    assert_ne!(old.secret, new.secret);
    live.settle().await; // a rotation closes nothing
    live.hang_up().await;
    for account in [&old, &new, &old] {
        harness.socket(account).await.hang_up().await;
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hello_for_a_foreign_platform_or_bot_is_closed_with_4403() {
    let harness = Harness::open().await;
    let (account, _) = (harness.add_gateway("g").await, harness.add_gateway_in("rival", "r").await);
    let bot = json!({ "platform": "semaphore", "id": "flags", "tenant": "rival" });
    harness.admin("POST", "/bots", &bot).await.expect(201);
    for (platform, bot) in [("semaphore", ""), ("semaphore", "flags"), ("relay", "flags"), ("relay", "desk2"), ("", "")]
    {
        let mut socket = harness.dial(&account.bearer()).await;
        socket.frame(&crate::harness::hello(platform, bot)).await;
        let (code, reason) = socket.closed().await;
        assert_eq!(code, 4403, "{platform} {bot}");
        assert!(!reason.is_empty());
        assert_eq!(socket.came(), 0, "{platform} {bot}");
    }
    let mut named = harness.dial(&account.bearer()).await;
    named.hello("relay", "desk").await;
    harness.finish().await;
}
