//! Mutated inputs, by the engine of the test kit: `FUZZ_SECONDS=600 cargo test -p frontdesk-platforms markdown::tests::fuzz`.
//!
//! It is here and not among the targets of the test kit, because that crate may not depend on platforms.
//! The first byte of the input is the dialect, the second the unit, the next two are the limit; the rest is the text.

use frontdesk_testkit::fuzz::engine::{Outcome, outcome};
use frontdesk_testkit::fuzz::{Settings, Target, fuzz};

use super::super::Dialect;
use super::cases;
use super::judge::{UNITS, judged};

const LIMIT_MAX: usize = 600;

fn run(input: &[u8]) -> Outcome {
    let Some((head, rest)) = input.split_first_chunk::<4>() else { return 0 };
    let dialect = Dialect::ALL[usize::from(head[0]) % Dialect::ALL.len()];
    let unit = UNITS[usize::from(head[1]) % UNITS.len()];
    let limit = 1 + usize::from(u16::from_le_bytes([head[2], head[3]])) % LIMIT_MAX;
    let parts = judged(dialect, &String::from_utf8_lossy(rest), limit, unit);
    // What kinds of markup are there.
    let first = parts.first().map(|part| part.markup.as_str()).unwrap_or_default();
    let shape: Vec<bool> = ["*", "_", "~", "`", "```", ">", "](", "•", "|", "\\", "<", "1", "—", "\u{200B}"]
        .iter()
        .map(|marker| first.contains(marker))
        .collect();
    outcome((head[0] % 6, parts.len().min(6), shape))
}

fn seeds() -> Vec<Vec<u8>> {
    let inputs = cases::inputs();
    let with_head = |(at, text): (usize, &String)| {
        let mut seed = vec![u8::try_from(at % 251).unwrap_or_default(), 1, 120, 0];
        seed.extend(text.as_bytes().iter().take(1_000));
        seed
    };
    inputs.iter().enumerate().map(with_head).collect()
}

#[test]
fn markdown() {
    let target = Target { name: "markdown", run, seeds };
    match fuzz(&target, &Settings::from_env()) {
        Ok(report) => println!("{report}"),
        Err(crash) => panic!("{crash}"),
    }
}
