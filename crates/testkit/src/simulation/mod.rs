//! A seeded simulation of several desks over one store: faults of the store, a bus that loses hints, clocks that differ,
//! desks that stop, crash and start, gateways that come and go.
//!
//! One thread, no real time, and no decision but by the seed: a seed replays to the same log. After every step the
//! invariants are checked; at the end the faults stop, and everything that is owed must arrive.

mod book;
mod bus;
mod checks;
mod desk;
mod end;
mod gateway;
mod link;
mod sabotage;
mod steps;
mod store;
mod store_sessions;
mod tasks;
mod wire;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_core::port::store::Store;
use frontdesk_wire::Secret;
use frontdesk_wire::api::{BotNew, GatewayNew};
use futures_util::FutureExt as _;

use self::book::Book;
use self::bus::Hub;
use self::checks::{Event, Ledgers};
use self::desk::{Slot, State};
use self::gateway::Gateway;
use self::store::at_once;
use self::work::{Entry, Happened};
use crate::world::dice::Dice;

pub use sabotage::Sabotage;

const DESKS: usize = 3;
/// Gateways at the start, and those that are provisioned later. Each is of one of two tenants.
const GATEWAYS: usize = 4;
const GATEWAYS_LATER: usize = 2;
const TENANTS: [&str; 2] = ["acme", "zeta"];
/// Time moves in steps of this length at most.
const TICK_MS: u64 = 250;

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub steps: usize,
    pub sabotage: Option<Sabotage>,
}

/// An invariant that did not hold.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub step: usize,
    pub what: String,
    pub log: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, step, what, log } = self;
        write!(out, "{}\nseed {seed}, step {step}: {what}", log.join("\n"))
    }
}

/// Runs one seed over this store, which must be empty and answer at once. Returns the log.
pub fn simulate(seed: u64, store: Arc<dyn Store>, settings: Settings) -> Result<Vec<String>, Box<Failure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(tokio::task::coop::unconstrained(async move {
        let mut simulation = Simulation::open(seed, store, settings);
        simulation.run().await
    }))
}

struct Simulation {
    seed: u64,
    settings: Settings,
    dice: Dice,
    store: Arc<dyn Store>,
    book: Book,
    hub: Hub,
    slots: Vec<Slot>,
    gateways: Vec<Gateway>,
    events: Vec<Event>,
    entries: Vec<Entry>,
    ledgers: Ledgers,
    last_wire: u64,
    /// The version of the directory up to which instances are known.
    directory_seen: u64,
    /// What tasks of desks have achieved since the last look.
    happened: Arc<Mutex<Vec<Happened>>>,
}

impl Simulation {
    fn open(seed: u64, store: Arc<dyn Store>, settings: Settings) -> Self {
        let (mut dice, book) = (Dice::new(seed), Book::default());
        book.facts().now_ms = crate::TestEnv::START_MS;
        let hub = Hub::new(book.clone(), Dice::new(dice.throw()));
        let slots = (0..DESKS).map(|index| Slot::new(index, &book, &mut dice)).collect();
        let gateway = |index: usize| {
            let name = format!("gw-{index}");
            Gateway::new(name, TENANTS[index % TENANTS.len()], index != 1)
        };
        let gateways = (0..GATEWAYS + GATEWAYS_LATER).map(gateway).collect();
        let mut simulation = Self {
            seed,
            settings,
            dice,
            store,
            book,
            hub,
            slots,
            gateways,
            events: Vec::new(),
            entries: Vec::new(),
            ledgers: Ledgers::default(),
            last_wire: 0,
            directory_seen: 0,
            happened: Arc::default(),
        };
        simulation.set_up();
        simulation
    }

    /// All desks run, and the first gateways are there; nothing fails yet.
    fn set_up(&mut self) {
        self.start(0);
        let desk = self.slots[0].desk.clone().unwrap();
        let done = async {
            for tenant in TENANTS {
                desk.directory().create_tenant(&tenant.into()).await.unwrap();
            }
            let (settings, secrets) = (BTreeMap::default(), BTreeMap::default());
            let bot = BotNew { platform: "relay".into(), id: "desk".into(), tenant: None, settings, secrets };
            desk.directory().bots().add(bot).await.unwrap();
            for gateway in &mut self.gateways[..GATEWAYS] {
                let made = desk.directory().add_gateway(request(gateway)).await.unwrap();
                (gateway.secret, gateway.credential) = (Some(Secret::new(made.secret.as_str())), 1);
            }
        };
        done.now_or_never().expect("the store answers at once");
        self.find_instances();
        for gateway in self.gateways.iter().filter(|it| !it.acks) {
            at_once(self.store.mark_never_acks(gateway.instance.unwrap())).unwrap();
        }
        (1..DESKS).for_each(|slot| self.start(slot));
    }

    fn start(&mut self, slot: usize) {
        self.slots[slot].start(&self.store, &self.hub, self.settings.sabotage);
    }

    /// The numbers that the store has given to instances.
    fn find_instances(&mut self) {
        let changes = at_once(self.store.changed_since(self.directory_seen)).unwrap();
        self.directory_seen = changes.version;
        for record in changes.records.iter().filter(|it| it.kind == "instance") {
            let Some(json) = &record.json else { continue };
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            let (name, no) = (json["name"].as_str().unwrap(), frontdesk_wire::InstanceNo(json["no"].as_u64().unwrap()));
            for gateway in self.gateways.iter_mut().filter(|it| it.name == name) {
                gateway.instance = Some(no);
            }
            let known = self.book.facts().gateways.insert(no, name.to_owned());
            if known.as_ref().is_some_and(|known| known != name) {
                self.book.fail(format!("{name} and {known:?} have the same ledger i{no}"));
            }
        }
    }

    async fn run(&mut self) -> Result<Vec<String>, Box<Failure>> {
        let mut step = 0;
        while step < self.settings.steps {
            step += 1;
            self.step().await;
            self.look();
            self.hold(step)?;
        }
        self.end().await;
        self.hold(step + 1)?;
        Ok(std::mem::take(&mut self.book.facts().log))
    }

    fn hold(&self, step: usize) -> Result<(), Box<Failure>> {
        let mut facts = self.book.facts();
        let Some(what) = facts.broken.take() else { return Ok(()) };
        Err(Box::new(Failure { seed: self.seed, step, what, log: std::mem::take(&mut facts.log) }))
    }

    /// Lets all desks do what they can, and checks the invariants.
    fn look(&mut self) {
        loop {
            let mut has_run = false;
            for slot in self.slots.iter_mut().filter(|slot| slot.is_running()) {
                has_run |= slot.tasks.run();
            }
            self.hub.deliver();
            if !has_run {
                break;
            }
        }
        self.take_happened();
        self.find_instances();
        let poked = std::mem::take(&mut self.book.facts().poked);
        self.gateways.iter_mut().filter(|it| poked.contains(&it.name)).for_each(Gateway::wake);
        self.ledgers.check(&*self.store, &self.book, &self.gateways, &self.events);
    }

    /// Time passes on all clocks, in small steps.
    async fn pass(&mut self, mut left_ms: u64) {
        while left_ms > 0 {
            let by_ms = left_ms.min(TICK_MS);
            left_ms -= by_ms;
            self.book.facts().now_ms += by_ms;
            self.slots.iter().for_each(|slot| slot.advance(by_ms));
            tokio::time::advance(Duration::from_millis(by_ms)).await;
            self.look();
        }
    }

    /// The desks that run, by slot.
    fn running(&self) -> Vec<usize> {
        (0..DESKS).filter(|slot| self.slots[*slot].state == State::Running).collect()
    }
}

fn request(gateway: &Gateway) -> GatewayNew {
    let wake_url = Some(format!("https://wake.example/{}", gateway.name));
    GatewayNew { id: gateway.name.clone().into(), tenant: gateway.tenant.into(), instance: None, wake_url }
}
