//! What tests share: a clock that is told the time, and the contract suites of the ports.
//!
//! Nothing here is compiled into the desk.
#![allow(clippy::unwrap_used, reason = "this crate is test code: a panic is how it says no")]

pub mod conformance;
pub mod desk;
pub mod env;
pub mod folder;
pub mod fuzz;
pub mod store_suite;
pub mod world;

pub use env::TestEnv;
