//! Backends behind the desk's store port: `memory` for tests and trials, `sqlite` for the embedded store.
//!
//! File names mirror each other. A backend decides nothing: the rules are in the desk.

pub mod memory;
pub mod sqlite;
