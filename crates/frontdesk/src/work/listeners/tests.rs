//! Listeners start, stop, fail and move to another desk.

mod parts;
mod shards;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use frontdesk_core::intake::{Intake, TenantSource, Verified};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Acted, ActingAs, Inlet, ListenEnd, Look, LookFault};
use frontdesk_core::port::store::{Store, StoreError};
use frontdesk_core::vault::Sealer;
use frontdesk_core::{Parts, Rules};
use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::NoWay;
use frontdesk_testkit::metrics::metric;
use frontdesk_wire::api::{BindingNew, BotNew, GatewayNew};
use frontdesk_wire::{Action, ActionResult, ChatId, Descriptor, MessageEvent, Secret, Seq, Source, UserId};
use tokio::sync::Notify;
use zeroize::Zeroizing;

use super::*;

/// A platform whose bots poll numbered messages: each round takes one and saves its number.
struct Polled {
    descriptor: Descriptor,
    /// (bot, token, cursor) of every start.
    starts: Mutex<Vec<(String, String, Option<String>)>>,
    listening: AtomicUsize,
    most_at_once: AtomicUsize,
    /// How each start ends, first to last; then it listens for ever.
    ends: Mutex<Vec<ListenEnd>>,
    /// How many of the next starts panic.
    panics: AtomicUsize,
    next: Notify,
}

struct Listening<'a>(&'a Polled);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.listening.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Polled {
    fn new() -> Self {
        let descriptor = Descriptor::plain("polled", "Polled", 100);
        Self {
            descriptor,
            starts: Mutex::default(),
            listening: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            ends: Mutex::default(),
            panics: AtomicUsize::new(0),
            next: Notify::new(),
        }
    }
}

fn message(bot: &Bot, number: u64) -> Intake {
    let source = Source {
        platform: "polled".into(),
        // The third has no usable id of its chat: the desk refuses it.
        chat_id: if number == 3 { "" } else { "c" }.into(),
        chat_type: "dm".into(),
        user_id: Some("ann".into()),
        ..Source::default()
    };
    let event = MessageEvent {
        text: format!("message {number}"),
        message_type: "text".into(),
        source,
        message_id: Some(number.to_string().into()),
        ..MessageEvent::default()
    };
    Intake::new(Verified::by("a test"), TenantSource::Tenant("home".into()), bot.id.clone(), event)
}

impl Platform for Polled {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn listens(&self) -> bool {
        true
    }

    fn listen<'a>(
        &'a self,
        bot: &'a Bot,
        _: Part,
        cursor: Option<String>,
        inlet: &'a dyn Inlet,
    ) -> BoxFuture<'a, ListenEnd> {
        Box::pin(async move {
            let token = bot.secret("token").map(|token| token.expose().to_owned()).unwrap_or_default();
            self.starts.lock().unwrap().push((bot.id.to_string(), token, cursor.clone()));
            let now = self.listening.fetch_add(1, Ordering::SeqCst) + 1;
            let _listening = Listening(self);
            self.most_at_once.fetch_max(now, Ordering::SeqCst);
            let panics = self.panics.load(Ordering::SeqCst);
            self.panics.store(panics.saturating_sub(1), Ordering::SeqCst);
            assert_eq!(panics, 0, "as a listener with a defect does");
            let planned = self.ends.lock().unwrap().pop();
            if let Some(ended) = planned {
                return ended;
            }
            let mut number: u64 = cursor.map_or(0, |cursor| cursor.parse().unwrap());
            loop {
                self.next.notified().await;
                number += 1;
                let outcomes = inlet.take(vec![message(bot, number)]).await.unwrap();
                assert_eq!(outcomes[0].is_ok(), number != 3, "{outcomes:?}");
                inlet.save_cursor(number.to_string()).await.unwrap();
            }
        })
    }

    fn act<'a>(&'a self, _: ActingAs<'a>, _: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(async { ActionResult::done().into() })
    }

    fn look<'a>(
        &'a self,
        _: ActingAs<'a>,
        _: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        Box::pin(async move { Ok(Some(Look { visible: viewer.map(|_| true), ..Look::default() })) })
    }

    fn notice<'a>(&'a self, _: ActingAs<'a>, _: &'a ChatId, _: &'a str) -> BoxFuture<'a, ActionResult> {
        Box::pin(async { ActionResult::done() })
    }
}

struct Scene {
    desk: Arc<Desk>,
    platform: Arc<Polled>,
    env: Arc<TestEnv>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Scene {
    async fn over(store: Arc<dyn Store>, env: Arc<TestEnv>, platform: Arc<Polled>) -> Self {
        let sealer = Sealer::new(Zeroizing::new([1; 32]));
        let parts = Parts {
            platforms: vec![platform.clone()],
            ..Parts::new(env.clone(), sealer, Arc::new(NoWay), Rules::default())
        };
        let desk = Arc::new(Desk::open(store, parts).await.unwrap());
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { desk, platform, env, tracker, stop }
    }

    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
        let scene = Self::over(store, Arc::new(TestEnv::default()), Arc::new(Polled::new())).await;
        let directory = scene.desk.directory();
        directory.create_tenant(&"home".into()).await.unwrap();
        let gateway = GatewayNew { id: "g".into(), tenant: "home".into(), instance: None, wake_url: None };
        directory.add_gateway(gateway).await.unwrap();
        let [platform, user_id, tenant, instance] = ["polled", "ann", "home", "g"].map(str::to_owned);
        directory
            .bind(BindingNew { platform, user_id: user_id.into(), tenant: tenant.into(), instance: instance.into() })
            .await
            .unwrap();
        scene
    }

    fn listen(&self) {
        self.tracker.spawn(listen(self.desk.clone(), self.tracker.clone(), self.stop.clone()));
    }

    async fn add(&self, bot: &str, token: &str) {
        let secrets = [("token".to_owned(), token.to_owned())].into();
        let bot = BotNew { platform: "polled".into(), id: bot.into(), tenant: None, settings: [].into(), secrets };
        self.desk.directory().bots().add(bot).await.unwrap();
    }

    /// Seconds pass on every clock; the lease is kept.
    async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.env.advance_ms(1_000);
            self.desk.lease().renew().await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    fn starts(&self) -> Vec<(String, String, Option<String>)> {
        std::mem::take(&mut *self.platform.starts.lock().unwrap())
    }

    async fn poll(&self) {
        self.platform.next.notify_one();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    /// The ids of the messages that the agent has.
    async fn received(&self) -> Vec<String> {
        let no = self.desk.directory().find_instance(&"g".into(), None).unwrap().no;
        let rows = self.desk.stores().ledger.pending(no, Seq(0), 99).await.unwrap();
        rows.into_iter().map(|(_, row)| row.message_id.to_string()).collect()
    }
}

fn start(bot: &str, token: &str, cursor: Option<&str>) -> (String, String, Option<String>) {
    (bot.into(), token.into(), cursor.map(str::to_owned))
}

#[tokio::test(start_paused = true)]
async fn a_bot_that_is_added_listens_and_one_that_is_removed_does_not() {
    let scene = Scene::new().await;
    scene.listen();
    scene.pass(1).await;
    assert_eq!(scene.starts(), []);
    scene.add("b", "t1").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(scene.starts(), [start("b", "t1", None)], "at once, without waiting for the next tick");
    for _ in 0..4 {
        scene.poll().await;
    }
    assert_eq!(scene.received().await, ["1", "2", "4"], "one that is refused does not stop the others");
    let why = scene.desk.stores().events.event_named(&"home".into(), b"3".to_vec(), &"3".into(), None).await.unwrap();
    assert!(why.is_some_and(|event| event.verdict.contains("chat_id")), "and its reason is recorded");
    scene.desk.directory().bots().remove("polled", &"b".into()).await.unwrap();
    scene.pass(2).await;
    assert_eq!(scene.platform.listening.load(Ordering::SeqCst), 0);
    let desks = scene.desk.lease().desks().await.unwrap();
    assert!(desks.iter().all(|(_, duties)| duties.is_empty()), "{desks:?}");
    // The same account continues at its cursor; another one under the same id begins anew.
    scene.add("b", "t1").await;
    scene.pass(2).await;
    assert_eq!(scene.starts(), [start("b", "t1", Some("4"))]);
    scene.add("b", "t2").await;
    scene.pass(2).await;
    assert_eq!(scene.starts(), [start("b", "t2", None)]);
    assert_eq!(scene.platform.most_at_once.load(Ordering::SeqCst), 1, "never two listeners of one bot");
    scene.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_ends_is_started_again_with_a_growing_pause() {
    let scene = Scene::new().await;
    let lost = || ListenEnd::Lost("the connection was closed".into());
    *scene.platform.ends.lock().unwrap() = vec![lost(), lost(), lost()];
    scene.add("b", "t").await;
    scene.listen();
    let mut after = Vec::new();
    for second in 0..10 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        after.extend(scene.starts().iter().map(|_| second));
        scene.pass(1).await;
    }
    assert_eq!(after, [0, 1, 3, 7]);
    assert_eq!(metric(scene.desk.meters(), "listener_ends_total{why=\"lost\"}"), Some(3));
    scene.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_is_started_again_and_one_that_cannot_work_waits_for_a_change() {
    let scene = Scene::new().await;
    scene.platform.panics.store(3, Ordering::SeqCst);
    scene.add("b", "t").await;
    scene.listen();
    let mut after = Vec::new();
    for second in 0..10 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        after.extend(scene.starts().iter().map(|_| second));
        scene.pass(1).await;
    }
    assert_eq!(after, [0, 1, 3, 7], "with a growing pause");
    let noted = scene.desk.directory().bots().listener_failure("polled", &"b".into()).unwrap();
    assert!(noted.why.contains("panicked") && noted.why.contains("a listener with a defect") && !noted.is_final);
    assert_eq!(metric(scene.desk.meters(), "listener_ends_total{why=\"panicked\"}"), Some(3));
    *scene.platform.ends.lock().unwrap() = vec![ListenEnd::Misconfigured("the token is not valid".into())];
    scene.add("b", "bad").await;
    scene.pass(100).await;
    assert_eq!(scene.starts(), [start("b", "bad", None)], "once");
    scene.add("b", "good").await;
    scene.pass(2).await;
    assert_eq!(scene.starts(), [start("b", "good", None)]);
    scene.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn one_of_two_desks_listens_and_the_other_takes_over_when_it_is_gone() {
    let (store, env): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()));
    let platform = Arc::new(Polled::new());
    let one = Scene::over(store.clone(), env.clone(), platform.clone()).await;
    one.desk.directory().create_tenant(&"home".into()).await.unwrap();
    one.add("b", "t").await;
    let other = Scene::over(store, env, platform.clone()).await;
    one.listen();
    other.listen();
    for _ in 0..5 {
        other.desk.lease().renew().await.unwrap();
        one.pass(1).await;
    }
    assert_eq!((one.starts().len(), platform.listening.load(Ordering::SeqCst)), (1, 1));
    // It does not renew its lease any more: it stops before the other one begins.
    for _ in 0..10 {
        other.pass(1).await;
    }
    assert_eq!((other.starts().len(), platform.listening.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(platform.most_at_once.load(Ordering::SeqCst), 1);
    // Back again with a new number: the duty stays where it is.
    for _ in 0..5 {
        one.desk.lease().renew().await.unwrap();
        other.pass(1).await;
    }
    assert_eq!((other.starts().len(), platform.listening.load(Ordering::SeqCst)), (0, 1));
    one.stop.cancel();
    other.stop.cancel();
}
