//! The Frontdesk server: HTTP and WebSocket edge, loops, command line, configuration.

// They panic when the reader of a pipe closes it; `print` does not.
#![deny(clippy::print_stdout)]

pub mod app;
pub mod bench;
mod bridge;
pub mod cli;
pub mod config;
mod doctor;
mod drain;
pub mod edge;
pub mod env;
mod identity;
mod keys;
mod logging;
pub mod outcall;
mod print;
mod rules;
mod runtime;
mod work;
