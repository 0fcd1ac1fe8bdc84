//! Measures text search in very many rows. Not part of the normal test run: `cargo test --release -p frontdesk-store
//! --test data_speed -- --ignored --nocapture`. `ROWS` sets the number of rows; the default is one million.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "it measures this machine")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use frontdesk_core::Env;
use frontdesk_core::port::data::{Data, DataQuery};
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::store_suite::{accept, acceptance};
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::PortableData;
use serde_json::json;

const WORDS: u64 = 50_000;
const ASKED: usize = 300;
/// Time limit of a query, at the 99th percentile.
const BOUND: Duration = Duration::from_millis(50);
/// The same for queries that must look at a million rows to find none, or at rows made to be slow. The search skips no
/// rows.
const HARD_BOUND: Duration = Duration::from_millis(250);

/// Word frequencies are skewed: a few words are in most rows, most words are in few.
fn text(env: &TestEnv, number: u64) -> String {
    let mut raw = [0; 8 * 30];
    env.fill(&mut raw);
    let mut words = vec!["the".to_owned(), if number.is_multiple_of(2) { "even" } else { "odd" }.to_owned()];
    for dice in raw.as_chunks::<8>().0 {
        let dice = u64::from_le_bytes(*dice);
        let exponent = dice % 16;
        words.push(format!("w{}", (dice >> 8) % (WORDS >> exponent).max(1)));
    }
    words.join(" ")
}

fn row(env: &TestEnv, number: u64) -> PortableData {
    let text = text(env, number);
    let mut curated = serde_json::Map::new();
    curated.insert("vault".into(), json!(if number.is_multiple_of(100_000) { "rare" } else { "common" }));
    curated.insert("agent_id".into(), json!(format!("agent-{}", number % 1_000)));
    PortableData {
        id: format!("{number}"),
        summary: text.chars().take(60).collect(),
        detail: Some(text),
        curated,
        ..PortableData::default()
    }
}

async fn fill(store: &Arc<SqliteStore>, tenant: &'static str, rows: u64) {
    let env = TestEnv::new(rows);
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..rows {
        if writes.len() >= 2_000 {
            writes.join_next().await.unwrap().unwrap();
        }
        let (store, row) = (store.clone(), row(&env, number));
        writes.spawn(async move { store.data_put(&TenantId::from(tenant), row).await.unwrap() });
    }
    while let Some(done) = writes.join_next().await {
        done.unwrap();
    }
}

async fn timed(
    store: &SqliteStore,
    name: &str,
    make: impl Fn(usize) -> (Vec<String>, Vec<(&'static str, String)>),
) -> Duration {
    let (mut times, mut found) = (Vec::new(), 0);
    for turn in 0..ASKED {
        let (phrases, filters) = make(turn);
        let filters = filters.into_iter().map(|(key, value)| (key.to_owned(), vec![json!(value)])).collect();
        let query = DataQuery { phrases, filters, limit: 10, now_s: 1 };
        let start = Instant::now();
        found += store.data_query(&"acme".into(), query).await.unwrap().len();
        times.push(start.elapsed());
    }
    times.sort();
    let (median, p99, worst) = (times[ASKED / 2], times[ASKED * 99 / 100], times[ASKED - 1]);
    println!("{name:<34} median {median:>10.1?}  p99 {p99:>10.1?}  worst {worst:>10.1?}  found {found}");
    p99
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// All tenants share one writer: measures how long the largest rows block it, and messages behind them.
async fn hold_up(store: &Arc<SqliteStore>) {
    let long: Vec<String> = (0..170_000_u32).map(|number| format!("w{}", number % 50_000)).collect();
    let long: Arc<str> = long.join(" ")[..1 << 20].into();
    let mut rows = tokio::task::JoinSet::new();
    let start = Instant::now();
    for number in 0..40 {
        let (store, detail) = (store.clone(), Some(long.to_string()));
        let row = PortableData { id: format!("long {number}"), detail, ..PortableData::default() };
        rows.spawn(async move { store.data_put(&"acme".into(), row).await.unwrap() });
    }
    let mut waits = Vec::new();
    for number in 0.. {
        let asked = Instant::now();
        accept(&**store, acceptance(number, &[7])).await;
        waits.push(asked.elapsed());
        if rows.try_join_next().is_none() && rows.is_empty() {
            break;
        }
    }
    let each = start.elapsed() / 40;
    waits.sort();
    let (median, worst) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("40 rows of 1 MiB: {each:.1?} each; mail meanwhile: median {median:.1?}, worst {worst:.1?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes a million rows"]
async fn search_is_fast_in_many_rows() {
    let rows = std::env::var("ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path(), 1).unwrap());
    let start = Instant::now();
    fill(&store, "neighbour", rows / 20).await;
    fill(&store, "acme", rows).await;
    fill(&store, "later", rows / 20).await;
    let took = start.elapsed();
    let bytes = std::fs::metadata(folder.path().join("frontdesk.db")).unwrap().len();
    println!("{rows} rows and a tenth more of others' written in {took:.1?}, {} MB", bytes >> 20);
    let none = Vec::<(&'static str, String)>::new;
    let (mut plain, mut hard) = (Vec::new(), Vec::new());
    plain.push(timed(&store, "a word in every row", |_| (words(&["the"]), none())).await);
    plain.push(timed(&store, "two words in every other row", |_| (words(&["the", "even"]), none())).await);
    hard.push(timed(&store, "common words that never meet", |_| (words(&["odd", "even"]), none())).await);
    plain.push(timed(&store, "a rare word", |turn| (words(&[&format!("w{}", 40_000 + turn)]), none())).await);
    plain
        .push(timed(&store, "rare and common", |turn| (words(&[&format!("w{}", 30_000 + turn), "the"]), none())).await);
    plain.push(timed(&store, "two middling words", |turn| (words(&[&format!("w{}", 100 + turn), "w7"]), none())).await);
    plain.push(timed(&store, "a phrase of common words", |_| (words(&["the even"]), none())).await);
    hard.push(timed(&store, "a phrase that is nowhere", |_| (words(&["even the"]), none())).await);
    plain.push(timed(&store, "no such word", |_| (words(&["nowhere"]), none())).await);
    plain.push(timed(&store, "newest", |_| (Vec::new(), none())).await);
    plain.push(timed(&store, "a common filter", |_| (Vec::new(), vec![("vault", "common".into())])).await);
    plain.push(timed(&store, "a rare filter", |_| (Vec::new(), vec![("vault", "rare".into())])).await);
    plain.push(
        timed(&store, "a common word, a rare filter", |_| (words(&["the"]), vec![("vault", "rare".into())])).await,
    );
    plain.push(
        timed(&store, "a common word of one agent", |turn| {
            (words(&["the"]), vec![("agent_id", format!("agent-{turn}"))])
        })
        .await,
    );
    hold_up(&store).await;
    for number in 0..300 {
        let text = "a ".repeat(500);
        let row = PortableData { id: format!("dense {number}"), detail: Some(text), ..PortableData::default() };
        store.data_put(&"acme".into(), row).await.unwrap();
    }
    hard.push(timed(&store, "rows that are one word 500 times", |_| (words(&["a"]), none())).await);
    assert!(plain.iter().all(|p99| *p99 < BOUND), "{plain:?}");
    assert!(hard.iter().all(|p99| *p99 < HARD_BOUND), "{hard:?}");
}
