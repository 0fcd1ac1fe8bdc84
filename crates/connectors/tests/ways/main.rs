//! The bundled ways to agents, against real servers, folders and terminals of this machine.
#![allow(clippy::unwrap_used, reason = "tests")]

mod conformance;
mod file;
mod open;
mod registry;
mod terminal;
mod tmux;
mod web;
mod webhook;
