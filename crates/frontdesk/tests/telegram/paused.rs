//! Core, scheduler and adapter in front of the fake on a paused clock: hours pass in seconds, without sockets.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::directory::{Caller, Identity};
use frontdesk_core::port::platform::{Bot, ListenEnd, Part, Platform};
use frontdesk_core::port::store::Ledger as _;
use frontdesk_core::vault::Sealer;
use frontdesk_core::{Desk, Env, Parts, Rules};
use frontdesk_platforms::telegram::Telegram;
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::fakes::telegram::{Direct, FakeTelegram};
use frontdesk_wire::api::{BindingNew, BotNew, ProvisionRequest, RouteNew};
use frontdesk_wire::{Action, ActionResult, BotId, Secret, Seq, token};
use serde_json::{Value, json};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::{BOT, TOKEN};

const BOT_ID: &str = "tg";
pub(crate) const LATENCY: Duration = Duration::from_millis(40);

/// The clock of the runtime, from the start of `TestEnv`.
struct PausedClock {
    began: Instant,
    dice: TestEnv,
}

impl Env for PausedClock {
    fn now_ms(&self) -> u64 {
        TestEnv::START_MS + u64::try_from(self.began.elapsed().as_millis()).unwrap()
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.dice.fill(bytes);
    }
}

/// One shared bot. The loops of the server that wait and listen run beside it.
pub(crate) struct World {
    pub(crate) desk: Arc<Desk>,
    pub(crate) fake: FakeTelegram,
    store: Arc<MemoryStore>,
    telegram: Arc<Telegram>,
}

impl World {
    pub(crate) async fn open() -> Arc<Self> {
        let clock = PausedClock { began: Instant::now(), dice: TestEnv::default() };
        let (env, fake): (Arc<dyn Env>, FakeTelegram) = (Arc::new(clock), FakeTelegram::new());
        let outcall = Arc::new(Direct { fake: fake.clone(), env: env.clone(), latency: LATENCY });
        let kit = Kit {
            env: env.clone(),
            outcall: outcall.clone(),
            media: Arc::new(NoMedia),
            public_url: "https://desk.example".into(),
            settings: toml::Table::new(),
        };
        let (store, telegram) = (Arc::new(MemoryStore::new(7)), Arc::new(Telegram::new(&kit)));
        let sealer = Sealer::new(Zeroizing::new([7; 32]));
        let parts = Parts::new(env, sealer, outcall, Rules::default());
        let desk = Desk::open(store.clone(), Parts { platforms: vec![telegram.clone()], ..parts }).await.unwrap();
        let world = Arc::new(Self { desk: Arc::new(desk), fake, store, telegram });
        world.act(json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk_bot"}));
        let bot = BotNew {
            platform: "telegram".into(),
            id: BOT_ID.into(),
            tenant: None,
            settings: [("base_url".to_owned(), "http://telegram.example".to_owned())].into(),
            secrets: [("token".to_owned(), TOKEN.to_owned())].into(),
        };
        world.desk.directory().bots().add(bot).await.unwrap();
        let desk = world.desk.clone();
        tokio::spawn(async move {
            loop {
                let pause = desk.outbound().release_due().map_or(3_600_000, |at_ms| at_ms - desk.env().steady_ms());
                let _ = tokio::time::timeout(Duration::from_millis(pause.max(1)), desk.outbound().due_earlier()).await;
            }
        });
        let desk = world.desk.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                for again in desk.outbound().typing_due() {
                    desk.outbound().type_again(again).await;
                }
            }
        });
        world
    }

    pub(crate) fn act(&self, act: Value) -> Value {
        self.fake.act(self.desk.env().now_ms(), serde_json::from_value(act).unwrap()).unwrap()
    }

    /// A tenant with one agent of the same name.
    pub(crate) async fn tenant(&self, name: &str) -> Caller {
        self.desk.directory().create_tenant(&name.into()).await.unwrap();
        let ask = ProvisionRequest {
            gateway_id: name.into(),
            platform: "telegram".into(),
            bot_id: BOT_ID.into(),
            gateway_endpoint: None,
            route_keys: Vec::new(),
            instance_id: None,
            wake_url: None,
        };
        let who = Identity { tenant: name.into(), instance: None };
        let secret = Secret::new(self.desk.directory().provision(&who, ask).await.unwrap().secret);
        self.desk.directory().prove_gateway(&token::mint(name, &secret, 0)).unwrap()
    }

    /// A user who has begun a chat with the bot, and is linked to the tenant's agent.
    pub(crate) async fn person(&self, tenant: &str, user: i64) {
        self.act(json!({"act": "add_user", "id": user, "first_name": format!("U{user}")}));
        self.act(json!({"act": "say", "chat": user, "from": user, "text": "/start"}));
        let [platform, tenant, instance] = ["telegram", tenant, tenant].map(str::to_owned);
        let link =
            BindingNew { platform, user_id: user.to_string().into(), tenant: tenant.into(), instance: instance.into() };
        self.desk.directory().bind(link).await.unwrap();
    }

    pub(crate) async fn group(&self, tenant: &str, chat: i64, owner: i64) {
        let members = json!([[BOT, "administrator"], [owner, "creator"]]);
        self.act(json!({"act": "add_chat", "id": chat, "kind": "supergroup", "title": "g", "members": members}));
        let route = RouteNew { platform: "telegram".into(), key: chat.to_string(), tenant: tenant.into() };
        self.desk.directory().add_route(route).await.unwrap();
        self.act(json!({"act": "say", "chat": chat, "from": owner, "text": "@desk_bot hello"}));
    }

    pub(crate) async fn send(&self, caller: &Caller, action: Value) -> ActionResult {
        let action = Action::parse(&action.to_string()).unwrap();
        let identities = [("telegram".to_owned(), BOT_ID.into())];
        let now_ms = self.desk.env().steady_ms();
        self.desk.outbound().act(caller, &identities[0], &identities, action, now_ms).await
    }

    /// Polls until everything was taken, and begins again after each failure, as the server does.
    pub(crate) async fn listen_until_empty(&self) -> Vec<String> {
        let bot: Arc<Bot> = self.desk.directory().bots().bot("telegram", &BotId::from(BOT_ID));
        let inlet = self.desk.inbound().inlet("telegram", &bot);
        let mut failures = Vec::new();
        loop {
            let cursor = self.desk.inbound().cursor("telegram", &bot, Part::WHOLE).await.unwrap();
            let listening = self.telegram.listen(&bot, Part::WHOLE, cursor, &inlet);
            let all = self.fake.wait_for(|fake| (fake.updates_waiting(BOT) == 0).then_some(()));
            tokio::select! {
                ended = listening => match ended {
                    ListenEnd::Lost(why) => failures.push(why),
                    other => panic!("the listener ended: {other:?}"),
                },
                () = all => return failures,
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The texts that wait for an agent, in order.
    pub(crate) async fn mail(&self, caller: &Caller) -> Vec<String> {
        let (mut texts, mut after) = (Vec::new(), Seq(0));
        loop {
            let rows = self.store.pending(caller.instance.no, after, 500).await.unwrap();
            let Some((last, _)) = rows.last() else { return texts };
            after = *last;
            texts.extend(rows.iter().map(|(_, delivery)| {
                let event: Value = serde_json::from_str(&delivery.json).unwrap();
                event["text"].as_str().unwrap().to_owned()
            }));
        }
    }

    /// The text of the newest message of a chat.
    pub(crate) fn newest(&self, chat: i64) -> String {
        let message = self.fake.newest(BOT, chat).unwrap_or_default();
        message["text"].as_str().unwrap_or_default().to_owned()
    }
}
