//! End-to-end isolation: generated worlds in a running server, with a socket for every agent. Nothing may cross a
//! tenant or reach an agent that the reference refuses.
//!
//! A failure prints the seed of its world; `ISOLATION_SEED=<seed>` runs that world alone.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls only the server")]

mod agents;
mod answers;
mod buttons;
mod change;
#[path = "../harness/mod.rs"]
mod harness;
mod reach;
mod scenario;
mod stops;
mod talk;

use std::collections::BTreeMap;

use frontdesk_testkit::world::World;

use scenario::Scenario;

const WORLDS: usize = 12;
const SEED_ENV: &str = "ISOLATION_SEED";
/// The rules change between the parts of a run.
const PARTS: usize = 2;
const ROUNDS: usize = 3;
const EVENTS_PER_ROUND: usize = 32;

/// Minimum number of times that each case must occur over all worlds, so that the generator does not silently lose a
/// case.
const OFTEN: [(&str, u64); 37] = [
    ("delivered owner/linked", 1_200),
    ("delivered scope/granted", 200),
    ("withheld owner/linked", 500),
    ("withheld owner/granted", 200),
    ("withheld owner/dm-default", 500),
    ("withheld owner/latest", 300),
    ("withheld owner/desk", 90),
    ("withheld principal/policy", 200),
    ("withheld visibility/owner", 60),
    ("withheld visibility/can_see", 200),
    ("withheld relevance/allowOtherBots", 19),
    ("withheld relevance/requireAddress", 35),
    ("said to the bot by name", 300),
    ("said to the bot by a command", 190),
    ("said to the bot by a reply", 150),
    ("quoted from this chat", 60),
    ("quoted from another tenant", 150),
    ("quoted from another chat", 80),
    ("context line to an own agent", 400),
    ("context line to a holder", 90),
    ("file fetched by its receiver", 130),
    ("file refused to another tenant", 700),
    ("file of another tenant not taken", 60),
    ("button pressed and delivered", 40),
    ("button pressed and withheld", 70),
    ("button pressed from another tenant", 400),
    ("stop of a running turn", 60),
    ("stop without a turn", 18),
    ("stop of nobody", 90),
    ("interrupt of an own turn", 25),
    ("interrupt of a neighbour's turn", 40),
    ("interrupt of a turn elsewhere", 80),
    ("explained", 2_000),
    ("explained to an agent", 3_000),
    ("not explained to another tenant", 1_400),
    ("act done", 2_500),
    ("act declined", 3_000),
];

/// How often each case occurred.
#[derive(Default)]
pub(crate) struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    fn add(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

/// Prints the seed of the world if the test fails in it.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the world of seed {0} ({SEED_ENV}={0} runs it alone)", self.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_crosses_a_tenant_or_reaches_an_agent_that_the_reference_refuses() {
    if let Ok(seed) = std::env::var(SEED_ENV) {
        Box::pin(live_through(seed.parse().expect("ISOLATION_SEED must be a number"))).await;
        return;
    }
    let mut tally = Tally::default();
    let seeds = (0..).filter(|seed| World::generate(*seed).tenants.len() > 1);
    for seed in seeds.take(WORLDS) {
        tally.add(Box::pin(live_through(seed)).await);
    }
    for (what, count) in &tally.0 {
        println!("{count:>7}  {what}");
    }
    for (what, least) in OFTEN {
        let count = tally.0.get(what).copied().unwrap_or(0);
        assert!(count >= least, "{what:?} only {count} times, not {least}");
    }
}

/// Runs one world from setup to the final checks.
async fn live_through(seed: u64) -> Tally {
    let _seed = Seed(seed);
    let mut scenario = Scenario::open(seed).await;
    assert!(scenario.homes.len() > 1, "a world needs several tenants");
    for part in 0..PARTS {
        if part > 0 {
            scenario.change().await;
        }
        for _ in 0..ROUNDS {
            scenario.talk(EVENTS_PER_ROUND).await;
        }
        scenario.stop_turns().await;
        scenario.press_buttons().await;
        scenario.speak_everywhere().await;
        scenario.check_deliveries();
        scenario.check_files().await;
        scenario.check_answers().await;
        scenario.part += 1;
    }
    scenario.check_marks().await;
    scenario.close().await
}
