//! Messages of users, as agents get them.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_message_reaches_the_agent_of_its_person_once() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let said = scene.say(ANN, ANN, "hello *you*");
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["text"], &event["message_type"]), (&json!("hello *you*"), &json!("text")), "{event}");
    let source = &event["source"];
    for (field, value) in [
        ("platform", json!("telegram")),
        ("chat_id", json!(ANN.to_string())),
        ("chat_type", json!("dm")),
        ("user_id", json!(ANN.to_string())),
        ("user_name", json!("Ann B")),
        ("thread_id", Value::Null),
    ] {
        assert_eq!(source[field], value, "{field} in {source}");
    }
    assert_eq!(event["message_id"], said["message_id"].to_string(), "{event}");
    agent.ack(&frame).await;
    // The updates are confirmed, and a restarted server does not take them again.
    scene.until("the offset", |scene| (scene.server.fake.updates_waiting(BOT) == 0).then_some(())).await;
    let Scene { harness, server, ann } = scene;
    agent.hang_up().await;
    let scene = Scene { harness: Harness::again(harness.finish().await, |_| {}).await, server, ann };
    let mut agent = scene.agent().await;
    scene.say(ANN, ANN, "again");
    assert_eq!(agent.event().await.text(), "again");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_group_each_person_reaches_only_their_own_agent() {
    let scene = Scene::open().await;
    let ben = scene.harness.add_gateway("ben").await;
    scene.link(BEN, "ben").await;
    let mut of_ann = scene.agent().await;
    let mut of_ben = scene.harness.dial(&ben.bearer()).await;
    of_ben.hello("telegram", "tg").await;
    scene.say(GROUP, BEN, "@desk_bot for ben");
    scene.say(GROUP, ANN, "@desk_bot, for ann");
    let frame = of_ann.event().await;
    assert_eq!(frame.text(), "for ann");
    assert_eq!(frame.json["event"]["source"]["chat_type"], "group");
    assert_eq!(of_ben.event().await.text(), "for ben");
    assert_eq!((of_ann.unread().await, of_ben.unread().await), (0, 0));
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_replies_and_edits_are_told_apart() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let topic = scene.act(json!({"act": "open_topic", "chat": FORUM, "from": ANN, "name": "plans"}));
    let topic = topic["message_thread_id"].as_i64().unwrap();
    scene.act(json!({"act": "say", "chat": FORUM, "from": ANN, "topic": topic, "text": "@desk_bot in the topic"}));
    let first = agent.event().await.json["event"].clone();
    assert_eq!(first["source"]["thread_id"], topic.to_string(), "{first}");
    assert!(first["reply_to_message_id"].is_null(), "the message that opened the topic is no reply: {first}");
    let said = scene.say(FORUM, ANN, "@desk_bot in general");
    let general = agent.event().await.json["event"].clone();
    assert_eq!(general["source"]["thread_id"], "1", "{general}");
    scene.act(json!({"act": "say", "chat": FORUM, "from": ANN, "text": "@desk_bot about that",
        "reply_to": said["message_id"], "quote": "in general"}));
    let reply = agent.event().await.json["event"].clone();
    assert_eq!(reply["reply_to"]["text"], "in general", "{reply}");
    let said = scene.say(ANN, ANN, "fist");
    agent.event().await;
    scene.act(json!({"act": "edit", "chat": ANN, "from": ANN, "message_id": said["message_id"], "text": "first"}));
    let edited = agent.event().await.json["event"].clone();
    assert_eq!((&edited["text"], &edited["source"]["message_is_edit"]), (&json!("first"), &json!(true)), "{edited}");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_album_is_one_event_and_its_files_are_fetched_when_they_are_asked_for() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let file =
        |content: &str| json!({"kind": "photo", "content": content, "caption": (content == "one").then_some("both")});
    scene.act(json!({"act": "album", "chat": ANN, "from": ANN, "files": [file("one"), file("two")]}));
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["message_type"]), (&json!("both"), &json!("photo")), "{event}");
    assert_eq!(event["media"].as_array().unwrap().len(), 2, "{event}");
    assert_eq!(scene.calls("getFile"), 0, "nothing is fetched before somebody asks");
    for (at, content) in [(0, "one"), (1, "two")] {
        let url = event["media_urls"][at].as_str().unwrap();
        let path = url.strip_prefix(&scene.harness.url).unwrap();
        let reply = scene.harness.get(path, &scene.ann.bearer()).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, content));
    }
    assert!(!String::from_utf8_lossy(&scene.harness.received.lock().unwrap()).contains(TOKEN));
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_cannot_be_read_is_recorded_and_does_not_block() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    scene.act(json!({"act": "raw", "update": {"message": {"message_id": "not a number", "chat": {"id": 1}}}}));
    scene.act(json!({"act": "raw", "update": {"something_new": {"a": 1}}}));
    scene.say(ANN, ANN, "after it");
    assert_eq!(agent.event().await.text(), "after it");
    scene.until("the offset", |scene| (scene.server.fake.updates_waiting(BOT) == 0).then_some(())).await;
    let refused = scene.harness.metric("frontdesk_events_withheld_total{why=\"tenant\"}").await;
    assert_eq!(refused, 1, "the unreadable one is recorded, the unknown kind is not for us");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_gets_another_id_keeps_its_route_and_its_grants() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let route = json!({ "platform": "telegram", "key": GROUP.to_string(), "tenant": FIRST_TENANT });
    scene.harness.admin("POST", "/routes", &route).await.expect(201);
    let to = -1_001_000_000_009_i64;
    scene.act(json!({"act": "migrate", "chat": GROUP, "from": ANN, "to": to}));
    scene.say(to, ANN, "@desk_bot here now");
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["source"]["chat_id"]), (&json!("here now"), &json!(to.to_string())), "{event}");
    let routes = scene.harness.admin("GET", "/routes", &Value::Null).await.expect(200).to_string();
    assert!(routes.contains(&to.to_string()) && !routes.contains(&format!("\"{GROUP}\"")), "{routes}");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_of_a_channel_polls_and_contacts_are_not_dropped() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let channel = -1_001_000_000_002_i64;
    let members = json!([[BOT, "administrator"], [ANN, "creator"]]);
    scene.act(json!({"act": "add_chat", "id": channel, "kind": "channel", "title": "news", "members": members}));
    scene.link(channel, "ann").await;
    scene.act(json!({"act": "say", "chat": channel, "text": "@desk_bot a post"}));
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["source"]["chat_type"]), (&json!("a post"), &json!("channel")), "{event}");
    assert_eq!(event["source"]["user_id"], channel.to_string(), "the channel itself speaks: {event}");
    let said = |id: i64, content: Value| {
        let mut message = json!({"message_id": id, "date": 1, "chat": {"id": ANN, "type": "private", "first_name": "Ann"},
            "from": {"id": ANN, "is_bot": false, "first_name": "Ann"}});
        message.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        scene.act(json!({"act": "raw", "update": {"message": message}}));
    };
    for (id, content, text) in [
        (
            901,
            json!({"poll": {"question": "When?", "options": [{"text": "now"}, {"text": "later"}]}}),
            "[Poll: When? Options: now, later]",
        ),
        (902, json!({"contact": {"phone_number": "+1", "first_name": "Ben"}}), "[Contact: Ben, +1]"),
        (903, json!({"dice": {"emoji": "🎲", "value": 6}}), "[🎲 shows 6]"),
        (904, json!({"story": {"id": 1}}), "[A story that can only be seen in Telegram]"),
    ] {
        said(id, content);
        assert_eq!(agent.event().await.text(), text);
    }
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_edit_counts_also_back_to_an_earlier_text() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let message = |text: &str, edit: Option<i64>| {
        let mut message = json!({"message_id": 77, "date": 1, "text": text, "chat": {"id": ANN, "type": "private"},
            "from": {"id": ANN, "is_bot": false, "first_name": "Ann"}});
        if let Some(edit) = edit {
            message["edit_date"] = edit.into();
        }
        let kind = if edit.is_some() { "edited_message" } else { "message" };
        scene.act(json!({"act": "raw", "update": {kind: message}}));
    };
    message("a", None);
    for (date, text) in [(2, "b"), (3, "a"), (4, "b")] {
        message(text, Some(date));
    }
    let mut texts = Vec::new();
    for frame in agent.events(4).await {
        texts.push(frame.text().to_owned());
    }
    assert_eq!(texts, ["a", "b", "a", "b"]);
    scene.finish().await;
}
