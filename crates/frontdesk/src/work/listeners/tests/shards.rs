//! Two desks share the shards of one Discord bot, and one of them fails. With the clock of the machine, because the
//! sockets are real.

use frontdesk_core::Env as _;
use frontdesk_platforms::discord::Discord;
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_testkit::fakes::discord::{Direct, FakeDiscord, GatewaySettings, Limits, Server};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::*;
use crate::env::SystemEnv;
use crate::work::keep_lease;

const TOKEN: &str = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-the-first-bot-of-the-fake-x";
const BOT: u64 = 1_100_000_000_000_000_001;
const ANN: u64 = 1_100_000_000_000_000_011;
const GUILD: u64 = 1_100_000_000_000_000_100;
const GENERAL: u64 = 1_100_000_000_000_000_101;
const SHARDS: u64 = 4;
const TIME_LIMIT: Duration = Duration::from_secs(30);

struct OneDesk {
    desk: Arc<Desk>,
    stop: CancellationToken,
    lease: AbortHandle,
}

impl OneDesk {
    async fn open(store: &Arc<dyn Store>, fake: &FakeDiscord) -> Self {
        let env = Arc::new(SystemEnv);
        let outcall = Arc::new(Direct { fake: fake.clone(), env: env.clone(), latency: Duration::ZERO });
        let (media, public_url, settings) = (Arc::new(NoMedia), String::new(), toml::Table::new());
        let kit = Kit { env: env.clone(), outcall: outcall.clone(), media, public_url, settings };
        let platforms: Vec<Arc<dyn Platform>> = vec![Arc::new(Discord::new(&kit))];
        let sealer = Sealer::new(Zeroizing::new([1; 32]));
        let parts = Parts { platforms, ..Parts::new(env, sealer, outcall, Rules::default()) };
        let desk = Arc::new(Desk::open(store.clone(), parts).await.unwrap());
        let keeping = desk.clone();
        let lease = tokio::spawn(async move { match keep_lease(&keeping).await {} }).abort_handle();
        Self { desk, stop: CancellationToken::new(), lease }
    }

    fn listen(&self) {
        let tracker = TaskTracker::new();
        tracker.spawn(listen(self.desk.clone(), tracker.clone(), self.stop.clone()));
    }

    /// As if its process was killed: its sockets end, its lease runs out, and it gives nothing up.
    fn die(&self) {
        self.lease.abort();
        self.stop.cancel();
    }

    /// Its shards.
    async fn parts(&self) -> Vec<String> {
        let desks = self.desk.lease().desks().await.unwrap();
        let mine = desks.into_iter().find(|(record, _)| record.number == self.desk.lease().me());
        let duties = mine.map_or_else(Vec::new, |(_, duties)| duties);
        duties.into_iter().filter(|duty| duty.contains('/')).collect()
    }
}

struct Shared {
    server: Server,
    said: u64,
}

impl Shared {
    fn act(&self, act: Value) {
        let text = act.to_string();
        let now_ms = SystemEnv.now_ms();
        let done = self.server.fake.act(now_ms, serde_json::from_value(act).unwrap());
        done.unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    /// Messages in a guild of each shard, and a direct one.
    fn say(&mut self) {
        for place in 0..=SHARDS {
            self.said += 1;
            let mut say = json!({"act": "say", "from": ANN, "text": format!("<@{BOT}> {}", self.said)});
            match place {
                SHARDS => say["bot"] = json!(BOT),
                shard => say["channel"] = json!(GENERAL + (shard << 22)),
            }
            self.act(say);
        }
    }

    fn connects(&self, how: &str) -> usize {
        self.server.fake.calls_after(0).iter().filter(|call| call.method == how).count()
    }

    async fn connected(&self, how: &str, count: usize) {
        let is_there = |_: &FakeDiscord| (self.connects(how) >= count).then_some(());
        tokio::time::timeout(TIME_LIMIT, self.server.fake.wait_for(is_there)).await.unwrap();
    }
}

/// Until all of them are in the ledger, each once.
async fn received(desk: &Desk, count: u64) {
    let no = desk.directory().find_instance(&"g".into(), None).unwrap().no;
    let all = async {
        loop {
            let rows = desk.stores().ledger.pending(no, Seq(0), 999).await.unwrap();
            let text = |json: &str| serde_json::from_str::<Value>(json).unwrap()["text"].as_str().unwrap().to_owned();
            let mut texts: Vec<u64> = rows.iter().map(|(_, row)| text(&row.json).parse().unwrap()).collect();
            texts.sort_unstable();
            if texts.len() as u64 >= count {
                return texts;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let texts = tokio::time::timeout(TIME_LIMIT, all).await.expect("not all was received");
    assert_eq!(texts, (1..=count).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_doubled_when_one_of_two_desks_with_shards_is_gone() {
    let fake = FakeDiscord::new();
    fake.set_limits(Limits::off());
    let settings = GatewaySettings { identify_every_ms: 0, max_concurrency: 0, shards: SHARDS, ..Default::default() };
    fake.set_gateway(settings);
    let mut shared = Shared { server: fake.clone().serve().await.unwrap(), said: 0 };
    shared.act(json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk"}));
    shared.act(json!({"act": "add_user", "id": ANN, "username": "ann"}));
    for shard in 0..SHARDS {
        let step = shard << 22; // on the next shard
        shared.act(json!({"act": "add_guild", "id": GUILD + step, "name": "Guild", "owner": ANN,
            "members": [{"user": BOT}, {"user": ANN}], "channels": [{"id": GENERAL + step, "name": "general"}]}));
    }
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
    let one = OneDesk::open(&store, &fake).await;
    let directory = one.desk.directory();
    directory.create_tenant(&"home".into()).await.unwrap();
    let gateway = GatewayNew { id: "g".into(), tenant: "home".into(), instance: None, wake_url: None };
    directory.add_gateway(gateway).await.unwrap();
    let [platform, user_id, tenant, instance] = ["discord", &ANN.to_string(), "home", "g"].map(str::to_owned);
    directory
        .bind(BindingNew { platform, user_id: user_id.into(), tenant: tenant.into(), instance: instance.into() })
        .await
        .unwrap();
    let urls = [("base_url", &shared.server.base_url), ("gateway_url", &shared.server.gateway_url)];
    let settings = urls.map(|(name, url)| (name.to_owned(), url.clone())).into();
    let secrets = [("token".to_owned(), TOKEN.to_owned())].into();
    let bot = BotNew { platform: "discord".into(), id: "dc".into(), tenant: Some("home".into()), settings, secrets };
    directory.bots().add(bot).await.unwrap();
    let other = OneDesk::open(&store, &fake).await;
    one.desk.lease().renew().await.unwrap(); // it knows the other one
    one.listen();
    other.listen();
    shared.connected("gateway identify", 4).await;
    let moved = other.parts().await.len();
    assert!(moved > 0 && one.parts().await.len() + moved == 4, "{moved}");
    shared.say();
    received(&one.desk, shared.said).await;

    other.die();
    shared.say();
    shared.connected("gateway resume", moved).await;
    shared.say();
    received(&one.desk, shared.said).await;
    assert_eq!((one.parts().await.len(), other.parts().await.len()), (4, 0));
    assert_eq!(
        (shared.connects("gateway identify"), shared.connects("gateway resume")),
        (4, moved),
        "no session was lost"
    );
    assert_eq!(metric(one.desk.meters(), "listener_gaps_total"), Some(0));
    one.die();
}
