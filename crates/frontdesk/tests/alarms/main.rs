//! End-to-end tests of alarms: armed over HTTP, fired at an agent's webhook, verified with the published keys.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls only the server")]

mod agent_half;
mod arming;
#[path = "../harness/mod.rs"]
mod harness;
mod sink;
mod trouble;
