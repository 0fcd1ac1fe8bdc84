//! The agents API: messages between agents and skills, and the contracts as Rust traits.
//!
//! Names and shapes are those of `AgentConnector` v1.0, `SkillStore` and `DataStore`. No I/O; the traits are here so
//! that programs can use or implement them with this crate alone.

mod connector;
mod data;
mod fault;
mod skills;

use std::future::Future;
use std::pin::Pin;

pub use connector::*;
pub use data::*;
pub use fault::{Class, Fault};
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use skills::*;

/// A boxed future, so that the contracts can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// Return type of all methods of the contracts.
pub type Promise<'a, T> = BoxFuture<'a, Result<T, Fault>>;

/// Self-description of a store. The content of `manifest` is defined by the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestInfo {
    pub capabilities_version: String,
    pub manifest: Value,
}
