//! Messages of users, as agents get them.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_reaches_the_agent_of_its_person_once_by_socket() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    let said = scene.say("C1", "UANN", "<@UBOT> hello *you*");
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["text"], &event["message_type"]), (&json!("hello *you*"), &json!("text")), "{event}");
    for (field, value) in [
        ("platform", json!("slack")),
        ("chat_id", json!("C1")),
        ("chat_type", json!("group")),
        ("user_id", json!("UANN")),
        ("user_name", json!("Ann B")),
        ("thread_id", Value::Null),
        ("scope_id", json!("T1")),
        ("guild_id", json!("T1")),
    ] {
        assert_eq!(event["source"][field], value, "{field} in {event}");
    }
    assert_eq!(event["message_id"], said["ts"]);
    agent.ack(&frame).await;
    // The mention came a second time as an event of its own kind.
    scene.until("both acknowledged", |scene| (scene.server.fake.deliveries().len() == 2).then_some(())).await;
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_verified_and_their_repetitions_known() {
    let scene = Scene::by_requests().await;
    let mut agent = scene.agent().await;
    scene.say("D1", "UANN", "by request");
    let frame = agent.event().await;
    assert_eq!((frame.text(), &frame.json["event"]["source"]["chat_type"]), ("by request", &json!("dm")));
    let challenge = json!({ "type": "url_verification", "challenge": "abc" }).to_string();
    assert_eq!(scene.post("events", &challenge, &[]).await.expect(200), json!({ "challenge": "abc" }));
    let event = json!({ "type": "message", "channel": "D1", "channel_type": "im", "user": "UANN", "text": "repeated",
        "ts": "1700000000.000777" });
    let body = json!({ "type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event": event,
        "event_id": "Ev9", "authorizations": [{ "team_id": "T1", "user_id": "UBOT", "is_bot": true }] })
    .to_string();
    assert_eq!(scene.post("events", &body, &[]).await.status, 200);
    for number in ["1", "2", "3"] {
        let headers = [("x-slack-retry-num", number), ("x-slack-retry-reason", "http_timeout")];
        assert_eq!(scene.post("events", &body, &headers).await.status, 200);
    }
    assert_eq!(agent.event().await.text(), "repeated");
    assert_eq!(agent.unread().await, 0, "it came four times, and was stored once");
    let forged =
        scene.harness.request("POST", "/slack/sl/events").header("x-slack-signature", "v0=00").body(body.clone());
    assert_eq!(scene.harness.send(forged).await.problem(401), "unauthorized");
    let old_s = scene.harness.app.desk.env().now_ms() / 1_000 - 301;
    let replayed = scene
        .harness
        .request("POST", "/slack/sl/events")
        .header("x-slack-request-timestamp", old_s.to_string())
        .header("x-slack-signature", signature(SIGNING, old_s, body.as_bytes()))
        .body(body);
    assert!(scene.harness.send(replayed).await.text().contains("300 s"));
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_groups_and_edits_are_told_apart() {
    let scene = Scene::by_socket().await;
    let (mut of_ann, mut of_ben) = (scene.agent().await, scene.agent_of(&scene.ben).await);
    let first = scene.say("C1", "UBEN", "<@UBOT> first");
    assert_eq!(of_ben.event().await.text(), "first");
    scene.act(json!({"act": "say", "channel": "C1", "from": "UANN", "text": "<@UBOT> in the thread",
        "thread_ts": first["ts"]}));
    let event = of_ann.event().await.json["event"].clone();
    assert_eq!((&event["source"]["thread_id"], &event["reply_to_message_id"]), (&first["ts"], &first["ts"]), "{event}");
    let group = scene.say("G1", "UANN", "among us");
    let event = of_ann.event().await.json["event"].clone();
    assert_eq!((&event["source"]["chat_type"], &event["text"]), (&json!("dm"), &json!("among us")), "{event}");
    scene.act(json!({"act": "edit", "channel": "G1", "from": "UANN", "ts": group["ts"], "text": "among them"}));
    let event = of_ann.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["source"]["message_is_edit"]), (&json!("among them"), &json!(true)), "{event}");
    scene.say("C1", "UEVE", "<@UBOT> nobody hears this");
    scene.say("C1", "UANN", "!status");
    let event = of_ann.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["message_type"]), (&json!("/status"), &json!("command")), "{event}");
    assert_eq!((of_ann.unread().await, of_ben.unread().await), (0, 0));
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_fetched_when_they_are_asked_for() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    let files = json!([{ "name": "a.png", "mime": "image/png", "content": "picture" },
        { "name": "b.txt", "mime": "text/plain", "content": "words" }]);
    scene.act(json!({"act": "say", "channel": "D1", "from": "UANN", "text": "look", "files": files}));
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["message_type"]), (&json!("look"), &json!("photo")), "{event}");
    assert!(scene.calls("files.info").is_empty(), "nothing is fetched before somebody asks");
    for (at, content) in [(0, "picture"), (1, "words")] {
        let url = event["media_urls"][at].as_str().unwrap();
        let reply = scene.harness.get(url.strip_prefix(&scene.harness.url).unwrap(), &scene.ann.bearer()).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, content));
    }
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_is_lost_while_sockets_are_replaced() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    for number in 0..60 {
        scene.say("D1", "UANN", &format!("message {number}"));
        if number % 20 == 10 {
            let reason = if number == 30 { "refresh_requested" } else { "warning" };
            scene.act(json!({"act": "disconnect", "reason": reason}));
            scene.until("a second socket", |scene| (scene.server.fake.sockets() > 1).then_some(())).await;
        }
    }
    let mut texts = Vec::new();
    for _ in 0..60 {
        let frame = agent.event().await;
        agent.ack(&frame).await;
        texts.push(frame.text().to_owned());
    }
    texts.sort_by_key(|text| text.trim_start_matches("message ").parse::<u32>().unwrap());
    let expected: Vec<String> = (0..60).map(|number| format!("message {number}")).collect();
    assert_eq!(texts, expected);
    scene.until("all acknowledged", |scene| (scene.server.fake.waiting() == 0).then_some(())).await;
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_while_the_server_is_down_comes_when_it_is_back() {
    let scene = Scene::by_socket().await;
    let Scene { harness, server, ann, ben } = scene;
    let folder = harness.finish().await;
    let now_ms = frontdesk_core::Env::now_ms(&frontdesk::env::SystemEnv);
    let said = json!({"act": "say", "channel": "D1", "from": "UANN", "text": "are you there?"});
    server.fake.act(now_ms, serde_json::from_value(said).unwrap()).unwrap();
    let scene = Scene { harness: Harness::again(folder, |_| {}).await, server, ann, ben };
    let mut agent = scene.agent().await;
    assert_eq!(agent.event().await.text(), "are you there?");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_links_an_agent_in_a_direct_message() {
    let scene = Scene::by_socket().await;
    scene.act(
        json!({"act": "add_channel", "id": "D9", "team": "T1", "name": "", "kind": "im", "members": ["UBOT", "UEVE"]}),
    );
    let code =
        scene.harness.post("/manage/link", &scene.ann.bearer(), &json!({ "platform": "slack" })).await.expect(200);
    scene.say("D9", "UEVE", &format!("!link {}", code["code"].as_str().unwrap()));
    let is_told = |scene: &Scene| {
        let messages = scene.server.fake.messages("D9");
        messages.into_iter().find(|message| message["user"] == "UBOT")
    };
    let answer = scene.until("an answer", is_told).await;
    assert!(answer["text"].as_str().unwrap().to_lowercase().contains("link"), "{answer}");
    let mut agent = scene.agent().await;
    scene.say("D9", "UEVE", "now you hear me");
    assert_eq!(agent.event().await.text(), "now you hear me");
    scene.finish().await;
}
