//! Lists of commands follow the agents and the bots, are retried, and are declared by one desk.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use frontdesk_core::delivery::session::Session;
use frontdesk_core::directory::{Fact, Identity};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Acted, ActingAs, Bot, Command, Look, LookFault};
use frontdesk_core::port::store::Store;
use frontdesk_core::vault::Sealer;
use frontdesk_core::{Parts, Rules};
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::NoWay;
use frontdesk_wire::api::{BotNew, ProvisionRequest};
use frontdesk_wire::{Action, ActionResult, ChatId, Descriptor, Secret, TenantId, UserId, token};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::*;

/// A platform that keeps the lists that it is given.
struct Listed {
    descriptor: Descriptor,
    /// (bot, its token, names of the commands) of every call.
    calls: Mutex<Vec<(String, String, Vec<String>)>>,
    fails: AtomicBool,
    panics: AtomicBool,
    hangs: AtomicBool,
}

impl Listed {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            descriptor: Descriptor::plain("listed", "Listed", 100),
            calls: Mutex::default(),
            fails: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
        })
    }

    /// Names of the commands of every call for a bot, without those of the desk itself.
    fn lists(&self, bot: &str) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        let own = ["link", "stop", "unlink", "whoami"];
        let others = |names: &[String]| {
            assert_eq!(names[..4], own, "the desk's own come first");
            names[4..].join(" ")
        };
        calls.iter().filter(|(id, ..)| id == bot).map(|(.., names)| others(names)).collect()
    }
}

impl Platform for Listed {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn declares_commands(&self) -> bool {
        true
    }

    fn declare_commands<'a>(&'a self, bot: &'a Bot, commands: &'a [Command]) -> BoxFuture<'a, Result<(), String>> {
        let token = bot.secret("token").map(|token| token.expose().to_owned()).unwrap_or_default();
        let names = commands.iter().map(|command| command.name.clone()).collect();
        self.calls.lock().unwrap().push((bot.id.to_string(), token, names));
        Box::pin(async move {
            assert!(!self.panics.swap(false, Ordering::SeqCst), "as an adapter with a defect does");
            if self.hangs.swap(false, Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            if self.fails.load(Ordering::SeqCst) { Err("the vendor said no".into()) } else { Ok(()) }
        })
    }

    fn act<'a>(&'a self, _: ActingAs<'a>, _: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(async { ActionResult::done().into() })
    }

    fn look<'a>(
        &'a self,
        _: ActingAs<'a>,
        _: &'a ChatId,
        _: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        Box::pin(async { Ok(None) })
    }

    fn notice<'a>(&'a self, _: ActingAs<'a>, _: &'a ChatId, _: &'a str) -> BoxFuture<'a, ActionResult> {
        Box::pin(async { ActionResult::done() })
    }
}

struct Scene {
    desk: Arc<Desk>,
    env: Arc<TestEnv>,
    platform: Arc<Listed>,
    stop: CancellationToken,
}

impl Scene {
    async fn open() -> Self {
        Self::over(Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()), Listed::new()).await
    }

    async fn over(store: Arc<dyn Store>, env: Arc<TestEnv>, platform: Arc<Listed>) -> Self {
        let sealer = Sealer::new(Zeroizing::new([1; 32]));
        let parts = Parts::new(env.clone(), sealer, Arc::new(NoWay), Rules::default());
        let desk = Desk::open(store, Parts { platforms: vec![platform.clone()], ..parts }).await.unwrap();
        let (desk, stop) = (Arc::new(desk), CancellationToken::new());
        tokio::spawn(declare(desk.clone(), TaskTracker::new(), stop.clone()));
        Self { desk, env, platform, stop }
    }

    async fn add(&self, id: &str, tenant: Option<&str>, token: &str) {
        let bot = BotNew {
            platform: "listed".into(),
            id: id.into(),
            tenant: tenant.map(TenantId::from),
            settings: std::collections::BTreeMap::new(),
            secrets: [("token".to_owned(), token.to_owned())].into(),
        };
        self.desk.directory().bots().add(bot).await.unwrap();
    }

    /// A gateway connects and says hello for a bot, with these commands.
    async fn hello(&self, tenant: &str, name: &str, bot: &str, manifest: Option<Value>) {
        if self.desk.directory().read(|view| view.tenant(&tenant.into()).is_none()) {
            self.desk.directory().create_tenant(&tenant.into()).await.unwrap();
        }
        let ask = ProvisionRequest {
            gateway_id: name.into(),
            platform: "listed".into(),
            bot_id: bot.into(),
            gateway_endpoint: None,
            route_keys: Vec::new(),
            instance_id: Some(name.into()),
            wake_url: None,
        };
        let who = Identity { tenant: tenant.into(), instance: None };
        let secret = Secret::new(self.desk.directory().provision(&who, ask).await.unwrap().secret);
        let caller = self.desk.directory().prove_gateway(&token::mint(name, &secret, 0)).unwrap();
        let mut hello = json!({ "type": "hello", "platform": "listed", "botId": bot });
        if let Some(manifest) = manifest {
            hello["command_manifest"] = manifest;
        }
        Session::new(self.desk.delivery(), caller, 0).take_text(&format!("{hello}\n"), 0);
    }

    async fn offers(&self, tenant: &str, name: &str, bot: &str, commands: &[&str]) {
        let one = |name: &&str| json!({ "name": name, "description": "does it" });
        self.hello(tenant, name, bot, Some(commands.iter().map(one).collect())).await;
    }

    /// Time passes, second by second, on every clock. Leases are kept.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.env.advance_ms(1_000);
            self.desk.lease().renew().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Regression: the list was cut off by name, so that one tenant could leave the others no room.
#[tokio::test(start_paused = true)]
async fn tenants_take_turns_where_there_are_too_many_commands() {
    let scene = Scene::open().await;
    scene.add("shared", None, "t").await;
    let many: Vec<String> = (0..100).map(|number| format!("a{number:03}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    scene.offers("red", "ann", "shared", &many).await;
    scene.offers("blue", "ben", "shared", &["weather", "zoom"]).await;
    scene.pass(12).await;
    let list = scene.platform.lists("shared").concat();
    let names: Vec<&str> = list.split(' ').collect();
    assert_eq!((names.len(), &names[94..]), (96, ["weather", "zoom"].as_slice()), "{list}");
}

/// Regression: lists that were stored in one commit did not see each other.
#[tokio::test(start_paused = true)]
async fn the_lists_of_a_tenant_are_bounded_in_bytes() {
    let scene = Scene::open().await;
    scene.add("shared", None, "t").await;
    let one = |number: usize| json!({ "name": format!("c{number}"), "description": "x".repeat(256) });
    let manifest: Value = (0..100).map(one).collect();
    for instance in 0..60 {
        scene.hello("red", &format!("i{instance}"), "shared", Some(manifest.clone())).await;
    }
    scene.offers("blue", "ben", "shared", &["weather"]).await;
    scene.pass(2).await;
    let stored = |tenant: &str| {
        let texts = |fact| match fact {
            Fact::Commands(it) if it.tenant == *tenant => it.commands.iter().map(|it| it.description.len()).sum(),
            _ => 0_usize,
        };
        scene.desk.directory().read(|view| view.facts().into_iter().map(texts).sum())
    };
    let (red, blue): (usize, usize) = (stored("red"), stored("blue"));
    assert!((900 << 10..1 << 20).contains(&red), "{red} of 1,536,000 bytes");
    assert_eq!(blue, "does it".len(), "another tenant has its own room");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_the_union_of_what_agents_offer_and_is_declared_once() {
    let scene = Scene::open().await;
    scene.add("shared", None, "t").await;
    scene.offers("red", "ann", "shared", &["weather", "ask"]).await;
    scene.pass(5).await;
    scene.offers("blue", "ben", "shared", &["zoom", "ask", "stop"]).await;
    scene.pass(8).await;
    assert!(scene.platform.lists("shared").is_empty(), "it changed a moment ago");
    scene.pass(5).await;
    assert_eq!(scene.platform.lists("shared"), ["ask weather zoom"]);
    scene.offers("red", "ann", "shared", &["ask", "weather"]).await; // it connects again
    scene.hello("red", "ann", "shared", None).await; // and once more, as an older version
    scene.pass(600).await;
    assert_eq!(scene.platform.lists("shared").len(), 1, "nothing changed");
    scene.offers("red", "ann", "shared", &[]).await;
    scene.pass(15).await;
    assert_eq!(scene.platform.lists("shared"), ["ask weather zoom", "ask zoom"]);
    let ben = scene.desk.directory().prove_instance(&"ben".into(), Some(&"blue".into())).unwrap();
    scene.desk.deprovision(&ben).await.unwrap();
    scene.pass(400).await;
    assert_eq!(scene.platform.lists("shared").last().unwrap(), "");
    scene.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_tenants_bot_offers_its_own_agents_commands_only() {
    let scene = Scene::open().await;
    scene.desk.directory().create_tenant(&"red".into()).await.unwrap();
    scene.add("mine", Some("red"), "t").await;
    scene.add("shared", None, "t").await;
    scene.offers("red", "ann", "mine", &["red"]).await;
    scene.offers("blue", "ben", "shared", &["blue"]).await;
    scene.pass(15).await;
    assert_eq!(scene.platform.lists("mine"), ["red"]);
    assert_eq!(scene.platform.lists("shared"), ["blue"]);
    scene.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_new_or_changed_bot_gets_its_list() {
    let scene = Scene::open().await;
    scene.add("b", None, "old").await;
    scene.pass(15).await;
    scene.add("b", None, "new").await;
    scene.pass(15).await;
    let tokens: Vec<String> = scene.platform.calls.lock().unwrap().iter().map(|(_, token, _)| token.clone()).collect();
    assert_eq!(tokens, ["old", "new"]);
    scene.desk.directory().bots().remove("listed", &"b".into()).await.unwrap();
    scene.pass(15).await;
    let duties: Vec<String> = scene.desk.lease().desks().await.unwrap().remove(0).1;
    assert!(duties.is_empty(), "{duties:?}");
    assert_eq!(scene.platform.lists("b").len(), 2);
    scene.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_hangs_or_panics_is_repeated() {
    let scene = Scene::open().await;
    scene.platform.fails.store(true, Ordering::SeqCst);
    scene.add("b", None, "t").await;
    scene.pass(60).await; // after 10, 20 and 40 s
    assert_eq!(scene.platform.lists("b").len(), 3);
    scene.platform.fails.store(false, Ordering::SeqCst);
    scene.platform.panics.store(true, Ordering::SeqCst);
    scene.pass(100).await;
    assert_eq!(scene.platform.lists("b").len(), 4, "it panics");
    scene.platform.hangs.store(true, Ordering::SeqCst);
    scene.pass(100).await;
    assert_eq!(scene.platform.lists("b").len(), 5, "it hangs, and is given up");
    scene.pass(600).await;
    assert_eq!(scene.platform.lists("b").len(), 6);
    scene.pass(3_600).await;
    assert_eq!(scene.platform.lists("b").len(), 6, "it went well at last");
    scene.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn one_desk_declares_and_another_takes_over() {
    let (store, env) = (Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()));
    let one = Scene::over(store.clone(), env.clone(), Listed::new()).await;
    let two = Scene::over(store, env, Listed::new()).await;
    one.add("b", None, "t").await;
    one.offers("red", "ann", "b", &["ask"]).await;
    for _ in 0..30 {
        two.desk.lease().renew().await.unwrap();
        two.desk.directory().refresh().await.unwrap();
        one.pass(1).await;
    }
    let calls = |scene: &Scene| scene.platform.lists("b").len();
    assert_eq!(calls(&one) + calls(&two), 1);
    let (first, other) = if calls(&one) == 1 { (&one, &two) } else { (&two, &one) };
    first.stop.cancel();
    first.desk.lease().resign().await.unwrap();
    other.pass(30).await;
    assert_eq!(other.platform.lists("b"), ["ask"], "the list outlives the desk that it was said to");
    other.stop.cancel();
}
