//! `bench alarms`: a million armed alarms: memory, lateness, a burst and a restart.
//!
//! Every fire carries a token that was signed for it, and is claimed and ended durably.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::directory::{Identity, ProvenInstance};
use frontdesk_wire::cron::ProvisionAlarm;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::report::{machine, rss_bytes};
use super::sink::{SinkDone, SinkOrders, SinkReady};
use super::stage::LoadProcess;
use crate::app::{FIRST_TENANT, Frontdesk};
use crate::config::Config;

const AGENTS: u64 = 100;
/// Agents that arm at the same time.
const ARMING: u64 = 256;
/// The alarms that only wait come due in ten minutes and later: within what is held in memory.
const WAITING_MS: u64 = 600_000;
/// Time between the arming of the alarms that are measured and the first of them.
const LEAD_MS: u64 = 5_000;

pub(super) struct Plan {
    pub(super) alarms: u64,
    pub(super) rate: u64,
    pub(super) seconds: u64,
    pub(super) storm: u64,
}

struct Running {
    desk: Arc<Desk>,
    app: crate::edge::App,
    serving: tokio::task::JoinHandle<()>,
}

async fn open(config: &Config) -> anyhow::Result<Running> {
    let opened = Frontdesk::open(config).await?;
    let (app, desk) = (opened.app.clone(), opened.app.desk.clone());
    Ok(Running { desk, app, serving: tokio::spawn(opened.serve()) })
}

impl Running {
    async fn close(self) {
        self.app.stop.cancel();
        let _ = self.serving.await; // a panic of the server has been printed already
    }
}

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Value> {
    let folder: PathBuf = std::env::temp_dir().join(format!("frontdesk-bench-{}", std::process::id()));
    let mut config = Config::load(None)?;
    config.data_dir.clone_from(&folder);
    config.listen = "127.0.0.1:0".into();
    config.outcall.allow = vec!["127.0.0.0/8".into()];
    config.cron.armed_per_tenant = 0;
    let due = plan.rate * plan.seconds;
    let counts = [("rate", due as usize), ("storm", plan.storm as usize), ("first", 1)];
    let kinds: HashMap<String, usize> = counts.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect();
    let mut sink = LoadProcess::start_as("bench-sink", &SinkOrders { kinds }).await?;
    let url = sink.next::<SinkReady>().await?.url;

    let running = open(&config).await?;
    let instances = instances(&running.desk).await?;
    let before = rss_bytes();
    let waiting = plan.alarms.saturating_sub(due + plan.storm);
    eprintln!("arming {waiting} alarms");
    let began = Instant::now();
    let from_ms = running.desk.env().now_ms() + WAITING_MS;
    let rate = plan.rate;
    arm(&running.desk, &instances, &url, "wait", waiting, move |n| from_ms + n * 1000 / rate).await?;
    let arm_per_s = waiting as f64 / began.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(1)).await; // lets the last buffers be freed
    let bytes_per_alarm = rss_bytes().saturating_sub(before) / waiting.max(1);

    eprintln!("{due} alarms at {rate}/s");
    let from_ms = running.desk.env().now_ms() + LEAD_MS;
    arm(&running.desk, &instances, &url, "rate", due, move |n| from_ms + n * 1000 / rate).await?;
    let lateness: SinkDone = sink.next().await?;
    eprintln!("  p50 {} ms, p99 {} ms, max {} ms", lateness.p50_ms, lateness.p99_ms, lateness.max_ms);

    eprintln!("burst of {} alarms", plan.storm);
    let at_ms = running.desk.env().now_ms() + LEAD_MS;
    arm(&running.desk, &instances, &url, "storm", plan.storm, move |_| at_ms).await?;
    let storm: SinkDone = sink.next().await?;
    eprintln!("  all delivered after {} ms", storm.max_ms);

    eprintln!("restart with {waiting} armed alarms");
    let at_ms = running.desk.env().now_ms() + 1_000;
    arm(&running.desk, &instances, &url, "first", 1, move |_| at_ms).await?;
    running.close().await;
    let now_ms = || frontdesk_core::Env::now_ms(&crate::env::SystemEnv);
    tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()) + 100)).await;
    let restart_at_ms = now_ms();
    let running = open(&config).await?;
    let first: SinkDone = sink.next().await?;
    let restart_ms = first.last_at_ms.saturating_sub(restart_at_ms);
    eprintln!("  first due alarm after {restart_ms} ms");
    anyhow::ensure!(lateness.early + storm.early + first.early == 0, "an alarm fired before its time");
    running.close().await;
    sink.end().await;
    let _ = std::fs::remove_dir_all(&folder);
    Ok(json!({
        "bench": "alarms",
        "machine": machine(),
        "settings": { "alarms": plan.alarms, "rate": plan.rate, "seconds": plan.seconds, "storm": plan.storm,
                      "agents": AGENTS, "token": "ES256", "store": "sqlite, WAL, synchronous=FULL" },
        "arm_per_s": arm_per_s.round(),
        "bytes_per_alarm": bytes_per_alarm,
        "lateness_ms": { "p50": lateness.p50_ms, "p99": lateness.p99_ms, "max": lateness.max_ms },
        "storm_ms": { "p50": storm.p50_ms, "last": storm.max_ms },
        "restart_ms": restart_ms,
    }))
}

async fn instances(desk: &Desk) -> anyhow::Result<Arc<Vec<ProvenInstance>>> {
    let mut instances = Vec::new();
    for number in 0..AGENTS {
        let who = Identity { tenant: FIRST_TENANT.into(), instance: Some(format!("a{number}").into()) };
        instances.push(desk.directory().proven_instance(&who).await?);
    }
    Ok(Arc::new(instances))
}

async fn arm(
    desk: &Arc<Desk>,
    instances: &Arc<Vec<ProvenInstance>>,
    url: &str,
    kind: &'static str,
    count: u64,
    due_ms: impl Fn(u64) -> u64 + Copy + Send + 'static,
) -> anyhow::Result<()> {
    let mut tasks = Vec::new();
    for task in 0..ARMING {
        let (desk, instances, url) = (desk.clone(), instances.clone(), url.to_owned());
        tasks.push(tokio::spawn(async move {
            for number in (task..count).step_by(ARMING as usize) {
                let due_ms = due_ms(number);
                let time = jiff::Timestamp::from_millisecond(due_ms.cast_signed())?;
                let ask = ProvisionAlarm {
                    job_id: format!("{kind}-{due_ms}-{number}").into(),
                    fire_at: time.to_string(),
                    agent_callback_url: url.clone(),
                    dedup_key: None,
                    misfire: None,
                };
                desk.cron().provision_alarm(&instances[(number % AGENTS) as usize], ask).await?;
            }
            Ok::<_, anyhow::Error>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}
