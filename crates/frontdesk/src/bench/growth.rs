//! `bench growth`: what an event costs with more tenants, and with more servers on one store.
//!
//! All servers run in this process, each with its own connections. What the store costs is what the processes of a Postgres on
//! the same machine use.

use std::time::Duration;

use frontdesk_core::DeskError;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::feed;
use super::load::{LoadDone, LoadOrders, LoadReady};
use super::relay::Shared;
use super::report::{machine, rss_bytes};
use super::stage::{Gateway, LoadProcess, Stage, tenant_of};

/// Agents with a socket that get the messages, each in a tenant of its own. The other tenants have one that sleeps.
const ACTIVE: usize = 96;
/// How long the servers are watched while nothing happens.
const REST: Duration = Duration::from_secs(10);
/// Of a process's times in /proc.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) struct Plan {
    pub(super) tenants: Vec<usize>,
    pub(super) desks: Vec<usize>,
    pub(super) messages: u64,
    pub(super) bytes: usize,
    pub(super) store: String,
    pub(super) bus: String,
}

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Value> {
    let (mut by_tenants, mut by_desks) = (Vec::new(), Vec::new());
    let mut stage = Stage::open_shared(1, &plan.store, &plan.bus).await?;
    for &tenants in &plan.tenants {
        add_tenants(&mut stage, tenants).await?;
        by_tenants.push(point(&stage, plan).await?);
    }
    let gateways = stage.gateways.clone();
    stage.close().await;
    for &desks in plan.desks.iter().filter(|_| !plan.store.is_empty()) {
        let began = Instant::now();
        let mut stage = Stage::open_shared(desks, &plan.store, &plan.bus).await?;
        stage.gateways.clone_from(&gateways);
        let start_ms = began.elapsed().as_millis() as u64 / desks as u64;
        stage.agree().await?;
        let mut found = point(&stage, plan).await?;
        found["start_ms_per_server"] = json!(start_ms);
        by_desks.push(found);
        stage.close().await;
    }
    let shared = Shared { desks: 1, store: plan.store.clone(), bus: plan.bus.clone() };
    Ok(json!({
        "bench": "growth",
        "machine": machine(),
        "settings": { "messages": plan.messages, "event_bytes": plan.bytes, "active_agents": ACTIVE, "store": shared.describe() },
        "tenants": by_tenants,
        "servers": by_desks,
    }))
}

/// Until there are this many, each with one agent.
async fn add_tenants(stage: &mut Stage, count: usize) -> anyhow::Result<()> {
    eprintln!("{count} tenants");
    for number in stage.gateways.len()..count {
        match stage.app.desk.directory().create_tenant(&tenant_of(number as u64)).await {
            Ok(()) | Err(DeskError::Conflict(_)) => {} // a shared store may have it from an earlier run
            Err(error) => return Err(error.into()),
        }
    }
    stage.provision_in(count, |number| tenant_of(number as u64)).await
}

/// The cost of events, and of doing nothing.
async fn point(stage: &Stage, plan: &Plan) -> anyhow::Result<Value> {
    let (desks, tenants) = (stage.desks(), stage.gateways.len());
    let active: Vec<Gateway> = stage.gateways.iter().take(ACTIVE).cloned().collect();
    let mut feeds = Vec::new();
    for desk in &desks {
        feeds.push(feed::open(desk.clone(), stage.app.stop.clone()).await?);
    }
    let orders = LoadOrders {
        urls: stage.urls(),
        feeds,
        door: None,
        gateways: active,
        in_tenants: true,
        messages: plan.messages,
        bytes: plan.bytes,
        rate: None,
    };
    let resting = Cpu::now(0);
    tokio::time::sleep(REST).await;
    let rest = Cpu::now(0).since(&resting);
    let mut load = LoadProcess::start(&orders).await?;
    let _ready: LoadReady = load.next().await?;
    let began = Cpu::now(load.id());
    let done: LoadDone = load.next().await?;
    let spent = Cpu::now(load.id()).since(&began);
    load.end().await;
    let us = |seconds: f64| (seconds * 1e6 / plan.messages as f64 * 10.0).round() / 10.0;
    let ms_per_s = |seconds: f64| (seconds / REST.as_secs_f64() * 1e4).round() / 10.0;
    let found = json!({
        "servers": desks.len(), "tenants": tenants,
        "events_per_s": (plan.messages as f64 / done.seconds).round(),
        "cpu_us_per_event": { "servers": us(spent.own), "store": us(spent.store), "load": us(spent.load) },
        "rest_cpu_ms_per_s": { "servers": ms_per_s(rest.own), "store": ms_per_s(rest.store) },
        "rss_mb": (rss_bytes() as f64 / 1e5).round() / 10.0,
    });
    eprintln!("  {found}");
    Ok(found)
}

/// Seconds of processor time.
struct Cpu {
    /// Of this process.
    own: f64,
    /// Of the load process.
    load: f64,
    /// Of the processes of a Postgres on this machine.
    store: f64,
}

impl Cpu {
    fn now(load: u32) -> Self {
        let load = if load == 0 { 0.0 } else { seconds_of(&load.to_string(), None) };
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        let processes = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let store = processes.map(|process| seconds_of(&process, Some("postgres"))).sum();
        Self { own: seconds_of("self", None), load, store }
    }

    fn since(&self, before: &Self) -> Self {
        Self { own: self.own - before.own, load: self.load - before.load, store: self.store - before.store }
    }
}

/// Of a process, if it has this name.
fn seconds_of(process: &str, name: Option<&str>) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The second field is the name in parentheses, which may contain any character.
    let Some((head, fields)) = text.rsplit_once(')') else { return 0.0 };
    if name.is_some_and(|name| !head.ends_with(&format!("({name}"))) {
        return 0.0;
    }
    // User and system time are the 14th and 15th field.
    let times = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    times.sum::<f64>() / TICKS_PER_SECOND
}
