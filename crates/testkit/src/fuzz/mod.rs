//! Fuzzing on the stable toolchain: every parser that strangers reach is fed mutated input for a bounded time.
//!
//! ```sh
//! cargo test -p frontdesk-testkit --test fuzz                                   # two seconds for each target
//! FUZZ_SECONDS=600 cargo test -p frontdesk-testkit --test fuzz token            # ten minutes for one of them
//! FUZZ_INPUT=7b7d cargo test -p frontdesk-testkit --test fuzz token             # one input again, in hex
//! ```
//!
//! * `targets`: one function per parser. It reads the input and asserts what must hold for every input.
//! * `mutate`: makes a new input from known ones.
//! * `engine`: the loop. It keeps inputs that led to a new outcome, and reduces one that made a target panic.
//! * `seeds`: the inputs that a target begins with.
//!
//! The targets of cargo-fuzz in `fuzz/` call the same functions.

pub mod engine;
mod mutate;
mod seeds;
pub mod targets;

pub use engine::{Crash, Report, Settings, Target, fuzz};
