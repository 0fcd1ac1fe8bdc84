//! Relay sockets from end to end: who may open one, what may be said on it, what comes back.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls nobody but the desk")]

mod actions;
mod delivery;
mod frames;
#[path = "../harness/mod.rs"]
mod harness;
mod pressure;
mod upgrade;
