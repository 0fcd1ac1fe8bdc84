//! End-to-end tests of the HTTP API: joining, media, chat, pages, and their refusals.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls only the server")]

mod chat;
#[path = "../harness/mod.rs"]
mod harness;
mod identity;
mod joining;
mod media;
mod pages;
