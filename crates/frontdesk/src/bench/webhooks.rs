//! `bench webhooks`: how soon vendors are answered while all agents sleep. An answer means that the message is stored.

use std::collections::HashSet;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use frontdesk_platforms::samples;
use frontdesk_wire::api::{BindingNew, BotNew};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::door::{BOT, CONNECTIONS, Door, DoorOrders};
use super::load::{LoadDone, LoadOrders, LoadReady};
use super::report::{Steal, machine, median};
use super::stage::{LoadProcess, Stage};
use crate::app::FIRST_TENANT;

pub(super) struct Plan {
    pub(super) agents: usize,
    pub(super) rate: u64,
    pub(super) seconds: u64,
    pub(super) rounds: usize,
    /// None: all.
    pub(super) platforms: Vec<String>,
}

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Value> {
    let known: Vec<String> = samples().iter().map(|it| it.platform().to_owned()).collect();
    for name in &plan.platforms {
        anyhow::ensure!(known.contains(name), "{name:?} is not one of {}", known.join(", "));
    }
    let is_wanted = |name: &String| plan.platforms.is_empty() || plan.platforms.contains(name);
    let platforms: Vec<String> = known.into_iter().filter(is_wanted).collect();
    let (mut all, mut steal) = (Vec::new(), Vec::new());
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}: {} messages/s for {} s", plan.rounds, plan.rate, plan.seconds);
        let stolen = Steal::watch();
        let done = one_run(plan, &platforms).await?;
        steal.push(stolen.percent());
        eprintln!("  p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms", done.p50_ms, done.p99_ms, done.p999_ms);
        all.push(done);
    }
    let of = |figure: &dyn Fn(&LoadDone) -> f64| {
        let each: Vec<f64> = all.iter().map(figure).collect();
        json!({ "median": median(&each), "rounds": each })
    };
    let each = platforms.iter().enumerate().map(|(at, name)| {
        let (p999, longest) = (of(&|done| done.vendors[at].0), of(&|done| done.vendors[at].1));
        (name.clone(), json!({ "p99.9": p999, "max": longest }))
    });
    Ok(json!({
        "bench": "webhooks",
        "machine": machine(),
        "settings": {
            "agents": plan.agents, "rate": plan.rate, "seconds": plan.seconds, "rounds": plan.rounds,
            "connections": CONNECTIONS, "store": "sqlite, WAL, synchronous=FULL", "platforms": platforms,
        },
        "answer_ms": {
            "p50": of(&|done| done.p50_ms), "p99": of(&|done| done.p99_ms), "p99.9": of(&|done| done.p999_ms),
            "max": of(&|done| done.max_ms), "steal_percent": steal,
        },
        "platforms": each.collect::<serde_json::Map<_, _>>(),
    }))
}

/// A new server for each run.
async fn one_run(plan: &Plan, platforms: &[String]) -> anyhow::Result<LoadDone> {
    let mut stage = Stage::open().await?;
    stage.provision(plan.agents).await?;
    add_bots(&stage, plan, platforms).await?;
    let door = DoorOrders {
        door: Door::Vendors,
        address: stage.url.trim_start_matches("http://").to_owned(),
        secret: String::new(),
        platforms: platforms.to_vec(),
        people: plan.agents as u64,
        bytes: 0,
    };
    let orders = LoadOrders {
        urls: stage.urls(),
        feeds: Vec::new(),
        door: Some(door),
        gateways: Vec::new(), // they sleep
        in_tenants: false,
        messages: plan.rate * plan.seconds,
        bytes: 0,
        rate: Some(plan.rate),
    };
    let mut load = LoadProcess::start(&orders).await?;
    let _ready: LoadReady = load.next().await?;
    let done: LoadDone = load.next().await?;
    let stored = stage.app.desk.meters().mail_rows();
    anyhow::ensure!(stored == orders.messages, "{stored} of {} messages are stored", orders.messages);
    load.end().await;
    stage.close().await;
    Ok(done)
}

/// A bot for each platform, and each person linked to an agent.
async fn add_bots(stage: &Stage, plan: &Plan, platforms: &[String]) -> anyhow::Result<()> {
    let directory = stage.app.desk.directory();
    for sample in samples().into_iter().filter(|it| platforms.iter().any(|name| name == it.platform())) {
        let vendor = open_vendor(stage, sample.vendor_answer()).await?;
        let bot = BotNew {
            platform: sample.platform().to_owned(),
            id: BOT.into(),
            tenant: Some(FIRST_TENANT.into()),
            settings: sample.settings(&vendor),
            secrets: sample.secrets(),
        };
        directory.bots().add(bot).await?;
        let mut linked = HashSet::new();
        for number in 0..plan.agents {
            let user_id = sample.user(BOT, number as u64);
            if linked.insert(user_id.clone()) {
                let link = BindingNew {
                    platform: sample.platform().into(),
                    user_id: user_id.into(),
                    tenant: FIRST_TENANT.into(),
                    instance: format!("a{number}").into(),
                };
                directory.bind(link).await?;
            }
        }
    }
    Ok(())
}

/// Answers what a platform asks its vendor. Returns its URL.
async fn open_vendor(stage: &Stage, answer: &'static str) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let answers = Router::new().fallback(async move || ([(CONTENT_TYPE, "application/json")], answer));
    let stop = stage.app.stop.clone();
    tokio::spawn(async move { stop.run_until_cancelled(axum::serve(listener, answers).into_future()).await });
    Ok(url)
}
