//! Every fuzz target for `FUZZ_SECONDS` (two by default), and the proof that the engine finds what is there.
//!
//! A failure prints the seed, the input and the command that runs it again.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use frontdesk_testkit::fuzz::engine::{Outcome, outcome};
use frontdesk_testkit::fuzz::targets::ALL;
use frontdesk_testkit::fuzz::{Settings, Target, fuzz};
use serde_json::Value;

fn run(name: &str) {
    let target = ALL.iter().find(|target| target.name == name).expect("a target of this name");
    let settings = Settings::from_env();
    // Printed before the run: a stack overflow would end the process without another word.
    println!("fuzz {name}: seed {}, {} s", settings.seed, settings.time.as_secs());
    match fuzz(target, &settings) {
        Ok(report) => println!("{report}"),
        Err(crash) => panic!("{crash}"),
    }
}

#[test]
fn gateway_frame() {
    run("gateway_frame");
}

#[test]
fn lines() {
    run("lines");
}

#[test]
fn token() {
    run("token");
}

#[test]
fn manage_bodies() {
    run("manage_bodies");
}

#[test]
fn agent_bodies() {
    run("agent_bodies");
}

#[test]
fn cron_bodies() {
    run("cron_bodies");
}

#[test]
fn message_event() {
    run("message_event");
}

#[test]
fn session_keys() {
    run("session_keys");
}

#[test]
fn agent_address() {
    run("agent_address");
}

#[test]
fn skill_text() {
    run("skill_text");
}

#[test]
fn split_text() {
    run("split_text");
}

// ---- the engine itself --------------------------------------------------------------------------

#[test]
fn every_target_has_a_test_and_a_wrapper_for_cargo_fuzz() {
    let here = include_str!("fuzz.rs");
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    for target in ALL {
        assert!(here.contains(&format!("run(\"{}\")", target.name)), "{} has no test", target.name);
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{} is not in fuzz/", target.name);
    }
}

#[test]
fn the_seeds_of_a_target_are_told_apart() {
    for target in ALL {
        let seeds = (target.seeds)();
        let outcomes: std::collections::HashSet<Outcome> = seeds.iter().map(|seed| (target.run)(seed)).collect();
        assert!(outcomes.len() * 2 >= seeds.len(), "{}: {} of {}", target.name, outcomes.len(), seeds.len());
    }
}

/// A parser with a mistake: it does not expect the largest number together with a null.
fn planted(input: &[u8]) -> Outcome {
    let Ok(body) = serde_json::from_slice::<Value>(input) else { return 0 };
    let (limit, mode) = (body["limit"].as_u64(), body.get("mode"));
    assert!(!(limit == Some(u64::MAX) && mode == Some(&Value::Null)), "the planted bug");
    outcome((limit.map(u64::leading_zeros), mode.map(Value::is_null)))
}

fn planted_seeds() -> Vec<Vec<u8>> {
    vec![br#"{"limit":10,"mode":"any"}"#.to_vec()]
}

/// A mistake behind four steps, each of which can only be found after the one before it.
fn staged(input: &[u8]) -> Outcome {
    let steps = input.iter().zip(b"desk").take_while(|(byte, expected)| byte == expected).count();
    assert!(steps < 4, "the staged bug");
    outcome(steps)
}

fn settings(seed: u64) -> Settings {
    Settings { seed, time: Duration::from_mins(1), runs_max: 2_000_000, input: None }
}

#[test]
fn a_planted_bug_is_found_reduced_and_repeated() {
    let target = Target { name: "planted", run: planted, seeds: planted_seeds };
    let seed = 1;
    let crash = fuzz(&target, &settings(seed)).expect_err("the bug is found");
    assert!(crash.message.contains("the planted bug"), "{}", crash.message);
    assert!(crash.smallest.len() <= crash.input.len());
    assert_eq!(serde_json::from_slice::<Value>(&crash.smallest).unwrap()["limit"], u64::MAX);

    let again = fuzz(&target, &settings(seed)).expect_err("the same seed finds it again");
    assert_eq!((again.run, &again.input, &again.smallest), (crash.run, &crash.input, &crash.smallest));

    let one = Settings { input: Some(crash.smallest.clone()), ..settings(seed) };
    assert_eq!(fuzz(&target, &one).expect_err("the input alone does it too").run, 1);

    let shown = crash.to_string();
    let test = "cargo test -p frontdesk-testkit --test fuzz a_planted_bug_is_found_reduced_and_repeated";
    let replay = format!("FUZZ_INPUT={} {test}", hex::encode(&crash.smallest));
    assert!(shown.contains(&replay) && shown.contains(&format!("seed {seed}")), "{shown}");
    assert!(shown.contains("18446744073709551615"), "readable as well: {shown}");
}

#[test]
fn a_bug_behind_several_steps_is_found_because_progress_is_kept() {
    let target = Target { name: "staged", run: staged, seeds: || vec![b"....".to_vec()] };
    let crash = fuzz(&target, &settings(1)).expect_err("the bug is found");
    assert_eq!(crash.smallest, b"desk");
}

#[test]
fn a_target_without_a_bug_is_left_alone() {
    let target = Target { name: "clean", run: |input| outcome(input.len()), seeds: Vec::new };
    let report = fuzz(&target, &Settings { runs_max: 5_000, ..settings(1) }).unwrap();
    assert_eq!(report.runs, 5_000);
    assert!(report.outcomes > 100 && report.to_string().starts_with("fuzz clean: 5000 runs"));
    let once = Settings { input: Some(b"x".to_vec()), ..settings(1) };
    assert_eq!(fuzz(&ALL[0], &once).unwrap().runs, 1);
}
