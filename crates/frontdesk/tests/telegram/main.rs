//! Telegram end to end: a whole server in front of a fake of the Bot API. The fake itself is judged by Telegram's client
//! libraries (tests/vendors/telegram.py).
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

#[path = "../harness/mod.rs"]
mod harness;

mod day;
mod inbound;
mod outbound;
mod paused;
mod schema;
mod storm;
mod typing;
mod webhook;

use frontdesk::app::FIRST_TENANT;
use frontdesk_testkit::fakes::telegram::{FakeTelegram, Limits, Server};
use harness::{GatewayAccount, Harness, Socket, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::time::timeout;

const TOKEN: &str = "7001:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr";
const BOT: i64 = 7001;
const ANN: i64 = 501;
const BEN: i64 = 502;
const GROUP: i64 = -4001;
const FORUM: i64 = -1_001_000_000_001;

/// A desk with one bot, in front of the agent of Ann.
struct Scene {
    harness: Harness,
    server: Server,
    ann: GatewayAccount,
}

impl Scene {
    async fn open() -> Self {
        let scene = Self::without_bot().await;
        scene.add_bot(json!({})).await;
        scene
    }

    async fn without_bot() -> Self {
        let fake = FakeTelegram::new();
        fake.set_limits(Limits::off());
        let server = fake.serve().await.unwrap();
        let harness = Harness::open().await;
        let ann = harness.add_gateway("ann").await;
        let scene = Self { harness, server, ann };
        scene.act(json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk_bot"}));
        scene.act(json!({"act": "add_user", "id": ANN, "first_name": "Ann", "last_name": "B"}));
        scene.act(json!({"act": "add_user", "id": BEN, "first_name": "Ben"}));
        let members = json!([[BOT, "administrator"], [ANN, "creator"], [BEN, "member"]]);
        scene.act(json!({"act": "add_chat", "id": GROUP, "kind": "group", "title": "g", "members": members}));
        scene.act(json!({"act": "add_chat", "id": FORUM, "kind": "supergroup", "title": "f", "is_forum": true,
            "members": members}));
        scene.link(ANN, "ann").await;
        scene
    }

    async fn add_bot(&self, settings: Value) {
        let mut all = json!({ "base_url": self.server.base_url });
        for (name, value) in settings.as_object().unwrap() {
            all[name] = value.clone();
        }
        let secrets = json!({ "token": TOKEN, "webhook_secret": "a-secret-of-the-webhook" });
        let ask =
            json!({ "platform": "telegram", "id": "tg", "tenant": FIRST_TENANT, "settings": all, "secrets": secrets });
        self.harness.admin("POST", "/bots", &ask).await.expect(201);
    }

    async fn link(&self, user: i64, instance: &str) {
        let link = json!({ "tenant": FIRST_TENANT, "platform": "telegram", "user_id": user.to_string(), "instance": instance });
        self.harness.admin("POST", "/bindings", &link).await.expect(201);
    }

    /// What a person does.
    fn act(&self, act: Value) -> Value {
        let text = act.to_string();
        let now_ms = self.harness.app.desk.env().now_ms();
        let done = self.server.fake.act(now_ms, serde_json::from_value(act).unwrap());
        done.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn say(&self, chat: i64, from: i64, text: &str) -> Value {
        self.act(json!({"act": "say", "chat": chat, "from": from, "text": text}))
    }

    async fn agent(&self) -> Socket {
        let mut socket = self.harness.dial(&self.ann.bearer()).await;
        let descriptor = socket.hello("telegram", "tg").await;
        assert_eq!((&descriptor["max_message_length"], &descriptor["len_unit"]), (&json!(4096), &json!("utf16")));
        socket
    }

    /// The messages of a chat as people see them.
    fn messages(&self, chat: i64) -> Vec<Value> {
        let shown = self.server.fake.chat(BOT, chat).unwrap_or_default();
        shown["messages"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until the fake shows what is looked for.
    async fn until<T>(&self, what: &str, mut probe: impl FnMut(&Self) -> Option<T>) -> T {
        let found = self.server.fake.wait_for(|_| probe(self));
        timeout(TIME_LIMIT, found).await.unwrap_or_else(|_| panic!("not seen: {what}"))
    }

    /// Ends the scene; what was sent must be as the Bot API describes it.
    async fn finish(self) {
        schema::check(&self.server.fake.calls_after(0));
        self.harness.finish().await;
    }

    fn calls(&self, method: &str) -> usize {
        self.server.fake.calls_after(0).iter().filter(|call| call.method == method).count()
    }
}

fn send(chat: i64, content: &str) -> Value {
    json!({ "op": "send", "chat_id": chat.to_string(), "content": content })
}
