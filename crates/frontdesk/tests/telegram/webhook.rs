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
    for (settings, secrets, told) in [
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
        assert!(text.contains(told) && !text.contains(TOKEN), "{text}");
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
    let failing = || scene.harness.app.desk.directory().bots().listener_failure("telegram", "tg");
    scene.until("the conflict", |_| failing()).await;
    let told = scene.harness.admin("GET", "/doctor", &Value::Null).await.expect(200);
    assert!(told.to_string().contains("another program receives the updates"), "{told}");
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
