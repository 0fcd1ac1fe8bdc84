//! Wake-up calls from end to end: armed over HTTP, fired at an agent's door, checked with the published keys.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls nobody but the desk")]

mod agent_half;
mod arming;
#[path = "../harness/mod.rs"]
mod harness;
mod sink;
mod trouble;
