//! One desk of the simulation: its clock, its way to the store, its loops.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use frontdesk_core::delivery::wake::POKES_MAX;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::store::{DeskNo, Store, StoreError};
use frontdesk_core::vault::Sealer;
use frontdesk_core::{Desk, Env as _, Parts, Rules, WakeRules};
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};
use zeroize::Zeroizing;

use super::book::{Book, Poke};
use super::bus::Hub;
use super::link::{Link, Weather};
use super::sabotage::Sabotage;
use super::store::DeskStore;
use super::tasks::{Spawner, Tasks};
use super::wire::Wire;
use crate::TestEnv;
use crate::world::dice::Dice;

pub(super) const COOLDOWN_MS: u64 = 10_000;
/// Desks that renew at least this often are not cut off from the store.
const IN_TOUCH_MS: u64 = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// Stopped by a signal: it does nothing, and finds its clocks later.
    Stopped,
    /// Its machine is suspended: its clocks stand still as well, so that it does not notice.
    Suspended,
    Down,
}

/// A place where a desk runs. The desk itself may crash and start again.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) link: Arc<Link>,
    pub(super) tasks: Tasks,
    /// `None` while it is down.
    pub(super) desk: Option<Arc<Desk>>,
    /// Sockets of the desk that is here now.
    pub(super) wires: Vec<Weak<Wire>>,
    env: Arc<TestEnv>,
    /// How fast its clocks run, in thousandths.
    rate: u64,
    book: Book,
}

impl Slot {
    pub(super) fn new(index: usize, book: &Book, dice: &mut Dice) -> Self {
        let env = Arc::new(TestEnv::new(dice.throw()));
        // Wall clocks differ by up to a minute, steady clocks in how fast they run.
        env.set_ms(TestEnv::START_MS + dice.throw() % 60_000);
        let name = format!("desk-{index}");
        let link = Arc::new(Link::new(name.clone(), book.clone(), Dice::new(dice.throw())));
        let (rate, book) = (995 + dice.throw() % 11, book.clone());
        Self { name, state: State::Down, link, tasks: Tasks::default(), desk: None, wires: Vec::new(), env, rate, book }
    }

    pub(super) fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// The wall clock and the steady clock advance, also of a desk that is stopped.
    pub(super) fn advance(&self, by_ms: u64) {
        if self.state == State::Suspended {
            return;
        }
        self.env.advance_ms(by_ms * self.rate / 1_000);
    }

    pub(super) fn stop(&mut self, state: State) {
        self.book.say(format!("{} is {state:?}", self.name));
        if state == State::Suspended {
            self.book.facts().unaware.insert(self.name.clone(), u64::MAX);
        }
        self.state = state;
    }

    /// Continues with the state from before the stop.
    pub(super) fn go_on(&mut self) {
        self.book.say(format!("{} goes on", self.name));
        let mut facts = self.book.facts();
        let now_ms = facts.now_ms;
        if let Some(since_ms) = facts.unaware.get_mut(&self.name) {
            *since_ms = now_ms.min(*since_ms);
        }
        drop(facts);
        self.state = State::Running;
    }

    /// Starts a desk. The store answers meanwhile.
    pub(super) fn start(&mut self, store: &Arc<dyn Store>, hub: &Hub, sabotage: Option<Sabotage>) {
        self.link.set_weather(Weather::CALM);
        self.book.say(format!("{} starts", self.name));
        self.book.facts().unaware.remove(&self.name);
        let store = DeskStore::new(store.clone(), self.link.clone(), self.book.clone(), sabotage);
        let (store, sealer) = (Arc::new(store), Sealer::new(Zeroizing::new([7; 32])));
        let wake = WakeRules { cooldown_ms: COOLDOWN_MS, retry_max_ms: 20_000, notice_after_ms: 30_000 };
        let rules = Rules { desk_name: self.name.clone(), window: 4, settle_ms: 500, wake, ..Rules::default() };
        let dice = std::sync::Mutex::new(Dice::new(self.env.now_ms()));
        let network = Network { book: self.book.clone(), store: store.clone(), dice };
        let parts = Parts { bus: hub.join(), ..Parts::new(self.env.clone(), sealer, Arc::new(network), rules) };
        let opened = Desk::open(store.stores(), parts).now_or_never();
        let desk = Arc::new(opened.expect("the store answers at once").unwrap());
        let spawner = self.tasks.spawner.clone();
        spawner.spawn(keep_lease(desk.clone()).map(|never| match never {}));
        spawner.spawn(listen(desk.clone()).map(|never| match never {}));
        spawner.spawn(run_wakes(desk.clone(), spawner.clone()).map(|never| match never {}));
        (self.desk, self.state) = (Some(desk), State::Running);
    }

    /// The process ends: its memory is lost. Requests that are under way may still reach the store.
    pub(super) fn crash(&mut self, are_lost: bool) {
        self.book.say(format!("{} crashes", self.name));
        self.tasks = Tasks::default();
        (self.desk, self.state) = (None, State::Down);
        // The machine resets its connections.
        self.wires.drain(..).filter_map(|wire| wire.upgrade()).for_each(|wire| wire.close());
        while self.link.hanging() > 0 {
            self.link.release(are_lost);
        }
    }
}

/// The same steps as the loop of the server.
async fn keep_lease(desk: Arc<Desk>) -> Infallible {
    let (renewals, renewed) = watch::channel(None);
    let renewing = async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Ok(renewal) = desk.lease().renew().await {
                renewals.send_replace(Some(renewal));
            }
        }
    };
    tokio::select! {
        biased;
        never = renewing => never,
        never = follow(&desk, renewed) => never,
    }
}

async fn follow(desk: &Desk, mut renewed: watch::Receiver<Option<(u64, Vec<DeskNo>)>>) -> Infallible {
    let mut known: Option<Vec<DeskNo>> = None;
    loop {
        let (version, live) = match renewed.changed().await {
            Ok(()) => renewed.borrow_and_update().clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        };
        let someone_left = known.as_ref().is_none_or(|known| known.iter().any(|desk| !live.contains(desk)));
        if desk.directory().version() < version {
            let _ = desk.directory().refresh().await; // the next renewal tries again
        }
        desk.lease().note_directory(desk.directory().version());
        let taken = if someone_left { take_over(desk, &live).await } else { Ok(()) };
        if taken.is_ok() {
            known = Some(live);
        }
    }
}

async fn take_over(desk: &Desk, live: &[DeskNo]) -> Result<(), StoreError> {
    desk.outbound().mark_orphaned_entries_unknown(live.to_vec()).await?;
    desk.delivery().served().look_for_unserved().await
}

async fn listen(desk: Arc<Desk>) -> Infallible {
    let cluster = desk.cluster();
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let _ = tokio::select! {
            biased;
            _ = tick.tick() => cluster.tick().await,
            received = cluster.next_event() => cluster.take(received).await,
        };
    }
}

async fn run_wakes(desk: Arc<Desk>, spawner: Spawner) -> Infallible {
    let mut waker = desk.delivery().new_waker().await;
    let (done, mut ended) = mpsc::channel(POKES_MAX);
    loop {
        tokio::select! {
            biased;
            () = desk.delivery().unserved() => {}
            Some((call, how)) = ended.recv() => waker.ended(call, how, desk.env().steady_ms()),
            () = tokio::time::sleep(desk.delivery().pause(&waker)) => {}
        }
        for task in desk.delivery().due_wake_tasks(&mut waker).await {
            let (desk, done) = (desk.clone(), done.clone());
            spawner.spawn(async move {
                let ended = desk.delivery().run(task).await;
                let _ = done.send(ended).await; // the loop may have ended
            });
        }
    }
}

/// Wake URLs: gateways come after some of the calls.
struct Network {
    book: Book,
    store: Arc<DeskStore>,
    dice: std::sync::Mutex<Dice>,
}

impl Outcall for Network {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            let gateway = call.url.rsplit('/').next().unwrap_or_default().to_owned();
            let is_answered = self.dice.lock().unwrap().chance(80);
            self.check_alone(&gateway, is_answered);
            if is_answered {
                self.book.facts().poked.push(gateway);
            }
            Ok(HttpAnswer::of(if is_answered { 200 } else { 503 }))
        })
    }
}

impl Network {
    /// While desks are in touch with the store, an agent is called by one of them per cool-down, unless it came.
    fn check_alone(&self, gateway: &str, is_answered: bool) {
        let me = self.store.me();
        self.book.say(format!("d{me} calls the wake URL of {gateway}: {is_answered}"));
        let mut facts = self.book.facts();
        let now_ms = facts.now_ms;
        let mine = facts.leases.get(&me).copied().unwrap_or_default();
        let was_in_touch = mine.heard_ms + IN_TOUCH_MS >= now_ms;
        let before = facts.pokes.insert(gateway.to_owned(), Poke { desk: me, at_ms: now_ms, was_in_touch });
        let Some(before) = before.filter(|it| now_ms < it.at_ms + COOLDOWN_MS) else { return };
        let has_come = facts.came_ms.get(gateway).is_some_and(|at_ms| *at_ms >= before.at_ms);
        let its = facts.leases.get(&before.desk).copied().unwrap_or_default();
        // Both knew each other when they called, and others still take the first one for live.
        let are_in_touch = was_in_touch
            && before.was_in_touch
            && its.heard_ms + IN_TOUCH_MS >= now_ms
            && mine.enlisted_ms + IN_TOUCH_MS <= before.at_ms
            && its.enlisted_ms + IN_TOUCH_MS <= before.at_ms;
        drop(facts);
        if me != before.desk && !has_come && are_in_touch {
            let since_ms = now_ms - before.at_ms;
            self.book.fail(format!("d{me} wakes {gateway} {since_ms} ms after d{} did", before.desk));
        }
    }
}
