//! `WeCom` end to end: a whole server in front of a fake of its API and of its robot socket. The fake itself is judged by client
//! libraries that others wrote (`tests/vendors/wecom.py`, `wecom_robot.mjs`).
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use frontdesk::app::FIRST_TENANT;
use frontdesk_testkit::fakes::Fault;
use frontdesk_testkit::fakes::wecom::{
    AES_KEY, AGENT, CORP, FakeWeCom, ROBOT, ROBOT_SECRET, SECRET, Sent, Server, TOKEN,
};
use harness::{GatewayAccount, Harness, Socket, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::time::timeout;

/// A desk with an app and a robot, in front of the agent of Ann.
struct Scene {
    harness: Harness,
    server: Server,
    ann: GatewayAccount,
}

impl Scene {
    async fn open() -> Self {
        let server = FakeWeCom::new().serve().await.unwrap();
        let harness = Harness::open().await;
        let ann = harness.add_gateway("ann-agent").await;
        let scene = Self { harness, server, ann };
        let ask = json!({ "platform": "wecom_callback", "id": "app", "tenant": FIRST_TENANT,
            "settings": { "base_url": scene.server.base_url, "corp_id": CORP, "agent_id": AGENT.to_string() },
            "secrets": { "secret": SECRET, "token": TOKEN, "aes_key": AES_KEY } });
        scene.harness.admin("POST", "/bots", &ask).await.expect(201);
        let ask = json!({ "platform": "wecom", "id": "robot", "tenant": FIRST_TENANT,
            "settings": { "socket_url": scene.server.socket_url, "bot_id": ROBOT }, "secrets": { "secret": ROBOT_SECRET } });
        scene.harness.admin("POST", "/bots", &ask).await.expect(201);
        for platform in ["wecom_callback", "wecom"] {
            let link =
                json!({ "tenant": FIRST_TENANT, "platform": platform, "user_id": "ann", "instance": "ann-agent" });
            scene.harness.admin("POST", "/bindings", &link).await.expect(201);
        }
        scene.server.fake.set_webhook(&format!("{}/wecom/app", scene.harness.url));
        scene
    }

    fn now_s(&self) -> u64 {
        self.harness.app.desk.env().now_ms() / 1_000
    }

    async fn agent(&self, platform: &str, bot: &str) -> Socket {
        let mut socket = self.harness.dial(&self.ann.bearer()).await;
        let descriptor = socket.hello(platform, bot).await;
        assert_eq!(descriptor["max_message_length"], if bot == "app" { 2_048 } else { 4_000 });
        socket
    }

    async fn say(&self, text: &str) -> String {
        let (id, status, body) = self.server.fake.say("ann", text, self.now_s()).await.unwrap();
        assert_eq!((status, body.as_str()), (200, ""), "the passive answer is empty");
        id
    }

    fn sent(&self) -> Vec<Sent> {
        self.server.fake.sent()
    }

    async fn robot_is_there(&self) {
        let connected = self.server.fake.wait_for(|fake| fake.robot_is_connected().then_some(()));
        timeout(TIME_LIMIT, connected).await.expect("the robot opened no socket");
    }

    /// What the robot says next, after so many messages.
    async fn robot_said(&self, before: usize) -> Sent {
        let said = self.server.fake.wait_for(|fake| fake.robot_sent().into_iter().nth(before));
        timeout(TIME_LIMIT, said).await.expect("the robot said nothing")
    }

    async fn finish(self) {
        let received = String::from_utf8_lossy(&self.harness.received.lock().unwrap()).into_owned();
        for secret in [SECRET, TOKEN, AES_KEY, ROBOT_SECRET, "token-0000"] {
            assert!(!received.contains(secret), "a secret went to somebody");
        }
        self.harness.finish().await;
    }
}

fn send(content: &str) -> Value {
    json!({ "op": "send", "chat_id": format!("{CORP}:ann"), "content": content })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_for_a_sleeping_agent_and_its_answer_goes_out() {
    let scene = Scene::open().await;
    let first = scene.server.fake.wait_for(|fake| fake.calls().into_iter().next());
    let first = timeout(TIME_LIMIT, first).await.expect("the bot asked WeCom nothing at its start");
    assert_eq!((first.path.as_str(), first.status), ("gettoken", 200));
    let (status, body, echo) = scene.server.fake.check_address(scene.now_s()).await.unwrap();
    assert_eq!((status, body), (200, echo), "the address is confirmed");
    let id = scene.say(" hello <b> & 你好 ]]> 🙂 ").await;
    let mut agent = scene.agent("wecom_callback", "app").await;
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!(
        (&event["text"], &event["message_type"]),
        (&json!("hello <b> & 你好 ]]> 🙂"), &json!("text")),
        "{event}"
    );
    let chat = format!("{CORP}:ann");
    for (field, value) in [
        ("platform", "wecom_callback"),
        ("chat_id", &chat),
        ("chat_type", "dm"),
        ("chat_name", "ann"),
        ("user_id", "ann"),
        ("user_name", "ann"),
        ("message_id", &id),
    ] {
        assert_eq!(event["source"][field], value, "{field}");
    }
    agent.ack(&frame).await;
    let result = agent.act(send("**Done**, see [it](https://a.example/x)")).await;
    assert_eq!(result["success"], true, "{result}");
    let [sent] = &scene.sent()[..] else { panic!("{:?}", scene.sent()) };
    assert_eq!((sent.to.as_str(), &sent.message["msgtype"]), ("ann", &json!("text")));
    assert_eq!(sent.message["text"]["content"], "Done, see it (https://a.example/x)");
    assert_eq!(result["message_id"], sent.id);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_the_same_message_also_after_a_restart() {
    let scene = Scene::open().await;
    let fields = "<MsgType>text</MsgType><Content>once</Content><MsgId>77</MsgId>";
    let event = "<MsgType>event</MsgType><Event>click</Event><EventKey>k</EventKey>";
    let now_s = scene.now_s();
    for fields in [fields, fields, event, event] {
        assert_eq!(scene.server.fake.send_fields("ann", fields, now_s).await.unwrap().0, 200);
    }
    let Scene { harness, server, ann } = scene;
    let scene = Scene { harness: Harness::again(harness.finish().await, |_| {}).await, server, ann };
    scene.server.fake.set_webhook(&format!("{}/wecom/app", scene.harness.url));
    assert_eq!(scene.server.fake.send_fields("ann", fields, now_s).await.unwrap().0, 200);
    scene.say("twice").await;
    let mut agent = scene.agent("wecom_callback", "app").await;
    let texts: Vec<String> = agent.events(3).await.iter().map(|frame| frame.text().to_owned()).collect();
    assert_eq!(texts, ["once", "/start", "twice"]);
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forged_stale_or_hostile_is_refused() {
    let scene = Scene::open().await;
    for (text, now_s) in [("old", scene.now_s() - 301), ("from the future", scene.now_s() + 400)] {
        let (_, status, body) = scene.server.fake.say("ann", text, now_s).await.unwrap();
        assert!(status == 403 && body.contains("clock"), "{status} {body}");
    }
    let query = format!("msg_signature={}&timestamp={}&nonce=1", "0".repeat(40), scene.now_s());
    let bomb = "<!DOCTYPE a [<!ENTITY b \"c\">]><xml><Encrypt>&b;</Encrypt></xml>";
    for (body, status, word) in [
        ("<xml><Encrypt>AAAA</Encrypt></xml>".to_owned(), 403, "token"),
        (bomb.to_owned(), 400, "document type"),
        (format!("{}{}", "<a>".repeat(10_000), "</a>".repeat(10_000)), 400, "too deep"),
        (format!("<xml><Encrypt>{}</Encrypt></xml>", "A".repeat(200_000)), 413, ""),
    ] {
        let request = scene.harness.request("POST", &format!("/wecom/app?{query}")).body(body);
        let reply = scene.harness.send(request).await;
        assert!(reply.status == status && reply.text().contains(word), "{} {}", reply.status, reply.text());
    }
    assert_eq!(scene.harness.get("/wecom/app", "").await.status, 400);
    assert_eq!(scene.harness.get("/wecom/absent?echostr=x", "").await.status, 404);
    let mut agent = scene.agent("wecom_callback", "app").await;
    scene.say("genuine").await;
    assert_eq!(agent.event().await.text(), "genuine");
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_the_app_are_told_and_an_expired_token_is_replaced_once() {
    let scene = Scene::open().await;
    let mut agent = scene.agent("wecom_callback", "app").await;
    scene.say("hello").await;
    let frame = agent.event().await;
    agent.ack(&frame).await;
    assert_eq!(agent.act(send("with the first token")).await["success"], true);
    scene.server.fake.expire_token();
    assert_eq!(agent.act(send("with a new token")).await["success"], true);
    let tokens = |scene: &Scene| scene.server.fake.calls().iter().filter(|call| call.path == "gettoken").count();
    assert_eq!(tokens(&scene), 2);
    scene.server.fake.fault(Fault::DropAfter);
    let result = agent.act(send("in doubt")).await;
    assert_eq!((&result["success"], &result["ambiguous"]), (&json!(false), &json!(true)), "{result}");
    assert!(result["error"].as_str().unwrap().contains("timed out"), "gateways must not send it again: {result}");
    let refused =
        json!({ "errcode": 60020, "errmsg": "not allow to access from your ip, hint: [1], from ip: 1.2.3.4" });
    scene.server.fake.fault(Fault::Status { status: 200, body: refused });
    let result = agent.act(send("from here")).await;
    assert_eq!(result["code"], "forbidden");
    assert!(result["error"].as_str().unwrap().contains("Trusted IPs"), "{result}");
    scene.server.fake.hide("ann");
    let result = agent.act(send("to nobody")).await;
    assert_eq!((&result["success"], &result["code"]), (&json!(false), &json!("not_found")), "{result}");
    let found = scene.harness.admin("GET", "/bots/wecom_callback/app/check", &Value::Null).await.expect(200);
    assert!(found.to_string().contains("Helper") && found.to_string().contains("/wecom/app"), "{found}");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_texts_are_parts_in_bytes_and_files_go_both_ways() {
    let scene = Scene::open().await;
    let mut agent = scene.agent("wecom_callback", "app").await;
    let id = scene.server.fake.attach("image/png", "p.png", b"a picture");
    let fields = format!("<MsgType>image</MsgType><PicUrl>http://x</PicUrl><MediaId>{id}</MediaId><MsgId>9</MsgId>");
    assert_eq!(scene.server.fake.send_fields("ann", &fields, scene.now_s()).await.unwrap().0, 200);
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["message_type"], &event["text"]), (&json!("photo"), &json!("")), "{event}");
    let url = event["media_urls"][0].as_str().unwrap();
    let reply = scene.harness.get(url.strip_prefix(&scene.harness.url).unwrap(), &scene.ann.bearer()).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "a picture"));
    agent.ack(&frame).await;
    let text = "你好，世界。 ".repeat(300);
    assert_eq!(agent.act(send(&text)).await["success"], true);
    let parts: Vec<String> =
        scene.sent().iter().map(|sent| sent.message["text"]["content"].as_str().unwrap().to_owned()).collect();
    assert!(parts.len() >= 3 && parts.iter().all(|part| part.len() <= 2_048), "{}", parts.len());
    assert_eq!(parts.concat().split_whitespace().collect::<String>(), text.split_whitespace().collect::<String>());
    let upload = scene.harness.request("POST", "/relay/media").bearer_auth(scene.ann.bearer());
    let stored = scene.harness.send(upload.header("content-type", "image/jpeg").body("an answer")).await.expect(200);
    let source = format!("{}/relay/media/{}", scene.harness.url, stored["id"].as_str().unwrap());
    let media = json!({ "op": "send_media", "chat_id": format!("{CORP}:ann"), "media_kind": "image", "source_url": source,
        "content": "here" });
    assert_eq!(agent.act(media).await["success"], true);
    let [.., image, caption] = &scene.sent()[..] else { panic!() };
    let file = scene.server.fake.file(image.message["image"]["media_id"].as_str().unwrap()).unwrap();
    assert_eq!((&file.bytes[..], file.mime.as_str()), (&b"an answer"[..], "image/jpeg"));
    assert_eq!(caption.message["text"]["content"], "here");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_robot_answers_in_a_group_and_streams() {
    let scene = Scene::open().await;
    scene.robot_is_there().await;
    let mut agent = scene.agent("wecom", "robot").await;
    let group = Some("wrGroup1");
    let hello = json!({ "msgtype": "text", "text": { "content": "@Robot /help me" },
        "quote": { "msgtype": "text", "text": { "content": "said before" } } });
    let id = scene.server.fake.robot_say("ann", group, &hello).unwrap();
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["text"], &event["message_id"]), (&json!("/help me"), &json!(id)), "{event}");
    assert_eq!((&event["source"]["chat_id"], &event["source"]["chat_type"]), (&json!("wrGroup1"), &json!("group")));
    assert_eq!(event["reply_to"]["text"], "said before");
    agent.ack(&frame).await;
    let say = |content: &str| json!({ "op": "send", "chat_id": "wrGroup1", "content": content, "reply_to": id });
    let result = agent.act(say("**here** you are")).await;
    assert_eq!(result["success"], true, "{result}");
    let said = scene.robot_said(0).await;
    assert_eq!((said.to.as_str(), &said.message["markdown"]["content"]), ("wrGroup1", &json!("**here** you are")));
    let draft = |content: &str| json!({ "op": "draft", "chat_id": "wrGroup1", "draft_id": 1, "content": content });
    assert_eq!(agent.act(draft("so")).await["success"], true);
    assert_eq!(agent.act(say("so far")).await["success"], true);
    let (first, last) = (scene.robot_said(1).await.message, scene.robot_said(2).await.message);
    assert_eq!((&first["stream"]["finish"], &last["stream"]["finish"]), (&json!(false), &json!(true)));
    assert_eq!((&first["stream"]["id"], &last["stream"]["content"]), (&last["stream"]["id"], &json!("so far")));
    // The message can no longer be answered.
    scene.server.fake.robot_forget_requests();
    assert_eq!(agent.act(say("late")).await["success"], true);
    assert_eq!(scene.robot_said(3).await.message["chatid"], "wrGroup1");
    let found = scene.harness.admin("GET", "/bots/wecom/robot/check", &Value::Null).await.expect(200);
    assert!(found.to_string().contains("the socket is open"), "{found}");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_robot_comes_back_and_its_files_are_decrypted() {
    let scene = Scene::open().await;
    scene.robot_is_there().await;
    let mut agent = scene.agent("wecom", "robot").await;
    scene.server.fake.robot_hang_up();
    scene.robot_is_there().await;
    let image = scene.server.fake.robot_attach(&scene.server.base_url, "image/png", "p.png", b"a secret picture");
    let message = json!({ "msgtype": "image", "image": image });
    let id = scene.server.fake.robot_say("ann", None, &message).unwrap();
    let mut again = message.clone();
    again["msgid"] = id.as_str().into();
    scene.server.fake.robot_say("ann", None, &again).unwrap();
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["message_type"], &event["source"]["chat_type"]), (&json!("photo"), &json!("dm")), "{event}");
    let url = event["media_urls"][0].as_str().unwrap();
    let reply = scene.harness.get(url.strip_prefix(&scene.harness.url).unwrap(), &scene.ann.bearer()).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "a secret picture"));
    agent.ack(&frame).await;
    assert_eq!(agent.unread().await, 0, "a message is told once");
    let upload = scene.harness.request("POST", "/relay/media").bearer_auth(scene.ann.bearer());
    let bytes = vec![7; 600 << 10];
    let stored = scene.harness.send(upload.header("content-type", "application/pdf").body(bytes.clone())).await;
    let source = format!("{}/relay/media/{}", scene.harness.url, stored.expect(200)["id"].as_str().unwrap());
    let media = json!({ "op": "send_media", "chat_id": "ann", "media_kind": "document", "source_url": source,
        "filename": "plan.pdf" });
    let result = agent.act(media).await;
    assert_eq!(result["success"], true, "{result}");
    let said = scene.robot_said(0).await;
    let file = scene.server.fake.file(said.message["file"]["media_id"].as_str().unwrap()).unwrap();
    assert_eq!((file.bytes == bytes, file.filename.as_str()), (true, "plan.pdf"));
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_app_keeps_tenants_apart() {
    let scene = Scene::open().await;
    let red = scene.harness.add_gateway_in("red", "red-agent").await;
    let blue = scene.harness.add_gateway_in("blue", "blue-agent").await;
    let ask = json!({ "platform": "wecom_callback", "id": "shared",
        "settings": { "base_url": scene.server.base_url, "corp_id": CORP, "agent_id": AGENT.to_string() },
        "secrets": { "secret": SECRET, "token": TOKEN, "aes_key": AES_KEY } });
    scene.harness.admin("POST", "/bots", &ask).await.expect(201);
    scene.server.fake.set_webhook(&format!("{}/wecom/shared", scene.harness.url));
    let mut agents = Vec::new();
    for (account, member) in [(&red, "rita"), (&blue, "bob")] {
        let link = json!({ "tenant": account.tenant, "platform": "wecom_callback", "user_id": member,
            "instance": account.gateway });
        scene.harness.admin("POST", "/bindings", &link).await.expect(201);
        let mut agent = scene.harness.dial(&account.bearer()).await;
        agent.hello("wecom_callback", "shared").await;
        agents.push(agent);
    }
    for member in ["bob", "rita", "eve"] {
        let (_, status, _) = scene.server.fake.say(member, &format!("of {member}"), scene.now_s()).await.unwrap();
        assert_eq!(status, 200);
    }
    for (agent, member) in agents.iter_mut().zip(["rita", "bob"]) {
        let frame = agent.event().await;
        assert_eq!(frame.text(), format!("of {member}"));
        agent.ack(&frame).await;
        assert_eq!(agent.unread().await, 0);
    }
    let to = |member: &str| json!({ "op": "send", "chat_id": format!("{CORP}:{member}"), "content": "x" });
    let result = agents[0].act(to("bob")).await;
    assert_eq!((&result["code"], scene.sent().len()), (&json!("egress_declined"), 0), "{result}");
    assert_eq!(agents[1].act(to("bob")).await["success"], true);
    scene.finish().await;
}
