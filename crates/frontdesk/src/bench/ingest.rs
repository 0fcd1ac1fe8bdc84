//! `bench ingest`: events judged and written with an fsync, while their agents are away.

use std::sync::Arc;

use frontdesk_core::intake::{TenantSource, Verified};
use frontdesk_core::{Desk, Intake};
use frontdesk_wire::{MessageEvent, Source};
use serde_json::{Value, json};

use super::report::{machine, median};
use super::stage::Stage;
use crate::app::FIRST_TENANT;

const AGENTS: usize = 50;
const FEEDS: u64 = 8;
const BATCH: u64 = 256;

pub(super) async fn run(messages: u64, rounds: usize) -> anyhow::Result<Value> {
    let mut per_second = Vec::new();
    for round in 1..=rounds {
        let mut stage = Stage::open().await?;
        stage.provision(AGENTS).await?;
        let began = tokio::time::Instant::now();
        let mut feeds = Vec::new();
        for feed in 0..FEEDS {
            let span = (messages * feed / FEEDS)..(messages * (feed + 1) / FEEDS);
            feeds.push(tokio::spawn(flood(stage.app.desk.clone(), span)));
        }
        for feed in feeds {
            feed.await??;
        }
        per_second.push((messages as f64 / began.elapsed().as_secs_f64()).round());
        eprintln!("round {round} of {rounds}: {} events/s", per_second[round - 1]);
        anyhow::ensure!(stage.app.desk.meters().mail_rows() == messages, "some events were not stored");
        stage.close().await;
    }
    Ok(json!({
        "bench": "ingest",
        "machine": machine(),
        "settings": { "messages": messages, "agents": AGENTS, "feeds": FEEDS, "batch": BATCH, "rounds": rounds,
                      "store": "sqlite, WAL, synchronous=FULL" },
        "events_per_s": { "median": median(&per_second), "rounds": per_second },
    }))
}

async fn flood(desk: Arc<Desk>, span: std::ops::Range<u64>) -> anyhow::Result<()> {
    let mut next = span.start;
    while next < span.end {
        let end = (next + BATCH).min(span.end);
        let receipts = desk.inbound().receive((next..end).map(intake).collect()).await?;
        anyhow::ensure!(receipts.iter().all(|receipt| receipt.fresh && receipt.verdict.outcome == "delivered"));
        next = end;
    }
    Ok(())
}

fn intake(number: u64) -> Intake {
    let person = number % AGENTS as u64;
    let source = Source {
        platform: "relay".into(),
        chat_id: format!("c{person}").into(),
        chat_type: "dm".into(),
        user_id: Some(format!("u{person}").into()),
        ..Source::default()
    };
    let event = MessageEvent {
        text: "the quick brown fox jumps over the lazy dog".into(),
        message_type: "text".into(),
        source,
        message_id: Some(format!("m{number}").into()),
        ..MessageEvent::default()
    };
    Intake::new(Verified::by("the bench itself"), TenantSource::Tenant(FIRST_TENANT.into()), "desk".into(), event)
}
