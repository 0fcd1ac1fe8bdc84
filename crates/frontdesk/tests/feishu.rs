//! Feishu end to end: a whole server in front of a fake of Feishu. The fake itself is judged by the vendor's library
//! (tests/vendors/feishu.py).
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use frontdesk::app::FIRST_TENANT;
use frontdesk_testkit::fakes::feishu::{FakeFeishu, Fault, FaultRule, Message, Server, sealed, signature};
use harness::{GatewayAccount, Harness, Reply, Socket, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::time::timeout;

const APP: &str = "cli_a1b2c3";
const SECRET: &str = "the-app-secret-0123456789";
const TOKEN: &str = "the-verification-token-0123";
const KEY: &str = "the-encrypt-key-0123456789";

/// A desk with one bot, in front of the agents of Ann and Ben. Eve has none.
struct Scene {
    harness: Harness,
    server: Server,
    ann: GatewayAccount,
    ben: GatewayAccount,
}

impl Scene {
    async fn by_socket() -> Self {
        let scene = Self::without_bot("").await;
        scene.add_bot("socket", Some(FIRST_TENANT)).await;
        scene.until("a socket", |scene| (scene.server.fake.sockets() == 1).then_some(())).await;
        scene
    }

    async fn by_requests() -> Self {
        let scene = Self::without_bot("fs").await;
        scene.add_bot("events", Some(FIRST_TENANT)).await;
        scene
    }

    /// With the id of a bot Feishu calls the server, without one it waits for sockets.
    async fn without_bot(requests_to: &str) -> Self {
        let server = FakeFeishu::new().serve().await.unwrap();
        let harness = Harness::open().await;
        let (ann, ben) = (harness.add_gateway("ann").await, harness.add_gateway("ben").await);
        let url = if requests_to.is_empty() { String::new() } else { format!("{}/feishu/{requests_to}", harness.url) };
        let scene = Self { harness, server, ann, ben };
        scene.act(json!({"act": "set_app", "id": APP, "secret": SECRET, "name": "Desk", "open_id": "ou_me",
            "verification_token": TOKEN, "encrypt_key": KEY, "request_url": url, "ping_s": 1, "part_bytes": 300}));
        for (name, shown) in [("ann", "Ann B"), ("ben", "Ben"), ("eve", "Eve")] {
            scene.act(json!({"act": "add_user", "open_id": format!("ou_{name}"), "user_id": name,
                "union_id": format!("on_{name}"), "name": shown}));
        }
        for (id, mode, members) in [
            ("oc_team", "group", json!(["ou_ben", "ou_ann", "ou_eve"])),
            ("oc_forum", "topic", json!(["ou_ann", "ou_ben"])),
            ("oc_dm", "p2p", json!(["ou_ann"])),
            ("oc_eve", "p2p", json!(["ou_eve"])),
        ] {
            let name = if mode == "p2p" { String::new() } else { format!("name of {id}") };
            scene.act(json!({"act": "add_chat", "id": id, "mode": mode, "name": name, "members": members}));
        }
        scene.act(
            json!({"act": "add_chat", "id": "oc_other", "mode": "group", "has_bot": false, "members": ["ou_ann"]}),
        );
        scene.link("ann", "ann").await;
        scene.link("ben", "ben").await;
        scene
    }

    async fn add_bot(&self, mode: &str, tenant: Option<&str>) {
        let settings = json!({ "base_url": self.server.base_url, "app_id": APP, "mode": mode });
        let secrets = json!({ "app_secret": SECRET, "verification_token": TOKEN, "encrypt_key": KEY });
        let mut ask = json!({ "platform": "feishu", "id": "fs", "settings": settings, "secrets": secrets });
        if let Some(tenant) = tenant {
            ask["tenant"] = tenant.into();
        }
        self.harness.admin("POST", "/bots", &ask).await.expect(201);
    }

    async fn link(&self, user: &str, instance: &str) {
        let link = json!({ "tenant": FIRST_TENANT, "platform": "feishu", "user_id": user, "instance": instance });
        self.harness.admin("POST", "/bindings", &link).await.expect(201);
    }

    /// What a person does.
    fn act(&self, act: Value) -> Value {
        let text = act.to_string();
        let now_ms = self.harness.app.desk.env().now_ms();
        let done = self.server.fake.act(now_ms, serde_json::from_value(act).unwrap());
        done.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn say(&self, chat: &str, from: &str, text: &str) -> String {
        let mentions = if text.contains("@_user_1") { json!(["ou_me"]) } else { json!([]) };
        let act = json!({"act": "say", "chat": chat, "from": from, "text": text, "mentions": mentions});
        self.act(act)["message_id"].as_str().unwrap().to_owned()
    }

    async fn agent(&self) -> Socket {
        self.agent_of(&self.ann).await
    }

    async fn agent_of(&self, account: &GatewayAccount) -> Socket {
        let mut socket = self.harness.dial(&account.bearer()).await;
        let descriptor = socket.hello("feishu", "fs").await;
        assert_eq!((&descriptor["max_message_length"], &descriptor["len_unit"]), (&json!(8_000), &json!("chars")));
        socket
    }

    /// Waits until the fake shows what is looked for.
    async fn until<T>(&self, what: &str, mut probe: impl FnMut(&Self) -> Option<T>) -> T {
        let found = self.server.fake.wait_for(|_| probe(self));
        timeout(TIME_LIMIT, found).await.unwrap_or_else(|_| panic!("not seen: {what}"))
    }

    /// What Feishu got in return for something that it told.
    async fn answer_to(&self, id: &Value) -> Value {
        let find = |scene: &Self| scene.server.fake.deliveries().into_iter().find(|it| it["id"] == *id);
        self.until("an answer", find).await
    }

    fn newest(&self, chat: &str) -> Message {
        self.server.fake.messages(chat).pop().unwrap()
    }

    fn fault(&self, method: &str, fault: Fault) {
        self.server.fake.fault(FaultRule { method: method.into(), fault, times: 1 });
    }

    /// A signed request to the door.
    async fn post(&self, payload: &Value) -> Reply {
        let (stamp_s, body) = (self.harness.app.desk.env().now_ms() / 1_000, sealed(KEY, payload));
        let request = self.harness.request("POST", "/feishu/fs");
        let request =
            request.header("x-lark-request-timestamp", stamp_s.to_string()).header("x-lark-request-nonce", "n");
        let request = request.header("x-lark-signature", signature(KEY, stamp_s, "n", body.as_bytes()));
        self.harness.send(request.body(body)).await
    }

    /// Ends the scene; no request contained a secret.
    async fn finish(self) {
        let received = String::from_utf8_lossy(&self.harness.received.lock().unwrap()).into_owned();
        for secret in [SECRET, TOKEN, KEY, "t-fake"] {
            assert!(!received.contains(secret), "a secret was sent out");
        }
        self.harness.finish().await;
    }
}

fn send(chat: &str, content: &str, reply_to: Option<&str>, thread: Option<&str>) -> Value {
    json!({ "op": "send", "chat_id": chat, "content": content, "reply_to": reply_to, "metadata": { "thread_id": thread } })
}

async fn a_message_reaches_the_agent_of_its_person(scene: Scene) {
    let mut agent = scene.agent().await;
    let id = scene.say("oc_team", "ou_ann", "@_user_1 hello  you");
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["text"], &event["message_type"]), (&json!("hello you"), &json!("text")), "{event}");
    for (field, value) in [
        ("platform", json!("feishu")),
        ("chat_id", json!("oc_team")),
        ("chat_type", json!("group")),
        ("chat_name", json!("name of oc_team")),
        ("user_id", json!("ann")),
        ("user_id_alt", json!("on_ann")),
        ("user_name", json!("Ann B")),
        ("thread_id", Value::Null),
    ] {
        assert_eq!(event["source"][field], value, "{field} in {event}");
    }
    assert_eq!(event["message_id"], id.as_str());
    agent.ack(&frame).await;
    scene.say("oc_team", "ou_eve", "@_user_1 nobody hears this");
    scene.say("oc_dm", "ou_ann", "among us");
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["source"]["chat_type"]), (&json!("among us"), &json!("dm")), "{event}");
    scene.until("all acknowledged", |scene| (scene.server.fake.waiting() == 0).then_some(())).await;
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_reaches_the_agent_of_its_person_by_socket() {
    a_message_reaches_the_agent_of_its_person(Scene::by_socket().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_reaches_the_agent_of_its_person_by_request() {
    a_message_reaches_the_agent_of_its_person(Scene::by_requests().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_verified_and_their_repetitions_known() {
    let scene = Scene::by_requests().await;
    let mut agent = scene.agent().await;
    let challenge = scene.act(json!({"act": "challenge"}))["id"].clone();
    assert_eq!(scene.answer_to(&challenge).await["body"], json!({ "challenge": "the-challenge" }));
    let now_ms = scene.harness.app.desk.env().now_ms().to_string();
    let message = json!({ "message_id": "om_777", "chat_id": "oc_dm", "chat_type": "p2p", "message_type": "text",
        "content": "{\"text\":\"repeated\"}", "create_time": now_ms });
    let sender = json!({ "sender_id": { "open_id": "ou_ann", "user_id": "ann" }, "sender_type": "user" });
    let mut payload = json!({ "schema": "2.0", "event": { "sender": sender, "message": message }, "header": {
        "event_id": "e1", "event_type": "im.message.receive_v1", "token": TOKEN, "app_id": APP, "create_time": now_ms } });
    for _ in 0..4 {
        assert_eq!(scene.post(&payload).await.status, 200);
    }
    assert_eq!(agent.event().await.text(), "repeated");
    assert_eq!(agent.unread().await, 0, "it came four times, and was stored once");
    let plain = scene.harness.request("POST", "/feishu/fs").body(payload.to_string());
    assert_eq!(scene.harness.send(plain).await.problem(401), "unauthorized");
    payload["header"]["app_id"] = "cli_other".into();
    assert!(scene.post(&payload).await.text().contains("cli_other"));
    payload["header"]["token"] = "guess".into();
    assert_eq!(scene.post(&payload).await.problem(401), "unauthorized");
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_answers_edits_reacts_and_deletes() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    let said = scene.say("oc_team", "ou_ann", "@_user_1 hello");
    agent.event().await;
    let sent = agent.act(send("oc_team", "**hi** there", Some(&said), None)).await;
    assert_eq!(sent["success"], true, "{sent}");
    let id = sent["message_id"].as_str().unwrap().to_owned();
    let message = scene.newest("oc_team");
    assert_eq!((message.msg_type.as_str(), message.parent_id.as_str()), ("post", said.as_str()));
    assert_eq!(message.content["zh_cn"]["content"][0][0]["text"], "**hi** there");
    let edit = json!({ "op": "edit", "chat_id": "oc_team", "message_id": id, "content": "hi you" });
    assert_eq!(agent.act(edit).await["success"], true);
    assert_eq!(scene.newest("oc_team").content, json!({ "text": "hi you" }));
    let react = |remove: bool| json!({ "op": "react", "chat_id": "oc_team", "message_id": said, "emoji": "👍", "remove": remove });
    for (remove, count) in [(false, 1), (false, 1), (true, 0), (true, 0)] {
        assert_eq!(agent.act(react(remove)).await["success"], true);
        let on = scene.server.fake.messages("oc_team").into_iter().find(|it| it.message_id == said).unwrap();
        assert_eq!(on.reactions.len(), count);
    }
    for _ in 0..2 {
        let delete = json!({ "op": "delete", "chat_id": "oc_team", "message_id": id });
        assert_eq!(agent.act(delete).await["success"], true);
    }
    assert_eq!(scene.newest("oc_team").message_id, said);
    let chat = agent.act(json!({ "op": "get_chat_info", "chat_id": "oc_team" })).await;
    assert_eq!(chat["chat_info"], json!({ "name": "name of oc_team", "type": "group" }), "{chat}");
    let elsewhere = agent.act(send("oc_other", "not my chat", None, None)).await;
    assert_eq!(elsewhere["code"], "egress_declined", "{elsewhere}");
    // A token that ends is replaced.
    scene.act(json!({"act": "end_tokens"}));
    assert_eq!(agent.act(send("oc_team", "with a new token", None, None)).await["success"], true);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_answered_in_place_and_replies_to_the_bot_heard() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    let said = scene.say("oc_forum", "ou_ann", "@_user_1 a topic");
    let event = agent.event().await.json["event"].clone();
    let thread = event["source"]["thread_id"].as_str().unwrap().to_owned();
    assert!(thread.starts_with("omt_"), "{event}");
    let sent = agent.act(send("oc_forum", "in the topic", Some(&said), Some(&thread))).await;
    assert_eq!((&sent["success"], &sent["thread_id"]), (&json!(true), &json!(thread)), "{sent}");
    // Without a message to answer it goes to the latest one that was seen there.
    let sent = agent.act(send("oc_forum", "there too", None, Some(&thread))).await;
    assert_eq!(scene.newest("oc_forum").thread_id, thread, "{sent}");
    let own = sent["message_id"].as_str().unwrap();
    scene.act(
        json!({"act": "say", "chat": "oc_forum", "from": "ou_ann", "text": "go on", "reply_to": own, "thread": true}),
    );
    let event = agent.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["source"]["thread_id"]), (&json!("go on"), &json!(thread)), "{event}");
    assert_eq!(
        (&event["reply_to"]["text"], &event["reply_to"]["is_own"]),
        (&json!("there too"), &json!(true)),
        "{event}"
    );
    scene.act(json!({"act": "react", "message": own, "from": "ou_ann", "emoji": "DONE"}));
    assert_eq!(agent.event().await.text(), "reaction:added:DONE");
    scene.finish().await;
}

async fn a_button_is_pressed(scene: Scene) {
    let mut agent = scene.agent().await;
    scene.say("oc_team", "ou_ann", "@_user_1 do it");
    agent.event().await;
    let options = json!([{ "id": "yes", "label": "Yes", "style": "primary" }, { "id": "no", "label": "No" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "oc_team", "prompt_kind": "approval", "prompt_id": "p1",
        "content": "Really?", "options": options });
    let sent = agent.act(prompt).await;
    assert_eq!(sent["success"], true, "{sent}");
    let card = sent["message_id"].as_str().unwrap().to_owned();
    let press = |from: &str| {
        scene.act(json!({"act": "press", "message": card, "from": from, "token": "hp1:p1:yes"}))["id"].clone()
    };
    let refused = scene.answer_to(&press("ou_eve")).await;
    assert!(refused["body"]["toast"]["content"].as_str().unwrap().contains("link"), "{refused}");
    // Two presses before the buttons are gone: the first one counts.
    let ids = [press("ou_ann"), press("ou_ann")];
    let event = agent.event().await.json["event"].clone();
    let response = json!({ "prompt_id": "p1", "option_id": "yes", "label": "Yes", "prompt_message_id": card });
    assert_eq!((&event["prompt_response"], &event["text"]), (&response, &json!("/yes")), "{event}");
    assert_eq!(event["source"]["user_id"], "ann");
    let mut toasts = Vec::new();
    for id in &ids {
        let toast = scene.answer_to(id).await["body"]["toast"].clone();
        toasts.push((toast["type"].as_str().unwrap().to_owned(), toast["content"] == "This was answered already."));
    }
    toasts.sort();
    assert_eq!(toasts, [("error".to_owned(), true), ("success".to_owned(), false)]);
    let shown = scene.newest("oc_team").content.to_string();
    assert!(shown.contains("Really?") && shown.contains("Ann B: Yes") && !shown.contains("button"), "{shown}");
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

#[tokio::test(flavor = "multi_thread")]
async fn files_long_texts_and_drafts_go_both_ways() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    let content = json!({ "file_key": "file_in", "file_name": "a.txt" });
    scene.act(json!({"act": "say", "chat": "oc_dm", "from": "ou_ann", "msg_type": "file", "content": content,
        "files": [["file_in", "a.txt", "text/plain", hex::encode("words")]]}));
    let event = agent.event().await.json["event"].clone();
    assert_eq!(event["message_type"], "document", "{event}");
    let url = event["media_urls"][0].as_str().unwrap();
    let reply = scene.harness.get(url.strip_prefix(&scene.harness.url).unwrap(), &scene.ann.bearer()).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "words"));
    let upload = scene.harness.request("POST", "/relay/media").bearer_auth(scene.ann.bearer());
    let upload =
        upload.header("content-type", "application/pdf").header("x-media-filename", "plan.pdf").body("pdf bytes");
    let id = scene.harness.send(upload).await.json()["id"].as_str().unwrap().to_owned();
    let media = json!({ "op": "send_media", "chat_id": "oc_dm", "media_kind": "document",
        "source_url": format!("{}/relay/media/{id}", scene.harness.url) });
    let sent = agent.act(media).await;
    assert_eq!((&sent["success"], scene.newest("oc_dm").msg_type.as_str()), (&json!(true), "file"), "{sent}");
    for text in ["He", "Hello", "Hello **Ann**"] {
        let draft = json!({ "op": "draft", "chat_id": "oc_dm", "draft_id": 5, "content": text, "final": false });
        assert_eq!(agent.act(draft).await["success"], true);
        assert_eq!(scene.newest("oc_dm").content["elements"][0]["content"], text);
    }
    let before = scene.server.fake.messages("oc_dm").len();
    let sent = agent.act(send("oc_dm", "Hello **Ann**, how are you?", None, None)).await;
    assert_eq!(sent["message_id"], scene.newest("oc_dm").message_id.as_str(), "the card is the message");
    assert_eq!(scene.newest("oc_dm").content["elements"][0]["content"], "Hello **Ann**, how are you?");
    assert_eq!(scene.server.fake.messages("oc_dm").len(), before);
    let long = "All work and no play. ".repeat(1_000);
    assert_eq!(agent.act(send("oc_dm", &long, None, None)).await["success"], true);
    let messages = scene.server.fake.messages("oc_dm").split_off(before);
    assert!(messages.len() >= 3, "{}", messages.len());
    let words: usize = messages.iter().map(|it| it.content.to_string().matches("play").count()).sum();
    assert_eq!(words, 1_000);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_waited_for_and_an_unknown_outcome_is_reported() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    scene.say("oc_dm", "ou_ann", "hello");
    agent.event().await;
    let create = "POST im/v1/messages";
    scene.fault(create, Fault::Limited { seconds: 1 });
    assert_eq!(agent.act(send("oc_dm", "after a second", None, None)).await["success"], true);
    scene.fault(create, Fault::DropAfter);
    let unknown = agent.act(send("oc_dm", "did it go?", None, None)).await;
    assert_eq!((&unknown["success"], &unknown["ambiguous"]), (&json!(false), &json!(true)), "{unknown}");
    assert!(unknown["error"].as_str().unwrap().contains("timed out"), "{unknown}");
    scene.fault(create, Fault::Code { code: 230_013 });
    let refused = agent.act(send("oc_dm", "no", None, None)).await;
    assert_eq!((&refused["code"], refused.get("ambiguous")), (&json!("forbidden"), None), "{refused}");
    assert!(refused["error"].as_str().unwrap().contains("availability"), "{refused}");
    let texts: Vec<Value> = scene.server.fake.messages("oc_dm").iter().map(|it| it.content["text"].clone()).collect();
    assert_eq!(texts, ["hello", "after a second", "did it go?"]);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_is_lost_while_sockets_break() {
    let scene = Scene::by_socket().await;
    let mut agent = scene.agent().await;
    for number in 0..40 {
        scene.say("oc_dm", "ou_ann", &format!("message {number}"));
        if number % 20 == 10 {
            scene.act(json!({"act": "disconnect"}));
        }
    }
    let mut texts = Vec::new();
    for _ in 0..40 {
        let frame = agent.event().await;
        agent.ack(&frame).await;
        texts.push(frame.text().to_owned());
    }
    texts.sort_by_key(|text| text.trim_start_matches("message ").parse::<u32>().unwrap());
    let expected: Vec<String> = (0..40).map(|number| format!("message {number}")).collect();
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
    let said = json!({"act": "say", "chat": "oc_dm", "from": "ou_ann", "text": "are you there?"});
    server.fake.act(now_ms, serde_json::from_value(said).unwrap()).unwrap();
    let scene = Scene { harness: Harness::again(folder, |_| {}).await, server, ann, ben };
    let mut agent = scene.agent().await;
    assert_eq!(agent.event().await.text(), "are you there?");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_links_an_agent_in_a_direct_message() {
    let scene = Scene::by_socket().await;
    let code =
        scene.harness.post("/manage/link", &scene.ann.bearer(), &json!({ "platform": "feishu" })).await.expect(200);
    scene.say("oc_eve", "ou_eve", &format!("/link {}", code["code"].as_str().unwrap()));
    let is_told = |scene: &Scene| scene.server.fake.messages("oc_eve").into_iter().find(|it| it.sender == APP);
    let message = scene.until("an answer", is_told).await;
    assert!(message.content.to_string().to_lowercase().contains("link"), "{message:?}");
    let mut agent = scene.agent().await;
    scene.say("oc_eve", "ou_eve", "now you hear me");
    assert_eq!(agent.event().await.text(), "now you hear me");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_bot_belongs_to_whom_routes_say() {
    let scene = Scene::without_bot("").await;
    scene.add_bot("socket", None).await;
    scene.until("a socket", |scene| (scene.server.fake.sockets() == 1).then_some(())).await;
    let mut agent = scene.agent_of(&scene.ben).await;
    scene.say("oc_team", "ou_ben", "@_user_1 whose is this?");
    scene.until("acknowledged", |scene| (scene.server.fake.waiting() == 0).then_some(())).await;
    assert_eq!(agent.unread().await, 0, "no route says whose the chat is");
    let route = json!({ "tenant": FIRST_TENANT, "platform": "feishu", "key": "oc_team" });
    scene.harness.admin("POST", "/routes", &route).await.expect(201);
    scene.say("oc_team", "ou_ben", "@_user_1 and now?");
    assert_eq!(agent.event().await.text(), "and now?");
    scene.finish().await;
}
