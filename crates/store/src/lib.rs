//! Backends behind the desk's store port: `memory` for tests and trials, `sqlite` for the embedded store,
//! `postgres` for several servers.
//!
//! `bus` carries hints between servers.
//!
//! File names mirror each other. A backend decides nothing: the rules are in the desk.

pub mod bus;
mod claims;
mod erased;
mod exchanges;
mod listeners;
#[cfg(feature = "memory")]
pub mod memory;
pub mod portable;
pub mod postgres;
mod ranking;
mod read_queue;
pub mod sqlite;
mod wakes;

use frontdesk_core::port::store::Stored;

/// An answer that needs no waiting.
fn ready<'a, T: Send + 'a>(value: T) -> Stored<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}
