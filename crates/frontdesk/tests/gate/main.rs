//! Who may have what, from end to end: links, grants, policies, visibility, context, and the way out.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls nobody but the desk")]

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
