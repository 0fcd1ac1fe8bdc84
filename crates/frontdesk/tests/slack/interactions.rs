//! Buttons and commands, by request and by socket.

use super::*;

async fn asked(scene: &Scene, agent: &mut Socket) -> String {
    scene.say("C1", "UANN", "<@UBOT> do it");
    agent.event().await;
    let options = json!([{ "id": "yes", "label": "Yes", "style": "primary" }, { "id": "no", "label": "No" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "C1", "prompt_kind": "approval", "prompt_id": "p1",
        "content": "Really?", "options": options });
    let sent = agent.act(prompt).await;
    assert_eq!(sent["success"], true, "{sent}");
    sent["message_id"].as_str().unwrap().to_owned()
}

async fn a_button_is_pressed(scene: Scene) {
    let mut agent = scene.agent().await;
    let ts = asked(&scene, &mut agent).await;
    let press = |from: &str| {
        let act = json!({"act": "press", "channel": "C1", "from": from, "ts": ts, "value": "hp1:p1:yes"});
        scene.act(act)["id"].clone()
    };
    let by_eve = press("UEVE");
    assert_eq!(scene.answer_to(&by_eve).await["status"], 200);
    let answer = scene.until("a refusal", |scene| scene.server.fake.responses().pop()).await;
    assert_eq!((&answer["user"], &answer["body"]["response_type"]), (&json!("UEVE"), &json!("ephemeral")), "{answer}");
    // Two presses before the buttons are gone: the first one counts.
    press("UANN");
    press("UANN");
    let event = agent.event().await.json["event"].clone();
    let response = json!({ "prompt_id": "p1", "option_id": "yes", "label": "Yes", "prompt_message_id": ts });
    assert_eq!((&event["prompt_response"], &event["text"]), (&response, &json!("/yes")), "{event}");
    assert_eq!(event["source"]["user_id"], "UANN");
    let why = format!("/manage/why?message_id={}", event["message_id"].as_str().unwrap());
    let found = scene.harness.get(&format!("{why}&chat_id=C1"), &scene.ann.bearer()).await.expect(200);
    assert_eq!(found["outcome"], "delivered", "{found}");
    scene.harness.get(&why, &scene.ann.bearer()).await.error(404);
    let closed = |scene: &Scene| {
        let message = scene.server.fake.messages("C1").into_iter().find(|it| it["ts"] == ts.as_str())?;
        message["text"].as_str()?.contains("<@UANN>: Yes").then_some(message)
    };
    let message = scene.until("a closed prompt", closed).await;
    assert!(!message["blocks"].to_string().contains("actions"), "{message}");
    let late = |said: &Value| said["body"]["text"] == "This was answered already.";
    scene.until("the refusal of the second press", |scene| scene.server.fake.responses().into_iter().find(late)).await;
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_is_pressed_and_answered_by_socket() {
    a_button_is_pressed(Scene::by_socket().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_is_pressed_and_answered_by_request() {
    a_button_is_pressed(Scene::by_requests().await).await;
}

async fn a_command_is_given(scene: Scene) {
    let mut agent = scene.agent().await;
    let give = |channel: &str, from: &str| {
        let act = json!({"act": "command", "channel": channel, "from": from, "command": "/model", "text": "small one"});
        scene.act(act)["id"].clone()
    };
    let id = give("C1", "UANN");
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["message_type"]), (&json!("/model small one"), &json!("command")), "{event}");
    assert!(!event.to_string().contains("/response/"), "the address is a credential: {event}");
    let answer = scene.answer_to(&id).await;
    assert!(answer["status"] == 200 && !answer["body"].to_string().contains("text"), "{answer}");
    let followed = agent.follow_up("agent:main:slack:group:C1:UANN", "slack.response_url", "**small** it is").await;
    assert_eq!(followed.json["result"]["success"], true, "{}", followed.raw);
    let response = scene.server.fake.responses().pop().unwrap();
    assert_eq!((&response["channel"], &response["body"]["text"]), (&json!("C1"), &json!("*small* it is")));
    // Where the app is no member, a plain answer goes the same way.
    give("C3", "UANN");
    agent.event().await;
    let sent = agent.act(send("C3", "here too", None)).await;
    assert_eq!(sent["success"], true, "{sent}");
    assert_eq!(scene.server.fake.messages("C3").pop().unwrap()["text"], "here too");
    let by_eve = give("C1", "UEVE");
    let answer = scene.answer_to(&by_eve).await["body"].to_string();
    assert!(answer.contains("ephemeral") && answer.contains("link"), "{answer}");
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_given_and_answered_by_socket() {
    a_command_is_given(Scene::by_socket().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_given_and_answered_by_request() {
    a_command_is_given(Scene::by_requests().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_are_refused_readably() {
    let scene = Scene::by_requests().await;
    let view =
        json!({ "type": "view_submission", "team": { "id": "T1" }, "user": { "id": "UANN" }, "view": { "id": "V1" } });
    let id = scene.act(json!({"act": "interaction", "payload": view}))["id"].clone();
    let answer = scene.answer_to(&id).await;
    assert!(answer["body"].to_string().contains("Forms are not supported here"), "{answer}");
    scene.finish().await;
}
