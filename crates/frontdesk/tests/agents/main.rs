//! Agents that speak to agents, from end to end. Tests are named by the rules of the agents plane.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls nobody but the desk")]

mod addresses;
mod bound;
mod client;
mod connectors;
mod deliver;
mod doors;
mod exchange;
#[path = "../harness/mod.rs"]
mod harness;
mod mcp;
mod operator;
mod plane;
mod scopes;
mod stream;
mod talk;
mod wake;
