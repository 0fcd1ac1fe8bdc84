//! Several desks over one store, with faults chosen by a seed.
//!
//! `SIMULATION_SEED=n` replays one seed, `SIMULATION_SEEDS=n` runs that many.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use frontdesk_store::memory::MemoryStore;
use frontdesk_testkit::simulation::{Failure, Sabotage, Settings, simulate};

const SEEDS: u64 = 200;
const STEPS: usize = 150;

fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<Vec<String>, Box<Failure>> {
    simulate(seed, Arc::new(MemoryStore::new(1)), Settings { steps: STEPS, sabotage })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

#[test]
fn the_invariants_hold() {
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    let failures: Vec<_> = seeds.filter_map(|seed| run(seed, None).err()).collect();
    if let Some(first) = failures.first() {
        let all: Vec<String> =
            failures.iter().map(|it| format!("seed {}, step {}: {}", it.seed, it.step, it.what)).collect();
        let how = format!("SIMULATION_SEED={} cargo nextest run -p frontdesk-store --test simulation", first.seed);
        panic!("{first}\n{} seeds failed:\n{}\nreplay the first one: {how}", all.len(), all.join("\n"));
    }
}

#[test]
fn a_seed_replays_to_the_same_log() {
    for seed in 0..10 {
        let log = |seed| run(seed, None).unwrap_or_else(|failure| failure.log);
        assert_eq!(log(seed), log(seed), "seed {seed}");
    }
}

/// A checker that finds nothing proves nothing.
#[test]
fn every_sabotage_is_found() {
    for (sabotage, what) in [
        (Sabotage::ForgetRows, "has 0 rows"),
        (Sabotage::BelieveWritten, "never got it"),
        (Sabotage::ForgetPositions, "was saved as acked before"),
        (Sabotage::GrantEveryWake, "wakes gw-"),
        (Sabotage::MarkLiveEntriesUnknown, "is marked unknown although"),
        (Sabotage::MissRevocations, "although it was revoked"),
    ] {
        let found = (0..40).filter_map(|seed| run(seed, Some(sabotage)).err()).find(|it| it.what.contains(what));
        let found = found.unwrap_or_else(|| panic!("{sabotage:?} was not found"));
        println!("{sabotage:?}: seed {}, step {}: {}", found.seed, found.step, found.what);
    }
}
