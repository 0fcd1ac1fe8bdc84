//! End-to-end tests of access rules: links, grants, policies, visibility, context and egress.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls only the server")]

mod context;
mod crossings;
mod delivery;
mod egress;
#[path = "../harness/mod.rs"]
mod harness;
mod jwt;
mod linking;
mod management;
mod scene;
