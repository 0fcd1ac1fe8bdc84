//! Shared test code: a clock that tests set, contract suites of the ports, fuzzing, and a model of the gate.
//!
//! Not part of the server binary.
#![allow(clippy::unwrap_used, reason = "this crate is test code: it fails by panics")]

pub mod conformance;
pub mod desk;
pub mod env;
pub mod fakes;
pub mod folder;
pub mod fuzz;
pub mod metrics;
pub mod platform_suite;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod session;
pub mod simulation;
pub mod store_suite;
pub mod world;

pub use env::TestEnv;
