//! The loop: mutate, run, keep inputs with new outcomes, stop at the first panic or when the time is over.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

use super::mutate::Mutator;

/// Inputs in the corpus, including seeds. When it is full, a new one replaces one that is not a seed.
const CORPUS_MAX: usize = 1024;
/// Time limit of one run, also in a debug build on a busy machine.
const RUN_LIMIT: Duration = Duration::from_secs(10);
/// Runs spent on making a failing input smaller.
const REDUCE_RUNS: usize = 4096;

/// What a target did with an input, as a number. Inputs with equal outcomes are equivalent for the engine.
pub type Outcome = u64;

/// The outcome for these facts.
pub fn outcome(facts: impl Hash) -> Outcome {
    let mut hasher = DefaultHasher::new(); // it has fixed keys: the same number in every process
    facts.hash(&mut hasher);
    hasher.finish()
}

/// A parser under test.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Panics if a property does not hold that must hold for every input.
    pub run: fn(&[u8]) -> Outcome,
    pub seeds: fn() -> Vec<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub seed: u64,
    pub time: Duration,
    /// Ends the loop after this many runs, even if there is time left.
    pub runs_max: u64,
    /// Runs only this input.
    pub input: Option<Vec<u8>>,
}

impl Settings {
    const SECONDS: u64 = 2;
    /// Fixed, so that the test command is reproducible. Longer runs set their own.
    const SEED: u64 = 1;

    /// From `FUZZ_SECONDS`, `FUZZ_SEED` and `FUZZ_INPUT` (hex).
    pub fn from_env() -> Self {
        let number = |name: &str, default: u64| match std::env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a whole number, not {text:?}")),
            Err(_) => default,
        };
        let input = std::env::var("FUZZ_INPUT").ok();
        Self {
            seed: number("FUZZ_SEED", Self::SEED),
            time: Duration::from_secs(number("FUZZ_SECONDS", Self::SECONDS)),
            runs_max: u64::MAX,
            input: input.map(|text| hex::decode(text).expect("FUZZ_INPUT must be hex digits")),
        }
    }
}

/// A run that found nothing.
#[derive(Debug)]
pub struct Report {
    pub target: &'static str,
    pub seed: u64,
    pub runs: u64,
    /// Number of different outcomes.
    pub outcomes: usize,
    pub time: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, seed, runs, outcomes, time } = self;
        write!(f, "fuzz {target}: {runs} runs, {outcomes} outcomes in {:.1} s (seed {seed})", time.as_secs_f64())
    }
}

/// An input that made a target panic or take too long.
#[derive(Debug)]
pub struct Crash {
    pub target: &'static str,
    pub seed: u64,
    /// Number of the run, from 1.
    pub run: u64,
    pub message: String,
    pub input: Vec<u8>,
    /// The smallest input found that fails in the same way.
    pub smallest: Vec<u8>,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, seed, run, message, input, smallest } = self;
        writeln!(f, "fuzz {target} failed in run {run} (seed {seed}): {message}")?;
        writeln!(f, "  input:    {}", input.escape_ascii())?;
        writeln!(f, "  smallest: {}", smallest.escape_ascii())?;
        writeln!(f, "  in hex:   {}", hex::encode(smallest))?;
        write!(f, "  again:    FUZZ_INPUT={} {}", hex::encode(smallest), command_of_this_test())
    }
}

/// The command that runs this test again, by what cargo and the test harness say of it.
fn command_of_this_test() -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "frontdesk-testkit".into());
    let binary = std::env::current_exe().ok().and_then(|path| path.file_stem()?.to_str().map(str::to_owned));
    let binary = binary.as_deref().and_then(|name| name.rsplit_once('-')).map_or("fuzz", |(name, _hash)| name);
    let test = std::thread::current().name().filter(|name| *name != "main").map(|name| format!(" {name}"));
    format!("cargo test -p {package} --test {binary}{}", test.unwrap_or_default())
}

/// Runs the target until the time is over or an input fails.
pub fn fuzz(target: &Target, settings: &Settings) -> Result<Report, Box<Crash>> {
    let crash = |run, input: &[u8], message| {
        let smallest = if settings.input.is_some() { input.to_vec() } else { reduce(target, input) };
        Box::new(Crash { target: target.name, seed: settings.seed, run, message, input: input.to_vec(), smallest })
    };
    let start = now();
    let report = |runs, outcomes: &HashSet<Outcome>| Report {
        target: target.name,
        seed: settings.seed,
        runs,
        outcomes: outcomes.len(),
        time: now() - start,
    };
    let mut outcomes = HashSet::new();
    if let Some(input) = &settings.input {
        outcomes.insert(attempt(target, input).map_err(|message| crash(1, input, message))?);
        return Ok(report(1, &outcomes));
    }
    let mut seeds = (target.seeds)();
    if seeds.is_empty() {
        seeds.push(Vec::new());
    }
    let mut mutator = Mutator::new(settings.seed, &seeds);
    let mut corpus = seeds.clone();
    let mut runs = 0;
    while runs < settings.runs_max && now() - start < settings.time {
        // The seeds come first, unchanged.
        let next = usize::try_from(runs).ok().and_then(|run| seeds.get(run));
        let input = next.cloned().unwrap_or_else(|| mutator.next(&corpus));
        runs += 1;
        let outcome = attempt(target, &input).map_err(|message| crash(runs, &input, message))?;
        if outcomes.insert(outcome) && next.is_none() {
            keep(&mut corpus, seeds.len(), input, outcomes.len());
        }
    }
    Ok(report(runs, &outcomes))
}

/// Adds to the corpus, or replaces an entry in turn.
fn keep(corpus: &mut Vec<Vec<u8>>, seeds: usize, input: Vec<u8>, turn: usize) {
    if corpus.len() < CORPUS_MAX.max(seeds + 1) {
        corpus.push(input);
    } else {
        let at = seeds + turn % (corpus.len() - seeds);
        corpus[at] = input;
    }
}

/// Runs the target once. The error is the message of its panic.
fn attempt(target: &Target, input: &[u8]) -> Result<Outcome, String> {
    let start = now();
    let done = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = now() - start;
    match done {
        Ok(_) if took > RUN_LIMIT => Err(format!("one run took {took:?}; the limit is {RUN_LIMIT:?}")),
        Ok(outcome) => Ok(outcome),
        Err(panic) => Err(panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without a message".to_owned())),
    }
}

/// Removes parts of the input, large ones first, as long as it still fails.
fn reduce(target: &Target, input: &[u8]) -> Vec<u8> {
    let _quiet = Quiet::new();
    let mut smallest = input.to_vec();
    let mut size = smallest.len() / 2;
    let mut runs = 0;
    while size > 0 {
        let mut at = 0;
        while at < smallest.len() {
            if runs == REDUCE_RUNS {
                return smallest;
            }
            runs += 1;
            let mut shorter = smallest.clone();
            shorter.drain(at..(at + size).min(smallest.len()));
            if catch_unwind(AssertUnwindSafe(|| (target.run)(&shorter))).is_err() {
                smallest = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    smallest
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// While it exists, panics of this thread are not printed, because reducing an input causes thousands of them.
struct Quiet;

impl Quiet {
    fn new() -> Self {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if !IS_QUIET.get() {
                    before(info);
                }
            }));
        });
        IS_QUIET.set(true);
        Self
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        IS_QUIET.set(false);
    }
}

#[allow(clippy::disallowed_methods, reason = "the loop is bounded by real time; what it does depends on the seed only")]
fn now() -> Instant {
    Instant::now()
}
