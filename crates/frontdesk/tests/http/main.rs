//! The HTTP doors from end to end: joining, media, chat, pages, and what each of them refuses.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls nobody but the desk")]

mod chat;
#[path = "../harness/mod.rs"]
mod harness;
mod identity;
mod joining;
mod media;
mod pages;
