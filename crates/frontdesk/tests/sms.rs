//! SMS end to end: a whole server in front of a fake of Twilio. The fake itself is judged by Twilio's client library
//! (tests/vendors/phones.py).
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use frontdesk::app::FIRST_TENANT;
use frontdesk_testkit::fakes::Fault;
use frontdesk_testkit::fakes::twilio::{ACCOUNT, FakeTwilio, File, Sent, Server, TOKEN};
use harness::{GatewayAccount, Harness, Socket, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::time::timeout;

const OWN: &str = "+15559990000";
const ANN: &str = "+15550001111";

/// A desk with one number, in front of the agent of Ann.
struct Scene {
    harness: Harness,
    server: Server,
    ann: GatewayAccount,
}

impl Scene {
    async fn open() -> Self {
        let server = FakeTwilio::new(OWN).serve().await.unwrap();
        let harness = Harness::open().await;
        let ann = harness.add_gateway("ann").await;
        let scene = Self { harness, server, ann };
        let ask = json!({ "platform": "sms", "id": "phone", "tenant": FIRST_TENANT,
            "settings": { "base_url": scene.server.base_url, "account_sid": ACCOUNT, "from": OWN },
            "secrets": { "auth_token": TOKEN } });
        scene.harness.admin("POST", "/bots", &ask).await.expect(201);
        scene.link(ANN, "ann").await;
        scene.server.fake.set_webhook(&format!("{}/twilio/phone", scene.harness.url));
        scene
    }

    async fn link(&self, number: &str, instance: &str) {
        let link = json!({ "tenant": FIRST_TENANT, "platform": "sms", "user_id": number, "instance": instance });
        self.harness.admin("POST", "/bindings", &link).await.expect(201);
    }

    async fn agent(&self) -> Socket {
        let mut socket = self.harness.dial(&self.ann.bearer()).await;
        let descriptor = socket.hello("sms", "phone").await;
        assert_eq!(
            (&descriptor["max_message_length"], &descriptor["markdown_dialect"]),
            (&json!(1600), &json!("plain"))
        );
        socket
    }

    async fn say(&self, text: &str) {
        let (status, body) = self.server.fake.say(ANN, OWN, text, &[]).await.unwrap();
        assert_eq!((status, body.as_str()), (200, r#"<?xml version="1.0" encoding="UTF-8"?><Response></Response>"#));
    }

    fn sent(&self) -> Vec<Sent> {
        self.server.fake.sent()
    }

    /// What was sent, the newest first. Probes of the test itself are not sent.
    async fn journal(&self) -> Vec<Value> {
        let journal = self.harness.admin("GET", "/journal", &Value::Null).await.expect(200);
        let sent = journal["actions"].as_array().unwrap().iter().filter(|entry| entry["op"] == "send");
        sent.cloned().collect()
    }

    async fn finish(self) {
        let received = String::from_utf8_lossy(&self.harness.received.lock().unwrap()).into_owned();
        assert!(!received.contains(TOKEN), "the token went to somebody");
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
    let first = timeout(TIME_LIMIT, first).await.expect("the bot asked Twilio nothing at its start");
    assert_eq!((first.method.as_str(), first.status), ("GET", 200));
    scene.say(" hello + you ").await;
    let mut agent = scene.agent().await;
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["text"], &event["message_type"]), (&json!("hello + you"), &json!("text")), "{event}");
    for (field, value) in [
        ("platform", "sms"),
        ("chat_id", ANN),
        ("chat_type", "dm"),
        ("user_id", ANN),
        ("user_name", ANN),
        ("chat_name", ANN),
    ] {
        assert_eq!(event["source"][field], value, "{field}");
    }
    agent.ack(&frame).await;
    let result = agent.act(send("**Done**, see [it](https://a.example/x)")).await;
    assert_eq!(result["success"], true, "{result}");
    let [sent] = &scene.sent()[..] else { panic!("{:?}", scene.sent()) };
    assert_eq!((sent.to.as_str(), sent.from.as_deref()), (ANN, Some(OWN)));
    assert_eq!((sent.body.as_str(), &json!(sent.sid)), ("Done, see it (https://a.example/x)", &result["message_id"]));
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_the_same_message_also_after_a_restart() {
    let scene = Scene::open().await;
    for _ in 0..3 {
        let (status, _) = scene.server.fake.say_as("SM1", ANN, OWN, "once", &[]).await.unwrap();
        assert_eq!(status, 200);
    }
    let Scene { harness, server, ann } = scene;
    let scene = Scene { harness: Harness::again(harness.finish().await, |_| {}).await, server, ann };
    scene.server.fake.set_webhook(&format!("{}/twilio/phone", scene.harness.url));
    let (status, _) = scene.server.fake.say_as("SM1", ANN, OWN, "once", &[]).await.unwrap();
    assert_eq!(status, 200);
    scene.say("twice").await;
    let mut agent = scene.agent().await;
    let texts: Vec<String> = agent.events(2).await.iter().map(|frame| frame.text().to_owned()).collect();
    assert_eq!(texts, ["once", "twice"]);
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_signed_for_this_url_is_refused() {
    let scene = Scene::open().await;
    let body = "MessageSid=SM1&From=%2B15550001111&Body=x";
    let post = |signature: Option<&str>| {
        let request = scene.harness.request("POST", "/twilio/phone").body(body);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        // Headers of a proxy about the URL are not used.
        let request = request.header("x-forwarded-host", "evil.example").header("x-forwarded-proto", "https");
        scene.harness.send(match signature {
            Some(signature) => request.header("x-twilio-signature", signature),
            None => request,
        })
    };
    let sign = |url: &str| frontdesk_platforms::twilio::signature::sign_body(TOKEN, url, body.as_bytes()).unwrap();
    for wrong in [None, Some("AAAA".to_owned()), Some(sign("https://evil.example/twilio/phone"))] {
        let reply = post(wrong.as_deref()).await;
        assert_eq!(reply.problem(403), "forbidden");
    }
    let good = sign(&format!("{}/twilio/phone", scene.harness.url));
    assert_eq!(post(Some(&good)).await.status, 200);
    let other = scene.harness.request("POST", "/twilio/absent").body(body);
    assert_eq!(scene.harness.send(other).await.problem(404), "not_found");
    let mut agent = scene.agent().await;
    assert_eq!(agent.event().await.text(), "x");
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_failure_closes_the_journal_and_reaches_the_agent_that_sent_it() {
    let scene = Scene::open().await;
    // Another agent of Ann, which is preferred, and has sent nothing.
    let other = scene.harness.add_gateway("other").await;
    let mut agent = scene.agent().await;
    scene.say("hello").await;
    let frame = agent.event().await;
    agent.ack(&frame).await;
    scene.link(ANN, "other").await;
    let mut bystander = scene.harness.dial(&other.bearer()).await;
    bystander.hello("sms", "phone").await;
    let result = agent.act(send("are you there?")).await;
    let sid = result["message_id"].as_str().unwrap().to_owned();
    for status in ["sent", "delivered"] {
        assert_eq!(scene.server.fake.report(&sid, status, None).await.unwrap().0, 200);
    }
    assert_eq!(scene.journal().await[0]["outcome"], "delivered");
    let second = agent.act(send("and now?")).await;
    let sid = second["message_id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        assert_eq!(scene.server.fake.report(&sid, "undelivered", Some(30_003)).await.unwrap().0, 200);
    }
    let entry = scene.journal().await[0].clone();
    assert_eq!(entry["outcome"], "rejected", "{entry}");
    assert!(entry["note"].as_str().unwrap().contains("30003"), "{entry}");
    let event = agent.event().await.json["event"].clone();
    let text = event["text"].as_str().unwrap();
    assert!(text.contains(&sid) && text.contains("switched off") && text.contains("not delivered"), "{text}");
    assert_eq!((&event["source"]["chat_id"], &event["reply_to_message_id"]), (&json!(ANN), &json!(sid)), "{event}");
    assert_eq!((agent.unread().await, bystander.unread().await), (0, 0), "once, and for nobody else");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_answer_was_lost_is_closed_by_its_status() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    for (status, outcome) in [("delivered", "delivered"), ("failed", "rejected")] {
        scene.say("hello").await;
        let frame = agent.event().await;
        agent.ack(&frame).await;
        scene.server.fake.fault(Fault::DropAfter);
        let result = agent.act(send("in doubt")).await;
        assert_eq!((&result["success"], &result["ambiguous"]), (&json!(false), &json!(true)), "{result}");
        assert!(result["error"].as_str().unwrap().contains("timed out"), "gateways must not send it again: {result}");
        assert_eq!(scene.journal().await[0]["outcome"], "unknown");
        let sid = scene.sent().last().unwrap().sid.clone();
        assert_eq!(scene.server.fake.report(&sid, status, None).await.unwrap().0, 200);
        assert_eq!(scene.journal().await[0]["outcome"], outcome);
    }
    assert!(agent.event().await.text().contains("not delivered"));
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_is_respected_and_help_is_left_to_twilio() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    for word in ["HELP", "Stop"] {
        scene.say(word).await;
    }
    let result = agent.act(send("wait!")).await;
    assert_eq!((&result["code"], scene.sent().len()), (&json!("forbidden"), 0), "{result}");
    scene.say("START").await;
    assert_eq!(agent.event().await.text(), "START", "neither HELP nor STOP came before it");
    assert_eq!(agent.act(send("welcome back")).await["success"], true);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_both_ways() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    let files = [File { mime: "image/png".into(), content: "a picture".into() }];
    let (status, _) = scene.server.fake.say(ANN, OWN, "look", &files).await.unwrap();
    assert_eq!(status, 200);
    let frame = agent.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["message_type"], &event["text"]), (&json!("photo"), &json!("look")), "{event}");
    let url = event["media_urls"][0].as_str().unwrap();
    let reply = scene.harness.get(url.strip_prefix(&scene.harness.url).unwrap(), &scene.ann.bearer()).await;
    assert_eq!((reply.status, reply.text().as_str(), reply.header("content-type")), (200, "a picture", "image/png"));
    agent.ack(&frame).await;
    // Twilio fetches what it sends, without a token of ours.
    let upload = scene.harness.request("POST", "/relay/media").bearer_auth(scene.ann.bearer());
    let stored = scene.harness.send(upload.header("content-type", "image/jpeg").body("an answer")).await.expect(200);
    let source = format!("{}/relay/media/{}", scene.harness.url, stored["id"].as_str().unwrap());
    let act =
        json!({ "op": "send_media", "chat_id": ANN, "media_kind": "image", "source_url": source, "content": "here" });
    let result = agent.act(act).await;
    assert_eq!(result["success"], true, "{result}");
    let sent = scene.sent().pop().unwrap();
    assert_eq!((sent.body.as_str(), &sent.files[..]), ("here", &[(200, "an answer".to_owned())][..]));
    assert_eq!(scene.harness.get("/twilio/phone/media/9999999999.aG9tZQ.eA.00", "").await.problem(404), "not_found");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_numbers_are_two_bots_and_long_texts_are_parts() {
    let scene = Scene::open().await;
    let ask = json!({ "platform": "sms", "id": "second", "tenant": FIRST_TENANT,
        "settings": { "base_url": scene.server.base_url, "account_sid": ACCOUNT, "from": "+15559990001" },
        "secrets": { "auth_token": TOKEN } });
    scene.harness.admin("POST", "/bots", &ask).await.expect(201);
    let mut agent = scene.agent().await;
    // It is for the other number: recorded, and without a receiver.
    let (status, _) = scene.server.fake.say(ANN, "+15559990001", "wrong door", &[]).await.unwrap();
    assert_eq!(status, 200);
    scene.server.fake.set_webhook(&format!("{}/twilio/second", scene.harness.url));
    let (status, _) = scene.server.fake.say(ANN, "+15559990001", "right door", &[]).await.unwrap();
    assert_eq!(status, 200);
    let frame = agent.event().await;
    assert_eq!(frame.text(), "right door");
    agent.ack(&frame).await;
    scene.server.fake.set_webhook(&format!("{}/twilio/phone", scene.harness.url));
    scene.say("more").await;
    agent.event().await;
    let words: Vec<String> = (0..600).map(|number| format!("word{number}")).collect();
    let result = agent.act(send(&words.join(" "))).await;
    assert_eq!(result["success"], true, "{result}");
    let sent: Vec<String> = scene.sent().into_iter().map(|sent| sent.body).collect();
    assert!(sent.len() > 2 && sent.iter().all(|body| body.len() <= 1_600));
    assert_eq!(sent.join(" ").split_whitespace().collect::<Vec<_>>(), words);
    // A report on any of the parts reaches the agent once.
    let sids: Vec<String> = scene.sent().into_iter().map(|sent| sent.sid).collect();
    for sid in &sids {
        scene.server.fake.report(sid, "failed", Some(30_007)).await.unwrap();
    }
    assert!(agent.event().await.text().contains(&sids[0]));
    assert_eq!(agent.unread().await, 0);
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_twilio_are_told_and_its_pace_is_kept() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    scene.say("hello").await;
    agent.event().await;
    let slow = json!({ "code": 20429, "message": "Too Many Requests", "status": 429 });
    scene.server.fake.fault(Fault::Status { status: 429, body: slow });
    let result = agent.act(send("at once")).await;
    assert_eq!((&result["success"], scene.sent().len()), (&json!(true), 1), "it is sent again by the server: {result}");
    let error = json!({ "code": 21408, "message": "Permission to send an SMS has not been enabled", "status": 400 });
    scene.server.fake.fault(Fault::Status { status: 400, body: error });
    let result = agent.act(send("abroad")).await;
    assert_eq!((&result["success"], &result["code"]), (&json!(false), &json!("bad_request")), "{result}");
    assert!(result["error"].as_str().unwrap().contains("21408"), "{result}");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_is_checked_and_what_is_wrong_is_said() {
    let scene = Scene::open().await;
    let found = scene.harness.admin("GET", "/bots/sms/phone/check", &Value::Null).await.expect(200);
    assert!(found.to_string().contains("texts and files"), "{found}");
    for (settings, secrets, reason) in [
        (json!({ "account_sid": ACCOUNT }), json!({ "auth_token": TOKEN }), "\"from\" is missing"),
        (json!({ "account_sid": "XX", "from": OWN }), json!({ "auth_token": TOKEN }), "must begin with AC"),
        (
            json!({ "account_sid": ACCOUNT, "from": "555" , "number": "1" }),
            json!({ "auth_token": TOKEN }),
            "unknown setting",
        ),
        (json!({ "account_sid": ACCOUNT, "from": OWN }), json!({}), "--secret auth_token="),
    ] {
        let ask = json!({ "platform": "sms", "id": "x", "settings": settings, "secrets": secrets });
        let reply = scene.harness.admin("POST", "/bots", &ask).await;
        assert_eq!(reply.status, 400);
        assert!(
            reply.text().contains(reason) || reply.json()["detail"].as_str().unwrap().contains(reason),
            "{}",
            reply.text()
        );
    }
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_comes_before_the_answer_is_not_lost() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    scene.say("hello").await;
    let frame = agent.event().await;
    agent.ack(&frame).await;
    scene.server.fake.fault(Fault::Slow { delay_ms: 600 });
    let request = agent.begin(send("too fast")).await;
    let sid = scene.server.fake.wait_for(|fake| fake.sent().pop().map(|sent| sent.sid));
    let sid = timeout(TIME_LIMIT, sid).await.unwrap();
    assert_eq!(scene.server.fake.report(&sid, "failed", Some(30_005)).await.unwrap().0, 200);
    assert_eq!(agent.result(&request).await.json["result"]["message_id"], sid);
    assert!(agent.event().await.text().contains("30005"));
    assert_eq!(scene.journal().await[0]["outcome"], "rejected");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_answers_every_report_is_told_a_few_times_only() {
    let scene = Scene::open().await;
    let mut agent = scene.agent().await;
    scene.say("hello").await;
    let frame = agent.event().await;
    agent.ack(&frame).await;
    for number in 0..8 {
        let sid = agent.act(send(&format!("again {number}"))).await["message_id"].as_str().unwrap().to_owned();
        assert_eq!(scene.server.fake.report(&sid, "failed", Some(30_003)).await.unwrap().0, 200);
    }
    let reports = agent.events(5).await;
    assert!(reports.iter().all(|frame| frame.text().contains("not delivered")));
    assert_eq!(agent.unread().await, 0, "the others are in the journal only");
    let journal = scene.journal().await;
    let rejected = journal.iter().filter(|entry| entry["outcome"] == "rejected").count();
    assert_eq!(rejected, 8, "{journal:?}");
    scene.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_number_keeps_tenants_apart() {
    let scene = Scene::open().await;
    let red = scene.harness.add_gateway_in("red", "red-agent").await;
    let blue = scene.harness.add_gateway_in("blue", "blue-agent").await;
    let ask = json!({ "platform": "sms", "id": "shared",
        "settings": { "base_url": scene.server.base_url, "account_sid": ACCOUNT, "from": OWN },
        "secrets": { "auth_token": TOKEN } });
    scene.harness.admin("POST", "/bots", &ask).await.expect(201);
    scene.server.fake.set_webhook(&format!("{}/twilio/shared", scene.harness.url));
    let mut agents = Vec::new();
    for (account, number) in [(&red, "+15550002222"), (&blue, "+15550003333")] {
        let link =
            json!({ "tenant": account.tenant, "platform": "sms", "user_id": number, "instance": account.gateway });
        scene.harness.admin("POST", "/bindings", &link).await.expect(201);
        let mut agent = scene.harness.dial(&account.bearer()).await;
        agent.hello("sms", "shared").await;
        agents.push(agent);
    }
    for number in ["+15550003333", "+15550002222", "+15550004444"] {
        let (status, _) = scene.server.fake.say(number, OWN, &format!("of {number}"), &[]).await.unwrap();
        assert_eq!(status, 200);
    }
    for (agent, number) in agents.iter_mut().zip(["+15550002222", "+15550003333"]) {
        let frame = agent.event().await;
        assert_eq!(frame.text(), format!("of {number}"));
        agent.ack(&frame).await;
        assert_eq!(agent.unread().await, 0);
    }
    let foreign = json!({ "op": "send", "chat_id": "+15550003333", "content": "x" });
    let result = agents[0].act(foreign).await;
    assert_eq!((&result["code"], scene.sent().len()), (&json!("egress_declined"), 0), "{result}");
    let sent = agents[1].act(json!({ "op": "send", "chat_id": "+15550003333", "content": "x" })).await;
    let sid = sent["message_id"].as_str().unwrap();
    assert_eq!(scene.server.fake.report(sid, "failed", None).await.unwrap().0, 200);
    assert!(agents[1].event().await.text().contains(sid));
    assert_eq!(agents[0].unread().await, 0);
    scene.finish().await;
}
