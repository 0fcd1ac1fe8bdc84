//! Webhook mode, wrong tokens and other programs that poll.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn updates_come_through_the_door_with_the_right_secret_only() {
    let scene = Scene::without_bot().await;
    scene.add_bot(json!({ "mode": "webhook" })).await;
    let mut agent = scene.agent().await;
    scene.until("setWebhook", |scene| (scene.calls("setWebhook") == 1).then_some(())).await;
    scene.say(ANN, ANN, "by webhook");
    assert_eq!(agent.event().await.text(), "by webhook");
    assert_eq!(scene.calls("getUpdates"), 0);
    for secret in ["", "a-secret-of-the-webhooK"] {
        let request = scene.harness.request("POST", "/telegram/tg").header("x-telegram-bot-api-secret-token", secret);
        scene.harness.send(request.body("{}")).await.problem(401);
    }
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_with_a_bad_setting_is_refused_with_the_reason() {
    let scene = Scene::without_bot().await;
    for (settings, secrets, reason) in [
        (json!({}), json!({ "token": "nonsense" }), "@BotFather"),
        (json!({}), json!({}), "--secret token="),
        (json!({ "mode": "push" }), json!({ "token": TOKEN }), "poll or webhook"),
        (json!({ "mode": "webhook" }), json!({ "token": TOKEN }), "webhook_secret"),
        (json!({ "base_url": "api.telegram.org" }), json!({ "token": TOKEN }), "https://"),
        (json!({ "baseurl": "x" }), json!({ "token": TOKEN }), "base_url, mode"),
    ] {
        let ask = json!({ "platform": "telegram", "id": "x", "settings": settings, "secrets": secrets });
        let reply = scene.harness.admin("POST", "/bots", &ask).await;
        reply.problem(400);
        let text = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(text.contains(reason) && !text.contains(TOKEN), "{text}");
    }
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_tells_what_telegram_says_and_doctor_names_bots_that_do_not_listen() {
    let scene = Scene::open().await;
    let found = scene.harness.admin("GET", "/bots/telegram/tg/check", &Value::Null).await.expect(200);
    assert_eq!(found["ok"], true, "{found}");
    let text = found["findings"].to_string();
    assert!(text.contains("@desk_bot") && text.contains("polled by this server"), "{text}");
    // Another program polls the same bot.
    let rule = json!({ "method": "getUpdates", "fault": "status", "code": 409, "times": 1,
        "description": "Conflict: terminated by other getUpdates request" });
    scene.server.fake.fault(serde_json::from_value(rule).unwrap());
    scene.say(ANN, ANN, "wakes the poll");
    let failing = || scene.harness.app.desk.directory().bots().listener_failure("telegram", &"tg".into());
    scene.until("the conflict", |_| failing()).await;
    let response = scene.harness.admin("GET", "/doctor", &Value::Null).await.expect(200);
    assert!(response.to_string().contains("another program receives the updates"), "{response}");
    // It recovers by itself.
    let mut agent = scene.agent().await;
    assert_eq!(agent.event().await.text(), "wakes the poll");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_explained() {
    let scene = Scene::without_bot().await;
    let secrets = json!({ "token": "7002:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr" });
    let ask = json!({ "platform": "telegram", "id": "tg", "tenant": FIRST_TENANT, "secrets": secrets,
        "settings": { "base_url": scene.server.base_url } });
    scene.harness.admin("POST", "/bots", &ask).await.expect(201);
    let found = scene.harness.admin("GET", "/bots/telegram/tg/check", &Value::Null).await.expect(200);
    assert!(found["ok"] == false && found.to_string().contains("@BotFather"), "{found}");
    assert!(!found.to_string().contains("AAbbCC"), "{found}");
    scene.harness.finish().await;
}

fn photo(content: &str) -> Value {
    json!({ "kind": "photo", "content": content, "caption": (content == "one").then_some("all") })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_album_is_one_event_by_webhook_too_and_comes_before_what_is_said_after_it() {
    let scene = Scene::without_bot().await;
    scene.add_bot(json!({ "mode": "webhook" })).await;
    let mut agent = scene.agent().await;
    scene.until("setWebhook", |scene| (scene.calls("setWebhook") == 1).then_some(())).await;
    let album = |scene: &Scene| {
        let files = ["one", "two", "three"].map(photo);
        scene.act(json!({"act": "album", "chat": ANN, "from": ANN, "files": files}))
    };
    album(&scene);
    scene.say(ANN, ANN, "what do you see?");
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["message_type"]), (&json!("all"), &json!("photo")), "{event}");
    assert_eq!(event["media"].as_array().unwrap().len(), 3, "{event}");
    assert_eq!(agent.event().await.text(), "what do you see?");
    // With nothing after it, it is complete after a while. Another album does not belong to it.
    album(&scene);
    album(&scene);
    for _ in 0..2 {
        let event = agent.event().await.json["event"].clone();
        assert_eq!((&event["text"], event["media"].as_array().unwrap().len()), (&json!("all"), 3), "{event}");
    }
    scene.finish().await;
}

/// An update of an album, as Telegram would send it again if the answer got lost.
fn update(number: i64) -> Value {
    json!({ "update_id": 900 + number, "message": {
        "message_id": 100 + number, "date": 1, "media_group_id": "album", "chat": { "id": ANN, "type": "private" },
        "from": { "id": ANN, "is_bot": false, "first_name": "Ann" },
        "photo": [{ "file_id": format!("f{number}"), "file_unique_id": format!("u{number}"), "width": 1, "height": 1 }],
    } })
}

async fn push(harness: &Harness, update: &Value) {
    let request = harness.request("POST", "/telegram/tg");
    let request = request.header("x-telegram-bot-api-secret-token", "a-secret-of-the-webhook");
    harness.send(request.json(update)).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_album_that_was_not_complete_at_a_stop_comes_after_it_and_once() {
    let scene = Scene::without_bot().await;
    scene.add_bot(json!({ "mode": "webhook" })).await;
    scene.until("setWebhook", |scene| (scene.calls("setWebhook") == 1).then_some(())).await;
    for number in [2, 1, 2] {
        push(&scene.harness, &update(number)).await;
    }
    let Scene { harness, server, ann } = scene;
    let folder = harness.finish().await;
    let database = std::fs::read(folder.path().join("data/frontdesk.db")).unwrap();
    let wal = std::fs::read(folder.path().join("data/frontdesk.db-wal")).unwrap_or_default();
    for bytes in [database, wal] {
        assert!(!bytes.windows(9).any(|window| window == b"\"file_id\""), "handles of files are sealed");
    }
    let harness = Harness::again(folder, |_| {}).await;
    let mut agent = harness.dial(&ann.bearer()).await;
    agent.hello("telegram", "tg").await;
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["message_id"], event["media"].as_array().unwrap().len()), (&json!("101"), 2), "{event}");
    // Both were answered; if the answer got lost, they come again.
    for number in [1, 2] {
        push(&harness, &update(number)).await;
    }
    let said = server
        .fake
        .act(0, serde_json::from_value(json!({"act": "say", "chat": ANN, "from": ANN, "text": "x"})).unwrap());
    said.unwrap();
    assert_eq!(agent.event().await.text(), "x", "and nothing before it");
    harness.finish().await;
}
