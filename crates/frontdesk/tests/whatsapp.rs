//! `WhatsApp` end to end: a whole server in front of a fake of the Graph API. The fake itself is judged by a client library
//! that others wrote (tests/vendors/phones.py).
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use frontdesk::app::FIRST_TENANT;
use frontdesk_platforms::whatsapp::signature::sign;
use frontdesk_testkit::fakes::Fault;
use frontdesk_testkit::fakes::whatsapp::{APP_SECRET, FakeWhatsApp, NUMBER, NUMBER_ID, Server, TOKEN};
use harness::{GatewayAccount, Harness, Socket, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::time::timeout;

const ANN: &str = "15550001111";
const VERIFY: &str = "a verify token";

/// A desk with one number, in front of the agent of Ann.
struct Scene {
    harness: Harness,
    server: Server,
    ann: GatewayAccount,
}

impl Scene {
    async fn open() -> Self {
        Self::with(json!({})).await
    }

    async fn with(settings: Value) -> Self {
        let server = FakeWhatsApp::new().serve().await.unwrap();
        let harness = Harness::open().await;
        let ann = harness.add_gateway("ann").await;
        let scene = Self { harness, server, ann };
        let mut all = json!({ "base_url": scene.server.base_url, "phone_number_id": NUMBER_ID });
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let secrets = json!({ "access_token": TOKEN, "app_secret": APP_SECRET, "verify_token": VERIFY });
        let ask = json!({ "platform": "whatsapp_cloud", "id": "wa", "tenant": FIRST_TENANT, "settings": all, "secrets": secrets });
        scene.harness.admin("POST", "/bots", &ask).await.expect(201);
        scene.link(ANN, "ann").await;
        scene.server.fake.set_webhook(&format!("{}/whatsapp/wa", scene.harness.url));
        scene
    }

    async fn link(&self, number: &str, instance: &str) {
        let link =
            json!({ "tenant": FIRST_TENANT, "platform": "whatsapp_cloud", "user_id": number, "instance": instance });
        self.harness.admin("POST", "/bindings", &link).await.expect(201);
    }

    async fn agent(&self) -> Socket {
        let mut socket = self.harness.dial(&self.ann.bearer()).await;
        let descriptor = socket.hello("whatsapp_cloud", "wa").await;
        assert_eq!(descriptor["max_message_length"], 4096);
        socket
    }

    async fn say(&self, content: Value) -> String {
        let (id, status) = self.server.fake.say(ANN, "Ann B", &content).await.unwrap();
        assert_eq!(status, 200);
        id
    }

    async fn text(&self, text: &str) -> String {
        self.say(json!({ "type": "text", "text": { "body": text } })).await
    }

    /// An agent that may write to Ann, because she wrote first.
    async fn agent_in_chat(&self) -> Socket {
        let mut agent = self.agent().await;
        self.text("hello").await;
        let frame = agent.event().await;
        agent.ack(&frame).await;
        agent
    }

    fn sent(&self) -> Vec<Value> {
        self.server.fake.sent().into_iter().map(|sent| sent.message).collect()
    }

    /// What was sent, the newest first. Probes of the test itself are not sent.
    async fn journal(&self) -> Vec<Value> {
        let journal = self.harness.admin("GET", "/journal", &Value::Null).await.expect(200);
        let sent = journal["actions"].as_array().unwrap().iter().filter(|entry| entry["op"] == "send");
        sent.cloned().collect()
    }

    async fn finish(self) {
        let received = String::from_utf8_lossy(&self.harness.received.lock().unwrap()).into_owned();
        assert!(!received.contains(TOKEN) && !received.contains(APP_SECRET), "a secret went to somebody");
        self.harness.finish().await;
    }
}

fn send(content: &str) -> Value {
    json!({ "op": "send", "chat_id": ANN, "content": content })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_for_a_sleeping_agent_and_its_answer_goes_out() {
    let scene = Scene::open().await;
    let first = scene.server.fake.wait_for(|fake| fake.calls().into_iter().next());
    let first = timeout(TIME_LIMIT, first).await.expect("the bot asked Meta nothing at its start");
    assert_eq!((first.method.as_str(), first.path.as_str()), ("GET", format!("/v23.0/{NUMBER_ID}").as_str()));
    let id = scene.text("hello *you*").await;
    let mut agent = scene.agent().await;
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["text"], &event["message_id"]), (&json!("hello *you*"), &json!(id)), "{event}");
    for (field, value) in [
        ("platform", "whatsapp_cloud"),
        ("chat_id", ANN),
        ("chat_type", "dm"),
        ("user_id", ANN),
        ("user_name", "Ann B"),
        ("chat_name", "Ann B"),
    ] {
        assert_eq!(event["source"][field], value, "{field}");
    }
    agent.ack(&frame).await;
    let mut answer = send("**Done**");
    answer["reply_to"] = id.as_str().into();
    let result = agent.act(answer).await;
    assert_eq!(result["success"], true, "{result}");
    let sent = scene.sent().pop().unwrap();
    assert_eq!((&sent["text"]["body"], &sent["context"]["message_id"]), (&json!("*Done*"), &json!(id)), "{sent}");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn meta_confirms_the_address_and_only_signed_bodies_are_taken() {
    let scene = Scene::open().await;
    let good = "/whatsapp/wa?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=a%20verify%20token";
    let reply = scene.harness.get(good, "").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "1158201444"));
    assert_eq!(scene.harness.get(&good.replace("token=a", "token=b"), "").await.problem(403), "forbidden");
    assert_eq!(scene.harness.get(&good.replace("/wa?", "/absent?"), "").await.problem(404), "not_found");
    let value = json!({ "messaging_product": "whatsapp", "metadata": { "display_phone_number": NUMBER,
        "phone_number_id": NUMBER_ID }, "messages": [{ "from": ANN, "id": "wamid.x", "timestamp": "1", "type": "text",
        "text": { "body": "signed" } }] });
    let body = json!({ "object": "whatsapp_business_account", "entry": [{ "id": "0", "changes": [{ "field": "messages",
        "value": value }] }] });
    let body = body.to_string();
    let post = |body: &str, signatures: Vec<String>| {
        let mut request = scene.harness.request("POST", "/whatsapp/wa").body(body.to_owned());
        for signature in signatures {
            request = request.header("x-hub-signature-256", signature);
        }
        scene.harness.send(request)
    };
    let genuine = sign(APP_SECRET, body.as_bytes());
    for signatures in [vec![], vec![sign("other", body.as_bytes())], vec![genuine.clone(), genuine.clone()]] {
        assert_eq!(post(&body, signatures).await.problem(401), "unauthorized");
    }
    assert_eq!(post(&format!("{body} "), vec![genuine.clone()]).await.problem(401), "unauthorized");
    let foreign = body.replace(NUMBER_ID, "999").replace("signed", "not ours");
    assert_eq!(post(&foreign, vec![sign(APP_SECRET, foreign.as_bytes())]).await.status, 200);
    for _ in 0..2 {
        assert_eq!(post(&body, vec![genuine.clone()]).await.status, 200);
    }
    let mut agent = scene.agent().await;
    assert_eq!(agent.event().await.text(), "signed");
    assert_eq!(agent.unread().await, 0, "once, and nothing of another number");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_messages_of_one_webhook_are_several_events_and_retries_are_the_same() {
    let scene = Scene::open().await;
    let text =
        |id: &str, text: &str| (id.to_owned(), ANN.to_owned(), json!({ "type": "text", "text": { "body": text } }));
    let messages = [text("wamid.a", "one"), text("wamid.b", "two"), text("wamid.c", "three")];
    assert_eq!(scene.server.fake.say_all("Ann", &messages[..2]).await, Ok(200));
    assert_eq!(scene.server.fake.say_all("Ann", &messages).await, Ok(200));
    let Scene { harness, server, ann } = scene;
    let scene = Scene { harness: Harness::again(harness.finish().await, |_| {}).await, server, ann };
    scene.server.fake.set_webhook(&format!("{}/whatsapp/wa", scene.harness.url));
    assert_eq!(scene.server.fake.say_all("Ann", &messages).await, Ok(200));
    let mut agent = scene.agent().await;
    let texts: Vec<String> = agent.events(3).await.iter().map(|frame| frame.text().to_owned()).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_close_the_journal_and_a_failure_reaches_the_agent() {
    let scene = Scene::open().await;
    let mut agent = scene.agent_in_chat().await;
    let id = agent.act(send("one")).await["message_id"].as_str().unwrap().to_owned();
    for status in ["sent", "delivered", "read"] {
        assert_eq!(scene.server.fake.report(&id, status, None).await, Ok(200));
    }
    assert_eq!(scene.journal().await[0]["outcome"], "delivered");
    let id = agent.act(send("two")).await["message_id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let error = Some((131_026, "Message undeliverable"));
        assert_eq!(scene.server.fake.report(&id, "failed", error).await, Ok(200));
    }
    let entry = scene.journal().await[0].clone();
    assert_eq!(entry["outcome"], "rejected", "{entry}");
    let event = agent.event().await.json["event"].clone();
    let text = event["text"].as_str().unwrap();
    assert!(text.contains(&id) && text.contains("131026"), "{text}");
    assert_eq!((&event["source"]["chat_id"], &event["source"]["user_id"]), (&json!(ANN), &json!(ANN)));
    // The answer was lost; the status finds the message by its key.
    scene.server.fake.fault(Fault::DropAfter);
    let result = agent.act(send("in doubt")).await;
    assert_eq!(result["ambiguous"], true, "{result}");
    assert_eq!(scene.journal().await[0]["outcome"], "unknown");
    let id = scene.server.fake.sent().pop().unwrap().id;
    assert_eq!(scene.server.fake.report(&id, "delivered", None).await, Ok(200));
    assert_eq!(scene.journal().await[0]["outcome"], "delivered");
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_of_24_hours_is_told_at_once_and_late() {
    let scene = Scene::open().await;
    let mut agent = scene.agent_in_chat().await;
    let id = agent.act(send("in time")).await["message_id"].as_str().unwrap().to_owned();
    assert_eq!(scene.server.fake.report(&id, "failed", Some((131_047, "Re-engagement message"))).await, Ok(200));
    let event = agent.event().await;
    assert!(event.text().contains("24 hours") && event.text().contains("template"), "{}", event.text());
    let result = agent.act(send("again")).await;
    assert_eq!(result["code"], "forbidden", "{result}");
    assert_eq!(scene.sent().len(), 1, "nothing was sent in between");
    scene.text("back").await;
    assert_eq!(agent.act(send("welcome")).await["success"], true);
    scene.server.fake.close_window(ANN);
    let result = agent.act(send("too late")).await;
    assert!(result["error"].as_str().unwrap().contains("24 hours"), "{result}");
    scene.finish().await;

    let scene = Scene::with(json!({ "template": "note", "template_language": "de" })).await;
    let mut agent = scene.agent_in_chat().await;
    scene.server.fake.close_window(ANN);
    assert_eq!(agent.act(send("**by** template")).await["success"], true);
    let sent = scene.sent().pop().unwrap();
    assert_eq!((&sent["type"], &sent["template"]["name"]), (&json!("template"), &json!("note")), "{sent}");
    assert_eq!(sent["template"]["components"][0]["parameters"][0]["text"], "by template");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_by_its_button() {
    let scene = Scene::open().await;
    let mut agent = scene.agent_in_chat().await;
    for (count, kind) in [(2, "button"), (7, "list")] {
        let options: Vec<Value> =
            (0..count).map(|at| json!({ "id": format!("o{at}"), "label": format!("Option {at}") })).collect();
        let ask = json!({ "op": "prompt", "chat_id": ANN, "prompt_id": "p1", "content": "Which?", "options": options });
        let result = agent.act(ask).await;
        assert_eq!(result["success"], true, "{result}");
        let sent = scene.sent().pop().unwrap();
        assert_eq!(sent["interactive"]["type"], kind, "{sent}");
        let choice = match kind {
            "button" => sent["interactive"]["action"]["buttons"][1]["reply"].clone(),
            _ => sent["interactive"]["action"]["sections"][0]["rows"][1].clone(),
        };
        let reply = format!("{kind}_reply");
        scene
            .say(json!({ "type": "interactive", "context": { "from": NUMBER, "id": result["message_id"] },
                "interactive": { "type": reply, reply: choice } }))
            .await;
        let frame = agent.event().await;
        let event = &frame.json["event"];
        assert_eq!((&event["text"], &event["message_type"]), (&json!("/o1"), &json!("command")), "{event}");
        let response = &event["prompt_response"];
        assert_eq!((&response["prompt_id"], &response["option_id"]), (&json!("p1"), &json!("o1")), "{event}");
        assert_eq!(response["prompt_message_id"], result["message_id"]);
        agent.ack(&frame).await;
    }
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_both_ways() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let media = scene.server.fake.attach("audio/ogg", b"a voice");
    scene
        .say(json!({ "type": "audio", "audio": { "id": media, "mime_type": "audio/ogg; codecs=opus", "voice": true } }))
        .await;
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!(event["message_type"], "voice", "{event}");
    let url = event["media_urls"][0].as_str().unwrap();
    let reply = scene.harness.get(url.strip_prefix(&scene.harness.url).unwrap(), &scene.ann.bearer()).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "a voice"));
    agent.ack(&frame).await;
    let upload = scene.harness.request("POST", "/relay/media").bearer_auth(scene.ann.bearer());
    let stored = scene.harness.send(upload.header("content-type", "image/png").body("an answer")).await.expect(200);
    let source = format!("{}/relay/media/{}", scene.harness.url, stored["id"].as_str().unwrap());
    for kind in ["image", "document"] {
        let act = json!({ "op": "send_media", "chat_id": ANN, "media_kind": kind, "source_url": source, "content": "here",
            "filename": "a.png" });
        let result = agent.act(act).await;
        assert_eq!(result["success"], true, "{result}");
        let sent = scene.sent().pop().unwrap();
        assert_eq!((&sent["type"], &sent[kind]["caption"]), (&json!(kind), &json!("here")), "{sent}");
        assert_eq!(scene.server.fake.file(sent[kind]["id"].as_str().unwrap()).as_deref(), Some(&b"an answer"[..]));
    }
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typing_reactions_and_long_texts() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let id = scene.text("hello").await;
    agent.event().await;
    assert_eq!(agent.act(json!({ "op": "typing", "chat_id": ANN })).await["success"], true);
    let typing = scene.server.fake.calls().into_iter().rfind(|call| call.method == "POST").unwrap();
    assert_eq!((&typing.body["message_id"], typing.status), (&json!(id), 200));
    let react = json!({ "op": "react", "chat_id": ANN, "message_id": id, "emoji": "👍" });
    assert_eq!(agent.act(react).await["success"], true);
    let words: Vec<String> = (0..1_500).map(|number| format!("word{number}")).collect();
    assert_eq!(agent.act(send(&words.join(" "))).await["success"], true);
    let texts: Vec<String> =
        scene.sent().iter().filter_map(|sent| Some(sent["text"]["body"].as_str()?.to_owned())).collect();
    assert!(texts.len() > 2, "{}", texts.len());
    assert_eq!(texts.join(" ").split_whitespace().collect::<Vec<_>>(), words);
    let found = scene.harness.admin("GET", "/bots/whatsapp_cloud/wa/check", &Value::Null).await.expect(200);
    assert!(found.to_string().contains(NUMBER) && found.to_string().contains("no template"), "{found}");
    scene.finish().await;
}
