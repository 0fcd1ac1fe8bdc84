//! `bench interactions`: how soon signed interactions are answered while all agents sleep. An answer means that
//! the interaction is stored.

use anyhow::Context as _;
use frontdesk_platforms::interactions::{PLATFORM, SampleBot};
use frontdesk_wire::api::{BindingNew, BotNew};
use serde_json::{Value, json};

use super::door::{CONNECTIONS, Door, DoorOrders};
use super::load::{LoadDone, LoadOrders, LoadReady};
use super::report::{machine, median};
use super::stage::{LoadProcess, Stage};
use crate::app::FIRST_TENANT;

pub(super) struct Plan {
    pub(super) agents: usize,
    pub(super) rate: u64,
    pub(super) seconds: u64,
    pub(super) rounds: usize,
}

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Value> {
    let mut all = Vec::new();
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}: {} interactions/s for {} s", plan.rounds, plan.rate, plan.seconds);
        let done = one_run(plan).await?;
        eprintln!("  p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms", done.p50_ms, done.p99_ms, done.p999_ms);
        all.push(done);
    }
    let of = |figure: fn(&LoadDone) -> f64| {
        let each: Vec<f64> = all.iter().map(figure).collect();
        json!({ "median": median(&each), "rounds": each })
    };
    Ok(json!({
        "bench": "interactions",
        "machine": machine(),
        "settings": {
            "agents": plan.agents, "rate": plan.rate, "seconds": plan.seconds, "rounds": plan.rounds,
            "connections": CONNECTIONS, "store": "sqlite, WAL, synchronous=FULL",
        },
        "answer_ms": {
            "p50": of(|done| done.p50_ms), "p99": of(|done| done.p99_ms), "p99.9": of(|done| done.p999_ms),
            "max": of(|done| done.max_ms),
        },
    }))
}

/// A fresh desk each time.
async fn one_run(plan: &Plan) -> anyhow::Result<LoadDone> {
    let mut stage = Stage::open().await?;
    stage.provision(plan.agents).await?;
    let orders = LoadOrders {
        urls: stage.urls(),
        feeds: Vec::new(),
        door: Some(open_door(&stage, plan).await?),
        gateways: Vec::new(), // they sleep
        in_tenants: false,
        messages: plan.rate * plan.seconds,
        bytes: 0,
        rate: Some(plan.rate),
    };
    let mut load = LoadProcess::start(&orders).await?;
    let _ready: LoadReady = load.next().await?;
    let done: LoadDone = load.next().await?;
    let stored = stage.app.desk.meters().mail_rows.get();
    anyhow::ensure!(stored == orders.messages, "{stored} of {} interactions are stored", orders.messages);
    load.end().await;
    stage.close().await;
    Ok(done)
}

async fn open_door(stage: &Stage, plan: &Plan) -> anyhow::Result<DoorOrders> {
    let directory = stage.app.desk.directory();
    let sample = SampleBot::new().context("no key to sign with")?;
    let bot = BotNew {
        platform: PLATFORM.into(),
        id: "bench".into(),
        tenant: Some(FIRST_TENANT.into()),
        settings: sample.settings(),
        secrets: SampleBot::secrets(),
    };
    directory.bots().add(bot).await?;
    for number in 0..plan.agents {
        let [platform, tenant, instance] = [PLATFORM.to_owned(), FIRST_TENANT.to_owned(), format!("a{number}")];
        directory.bind(BindingNew { platform, user_id: SampleBot::user(number as u64), tenant, instance }).await?;
    }
    let address = stage.url.trim_start_matches("http://").to_owned();
    let (secret, people) = (String::new(), plan.agents as u64);
    Ok(DoorOrders { door: Door::Interactions, address, secret, people, bytes: 0 })
}
