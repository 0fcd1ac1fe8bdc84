//! Frontdesk: the desk that never sleeps in front of agents that do.

pub mod app;
pub mod bench;
pub mod cli;
pub mod config;
mod doctor;
pub mod edge;
pub mod env;
mod identity;
mod keys;
pub mod outcall;
mod work;
