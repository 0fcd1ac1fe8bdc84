//! End-to-end tests of messages between agents. Tests are named after the rules of the agents API.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls only the server")]

mod addresses;
mod bound;
mod client;
mod connectors;
mod deliver;
mod exchange;
#[path = "../harness/mod.rs"]
mod harness;
mod mcp;
mod operator;
mod plane;
mod refusals;
mod scopes;
mod stream;
mod talk;
mod wake;
