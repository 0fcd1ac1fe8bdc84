//! Slack end to end: a whole server in front of a fake of Slack. The fake itself is judged by Slack's client library
//! (tests/vendors/slack.py).
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

#[path = "../harness/mod.rs"]
mod harness;

mod acting;
mod inbound;
mod install;
mod interactions;

use frontdesk::app::FIRST_TENANT;
use frontdesk_testkit::fakes::slack::{FakeSlack, Server, signature};
use harness::{GatewayAccount, Harness, Reply, Socket, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::time::timeout;

const TOKEN: &str = "xoxb-1001-2001-aaaaaaaaaaaaaaaaaaaaaaaa";
const SECOND_TOKEN: &str = "xoxb-1002-2002-bbbbbbbbbbbbbbbbbbbbbbbb";
const APP_TOKEN: &str = "xapp-1-A1-3001-cccccccccccccccccccccccc";
const SIGNING: &str = "8f742231b10e8888abcd99dddddd85a5";
const CLIENT_SECRET: &str = "the-client-secret-of-the-app";

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
        scene.add_bot(json!({ "mode": "socket" }), Some(FIRST_TENANT)).await;
        scene.until("a socket", |scene| (scene.server.fake.sockets() == 1).then_some(())).await;
        scene
    }

    async fn by_requests() -> Self {
        let scene = Self::without_bot("sl").await;
        scene.add_bot(json!({ "mode": "events" }), Some(FIRST_TENANT)).await;
        scene
    }

    /// With the id of a bot Slack calls the server, without one it waits for sockets.
    async fn without_bot(requests_to: &str) -> Self {
        let server = FakeSlack::new().serve().await.unwrap();
        let harness = Harness::open().await;
        let (ann, ben) = (harness.add_gateway("ann").await, harness.add_gateway("ben").await);
        let url = if requests_to.is_empty() { String::new() } else { format!("{}/slack/{requests_to}", harness.url) };
        let scene = Self { harness, server, ann, ben };
        scene.act(json!({"act": "set_app", "id": "A1", "app_token": APP_TOKEN, "signing_secret": SIGNING,
            "client_id": "11.22", "client_secret": CLIENT_SECRET, "request_url": url}));
        scene.act(json!({"act": "add_team", "id": "T1", "token": TOKEN, "bot_user": "UBOT", "installed": true}));
        scene.act(json!({"act": "add_team", "id": "T2", "token": SECOND_TOKEN, "bot_user": "UBOT2"}));
        for (id, team, name) in
            [("UANN", "T1", "Ann"), ("UBEN", "T1", "Ben"), ("UEVE", "T1", "Eve"), ("UZOE", "T2", "Zoe")]
        {
            let shown = format!("{name} B");
            scene.act(json!({"act": "add_user", "id": id, "team": team, "name": name, "display_name": shown}));
        }
        for (id, team, kind, members) in [
            ("C1", "T1", "channel", json!(["UBOT", "UANN", "UBEN", "UEVE"])),
            ("C3", "T1", "channel", json!(["UANN"])),
            ("D1", "T1", "im", json!(["UBOT", "UANN"])),
            ("G1", "T1", "mpim", json!(["UBOT", "UANN", "UBEN"])),
            ("C2", "T2", "channel", json!(["UBOT2", "UZOE"])),
        ] {
            let name = format!("name-of-{}", id.to_lowercase());
            scene.act(
                json!({"act": "add_channel", "id": id, "team": team, "name": name, "kind": kind, "members": members}),
            );
        }
        scene.link("UANN", "ann").await;
        scene.link("UBEN", "ben").await;
        scene
    }

    async fn add_bot(&self, settings: Value, tenant: Option<&str>) {
        let mut all = json!({ "base_url": self.server.base_url });
        for (name, value) in settings.as_object().unwrap() {
            all[name] = value.clone();
        }
        let mut secrets = json!({ "app_token": APP_TOKEN, "signing_secret": SIGNING });
        match all.get("client_id") {
            None => secrets["bot_token"] = TOKEN.into(),
            Some(_) => secrets["client_secret"] = CLIENT_SECRET.into(),
        }
        let mut ask = json!({ "platform": "slack", "id": "sl", "settings": all, "secrets": secrets });
        if let Some(tenant) = tenant {
            ask["tenant"] = tenant.into();
        }
        self.harness.admin("POST", "/bots", &ask).await.expect(201);
    }

    async fn link(&self, user: &str, instance: &str) {
        let link = json!({ "tenant": FIRST_TENANT, "platform": "slack", "user_id": user, "instance": instance });
        self.harness.admin("POST", "/bindings", &link).await.expect(201);
    }

    /// What a person does.
    fn act(&self, act: Value) -> Value {
        let text = act.to_string();
        let now_ms = self.harness.app.desk.env().now_ms();
        let done = self.server.fake.act(now_ms, serde_json::from_value(act).unwrap());
        done.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn say(&self, channel: &str, from: &str, text: &str) -> Value {
        self.act(json!({"act": "say", "channel": channel, "from": from, "text": text}))
    }

    async fn agent(&self) -> Socket {
        self.agent_of(&self.ann).await
    }

    async fn agent_of(&self, account: &GatewayAccount) -> Socket {
        let mut socket = self.harness.dial(&account.bearer()).await;
        let descriptor = socket.hello("slack", "sl").await;
        assert_eq!((&descriptor["max_message_length"], &descriptor["len_unit"]), (&json!(39_000), &json!("chars")));
        socket
    }

    /// Waits until the fake shows what is looked for.
    async fn until<T>(&self, what: &str, mut probe: impl FnMut(&Self) -> Option<T>) -> T {
        let found = self.server.fake.wait_for(|_| probe(self));
        timeout(TIME_LIMIT, found).await.unwrap_or_else(|_| panic!("not seen: {what}"))
    }

    /// What Slack got in return for something that it told.
    async fn answer_to(&self, id: &Value) -> Value {
        let find = |scene: &Self| scene.server.fake.deliveries().into_iter().find(|it| it["id"] == *id);
        self.until("an answer", find).await
    }

    fn calls(&self, method: &str) -> Vec<Value> {
        let calls = self.server.fake.calls_after(0);
        calls.iter().filter(|call| call.method == method).map(|call| json!(call)).collect()
    }

    /// A signed request to one of the doors.
    async fn post(&self, door: &str, body: &str, headers: &[(&str, &str)]) -> Reply {
        let stamp_s = self.harness.app.desk.env().now_ms() / 1_000;
        let mut request = self.harness.request("POST", &format!("/slack/sl/{door}"));
        request = request.header("x-slack-request-timestamp", stamp_s.to_string());
        request = request.header("x-slack-signature", signature(SIGNING, stamp_s, body.as_bytes()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.harness.send(request.body(body.to_owned())).await
    }

    /// Ends the scene; no request contained a secret.
    async fn finish(self) {
        let received = String::from_utf8_lossy(&self.harness.received.lock().unwrap()).into_owned();
        for secret in [TOKEN, SECOND_TOKEN, APP_TOKEN, SIGNING, CLIENT_SECRET] {
            assert!(!received.contains(secret), "a secret was sent out");
        }
        self.harness.finish().await;
    }
}

fn send(channel: &str, content: &str, thread: Option<&str>) -> Value {
    json!({ "op": "send", "chat_id": channel, "content": content, "metadata": { "thread_id": thread, "scope_id": "T1" } })
}
