//! Fuzzing on the stable toolchain: all parsers of untrusted input get mutated input for a bounded time.
//!
//! ```sh
//! cargo test -p frontdesk-testkit --test fuzz                                   # two seconds for each target
//! FUZZ_SECONDS=600 cargo test -p frontdesk-testkit --test fuzz token            # ten minutes for one of them
//! FUZZ_INPUT=7b7d cargo test -p frontdesk-testkit --test fuzz token             # one input again, in hex
//! ```
//!
//! * `targets`: one function per parser. It parses the input and asserts what must hold for every input.
//! * `mutate`: makes a new input from known ones.
//! * `engine`: the loop. It keeps inputs with a new outcome, and reduces an input that made a target panic.
//! * `seeds`: the first inputs of each target.
//!
//! The targets of cargo-fuzz in `fuzz/` call the same functions.

pub mod engine;
mod mutate;
mod seeds;
pub mod targets;

pub use engine::{Crash, Report, Settings, Target, fuzz};
