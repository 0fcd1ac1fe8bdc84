//! The ports: interfaces to stores, platforms, agents and other servers, in the terms of the core.

pub mod alarms;
pub mod bus;
pub mod chat;
pub mod claims;
pub mod connectors;
pub mod cursors;
pub mod data;
pub mod desks;
pub mod directory;
pub mod events;
pub mod exchanges;
pub mod fragments;
pub mod inbox;
pub mod journal;
pub mod ledger;
pub mod mail;
pub mod media;
pub mod outcall;
pub mod platform;
pub mod sessions;
pub mod skills;
pub mod store;
pub mod stored;
pub mod stores;
pub mod upkeep;
pub mod vault;

use std::future::Future;
use std::pin::Pin;

/// A boxed future, so that ports can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
