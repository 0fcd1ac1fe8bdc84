//! Backends of the store traits of `core`: `memory` for tests, `sqlite` for the embedded store, `postgres` for several
//! servers. `bus` carries hints between servers.
//!
//! The files for one trait have the same name in each backend. `claims` and `exchanges` here are those of `memory` and
//! `sqlite`, which one process uses. A backend has no rules of its own: they are in `core`.

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

/// A result that is there at once.
fn ready<'a, T: Send + 'a>(value: T) -> Stored<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}
