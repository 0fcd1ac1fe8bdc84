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
    scene.harness.finish().await;
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
