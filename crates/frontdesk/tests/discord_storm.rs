//! Discord with many faults, in front of a whole server: sockets that fall silent, break or are closed, REST that
//! refuses and delays. Nothing that Discord still returns is lost, and nothing comes again after it was acknowledged.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use frontdesk::app::FIRST_TENANT;
use frontdesk_testkit::fakes::discord::{
    FakeDiscord, Fault, FaultRule, GatewaySettings, Limits, Scope, Server, SocketFault,
};
use harness::{GatewayAccount, Harness, Socket, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::time::timeout;

const TOKEN: &str = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-the-first-bot-of-the-fake-x";
const BOT: u64 = 1_100_000_000_000_000_001;
const ANN: u64 = 1_100_000_000_000_000_011;
const GUILD: u64 = 1_100_000_000_000_000_100;
const GENERAL: u64 = 1_100_000_000_000_000_101;
const SHARDS: u64 = 2;

/// A bot with two connections, before the agent of Ann.
struct Scene {
    harness: Harness,
    server: Server,
    ann: GatewayAccount,
    said: usize,
}

impl Scene {
    async fn open() -> Self {
        let fake = FakeDiscord::new();
        fake.set_limits(Limits::off());
        let settings = GatewaySettings {
            identify_every_ms: 0,
            max_concurrency: 0,
            shards: SHARDS,
            heartbeat_interval_ms: 400,
            ..GatewaySettings::default()
        };
        fake.set_gateway(settings);
        let server = fake.serve().await.unwrap();
        let harness = Harness::open().await;
        let ann = harness.add_gateway("ann").await;
        let scene = Self { harness, server, ann, said: 0 };
        scene.act(json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk"}));
        scene.act(json!({"act": "add_user", "id": ANN, "username": "ann"}));
        for shard in 0..SHARDS {
            let step = shard << 22; // on the next shard
            scene.act(json!({"act": "add_guild", "id": GUILD + step, "name": "Guild", "owner": ANN,
                "members": [{"user": BOT}, {"user": ANN}], "channels": [{"id": GENERAL + step, "name": "general"}]}));
        }
        let link =
            json!({ "tenant": FIRST_TENANT, "platform": "discord", "user_id": ANN.to_string(), "instance": "ann" });
        scene.harness.admin("POST", "/bindings", &link).await.expect(201);
        let settings = json!({ "base_url": scene.server.base_url, "gateway_url": scene.server.gateway_url });
        let bot = json!({ "platform": "discord", "id": "dc", "tenant": FIRST_TENANT, "settings": settings,
            "secrets": { "token": TOKEN } });
        scene.harness.admin("POST", "/bots", &bot).await.expect(201);
        scene
    }

    fn act(&self, act: Value) -> Value {
        let text = act.to_string();
        let now_ms = self.harness.app.desk.env().now_ms();
        let done = self.server.fake.act(now_ms, serde_json::from_value(act).unwrap());
        done.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// In a guild of each shard, and directly. Returns the texts.
    fn say(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        for place in 0..=SHARDS {
            let text = format!("message {}", self.said);
            let mut say = json!({"act": "say", "from": ANN, "text": format!("<@{BOT}> {text}")});
            match place {
                SHARDS => say["bot"] = json!(BOT),
                shard => say["channel"] = json!(GENERAL + (shard << 22)),
            }
            self.act(say);
            self.said += 1;
            texts.push(text);
        }
        texts
    }

    fn last_call(&self) -> u64 {
        self.server.fake.calls_after(0).last().map_or(0, |call| call.number)
    }

    async fn connected(&self, after: u64, count: u64) {
        let is_there = |fake: &FakeDiscord| {
            let calls = fake.calls_after(after).into_iter();
            let connects = calls.filter(|it| matches!(it.method.as_str(), "gateway identify" | "gateway resume"));
            (connects.count() as u64 >= count).then_some(())
        };
        timeout(TIME_LIMIT, self.server.fake.wait_for(is_there)).await.expect("the bot does not connect");
    }
}

/// Each of them comes, in any order, and is acknowledged.
async fn receive(agent: &mut Socket, wanted: &[String]) {
    let mut seen = Vec::new();
    for _ in wanted {
        let frame = agent.event().await;
        seen.push(frame.text().to_owned());
        agent.ack(&frame).await;
    }
    seen.sort();
    let mut wanted = wanted.to_vec();
    wanted.sort();
    assert_eq!(seen, wanted);
}

/// For the next calls. What is left from before is enough: who sees a channel must become known within three seconds.
fn rest_storm(fake: &FakeDiscord) {
    if fake.faults_waiting() > 0 {
        return;
    }
    for fault in [
        Fault::RateLimited { retry_after_ms: 30, scope: Scope::Global },
        Fault::Slow { delay_ms: 150 },
        Fault::BadGateway,
        Fault::RateLimited { retry_after_ms: 20, scope: Scope::User },
    ] {
        fake.fault(FaultRule { method: "*".into(), fault, times: 1 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_comes_again() {
    let mut scene = Scene::open().await;
    let mut agent = scene.harness.dial(&scene.ann.bearer()).await;
    agent.hello("discord", "dc").await;
    scene.connected(0, SHARDS).await;
    let wanted = scene.say();
    receive(&mut agent, &wanted).await;
    for (fault, reconnects) in [
        (SocketFault::WithholdAcks { count: 4 }, true),
        (SocketFault::Cut, true),
        (SocketFault::SkipSequence, false),
        (SocketFault::Reconnect, true),
        (SocketFault::CutShard { shard: 1 }, true),
        (SocketFault::Duplicate { count: 3 }, false),
        (SocketFault::InvalidSession { resumable: true }, true),
        (SocketFault::CutAfter { dispatches: 1 }, true),
        (SocketFault::InvalidSession { resumable: false }, true),
        (SocketFault::Close { code: 4009 }, true),
        (SocketFault::Delay { ms: 200 }, false),
        (SocketFault::RefuseConnects { count: 1 }, false),
        (SocketFault::Close { code: 4000 }, true),
    ] {
        let before = scene.last_call();
        rest_storm(&scene.server.fake);
        scene.server.fake.socket_fault(BOT, &fault);
        let mut wanted = scene.say();
        if reconnects {
            scene.connected(before, 1).await;
        }
        wanted.extend(scene.say());
        receive(&mut agent, &wanted).await;
    }
    assert_eq!(agent.unread().await, 0);

    // The server stops and comes again, once with its sessions and once without.
    for forgets in [false, true] {
        agent.hang_up().await;
        let Scene { harness, server, ann, said } = scene;
        let folder = harness.finish().await;
        if forgets {
            server.fake.socket_fault(BOT, &SocketFault::ForgetSessions);
        }
        scene = Scene { harness: Harness::again(folder, |_| {}).await, server, ann, said };
        let wanted = scene.say();
        agent = scene.harness.dial(&scene.ann.bearer()).await;
        agent.hello("discord", "dc").await;
        receive(&mut agent, &wanted).await;
        assert_eq!(agent.unread().await, 0);
    }
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_without_session_starts_says_when_it_goes_on() {
    let scene = Scene::open().await;
    scene.connected(0, SHARDS).await;
    let settings =
        GatewaySettings { session_starts: 0, shards: SHARDS, max_concurrency: 0, ..GatewaySettings::default() };
    scene.server.fake.set_gateway(settings);
    scene.server.fake.socket_fault(BOT, &SocketFault::InvalidSession { resumable: false });
    let listed = timeout(TIME_LIMIT, async {
        loop {
            let bots = scene.harness.admin("GET", "/bots", &Value::Null).await.expect(200).to_string();
            if bots.contains("no further session") {
                return bots;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    assert!(listed.await.expect("the reason is not listed").contains("is reset in 1440 min"));
    scene.harness.finish().await;
}
