//! Two desks share the parts of one bot.

use std::collections::BTreeMap;

use frontdesk_core::port::platform::Partitioned;
use frontdesk_wire::{ChatId, UserId};
use tokio::sync::watch;

use super::*;

/// Message n is of part n modulo the number of parts. The cursor of a part is the last message that it stored.
struct Sharded {
    descriptor: Descriptor,
    wanted: AtomicUsize,
    written: watch::Sender<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Parts that listen, with the desk of each.
    listening: BTreeMap<Part, &'static str>,
    /// Parts of one count listened while there were parts of another, or one listened twice.
    faults: Vec<String>,
    /// (part, cursor) of every start.
    starts: Vec<(String, Option<String>)>,
    fails: Option<Part>,
}

/// The platform as one desk has it.
struct AtDesk(&'static str, Arc<Sharded>);

struct Listening<'a>(&'a Sharded, Part);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().listening.remove(&self.1);
    }
}

impl Sharded {
    fn new(parts: usize) -> Arc<Self> {
        let descriptor = Descriptor::plain("polled", "Polled", 100);
        let (wanted, written, state) = (AtomicUsize::new(parts), watch::Sender::new(0), Mutex::default());
        Arc::new(Self { descriptor, wanted, written, state })
    }

    fn write(&self, count: u64) {
        self.written.send_modify(|last| *last += count);
    }

    fn holders(&self) -> BTreeMap<String, &'static str> {
        self.state.lock().unwrap().listening.iter().map(|(part, desk)| (part.to_string(), *desk)).collect()
    }

    fn held_by(&self, desk: &str) -> Vec<String> {
        self.holders().into_iter().filter(|(_, it)| *it == desk).map(|(part, _)| part).collect()
    }

    /// How many parts the two desks have.
    fn shares(&self) -> (usize, usize) {
        (self.held_by("a").len(), self.held_by("b").len())
    }

    fn starts(&self) -> Vec<(String, Option<String>)> {
        std::mem::take(&mut self.state.lock().unwrap().starts)
    }

    fn begin(&self, desk: &'static str, part: Part, cursor: Option<String>) -> Listening<'_> {
        let mut state = self.state.lock().unwrap();
        if state.listening.keys().any(|other| other.count != part.count || *other == part) {
            let fault = format!("{part} began at {desk} beside {:?}", state.listening);
            state.faults.push(fault);
        }
        state.listening.insert(part, desk);
        state.starts.push((part.to_string(), cursor));
        Listening(self, part)
    }
}

impl Partitioned for AtDesk {
    fn count<'a>(&'a self, _: &'a Bot, _: u32, _: Option<&'a str>) -> BoxFuture<'a, Result<u32, ListenEnd>> {
        let wanted = self.1.wanted.load(Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(u32::try_from(wanted).unwrap())))
    }

    /// Everything after what all of them have; the ledger stores it once.
    fn divide(&self, cursors: &[Option<String>], count: u32) -> Vec<String> {
        let least = cursors.iter().map(|it| it.as_ref().map_or(0, |it| it.parse::<u64>().unwrap())).min();
        vec![least.unwrap().to_string(); count as usize]
    }
}

impl Platform for AtDesk {
    fn descriptor(&self) -> &Descriptor {
        &self.1.descriptor
    }

    fn listens(&self) -> bool {
        true
    }

    fn partitioned(&self) -> Option<&dyn Partitioned> {
        Some(self)
    }

    fn listen<'a>(
        &'a self,
        bot: &'a Bot,
        part: Part,
        cursor: Option<String>,
        inlet: &'a dyn Inlet,
    ) -> BoxFuture<'a, ListenEnd> {
        Box::pin(async move {
            let _listening = self.1.begin(self.0, part, cursor.clone());
            if self.1.state.lock().unwrap().fails == Some(part) {
                return ListenEnd::Lost("the connection was closed".into());
            }
            let mut written = self.1.written.subscribe();
            let mut done: u64 = cursor.map_or(0, |cursor| cursor.parse().unwrap());
            loop {
                let (index, count) = (u64::from(part.index), u64::from(part.count));
                let next = (done + 1..=done + count).find(|it| it % count == index).unwrap();
                if written.wait_for(|last| *last >= next).await.is_err() {
                    return ListenEnd::Never;
                }
                let mut intake = message(bot, next);
                intake.event.source.chat_id = "c".into();
                inlet.take(vec![intake]).await.unwrap();
                if let Err(error) = inlet.save_cursor(next.to_string()).await {
                    return ListenEnd::Lost(error.to_string());
                }
                done = next;
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

/// Two desks over one store, with an agent that receives all.
struct Two {
    store: Arc<dyn Store>,
    env: Arc<TestEnv>,
    platform: Arc<Sharded>,
    desks: BTreeMap<&'static str, (Arc<Desk>, TaskTracker, CancellationToken)>,
}

impl Two {
    async fn new(parts: usize) -> Self {
        let (store, env) = (Arc::new(MemoryStore::new(1)), Arc::new(TestEnv::default()));
        let mut two = Self { store, env, platform: Sharded::new(parts), desks: BTreeMap::new() };
        let desk = two.open("a").await;
        let directory = desk.directory();
        directory.create_tenant(&"home".into()).await.unwrap();
        let gateway = GatewayNew { id: "g".into(), tenant: "home".into(), instance: None, wake_url: None };
        directory.add_gateway(gateway).await.unwrap();
        let [platform, user_id, tenant, instance] = ["polled", "ann", "home", "g"].map(str::to_owned);
        directory
            .bind(BindingNew { platform, user_id: user_id.into(), tenant: tenant.into(), instance: instance.into() })
            .await
            .unwrap();
        let secrets = [("token".to_owned(), "t".to_owned())].into();
        let bot = BotNew { platform: "polled".into(), id: "b".into(), tenant: None, settings: [].into(), secrets };
        directory.bots().add(bot).await.unwrap();
        two.open("b").await;
        two
    }

    async fn open(&mut self, name: &'static str) -> Arc<Desk> {
        let sealer = Sealer::new(Zeroizing::new([1; 32]));
        let parts = Parts {
            platforms: vec![Arc::new(AtDesk(name, self.platform.clone()))],
            ..Parts::new(self.env.clone(), sealer, Arc::new(NoWay), Rules::default())
        };
        let desk = Arc::new(Desk::open(self.store.clone(), parts).await.unwrap());
        self.desks.insert(name, (desk.clone(), TaskTracker::new(), CancellationToken::new()));
        desk
    }

    fn desk(&self, name: &str) -> &Arc<Desk> {
        &self.desks[name].0
    }

    fn listen(&self, name: &str) {
        let (desk, tracker, stop) = &self.desks[name];
        tracker.spawn(listen(desk.clone(), tracker.clone(), stop.clone()));
    }

    /// Seconds pass on every clock; these desks keep their leases.
    async fn pass(&self, seconds: u64, live: &[&str]) {
        for _ in 0..seconds {
            self.env.advance_ms(1_000);
            for name in live {
                self.desk(name).lease().renew().await.unwrap();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// It has received all messages, each once.
    async fn has_received(&self, count: u64) {
        let desk = self.desk("a");
        let no = desk.directory().find_instance(&"g".into(), None).unwrap().no;
        let rows = desk.stores().ledger.pending(no, Seq(0), 999).await.unwrap();
        let mut ids: Vec<u64> = rows.into_iter().map(|(_, row)| row.message_id.parse().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=count).collect::<Vec<_>>());
    }

    async fn duties(&self, of: &str) -> Vec<String> {
        let desks = self.desk(of).lease().desks().await.unwrap();
        let mine = desks.into_iter().find(|(record, _)| record.number == self.desk(of).lease().me());
        let mut duties = mine.unwrap().1;
        duties.sort();
        duties
    }

    async fn all_duties(&self) -> Vec<String> {
        let mut all = [self.duties("a").await, self.duties("b").await].concat();
        all.sort();
        all
    }

    fn end(&self) {
        assert_eq!(self.platform.state.lock().unwrap().faults, [""; 0]);
        self.desks.values().for_each(|(_, _, stop)| stop.cancel());
    }
}

#[tokio::test(start_paused = true)]
async fn two_desks_share_the_parts_and_one_takes_over_what_the_other_had() {
    let two = Two::new(4).await;
    two.listen("a");
    two.listen("b");
    two.pass(4, &["a", "b"]).await;
    assert_eq!(two.platform.shares(), (2, 2));
    let parts = ["1/4", "2/4", "3/4", "4/4"].map(|part| format!("listen {part} polled b"));
    assert_eq!(two.all_duties().await, [&parts[..], &["listen polled b".to_owned()]].concat(), "each has one holder");
    two.platform.write(40);
    two.pass(1, &["a", "b"]).await;
    two.has_received(40).await;

    // It does not renew its lease any more, and new messages wait.
    let moved = two.platform.held_by("b");
    two.platform.starts();
    for _ in 0..10 {
        two.platform.write(4);
        two.pass(1, &["a"]).await;
    }
    assert_eq!(two.platform.shares(), (4, 0));
    let starts = two.platform.starts();
    assert_eq!(starts.iter().map(|(part, _)| part.clone()).collect::<Vec<_>>(), moved, "the others go on");
    let went_on = |cursor: &Option<String>| cursor.as_ref().is_some_and(|it| it.parse::<u64>().unwrap() > 36);
    assert!(starts.iter().all(|(_, cursor)| went_on(cursor)), "{starts:?}");
    two.has_received(80).await;

    // It comes back, and gets its share again.
    two.pass(100, &["a", "b"]).await;
    assert_eq!(two.platform.shares(), (2, 2));
    two.platform.write(8);
    two.pass(1, &["a", "b"]).await;
    two.has_received(88).await;
    two.end();
}

#[tokio::test(start_paused = true)]
async fn another_number_of_parts_begins_when_those_of_the_old_one_have_stopped() {
    let two = Two::new(1).await;
    two.listen("a");
    two.pass(2, &["a", "b"]).await;
    assert_eq!(two.platform.holders(), BTreeMap::from([("1/1".to_owned(), "a")]));
    two.platform.write(10);
    two.pass(1, &["a", "b"]).await;
    two.listen("b");
    // The only part is not interrupted: the platform is asked when it begins, here at another desk.
    two.platform.wanted.store(4, Ordering::SeqCst);
    two.pass(10, &["b"]).await;
    assert_eq!(two.platform.shares(), (0, 4));
    two.pass(100, &["a", "b"]).await;
    assert_eq!(two.platform.shares(), (2, 2));
    for (wanted, shares) in [(6, (3, 3)), (2, (1, 1))] {
        two.platform.wanted.store(wanted, Ordering::SeqCst);
        for _ in 0..80 {
            two.platform.write(1);
            two.pass(1, &["a", "b"]).await;
        }
        assert_eq!(two.platform.shares(), shares, "of {wanted}");
    }
    two.platform.wanted.store(1, Ordering::SeqCst);
    two.pass(80, &["a", "b"]).await;
    assert_eq!(two.platform.holders().keys().collect::<Vec<_>>(), ["1/1"]);
    two.platform.write(3);
    two.pass(1, &["a", "b"]).await;
    two.has_received(173).await;
    assert_eq!(two.all_duties().await, ["listen polled b"], "no duty of a former count is left");
    two.end();
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_begun_is_finished_by_the_next_holder() {
    let two = Two::new(2).await;
    two.listen("a");
    two.listen("b");
    two.platform.write(9);
    two.pass(4, &["a", "b"]).await;
    let is_a = two.duties("a").await.contains(&"listen polled b".to_owned());
    let (holder, other) = if is_a { ("a", "b") } else { ("b", "a") };
    let bot = two.desk(holder).directory().bots().bot("polled", &"b".into());
    // The one that keeps the number is gone right after it announced another one.
    let inlet = two.desk(holder).inbound().listener_inlet("polled", &bot, Part::WHOLE, 1);
    inlet.save_cursor(Layout { count: 2, next: Some(3) }.text()).await.unwrap();
    two.platform.wanted.store(3, Ordering::SeqCst);
    two.platform.write(9);
    two.pass(12, &[other]).await;
    assert_eq!(two.platform.held_by(other), ["1/3", "2/3", "3/3"]);
    let layout = two.desk(other).inbound().layout("polled", &bot).await.unwrap();
    assert_eq!(layout, Layout { count: 3, next: None });
    // The former holder cannot bring the old number back.
    assert!(matches!(inlet.save_cursor("parts:2".into()).await, Err(StoreError::Conflict)));
    two.has_received(18).await;
    two.end();
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_is_named_and_the_others_listen() {
    let two = Two::new(3).await;
    two.platform.state.lock().unwrap().fails = Some(Part { index: 1, count: 3 });
    two.listen("a");
    two.pass(20, &["a"]).await;
    assert_eq!(two.platform.holders().keys().collect::<Vec<_>>(), ["1/3", "3/3"]);
    let failure = || two.desk("a").directory().bots().listener_failure("polled", &"b".into());
    assert_eq!(failure().unwrap().why, "connection 2 of 3: the connection was closed");
    let series = |part: &str| format!("listeners_failing{{platform=\"polled\",bot=\"b\",connection=\"{part}\"}}");
    let failing = |part: &str| metric(two.desk("a").meters(), &series(part));
    assert_eq!((failing("1/3"), failing("2/3")), (None, Some(1)));
    two.platform.state.lock().unwrap().fails = None;
    two.pass(130, &["a"]).await;
    assert_eq!((two.platform.shares(), failure(), failing("2/3")), ((3, 0), None, None));
    two.end();
}
