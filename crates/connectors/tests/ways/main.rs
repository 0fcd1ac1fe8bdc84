//! Tests of the bundled connectors with real servers, folders and terminals on this machine.
#![allow(clippy::unwrap_used, reason = "tests")]

mod conformance;
mod file;
mod open;
mod registry;
mod terminal;
mod tmux;
mod web;
mod webhook;
