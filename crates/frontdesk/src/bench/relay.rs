//! `bench relay`: throughput and latency of deliveries.

use std::time::Duration;

use frontdesk_core::directory::facts::Scope;
use frontdesk_wire::TenantId;
use frontdesk_wire::api::{BindingNew, BotNew};
use serde_json::{Value, json};

use super::door::{CONNECTIONS, Door, DoorOrders};
use super::feed;
use super::load::{LoadDone, LoadOrders, LoadReady};
use super::report::{Steal, machine, median};
use super::stage::{LoadProcess, Stage};
use crate::app::FIRST_TENANT;

const HOOK_KEY: &str = "the key of the benchmark";

pub(super) struct Plan {
    pub(super) messages: u64,
    pub(super) gateways: usize,
    pub(super) bytes: usize,
    pub(super) rate: u64,
    pub(super) seconds: u64,
    pub(super) rounds: usize,
    pub(super) door: Option<Door>,
    pub(super) shared: Shared,
}

/// Servers on one store.
pub(super) struct Shared {
    pub(super) desks: usize,
    /// Empty: the embedded one.
    pub(super) store: String,
    pub(super) bus: String,
}

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Value> {
    let (mut per_second, mut p50, mut p99, mut most) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut flood_steal, mut paced_steal) = (Vec::new(), Vec::new());
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}: throughput, {} events", plan.rounds, plan.messages);
        let steal = Steal::watch();
        let flood = one_run(plan, plan.messages, None).await?;
        flood_steal.push(steal.percent());
        per_second.push(plan.messages as f64 / flood.seconds);
        eprintln!(
            "  {:.0} events/s; latency at {}/s for {} s",
            plan.messages as f64 / flood.seconds,
            plan.rate,
            plan.seconds
        );
        let steal = Steal::watch();
        let paced = one_run(plan, plan.rate * plan.seconds, Some(plan.rate)).await?;
        let stolen = steal.percent();
        paced_steal.push(stolen);
        p50.push(paced.p50_ms);
        p99.push(paced.p99_ms);
        most.push(paced.max_ms);
        eprintln!(
            "  p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms; {stolen} % steal",
            paced.p50_ms, paced.p99_ms, paced.max_ms
        );
    }
    Ok(json!({
        "bench": "relay",
        "machine": machine(),
        "settings": {
            "messages": plan.messages, "gateways": plan.gateways, "event_bytes": plan.bytes, "rate": plan.rate,
            "seconds": plan.seconds, "rounds": plan.rounds, "door": plan.door,
            "connections": plan.door.map(|_| CONNECTIONS), "desks": plan.shared.desks, "store": plan.shared.describe(),
        },
        "throughput_per_s": { "median": median(&per_second).round(), "rounds": rounded(&per_second, 0), "steal_percent": flood_steal },
        "latency_ms": {
            "p50": median(&p50), "p99": median(&p99), "max": median(&most),
            "p50_rounds": rounded(&p50, 2), "p99_rounds": rounded(&p99, 2),
            "steal_percent": paced_steal,
        },
    }))
}

/// A new server for each run. Ends when every event was acked and the acks are saved.
async fn one_run(plan: &Plan, messages: u64, rate: Option<u64>) -> anyhow::Result<LoadDone> {
    let Shared { desks, store, bus } = &plan.shared;
    let mut stage = Stage::open_shared(*desks, store, bus).await?;
    stage.provision(plan.gateways).await?;
    stage.agree().await?;
    let door = match plan.door {
        Some(door) => Some(open_door(&stage, door, plan).await?),
        None => None,
    };
    let desks = stage.desks();
    let mut feeds = Vec::new();
    for desk in desks.iter().filter(|_| door.is_none()) {
        feeds.push(feed::open(desk.clone(), stage.app.stop.clone()).await?);
    }
    let orders = LoadOrders {
        urls: stage.urls(),
        feeds,
        door,
        gateways: stage.gateways.clone(),
        in_tenants: false,
        messages,
        bytes: plan.bytes,
        rate,
    };
    let mut load = LoadProcess::start(&orders).await?;
    let _ready: LoadReady = load.next().await?;
    let done: LoadDone = load.next().await?;
    let pushed: u64 = desks.iter().map(|desk| desk.meters().frames_pushed()).sum();
    anyhow::ensure!(pushed == messages, "some events were pushed twice or not at all: {pushed} of {messages}");
    let settled = async {
        let acks = || desks.iter().map(|desk| desk.meters().acks()).sum::<u64>();
        while acks() < messages || !desks[0].stores().ledger.waiting().await?.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::time::timeout(Duration::from_secs(10), settled).await??;
    load.end().await;
    stage.close().await;
    Ok(done)
}

/// The credential of a route; for webhooks a bot `h0`... for each agent.
async fn open_door(stage: &Stage, door: Door, plan: &Plan) -> anyhow::Result<DoorOrders> {
    let directory = stage.app.desk.directory();
    let secret = match door {
        Door::Chat => directory.create_token(&TenantId::from(FIRST_TENANT), Scope::Chat, None, None).await?.token,
        Door::Hooks => {
            for number in 0..plan.gateways {
                let bot = BotNew {
                    platform: "hooks".into(),
                    id: format!("h{number}").into(),
                    tenant: Some(FIRST_TENANT.into()),
                    settings: [].into(),
                    secrets: [("key".to_owned(), HOOK_KEY.to_owned())].into(),
                };
                directory.bots().add(bot).await?;
                let link = BindingNew {
                    platform: "hooks".into(),
                    user_id: format!("h{number}").into(),
                    tenant: FIRST_TENANT.into(),
                    instance: format!("a{number}").into(),
                };
                directory.bind(link).await?;
            }
            HOOK_KEY.to_owned()
        }
        Door::Vendors => anyhow::bail!("use `bench webhooks`"),
    };
    let address = stage.url.trim_start_matches("http://").to_owned();
    Ok(DoorOrders { door, address, secret, platforms: Vec::new(), people: plan.gateways as u64, bytes: plan.bytes })
}

impl Shared {
    pub(super) fn describe(&self) -> &'static str {
        match (self.store.is_empty(), self.bus.is_empty()) {
            (true, _) => "sqlite, WAL, synchronous=FULL",
            (false, true) => "postgres, bus by NOTIFY",
            (false, false) => "postgres, bus by redis",
        }
    }
}

fn rounded(values: &[f64], digits: i32) -> Vec<f64> {
    let scale = 10f64.powi(digits);
    values.iter().map(|value| (value * scale).round() / scale).collect()
}
