//! `bench agents`: messages delivered durably, the catalogue poll of a large skill store, and searches in a
//! large data store. In the server, as its handlers call it; the network is not part of it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::agents::AgentsCaller;
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::{
    AgentPut, DataStore as _, DataWrite, DeliveryMeta, DeliveryPayload, Origin, QueryFilters, SkillNote,
    SkillStore as _,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::report::{machine, median, quantile};
use super::stage::Stage;
use crate::app::FIRST_TENANT;

const AGENTS: u64 = 50;
/// Senders at once; each waits for its receipt before it speaks again.
const SENDERS: u64 = 64;
/// Writers at once while a store is filled.
const FILLERS: u64 = 256;
const POLLS: u64 = 20_000;
const QUERIES: u64 = 2_000;
/// Words of the data store. The first are in every row, the last in few: as in real text.
const VOCABULARY: u64 = 50_000;
const WORDS_PER_ROW: u64 = 24;

pub(super) struct Plan {
    pub(super) messages: u64,
    pub(super) skills: u64,
    pub(super) rows: u64,
    pub(super) rounds: usize,
}

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Value> {
    let (mut per_second, mut p50, mut p99) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=plan.rounds {
        let stage = Stage::open().await?;
        let began = Instant::now();
        let mut times = deliver(&stage.app.desk, plan.messages).await?;
        per_second.push((plan.messages as f64 / began.elapsed().as_secs_f64()).round());
        times.sort_by(f64::total_cmp);
        p50.push(quantile(&times, 0.5).round());
        p99.push(quantile(&times, 0.99).round());
        eprintln!("round {round} of {}: {} messages/s, p99 {} us", plan.rounds, per_second[round - 1], p99[round - 1]);
        stage.close().await;
    }
    let stage = Stage::open().await?;
    let desk = &stage.app.desk;
    eprintln!("storing {} skills", plan.skills);
    fill(desk, plan.skills, |desk, n| async move {
        let source = format!("# Skill: s{n}\n# Status: Approved\n# Tags: bench, t{}\nemit(text=\"{n}\")\n", n % 100);
        desk.tenant_stores()
            .skills(AgentsCaller::operator(&TenantId::from(FIRST_TENANT)))
            .store(&format!("s{n:07}"), &source, &SkillNote::default())
            .await?;
        Ok(())
    })
    .await?;
    let polls = poll(desk).await?;
    eprintln!("storing {} rows", plan.rows);
    let began = Instant::now();
    fill(desk, plan.rows, |desk, n| async move {
        desk.tenant_stores()
            .data(AgentsCaller::operator(&TenantId::from(FIRST_TENANT)))
            .write(&DataWrite { content: text_of(n), ..DataWrite::default() })
            .await?;
        Ok(())
    })
    .await?;
    let writes_per_s = (plan.rows as f64 / began.elapsed().as_secs_f64()).round();
    let (found, found_rare) = search(desk).await?;
    stage.close().await;
    let spread = |values: &[f64]| json!({ "median": median(values), "rounds": values });
    Ok(json!({
        "bench": "agents",
        "machine": machine(),
        "settings": { "messages": plan.messages, "agents": AGENTS, "senders": SENDERS, "rounds": plan.rounds,
                      "skills": plan.skills, "polls": POLLS, "rows": plan.rows, "queries": QUERIES,
                      "vocabulary": VOCABULARY, "words_per_row": WORDS_PER_ROW,
                      "store": "sqlite, WAL, synchronous=FULL" },
        "deliver": { "per_s": spread(&per_second), "p50_us": spread(&p50), "p99_us": spread(&p99) },
        "skill_poll_us": summary(&polls),
        "data_writes_per_s": writes_per_s,
        "fts_two_common_words_us": summary(&found),
        "fts_common_and_rare_us": summary(&found_rare),
    }))
}

async fn deliver(desk: &Arc<Desk>, messages: u64) -> anyhow::Result<Vec<f64>> {
    let tenant = TenantId::from(FIRST_TENANT);
    for agent in 0..AGENTS {
        desk.agents().put_agent(AgentsCaller::of(&tenant), &format!("a{agent}").into(), AgentPut::default()).await?;
    }
    let mut senders = Vec::new();
    for sender in 0..SENDERS {
        let (desk, tenant) = (desk.clone(), tenant.clone());
        senders.push(tokio::spawn(async move {
            let who = AgentsCaller::of(&tenant);
            let mut times = Vec::new();
            for number in (sender..messages).step_by(SENDERS as usize) {
                let meta = DeliveryMeta {
                    dispatch_id: format!("d-{number}"),
                    sent_at: desk.env().now_ms(),
                    origin: Origin { skill_name: Some("bench".into()), ..Origin::default() },
                    ..DeliveryMeta::default()
                };
                let payload = DeliveryPayload::Augment { content: "x".repeat(256), meta };
                let began = Instant::now();
                let receipt = desk.messages().deliver(who, &format!("a{}", number % AGENTS), &payload).await?;
                times.push(micros(began.elapsed()));
                anyhow::ensure!(receipt.warnings.is_empty(), "{receipt:?}");
            }
            Ok::<_, anyhow::Error>(times)
        }));
    }
    let mut times = Vec::new();
    for sender in senders {
        times.extend(sender.await??);
    }
    anyhow::ensure!(times.len() as u64 == messages, "some messages were not delivered");
    Ok(times)
}

/// Does one thing many times, by several writers at once.
async fn fill<F: Future<Output = anyhow::Result<()>> + Send>(
    desk: &Arc<Desk>,
    count: u64,
    one: impl Fn(Arc<Desk>, u64) -> F + Copy + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let mut writers = Vec::new();
    for writer in 0..FILLERS {
        let desk = desk.clone();
        writers.push(tokio::spawn(async move {
            for number in (writer..count).step_by(FILLERS as usize) {
                one(desk.clone(), number).await?;
            }
            Ok::<_, anyhow::Error>(())
        }));
    }
    for writer in writers {
        writer.await??;
    }
    Ok(())
}

/// A dashboard asks whether anything changed; nothing did.
async fn poll(desk: &Arc<Desk>) -> anyhow::Result<Vec<f64>> {
    let skills = desk.tenant_stores().skills(AgentsCaller::operator(&TenantId::from(FIRST_TENANT)));
    let known = skills.version().await?;
    let mut times = Vec::new();
    for _ in 0..POLLS {
        let began = Instant::now();
        let version = skills.version().await?;
        times.push(micros(began.elapsed()));
        anyhow::ensure!(version == known, "the catalog version changed without a write");
    }
    Ok(times)
}

/// Two words that are in many rows, then one of those with one that is in few.
async fn search(desk: &Arc<Desk>) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let data = desk.tenant_stores().data(AgentsCaller::operator(&TenantId::from(FIRST_TENANT)));
    let (mut common, mut rare) = (Vec::new(), Vec::new());
    for number in 0..QUERIES {
        let two = format!("{} {}", word(number % 40), word(number % 37 + 40));
        let one = format!("{} {}", word(number % 40), word(VOCABULARY / 2 + number));
        for (query, times) in [(two, &mut common), (one, &mut rare)] {
            let filters = QueryFilters { query, limit: Some(10), ..QueryFilters::default() };
            let began = Instant::now();
            let items = data.query(&filters).await?;
            times.push(micros(began.elapsed()));
            anyhow::ensure!(items.len() <= 10);
        }
    }
    Ok((common, rare))
}

/// Squaring a fair draw makes low numbers common: a few words are in most rows.
fn text_of(row: u64) -> String {
    let words = (0..WORDS_PER_ROW).map(|place| {
        let draw = scatter(row * WORDS_PER_ROW + place);
        let fair = draw as f64 / u64::MAX as f64;
        word((fair.powi(3) * VOCABULARY as f64) as u64)
    });
    words.collect::<Vec<_>>().join(" ")
}

fn word(number: u64) -> String {
    format!("w{number}")
}

/// The same number always gives the same, and neighbours have nothing in common.
fn scatter(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

fn summary(times: &[f64]) -> Value {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |part| quantile(&sorted, part).round();
    json!({ "p50": at(0.5), "p99": at(0.99), "max": at(1.0) })
}
