//! Actions of agents, as users see them.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_formatted_edited_and_deleted() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    scene.say(ANN, ANN, "hi");
    agent.event().await;
    let result = agent.act(send(ANN, "**Done.** See [it](https://a.example/x_(y)) `a_b`")).await;
    assert_eq!(result["success"], true, "{result}");
    let id = result["message_id"].as_str().unwrap().parse::<i64>().unwrap();
    let shown = scene.messages(ANN).into_iter().find(|it| it["message_id"] == id).unwrap();
    assert_eq!(shown["text"], "Done. See it a_b", "{shown}");
    let kinds: Vec<&str> =
        shown["entities"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["bold", "text_link", "code"]);
    let edit = json!({ "op": "edit", "chat_id": ANN.to_string(), "message_id": id.to_string(), "content": "better" });
    for _ in 0..2 {
        let result = agent.act(edit.clone()).await;
        assert_eq!((&result["success"], &result["message_id"]), (&json!(true), &json!(id.to_string())), "{result}");
    }
    let delete = json!({ "op": "delete", "chat_id": ANN.to_string(), "message_id": id.to_string() });
    for _ in 0..2 {
        assert_eq!(agent.act(delete.clone()).await["success"], true);
    }
    assert!(scene.messages(ANN).iter().all(|it| it["message_id"] != id));
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_answers_come_in_parts_and_lose_nothing() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    scene.say(ANN, ANN, "hi");
    agent.event().await;
    let words: Vec<String> = (0..1_500).map(|number| format!("word{number}.")).collect();
    let result = agent.act(send(ANN, &words.join(" "))).await;
    assert_eq!(result["success"], true, "{result}");
    let shown = scene.messages(ANN);
    let parts: Vec<&str> =
        shown.iter().filter(|it| it["from"]["id"] == BOT).map(|it| it["text"].as_str().unwrap()).collect();
    assert!(parts.len() > 1);
    let seen: Vec<&str> = parts.iter().flat_map(|part| part.split_whitespace()).collect();
    assert_eq!(seen, words);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pressed_button_is_an_answer_by_the_person_who_pressed() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    scene.say(GROUP, ANN, "@desk_bot hi");
    agent.event().await;
    let prompt = json!({ "op": "prompt", "chat_id": GROUP.to_string(), "prompt_id": "p1", "content": "Go on?",
        "options": [{"id": "yes", "label": "Yes"}, {"id": "no", "label": "No"}] });
    let result = agent.act(prompt).await;
    let id = result["message_id"].as_str().unwrap().parse::<i64>().unwrap();
    // Another person has an agent of their own, which did not ask.
    let ben = scene.harness.add_gateway("ben").await;
    scene.link(BEN, "ben").await;
    let mut of_ben = scene.harness.dial(&ben.bearer()).await;
    of_ben.hello("telegram", "tg").await;
    scene.act(json!({"act": "press", "chat": GROUP, "from": BEN, "message_id": id, "label": "No"}));
    scene.until("the refusal", |scene| (scene.calls("answerCallbackQuery") == 1).then_some(())).await;
    let alert =
        scene.server.fake.calls_after(0).into_iter().rfind(|call| call.method == "answerCallbackQuery").unwrap();
    assert!(alert.params["text"].as_str().unwrap().contains("another agent"), "{}", alert.params);
    assert_eq!(of_ben.unread().await, 0);
    // Two presses before the buttons are gone: the first one counts.
    for label in ["Yes", "No"] {
        scene.act(json!({"act": "press", "chat": GROUP, "from": ANN, "message_id": id, "label": label}));
    }
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["message_type"]), (&json!("/yes"), &json!("command")), "{event}");
    let response = json!({"prompt_id": "p1", "option_id": "yes", "label": "Yes", "prompt_message_id": id.to_string()});
    assert_eq!(event["prompt_response"], response);
    assert_eq!(event["source"]["user_id"], ANN.to_string());
    scene.until("answers to the buttons", |scene| (scene.calls("answerCallbackQuery") == 3).then_some(())).await;
    let calls = scene.server.fake.calls_after(0).into_iter().filter(|call| call.method == "answerCallbackQuery");
    let mut said: Vec<String> = calls.map(|it| it.params["text"].as_str().unwrap_or_default().to_owned()).collect();
    said[1..].sort(); // they are answered side by side
    assert_eq!(said[1..], ["", "This was answered already."]);
    assert_eq!(agent.unread().await, 0);
    scene
        .until("the buttons are gone", |scene| {
            let shown = scene.messages(GROUP).into_iter().find(|it| it["message_id"] == id)?;
            shown["reply_markup"].is_null().then_some(())
        })
        .await;
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_topics_reactions_typing_and_drafts_go_out() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let said = scene.say(ANN, ANN, "hi");
    agent.event().await;
    let upload = scene.harness.request("POST", "/relay/media").bearer_auth(scene.ann.bearer());
    let upload = upload.header("content-type", "image/png").header("x-media-filename", "a.png").body("png bytes");
    let id = scene.harness.send(upload).await.expect(200)["id"].as_str().unwrap().to_owned();
    let media = json!({ "op": "send_media", "chat_id": ANN.to_string(), "media_kind": "image", "content": "look",
        "source_url": format!("{}/relay/media/{id}", scene.harness.url) });
    let result = agent.act(media).await;
    assert_eq!(result["success"], true, "{result}");
    let shown = scene.messages(ANN).pop().unwrap();
    assert!(shown["photo"].is_array() && shown["caption"] == "look", "{shown}");
    let message_id = said["message_id"].to_string();
    let react =
        |emoji: &str| json!({ "op": "react", "chat_id": ANN.to_string(), "message_id": message_id, "emoji": emoji });
    assert_eq!(agent.act(react("✅")).await["success"], true);
    let refused = agent.act(react("🥒")).await;
    assert!(refused["error"].as_str().unwrap().contains("no reaction"), "{refused}");
    assert_eq!(agent.act(json!({ "op": "typing", "chat_id": ANN.to_string() })).await["success"], true);
    let draft = json!({ "op": "draft", "chat_id": ANN.to_string(), "draft_id": 7, "content": "so far" });
    let result = agent.act(draft).await;
    assert_eq!(result["success"], true, "{result}");
    scene.say(FORUM, ANN, "@desk_bot hi");
    agent.event().await;
    let made = agent.act(json!({ "op": "thread_create", "chat_id": FORUM.to_string(), "thread_name": "plans" })).await;
    let thread = made["thread_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let mut answer = send(FORUM, "in the topic");
    answer["metadata"] = json!({ "thread_id": thread });
    assert_eq!(agent.act(answer).await["success"], true);
    let shown = scene.messages(FORUM).pop().unwrap();
    assert_eq!(shown["message_thread_id"].to_string(), thread, "{shown}");
    let rename = json!({ "op": "thread_rename", "chat_id": FORUM.to_string(), "message_id": thread,
        "thread_name": "plans 2", "only_if_current_name": "plans" });
    let refused = agent.act(rename).await;
    assert!(refused["error"].as_str().unwrap().contains("guarded rename"), "{refused}");
    let info = agent.act(json!({ "op": "get_chat_info", "chat_id": FORUM.to_string() })).await;
    assert_eq!(info["chat_info"], json!({ "name": "f", "type": "group" }));
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_told_as_what_they_are() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    scene.say(ANN, ANN, "hi");
    agent.event().await;
    let fault = |mut rule: Value| {
        rule["method"] = "sendMessage".into();
        rule["times"] = 1.into();
        scene.server.fake.fault(serde_json::from_value(rule).unwrap());
    };
    fault(json!({ "fault": "drop_after" }));
    let result = agent.act(send(ANN, "one")).await;
    assert_eq!((&result["success"], &result["ambiguous"]), (&json!(false), &json!(true)), "{result}");
    fault(json!({ "fault": "retry_after", "seconds": 1 }));
    let result = agent.act(send(ANN, "two")).await;
    assert_eq!(result["success"], true, "it waited as it was told, and tried again: {result}");
    scene.act(json!({"act": "block", "chat": ANN, "from": ANN, "blocked": true}));
    let result = agent.act(send(ANN, "three")).await;
    assert_eq!((&result["success"], &result["code"]), (&json!(false), &json!("forbidden")), "{result}");
    let result = agent.act(send(999, "to a stranger")).await;
    assert_eq!(result["code"], "egress_declined", "{result}");
    scene.finish().await;
}
