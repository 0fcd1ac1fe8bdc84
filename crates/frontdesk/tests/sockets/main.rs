//! End-to-end tests of relay sockets: upgrade, frames, deliveries, results.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls only the server")]

mod actions;
mod delivery;
mod frames;
#[path = "../harness/mod.rs"]
mod harness;
mod pressure;
mod upgrade;
