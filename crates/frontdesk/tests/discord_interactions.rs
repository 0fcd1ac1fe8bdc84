//! Interactions of Discord end to end: commands, buttons and menus by the signed endpoint and by the socket, answers with
//! the token that agents never see, and the list of commands.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk::app::FIRST_TENANT;
use frontdesk::config::Config;
use frontdesk::env::SystemEnv;
use frontdesk_core::Env;
use frontdesk_testkit::fakes::discord::{FakeDiscord, GatewaySettings, Limits, Server, public_key};
use harness::{Frame, GatewayAccount, Harness, PATIENCE, Socket};
use serde_json::{Value, json};
use tokio::time::timeout;

const KIND: &str = "discord.interaction_token";
const TOKEN: &str = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-the-first-bot-of-the-fake-x";
const BOT: u64 = 1_100_000_000_000_000_001;
const ANN: u64 = 1_100_000_000_000_000_011;
const BEN: u64 = 1_100_000_000_000_000_012;
const EVE: u64 = 1_100_000_000_000_000_013;
const GUILD: u64 = 1_100_000_000_000_000_100;
const GENERAL: u64 = 1_100_000_000_000_000_101;

fn preview(config: &mut Config) {
    let settings = toml::Table::from_iter([("preview".to_owned(), true.into())]);
    config.platform.insert("discord".into(), settings.into());
}

/// A desk with one bot in a guild, in front of the agents of Ann and Ben. Eve has none.
struct Scene {
    harness: Harness,
    server: Server,
    ann: GatewayAccount,
    #[allow(dead_code, reason = "used by further tests")]
    ben: GatewayAccount,
}

impl Scene {
    /// With the signed endpoint and without the socket, or the other way round.
    async fn open(by_endpoint: bool) -> Self {
        Self::at(Arc::new(SystemEnv), by_endpoint).await
    }

    async fn at(env: Arc<dyn Env>, by_endpoint: bool) -> Self {
        let harness = Harness::by(env.clone(), tempfile::tempdir().unwrap(), preview).await;
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
        let request = frontdesk_testkit::fakes::discord::RestRequest::new(
            "POST",
            &format!("/applications/{BOT}/commands"),
            TOKEN,
            body,
        );
        self.server.fake.handle(self.harness.app.desk.env().now_ms(), &request);
    }

    async fn agent(&self, account: &GatewayAccount) -> Socket {
        let mut socket = self.harness.dial(&account.bearer()).await;
        socket.hello("discord", "dc").await;
        socket
    }

    /// Somebody does something; returns its id, token, and what became of it.
    async fn interact(&self, fields: Value) -> (u64, String, Value) {
        let mut act = json!({"act": "interact", "bot": BOT, "channel": GENERAL});
        act.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let made = self.act(act);
        let id = number(&made["id"]);
        let is_answered = |it: &Value| !it["answer"].is_null() || !it["endpoint"].is_null();
        let answered = self.server.fake.wait_for(|fake| fake.interaction(id).filter(is_answered));
        let found = timeout(PATIENCE, answered).await.expect("the interaction was not answered");
        (id, made["token"].as_str().unwrap().to_owned(), found)
    }

    async fn command(&self, from: u64, name: &str, options: Value) -> (u64, String, Value) {
        self.registered(name);
        self.interact(json!({"kind": "command", "from": from, "name": name, "options": options})).await
    }

    /// Waits until the bot listens.
    async fn listening(&self) {
        let is_there =
            |fake: &FakeDiscord| fake.calls_after(0).iter().any(|call| call.method == "gateway identify").then_some(());
        timeout(PATIENCE, self.server.fake.wait_for(is_there)).await.expect("the bot does not listen");
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
