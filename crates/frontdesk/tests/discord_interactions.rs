//! Interactions of Discord end to end: commands, buttons and menus by the signed endpoint and by the socket, answers with
//! the token that agents never see, and the list of commands.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk::app::FIRST_TENANT;
use frontdesk::config::Config;
use frontdesk::env::SystemEnv;
use frontdesk_core::Env;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::fakes::discord::{
    FakeDiscord, Fault, FaultRule, GatewaySettings, Limits, RestRequest, Scope, Server, public_key, signature_headers,
};
use frontdesk_testkit::folder::{files, holds};
use harness::{Frame, GatewayAccount, Harness, Reply, Socket, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing_subscriber::filter::LevelFilter;

const KIND: &str = "discord.interaction_token";
const TOKEN: &str = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-the-first-bot-of-the-fake-x";
const BOT: u64 = 1_100_000_000_000_000_001;
const ANN: u64 = 1_100_000_000_000_000_011;
const BEN: u64 = 1_100_000_000_000_000_012;
const EVE: u64 = 1_100_000_000_000_000_013;
const GUILD: u64 = 1_100_000_000_000_000_100;
const GENERAL: u64 = 1_100_000_000_000_000_101;

/// A desk with one bot in a guild, in front of the agents of Ann and Ben. Eve has none.
struct Scene {
    harness: Harness,
    server: Server,
    ann: GatewayAccount,
    ben: GatewayAccount,
}

impl Scene {
    /// With the signed endpoint and without the socket, or the other way round.
    async fn open(by_endpoint: bool) -> Self {
        Self::at(Arc::new(SystemEnv), by_endpoint).await
    }

    async fn at(env: Arc<dyn Env>, by_endpoint: bool) -> Self {
        Self::under(env, by_endpoint, |_| {}).await
    }

    async fn under(env: Arc<dyn Env>, by_endpoint: bool, change: fn(&mut Config)) -> Self {
        let harness = Harness::by(env.clone(), tempfile::tempdir().unwrap(), change).await;
        let fake = FakeDiscord::new();
        fake.set_limits(Limits { enabled: false, ..Limits::default() });
        fake.set_gateway(GatewaySettings { identify_every_ms: 0, ..GatewaySettings::default() });
        let server = fake.serve_with(env).await.unwrap();
        let (ann, ben) = (harness.add_gateway("ann").await, harness.add_gateway("ben").await);
        let scene = Self { harness, server, ann, ben };
        scene.act(json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk"}));
        for (id, name) in [(ANN, "ann"), (BEN, "ben"), (EVE, "eve")] {
            scene.act(json!({"act": "add_user", "id": id, "username": name}));
        }
        scene.act(json!({"act": "add_guild", "id": GUILD, "name": "Guild", "owner": BOT,
            "members": [{"user": BOT}, {"user": ANN, "nick": "Annie"}, {"user": BEN}, {"user": EVE}],
            "channels": [{"id": GENERAL, "name": "general"}]}));
        for (user, instance) in [(ANN, "ann"), (BEN, "ben")] {
            let link = json!({ "tenant": FIRST_TENANT, "platform": "discord", "user_id": user.to_string(),
                "instance": instance });
            scene.harness.admin("POST", "/bindings", &link).await.expect(201);
        }
        let mut settings = json!({ "base_url": scene.server.base_url, "gateway_url": scene.server.gateway_url,
            "application_id": BOT.to_string() });
        if by_endpoint {
            settings["socket"] = "off".into();
            settings["public_key"] = public_key(BOT).into();
            scene.act(json!({"act": "set_endpoint", "bot": BOT, "url": scene.endpoint()}));
        }
        let ask = json!({ "platform": "discord", "id": "dc", "tenant": FIRST_TENANT, "settings": settings,
            "secrets": { "token": TOKEN } });
        scene.harness.admin("POST", "/bots", &ask).await.expect(201);
        scene
    }

    fn endpoint(&self) -> String {
        format!("{}/interactions/dc", self.harness.url)
    }

    fn act(&self, act: Value) -> Value {
        let text = act.to_string();
        let now_ms = self.harness.app.desk.env().now_ms();
        let done = self.server.fake.act(now_ms, serde_json::from_value(act).unwrap());
        done.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The command is known to Discord.
    fn registered(&self, name: &str) {
        let body = json!({ "name": name, "description": "x" });
        let request = RestRequest::new("POST", &format!("/applications/{BOT}/commands"), TOKEN, body);
        self.server.fake.handle(self.harness.app.desk.env().now_ms(), &request);
    }

    async fn agent(&self, account: &GatewayAccount) -> Socket {
        let mut socket = self.harness.dial(&account.bearer()).await;
        socket.hello("discord", "dc").await;
        socket
    }

    /// A user does something; returns its id, token and result.
    async fn interact(&self, fields: Value) -> (u64, String, Value) {
        let mut act = json!({"act": "interact", "bot": BOT, "channel": GENERAL});
        act.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let made = self.act(act);
        let id = number(&made["id"]);
        let is_answered = |it: &Value| !it["answer"].is_null() || !it["endpoint"].is_null();
        let answered = self.server.fake.wait_for(|fake| fake.interaction(id).filter(is_answered));
        let found = timeout(TIME_LIMIT, answered).await.expect("the interaction was not answered");
        (id, made["token"].as_str().unwrap().to_owned(), found)
    }

    async fn command(&self, from: u64, name: &str, options: Value) -> (u64, String, Value) {
        self.registered(name);
        self.interact(json!({"kind": "command", "from": from, "name": name, "options": options})).await
    }

    /// Posts these bytes to the endpoint with these headers.
    async fn post(&self, headers: &[(&str, String)], body: &[u8]) -> Reply {
        let mut request = self.harness.client.post(self.endpoint()).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        self.harness.send(request.body(body.to_vec())).await
    }

    fn signed(&self, body: &[u8]) -> [(&'static str, String); 2] {
        signature_headers(BOT, self.harness.app.desk.env().now_ms(), body)
    }

    /// How often Discord was called by this route.
    fn calls(&self, route: &str) -> usize {
        self.server.fake.calls_after(0).iter().filter(|call| call.method == route).count()
    }

    fn fault(&self, route: &str, fault: Fault) {
        self.server.fake.fault(FaultRule { method: route.into(), fault, times: 1 });
    }

    /// Waits until the bot listens.
    async fn listening(&self) {
        let is_there =
            |fake: &FakeDiscord| fake.calls_after(0).iter().any(|call| call.method == "gateway identify").then_some(());
        timeout(TIME_LIMIT, self.server.fake.wait_for(is_there)).await.expect("the bot does not listen");
    }
}

fn number(id: &Value) -> u64 {
    id.as_str().unwrap().parse().unwrap()
}

fn body_of(frame: &Frame) -> Value {
    let forward = &frame.json["forward"];
    assert_eq!(
        (&forward["platform"], &forward["botId"], &forward["method"], &forward["path"]),
        (&json!("discord"), &json!("dc"), &json!("POST"), &json!("/interactions/dc"))
    );
    serde_json::from_slice(&STANDARD.decode(forward["bodyB64"].as_str().unwrap()).unwrap()).unwrap()
}

/// As gateways 0.18 and 0.19 name the session of an interaction in a channel.
fn session_of(user: u64) -> String {
    format!("agent:main:relay:channel:{GENERAL}:{user}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_deferred_forwarded_and_answered_by_follow_ups() {
    for by_endpoint in [true, false] {
        let scene = Scene::open(by_endpoint).await;
        if !by_endpoint {
            scene.listening().await;
        }
        let options = json!([{"name": "city", "type": 3, "value": "Oslo"}]);
        // The agent sleeps: the answer does not wait for it.
        let (id, token, found) = scene.command(ANN, "weather", options.clone()).await;
        assert_eq!(found["answer"]["type"], 5, "{found}");
        let mut ann = scene.agent(&scene.ann).await;
        let frame = ann.of("passthrough_forward").await;
        let body = body_of(&frame);
        assert_eq!(
            (&body["type"], &body["id"], &body["data"]["name"]),
            (&json!(2), &json!(id.to_string()), &json!("weather"))
        );
        assert_eq!((&body["data"]["options"], &body["member"]["nick"]), (&options, &json!("Annie")));
        assert_eq!((&body["channel"]["type"], &body["guild_id"]), (&json!(0), &json!(GUILD.to_string())));
        assert!(!frame.json.to_string().contains(&token) && !body.to_string().contains(&token));

        let first = ann.follow_up(&session_of(ANN), KIND, "Rain.").await.json["result"].clone();
        assert_eq!(first["success"], true, "{first}");
        let seen = scene.server.fake.interaction(id).unwrap();
        assert_eq!((&seen["original"]["content"], &seen["original"]["id"]), (&json!("Rain."), &first["message_id"]));
        assert_eq!(seen["original"]["flags"].as_u64().unwrap_or(0) & 128, 0, "no longer thinking");
        let more = ann.follow_up(&session_of(ANN), KIND, "Still rain.").await.json["result"].clone();
        assert_eq!(more["success"], true, "{more}");
        let seen = scene.server.fake.interaction(id).unwrap();
        assert_eq!(seen["original"]["content"], "Rain.");
        assert_eq!(seen["follow_ups"][0]["content"], "Still rain.");
        scene.harness.finish().await;
    }
}

/// Gateways answer with a plain message.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_of_the_agent_takes_the_place_of_thinking() {
    let scene = Scene::open(true).await;
    let (id, _, found) = scene.command(ANN, "weather", json!([])).await;
    assert_eq!(found["answer"]["type"], 5, "{found}");
    let (mut ann, mut ben) = (scene.agent(&scene.ann).await, scene.agent(&scene.ben).await);
    ann.of("passthrough_forward").await;
    let shown = || scene.server.fake.interaction(id).unwrap()["original"].clone();
    let send = |text: &str| json!({ "op": "send", "chat_id": GENERAL.to_string(), "content": text });
    let other = ben.act(send("for somebody else")).await;
    assert_eq!((&other["success"], shown()["flags"].as_u64().unwrap() & 128), (&json!(true), 128), "{other}");
    let said = scene.act(json!({"act": "say", "channel": GENERAL, "from": ANN, "text": "something else"}));
    let mut reply = send("about that");
    reply["reply_to"] = said["id"].clone();
    let about = ann.act(reply).await;
    assert_eq!((&about["success"], shown()["flags"].as_u64().unwrap() & 128), (&json!(true), 128), "{about}");
    let mut answer = send(&format!("Rain. {}", "x".repeat(2_500)));
    answer["reply_to"] = json!(id.to_string());
    let first = ann.act(answer).await;
    assert_eq!(first["success"], true, "{first}");
    let seen = shown();
    assert!(seen["content"].as_str().unwrap().starts_with("Rain. x"), "{seen}");
    assert_eq!(seen["flags"].as_u64().unwrap_or(0) & 128, 0, "no longer thinking");
    let asked = scene.calls("GET webhooks/:id/:token/messages/@original");
    let more = ann.act(send("Still rain.")).await;
    assert_eq!((&more["success"], shown()["content"] == seen["content"]), (&json!(true), true), "{more}");
    assert_eq!(scene.calls("GET webhooks/:id/:token/messages/@original"), asked, "it is known");
    let channel = scene.server.fake.channel(GENERAL).unwrap()["messages"].to_string();
    assert_eq!(channel.matches("Still rain.").count(), 1, "{channel}");
    scene.harness.finish().await;
}

/// A command as Discord sends it.
fn asked(id: u64, from: u64) -> Vec<u8> {
    let user = json!({"id": from.to_string(), "username": "ann"});
    json!({"id": id.to_string(), "application_id": BOT.to_string(), "type": 2, "token": format!("aW50ZXJhY3Rpb246{id}"),
        "guild_id": GUILD.to_string(), "channel_id": GENERAL.to_string(),
        "channel": {"id": GENERAL.to_string(), "type": 0, "name": "general"}, "member": {"user": user},
        "data": {"id": "1", "name": "ask", "type": 1}})
    .to_string()
    .into_bytes()
}

fn is_only_for_them(answer: &Value) -> bool {
    answer["type"] == 4
        && answer["data"]["flags"] == 64
        && answer["data"]["content"].as_str().is_some_and(|it| !it.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_discord_has_signed_is_taken() {
    let scene = Scene::open(true).await;
    let mut ann = scene.agent(&scene.ann).await;
    let body = asked(77, ANN);
    let good = scene.signed(&body);
    let now_ms = scene.harness.app.desk.env().now_ms();
    let [(signature, hex), (timestamp, time)] = good.clone();
    let with = |hex: &str, time: &str| [(signature, hex.to_owned()), (timestamp, time.to_owned())];
    for (headers, reason) in [
        (Vec::new(), "X-Signature-Timestamp is missing"),
        (vec![(timestamp, time.clone())], "X-Signature-Ed25519 is missing"),
        (with("zz", &time).to_vec(), "X-Signature-Ed25519 is missing"),
        (with(&hex, "1700000000").to_vec(), "does not match"),
        (with(&"0".repeat(128), &time).to_vec(), "does not match"),
        (signature_headers(BOT + 1, now_ms, &body).to_vec(), "does not match"),
        (signature_headers(BOT, now_ms, b"{}").to_vec(), "does not match"),
        (signature_headers(BOT, now_ms - 400_000, &body).to_vec(), "away from the clock"),
        (signature_headers(BOT, now_ms + 400_000, &body).to_vec(), "away from the clock"),
    ] {
        let refused = scene.post(&headers, &body).await;
        assert!(
            refused.status == 401 && refused.text().contains(reason),
            "{headers:?}: {} {}",
            refused.status,
            refused.text()
        );
    }
    let broken = b"{\"type\":";
    assert_eq!(scene.post(&scene.signed(broken), broken).await.status, 400, "signed, and no JSON");
    assert_eq!(ann.unread().await, 0, "nothing of it was taken");

    // Discord's own check of the address, and what needs no agent.
    let ping = scene.server.fake.ping(now_ms, BOT, &scene.endpoint(), false);
    let headers: Vec<(&str, String)> =
        ping.headers.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    assert_eq!(scene.post(&headers, &ping.body).await.expect(200), json!({"type": 1}));
    let typing = json!({"id": "78", "type": 4, "data": {"name": "ask"}}).to_string().into_bytes();
    let choices = scene.post(&scene.signed(&typing), &typing).await.expect(200);
    assert_eq!(choices, json!({"type": 8, "data": {"choices": []}}));

    // A replay is the same event.
    for _ in 0..3 {
        assert_eq!(scene.post(&good, &body).await.expect(200), json!({"type": 5}));
    }
    ann.of("passthrough_forward").await;
    assert_eq!(ann.unread().await, 0, "once");
    assert!(scene.server.fake.calls_after(0).iter().all(|call| !call.method.contains("members")), "nothing was asked");
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reaches_no_agent_is_told_why() {
    for by_endpoint in [true, false] {
        let scene = Scene::open(by_endpoint).await;
        if !by_endpoint {
            scene.listening().await;
        }
        let mut ann = scene.agent(&scene.ann).await;
        let (_, _, found) = scene.command(EVE, "weather", json!([])).await;
        assert!(is_only_for_them(&found["answer"]), "{found}");
        assert_eq!(found["original"]["only_for"], EVE.to_string());
        let refused = ann.follow_up(&session_of(EVE), KIND, "boo").await.json["result"].clone();
        assert_eq!(refused["code"], "capability_unavailable", "{refused}");
        assert_eq!(ann.unread().await, 0);

        // A command to the server is answered by the server, in the direct chat, and only there.
        scene.registered("whoami");
        let direct = json!({"kind": "command", "from": ANN, "name": "whoami", "channel": null});
        let (_, _, found) = scene.interact(direct).await;
        assert!(is_only_for_them(&found["answer"]), "{found}");
        assert!(found["answer"]["data"]["content"].as_str().unwrap().contains("ann"), "{found}");
        assert_eq!(scene.calls("POST channels/:id/messages"), 0, "not as a message as well");
        scene.harness.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_stored_is_said_and_not_done() {
    let scene = Scene::open(true).await;
    let mut ann = scene.agent(&scene.ann).await;
    scene.registered("weather");
    let database = rusqlite::Connection::open(scene.harness.folder.path().join("data/frontdesk.db")).unwrap();
    let no = "CREATE TRIGGER no BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'the disk is broken'); END";
    database.execute_batch(no).unwrap();
    let (id, _, found) = scene.command(ANN, "weather", json!([])).await;
    assert!(is_only_for_them(&found["answer"]), "{found}");
    assert!(found["answer"]["data"]["content"].as_str().unwrap().contains("could not be stored"), "{found}");
    database.execute_batch("DROP TRIGGER no").unwrap();
    let (next, _, found) = scene.command(ANN, "weather", json!([])).await;
    assert_eq!(found["answer"]["type"], 5, "{found}");
    let came = body_of(&ann.of("passthrough_forward").await);
    assert_eq!(came["id"], next.to_string(), "and not {id}");
    assert_eq!(ann.unread().await, 0);
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenant_cannot_answer_and_nobody_after_15_minutes() {
    let clock = Arc::new(TestEnv::default());
    clock.set_ms(SystemEnv.now_ms());
    let scene = Scene::at(clock.clone(), true).await;
    let rival = scene.harness.add_gateway_in("rival", "rival").await;
    let settings = json!({ "base_url": scene.server.base_url, "socket": "off" });
    let bot = json!({ "platform": "discord", "id": "dc2", "tenant": "rival", "settings": settings,
        "secrets": { "token": TOKEN } });
    scene.harness.admin("POST", "/bots", &bot).await.expect(201);
    let mut other = scene.harness.dial(&rival.bearer()).await;
    other.hello("discord", "dc2").await;
    let (mut ann, mut ben) = (scene.agent(&scene.ann).await, scene.agent(&scene.ben).await);
    let (id, token, _) = scene.command(ANN, "weather", json!([])).await;
    let forwarded = ann.of("passthrough_forward").await;
    ann.ack(&forwarded).await;
    let expected = "{\"success\":false,\"error\":\"no such capability is bound to this session\",\
                    \"code\":\"capability_unavailable\"}}";
    for refusal in [
        other.follow_up(&session_of(ANN), KIND, "boo").await,
        ann.follow_up(&session_of(BEN), KIND, "boo").await,
        ann.follow_up(&session_of(ANN), "relay.interaction_token", "boo").await,
    ] {
        assert_eq!(refusal.result(), expected);
    }
    assert_eq!(ben.unread().await, 0, "the agent of somebody else");
    for key in [
        session_of(ANN),
        format!("agent:main:discord:group:{GENERAL}:{ANN}"),
        format!("agent:main:discord:channel:{GENERAL}:{ANN}"),
    ] {
        let result = ann.follow_up(&key, KIND, "in time").await.json["result"].clone();
        assert_eq!(result["success"], true, "{key}: {result}");
    }
    scene.harness.pass(&clock, 890_000).await;
    let mut ann = scene.agent(&scene.ann).await;
    let result = ann.follow_up(&session_of(ANN), KIND, "just in time").await.json["result"].clone();
    assert_eq!(result["success"], true, "{result}");
    scene.harness.pass(&clock, 11_000).await;
    let before = scene.server.fake.calls_after(0).len();
    assert_eq!(ann.follow_up(&session_of(ANN), KIND, "overdue").await.result(), expected);
    assert_eq!(scene.server.fake.calls_after(0).len(), before, "Discord was not asked");
    let seen = scene.server.fake.interaction(id).unwrap().to_string();
    assert!(seen.contains("just in time") && !seen.contains("boo") && !seen.contains("overdue"), "{seen}");
    let received = scene.harness.received.lock().unwrap().clone();
    assert!(!holds(&received, &token), "the token is in what came out");
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_discord_is_told_as_it_is() {
    let scene = Scene::open(true).await;
    let mut ann = scene.agent(&scene.ann).await;
    scene.command(ANN, "weather", json!([])).await;
    let gone = Fault::Status { status: 401, code: 50_027, message: "Invalid Webhook Token".into() };
    scene.fault("GET webhooks/:id/:token/messages/@original", gone);
    let result = ann.follow_up(&session_of(ANN), KIND, "x").await.json["result"].clone();
    assert_eq!((&result["success"], &result["code"]), (&json!(false), &json!("capability_unavailable")), "{result}");
    assert!(result["error"].as_str().unwrap().contains("15 minutes"), "{result}");
    let result = ann.follow_up(&session_of(ANN), KIND, "x").await.json["result"].clone();
    assert_eq!(result["success"], true, "it was not so: {result}");
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_is_known_after_a_restart_and_after_a_lost_answer() {
    let scene = Scene::open(true).await;
    let mut ann = scene.agent(&scene.ann).await;
    let (lost, token, _) = scene.command(ANN, "weather", json!([])).await;
    scene.fault("PATCH webhooks/:id/:token/messages/@original", Fault::DropAfter);
    let result = ann.follow_up(&session_of(ANN), KIND, "one").await.json["result"].clone();
    assert_eq!((&result["success"], &result["ambiguous"]), (&json!(false), &json!(true)), "{result}");
    assert!(!result.to_string().contains(&token));
    assert_eq!(ann.follow_up(&session_of(ANN), KIND, "two").await.json["result"]["success"], true);
    let seen = scene.server.fake.interaction(lost).unwrap();
    assert_eq!((&seen["original"]["content"], &seen["follow_ups"][0]["content"]), (&json!("one"), &json!("two")));

    let (early, _, _) = scene.command(ANN, "weather", json!([])).await;
    scene.fault("PATCH webhooks/:id/:token/messages/@original", Fault::DropBefore);
    assert_eq!(ann.follow_up(&session_of(ANN), KIND, "never").await.json["result"]["success"], false);
    // The server is started again, and Discord still shows that the bot is thinking.
    let Scene { harness, server, ann: account, ben } = scene;
    ann.hang_up().await;
    let scene = Scene { harness: Harness::again(harness.finish().await, |_| {}).await, server, ann: account, ben };
    let mut ann = scene.agent(&scene.ann).await;
    let words: Vec<String> = (0..500).map(|number| format!("word{number}.")).collect();
    let result = ann.follow_up(&session_of(ANN), KIND, &words.join(" ")).await.json["result"].clone();
    assert_eq!(result["success"], true, "{result}");
    let seen = scene.server.fake.interaction(early).unwrap();
    assert_eq!(seen["original"]["id"], result["message_id"]);
    let parts: Vec<&Value> = [&seen["original"]].into_iter().chain(seen["follow_ups"].as_array().unwrap()).collect();
    let all: Vec<&str> = parts.iter().flat_map(|it| it["content"].as_str().unwrap().split_whitespace()).collect();
    assert!(parts.len() > 1 && all == words, "in parts, the first of which takes the place of thinking: {seen}");
    scene.harness.finish().await;
}

/// Options `o0` to ... of a prompt.
fn options(count: usize) -> Value {
    (0..count).map(|at| json!({"id": format!("o{at}"), "label": format!("Option {at}")})).collect()
}

/// Asks in the channel, and returns the id of the message.
async fn ask(agent: &mut Socket, count: usize) -> Value {
    let prompt = json!({"op": "prompt", "chat_id": GENERAL.to_string(), "prompt_kind": "choice", "prompt_id": "p1",
        "content": "Which?", "options": options(count)});
    let asked = agent.act(prompt).await;
    assert_eq!(asked["success"], true, "{asked}");
    asked["message_id"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_answered_by_a_button_or_a_menu() {
    for by_endpoint in [true, false] {
        let scene = Scene::open(by_endpoint).await;
        if !by_endpoint {
            scene.listening().await;
        }
        let (mut ann, mut ben) = (scene.agent(&scene.ann).await, scene.agent(&scene.ben).await);
        // The agents were reached from the channel, so that they may write there.
        for (from, agent) in [(ANN, &mut ann), (BEN, &mut ben)] {
            scene.command(from, "weather", json!([])).await;
            agent.of("passthrough_forward").await;
        }
        for (count, press) in [
            (3, json!({"kind": "button", "custom_id": "hp1:p1:o2"})),
            (30, json!({"kind": "select", "custom_id": "hps1:0:p1", "values": ["o2"]})),
        ] {
            let message = ask(&mut ann, count).await;
            let pressed_by = |from: u64| {
                let mut press = press.clone();
                (press["from"], press["message"]) = (json!(from), json!(number(&message)));
                press
            };
            let (_, _, found) = scene.interact(pressed_by(EVE)).await;
            assert!(is_only_for_them(&found["answer"]), "somebody without an agent: {found}");
            // Two presses before the buttons are gone: the first one counts.
            let (one, other) = tokio::join!(scene.interact(pressed_by(ANN)), scene.interact(pressed_by(ANN)));
            let is_taken = |(_, _, found): &(u64, String, Value)| found["answer"]["type"] == 7;
            let ((id, token, found), late) = if is_taken(&one) { (one, other) } else { (other, one) };
            assert_eq!(found["answer"]["type"], 7, "{found}");
            assert!(is_only_for_them(&late.2["answer"]), "{late:?}");
            assert_eq!(late.2["answer"]["data"]["content"], "This was answered already.");
            let frame = ann.event().await;
            let event = &frame.json["event"];
            assert_eq!((&event["text"], &event["message_type"]), (&json!("/o2"), &json!("command")), "{event}");
            let response =
                json!({"prompt_id": "p1", "option_id": "o2", "label": "Option 2", "prompt_message_id": message});
            assert_eq!(event["prompt_response"], response);
            assert_eq!(
                (&event["message_id"], &event["reply_to_message_id"]),
                (&json!(format!("press-{id}")), &message)
            );
            let source = &event["source"];
            assert_eq!((&source["user_id"], &source["user_name"]), (&json!(ANN.to_string()), &json!("Annie")));
            assert_eq!((&source["chat_id"], &source["chat_type"]), (&json!(GENERAL.to_string()), &json!("group")));
            assert!(!frame.json.to_string().contains(&token));
            let shown = scene.server.fake.interaction(id).unwrap()["original"].clone();
            assert_eq!((&shown["id"], &shown["components"]), (&message, &json!([])), "{shown}");
            let text = shown["content"].as_str().unwrap();
            assert!(text.starts_with("Which?") && text.contains("Option 2"), "{text}");
            // Gateways answer with the id of the event, which is no message here.
            let answer = json!({ "op": "send", "chat_id": GENERAL.to_string(), "content": "done",
                "reply_to": format!("press-{id}") });
            let sent = ann.act(answer).await;
            assert_eq!(sent["success"], true, "{sent}");
        }
        assert_eq!((ann.unread().await, ben.unread().await), (0, 0));

        // The button of one agent is not a command to the agent of another user.
        let message = ask(&mut ann, 2).await;
        let press = json!({"kind": "button", "custom_id": "hp1:p1:o1", "message": number(&message)});
        let mut of_ben = press.clone();
        of_ben["from"] = json!(BEN);
        let (_, _, found) = scene.interact(of_ben).await;
        assert!(is_only_for_them(&found["answer"]), "{found}");
        assert_eq!((ann.unread().await, ben.unread().await), (0, 0));
        scene.harness.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn buttons_and_forms_of_others_are_forwarded_and_never_answer_a_prompt() {
    let scene = Scene::open(true).await;
    let mut ann = scene.agent(&scene.ann).await;
    let foreign = json!({ "content": "x", "components": [{ "type": 1, "components": [
        { "type": 2, "style": 1, "label": "A", "custom_id": "other:thing" },
        { "type": 2, "style": 1, "label": "B", "custom_id": "hp1:" }] }] });
    let path = format!("/channels/{GENERAL}/messages");
    let request = RestRequest::new("POST", &path, TOKEN, foreign);
    let sent = scene.server.fake.handle(scene.harness.app.desk.env().now_ms(), &request);
    let message = number(&sent.body["id"]);
    let press = |custom_id: &str| json!({"kind": "button", "from": ANN, "custom_id": custom_id, "message": message});
    let (id, _, found) = scene.interact(press("other:thing")).await;
    assert_eq!(found["answer"], json!({"type": 6}), "{found}");
    let body = body_of(&ann.of("passthrough_forward").await);
    assert_eq!((&body["type"], &body["data"]["custom_id"]), (&json!(3), &json!("other:thing")));
    assert_eq!((&body["message"]["id"], &body["id"]), (&json!(message.to_string()), &json!(id.to_string())));
    let result = ann.follow_up(&session_of(ANN), KIND, "seen").await.json["result"].clone();
    assert_eq!(result["success"], true, "{result}");
    let seen = scene.server.fake.interaction(id).unwrap();
    assert_eq!((&seen["original"]["content"], &seen["follow_ups"][0]["content"]), (&json!("x"), &json!("seen")));
    let (_, _, found) = scene.interact(press("hp1:")).await;
    assert!(is_only_for_them(&found["answer"]), "it looks like a prompt and is none: {found}");
    assert_eq!(ann.unread().await, 0);
    let form = json!({"kind": "modal", "from": ANN, "custom_id": "form", "fields": [["name", "Grüße"]]});
    let (_, _, found) = scene.interact(form).await;
    assert_eq!(found["answer"], json!({"type": 5}), "{found}");
    let body = body_of(&ann.of("passthrough_forward").await);
    assert_eq!(body["data"]["components"][0]["components"][0]["value"], "Grüße");
    assert_eq!(ann.unread().await, 0);
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_as_a_command_stops_the_turn_and_says_so() {
    let scene = Scene::open(true).await;
    let mut ann = scene.agent(&scene.ann).await;
    scene.command(ANN, "weather", json!([])).await;
    let frame = ann.of("passthrough_forward").await;
    ann.ack(&frame).await;
    let (_, _, found) = scene.command(ANN, "stop", json!([])).await;
    assert!(is_only_for_them(&found["answer"]), "no answer that never ends: {found}");
    let interrupt = ann.of("interrupt_inbound").await;
    assert_eq!(interrupt.json["chat_id"], GENERAL.to_string());
    assert_eq!(ann.unread().await, 0);
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_without_forwards_get_commands_as_messages() {
    let env: Arc<dyn Env> = Arc::new(SystemEnv);
    let scene = Scene::under(env, true, |config| {
        let settings = toml::Table::from_iter([("commands".to_owned(), "event".into())]);
        config.platform.insert("discord".into(), settings.into());
    })
    .await;
    let mut ann = scene.agent(&scene.ann).await;
    let (id, token, found) = scene.command(ANN, "weather", json!([{"name": "city", "type": 3, "value": "Oslo"}])).await;
    assert_eq!(found["answer"], json!({"type": 5}), "{found}");
    let frame = ann.event().await;
    let event = &frame.json["event"];
    assert_eq!((&event["text"], &event["message_type"]), (&json!("/weather Oslo"), &json!("command")));
    assert_eq!((&event["message_id"], frame.json.to_string().contains(&token)), (&json!(id.to_string()), false));
    let key = format!("agent:main:discord:group:{GENERAL}:{ANN}");
    assert_eq!(ann.follow_up(&key, KIND, "Rain.").await.json["result"]["success"], true);
    assert_eq!(scene.server.fake.interaction(id).unwrap()["original"]["content"], "Rain.");
    scene.harness.finish().await;
}

/// The agent connects and offers these commands.
async fn offering(harness: &Harness, account: &GatewayAccount, manifest: Value) -> Socket {
    let mut socket = harness.dial(&account.bearer()).await;
    let hello = json!({"type": "hello", "platform": "discord", "botId": "dc", "command_manifest": manifest});
    socket.frame(&hello).await;
    socket.of("descriptor").await;
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_declared_once_and_conflicts_are_told() {
    let clock = Arc::new(TestEnv::default());
    clock.set_ms(SystemEnv.now_ms());
    let scene = Scene::at(clock.clone(), true).await;
    let manifest = |text: &str| {
        let options = json!([{"name": "city", "type": 3, "description": "Where", "required": true}]);
        json!([{"name": "weather", "description": text, "options": options}, {"name": "ask", "description": "Ask"}])
    };
    let (asked, written) = ("GET applications/:id/commands", "PUT applications/:id/commands");
    // The list is declared when it has stayed the same for a while. Not faster: the lease of the server is renewed in real
    // time.
    let pass_time = async || {
        clock.advance_ms(500);
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    };
    let has = |name: &str| scene.server.fake.commands(BOT, 0).into_iter().find(|it| it["name"] == name);
    scene.registered("foreign");
    let ann = offering(&scene.harness, &scene.ann, manifest("The weather")).await;
    let waiting = async {
        while has("weather").is_none() {
            pass_time().await;
        }
    };
    let calls = || format!("{:?}", scene.server.fake.calls_after(0));
    timeout(TIME_LIMIT, waiting).await.unwrap_or_else(|_| panic!("the command was not declared: {}", calls()));
    assert!(has("foreign").is_none(), "the list is that of the agents");
    let writes = scene.calls(written);
    let weather = has("weather").unwrap();
    assert_eq!((&weather["description"], &weather["options"][0]["required"]), (&json!("The weather"), &json!(true)));
    assert_eq!(
        (&has("link").unwrap()["contexts"], &has("link").unwrap()["options"][0]["name"]),
        (&json!([1]), &json!("code"))
    );

    // The same list after a restart: it is asked for, and not written.
    drop(ann);
    let asks = scene.calls(asked);
    let Scene { harness, server, ann: account, ben } = scene;
    let harness = Harness::by(clock.clone(), harness.finish().await, |_| {}).await;
    let scene = Scene { harness, server, ann: account, ben };
    let waiting = async {
        while scene.calls(asked) <= asks {
            pass_time().await;
        }
    };
    timeout(TIME_LIMIT, waiting).await.expect("the list was not compared");
    assert_eq!(scene.calls(written), writes, "nothing changed");

    // Another agent gives the name another meaning.
    let _ben = offering(&scene.harness, &scene.ben, manifest("Storms")).await;
    let finding = timeout(TIME_LIMIT, async {
        loop {
            let found = scene.harness.admin("GET", "/bots/discord/dc/check", &Value::Null).await.expect(200);
            if let Some(text) = found["findings"].as_array().unwrap().iter().find(|it| it["check"] == "commands") {
                return text["text"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    let finding = finding.await.expect("the conflict is not told");
    assert!(finding.contains("\"weather\"") && finding.contains("/ann") && finding.contains("/ben"), "{finding}");
    let doctor = scene.harness.admin("GET", "/doctor", &Value::Null).await.expect(200).to_string();
    assert!(doctor.contains(&serde_json::to_string(&finding).unwrap()[1..40]), "{doctor}");
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_somebody_else_stay_while_no_agent_offers_any() {
    let clock = Arc::new(TestEnv::default());
    clock.set_ms(SystemEnv.now_ms());
    let scene = Scene::at(clock.clone(), true).await;
    scene.registered("foreign");
    let has = |name: &str| scene.server.fake.commands(BOT, 0).into_iter().any(|it| it["name"] == name);
    let waiting = async {
        while !has("link") {
            clock.advance_ms(500);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    timeout(TIME_LIMIT, waiting).await.expect("the commands of the server were not declared");
    assert!(has("foreign"));
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_discord_refuses_is_written_without_options() {
    let clock = Arc::new(TestEnv::default());
    clock.set_ms(SystemEnv.now_ms());
    let scene = Scene::at(clock.clone(), true).await;
    scene.fault(
        "PUT applications/:id/commands",
        Fault::Status { status: 400, code: 50_035, message: "Invalid Form Body".into() },
    );
    let options = json!([{"name": "city", "type": 3, "description": "Where"}]);
    let manifest = json!([{"name": "weather", "description": "The weather", "options": options}]);
    let _ann = offering(&scene.harness, &scene.ann, manifest).await;
    let has = |name: &str| scene.server.fake.commands(BOT, 0).into_iter().find(|it| it["name"] == name);
    let waiting = async {
        while has("weather").is_none() {
            clock.advance_ms(500);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    timeout(TIME_LIMIT, waiting).await.expect("the command was not declared");
    assert!(has("weather").unwrap()["options"].as_array().is_none_or(Vec::is_empty));
    assert_eq!(scene.calls("PUT applications/:id/commands"), 2);
    scene.harness.finish().await;
}

/// Everything that the server of this process logs, at the finest level.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logged;

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_in_no_response_log_metric_or_file() {
    let builder = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false);
    builder.with_writer(|| Logged).init();
    for by_endpoint in [true, false] {
        let scene = Scene::open(by_endpoint).await;
        if !by_endpoint {
            scene.listening().await;
        }
        let mut tail = scene
            .harness
            .request("GET", "/admin/v1/events/stream")
            .bearer_auth(&scene.harness.admin)
            .send()
            .await
            .unwrap();
        let mut ann = scene.agent(&scene.ann).await;
        let plain = "oslo-in-plain";
        let (_, token, _) = scene.command(ANN, "weather", json!([{"name": "city", "type": 3, "value": plain}])).await;
        let frame = ann.of("passthrough_forward").await;
        // Lost, refused and answered in a strange way: each has an error text with a reason.
        for fault in [
            Fault::DropBefore,
            Fault::Cut,
            Fault::BadGateway,
            Fault::Status { status: 400, code: 50_035, message: format!("Invalid: webhooks/{token}") },
        ] {
            scene.fault("GET webhooks/:id/:token/messages/@original", fault);
            let result = ann.follow_up(&session_of(ANN), KIND, "x").await.json["result"].clone();
            assert_eq!(result["success"], false, "{result}");
        }
        scene.fault("PATCH webhooks/:id/:token/messages/@original", Fault::DropAfter);
        assert_eq!(ann.follow_up(&session_of(ANN), KIND, "x").await.json["result"]["ambiguous"], true);
        assert_eq!(ann.follow_up(&session_of(ANN), KIND, plain).await.json["result"]["success"], true);
        scene.harness.follow(&mut tail, &["accepted", "follow_up: delivered"]).await;
        drop(tail);
        for row in scene.harness.mail(&scene.ann).await {
            let (mail, event) = (row["id"].as_str().unwrap(), row["event_id"].as_str().unwrap());
            scene.harness.admin("GET", &format!("/mail/{mail}"), &Value::Null).await.expect(200);
            scene.harness.admin("GET", &format!("/events/{event}/explain"), &Value::Null).await.expect(200);
        }
        for path in ["/journal", "/instances", "/bots", "/bots/discord/dc/check", "/doctor"] {
            scene.harness.admin("GET", path, &Value::Null).await.expect(200);
        }
        assert_eq!(scene.harness.get("/metrics", "").await.status, 200);
        let body = body_of(&frame).to_string();
        assert!(body.contains(plain) && !body.contains(&token), "{body}");
        let received = scene.harness.received.lock().unwrap().clone();
        assert!(holds(&received, "passthrough_forward") && !holds(&received, &token), "the token is in a response");
        assert!(!LOG.lock().unwrap().is_empty() && !holds(&LOG.lock().unwrap(), &token), "the token was logged");
        let folder = scene.harness.finish().await;
        let files = files(folder.path());
        assert!(files.iter().any(|(_, bytes)| holds(bytes, "discord.interaction_token")), "no file was checked");
        assert!(files.iter().all(|(_, bytes)| !holds(bytes, &token)), "the token is in a file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_after_a_follow_up_or_after_15_minutes_is_one_of_its_own() {
    let clock = Arc::new(TestEnv::default());
    clock.set_ms(SystemEnv.now_ms());
    let scene = Scene::at(clock.clone(), true).await;
    let mut ann = scene.agent(&scene.ann).await;
    let send = |text: &str| json!({"op": "send", "chat_id": GENERAL.to_string(), "content": text});
    let (id, _, _) = scene.command(ANN, "weather", json!([])).await;
    assert_eq!(ann.follow_up(&session_of(ANN), KIND, "first").await.json["result"]["success"], true);
    assert_eq!(ann.act(send("plain")).await["success"], true);
    let seen = scene.server.fake.interaction(id).unwrap();
    assert_eq!((&seen["original"]["content"], &seen["follow_ups"]), (&json!("first"), &json!([])));
    scene.command(ANN, "weather", json!([])).await;
    scene.harness.pass(&clock, 901_000).await;
    let mut ann = scene.agent(&scene.ann).await;
    assert_eq!(ann.act(send("late, but said")).await["success"], true);
    assert_eq!(scene.server.fake.newest(GENERAL).unwrap()["content"], "late, but said");
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_thread_every_gateway_version_finds_its_session() {
    let scene = Scene::open(true).await;
    let mut ann = scene.agent(&scene.ann).await;
    let thread = scene.act(json!({"act": "open_thread", "channel": GENERAL, "from": ANN, "name": "plans"}));
    let thread = number(&thread["id"]);
    scene.registered("weather");
    let in_thread = json!({"kind": "command", "from": ANN, "name": "weather", "channel": thread});
    let (id, _, found) = scene.interact(in_thread).await;
    assert_eq!(found["answer"], json!({"type": 5}), "{found}");
    let body = body_of(&ann.of("passthrough_forward").await);
    assert_eq!((&body["channel"]["type"], &body["channel"]["parent_id"]), (&json!(11), &json!(GENERAL.to_string())));
    for (key, text) in [
        (format!("agent:main:relay:channel:{thread}:{ANN}"), "0.18 and 0.19"),
        (format!("agent:main:discord:group:{thread}:{ANN}"), "the first ones after them"),
        (format!("agent:main:discord:thread:{thread}:{thread}"), "the newest"),
    ] {
        let result = ann.follow_up(&key, KIND, text).await.json["result"].clone();
        assert_eq!(result["success"], true, "{key}: {result}");
    }
    assert_eq!(scene.server.fake.interaction(id).unwrap()["follow_ups"].as_array().unwrap().len(), 2);

    // A limit that a look-up runs into is waited for like any other.
    let metadata = json!({"thread_id": thread.to_string()});
    let send = json!({"op": "send", "chat_id": GENERAL.to_string(), "content": "here", "metadata": metadata});
    scene.command(ANN, "weather", json!([])).await;
    scene.fault("GET channels/:id", Fault::RateLimited { retry_after_ms: 300, scope: Scope::default() });
    let sent = ann.act(send).await;
    assert_eq!(sent["success"], true, "{sent}");
    assert_eq!(scene.server.fake.newest(thread).unwrap()["content"], "here");
    scene.harness.finish().await;
}
