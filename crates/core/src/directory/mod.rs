//! Tenants, tokens, gateways, instances, links and grants: who is who, and who may do what.
//!
//! Read from memory without waiting, written through to the store. Secrets are shown once and kept sealed or
//! hashed.

mod admin;
mod auth;
mod bots;
pub mod facts;
mod gateways;
pub mod index;
mod link_codes;
mod links;
mod manage;
mod place;
mod registry;
mod view;

use std::sync::Arc;

use crate::base::Base;
use crate::env::Env;
use crate::error::DeskError;
use crate::port::outcall::Outcall;
use crate::port::platform::Platforms;
use crate::port::store::StoreError;
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::vault::Sealer;

use bots::OpenBots;

pub use auth::{Caller, Guest, Identity, Unproven};
pub use facts::Fact;
pub use gateways::check_source;
pub(crate) use gateways::{check_id, known_tenant};
pub(crate) use links::DeskCommand;
pub use manage::Management;
pub use place::{Place, tenant_of};
pub use registry::{AmendError, Draft, Effect, Registry};
pub use view::View;

pub struct DirectoryPlane {
    env: Arc<dyn Env>,
    registry: Registry,
    open_bots: OpenBots,
    sealer: Arc<Sealer>,
    outcall: Arc<dyn Outcall>,
    platforms: Arc<Platforms>,
    rules: Arc<Rules>,
}

impl DirectoryPlane {
    pub(crate) async fn open(
        base: &Base,
        stores: &Stores,
        sealer: &Arc<Sealer>,
        outcall: &Arc<dyn Outcall>,
        platforms: &Arc<Platforms>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            env: base.env.clone(),
            registry: Registry::open(stores.directory.clone()).await?,
            open_bots: OpenBots::default(),
            sealer: sealer.clone(),
            outcall: outcall.clone(),
            platforms: platforms.clone(),
            rules: base.rules.clone(),
        })
    }

    /// Looks something up. Keep it short: writers wait for it.
    pub fn read<R>(&self, look: impl FnOnce(&View) -> R) -> R {
        self.registry.read(look)
    }

    /// Decides on the present view and writes the outcome, all or nothing.
    pub async fn write<R, E>(&self, decide: impl FnMut(&View, &mut Draft) -> Result<R, E>) -> Result<R, AmendError<E>> {
        self.registry.write(decide).await
    }

    /// Reads what other desks wrote since we looked.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.registry.refresh().await
    }

    /// The same, if the directory has a newer version than ours.
    pub async fn catch_up(&self, version: u64) -> Result<(), StoreError> {
        if self.registry.read(|view| view.directory_version) < version { self.refresh().await } else { Ok(()) }
    }

    /// What must happen when a change is committed: sockets end, caches are dropped.
    pub(crate) fn on_effect(&self, act: impl Fn(&Effect) + Send + Sync + 'static) {
        self.registry.on_effect(Box::new(act));
    }

    /// Whose an instance or agent is; nobody's is an empty name.
    pub(crate) fn tenant_of_no(&self, no: u64) -> String {
        self.read(|view| view.owner_of_no(no)).map(|(tenant, _)| tenant).unwrap_or_default()
    }
}

impl From<AmendError<DeskError>> for DeskError {
    fn from(error: AmendError<DeskError>) -> Self {
        match error {
            AmendError::Refused(refused) => refused,
            AmendError::Store(error) => Self::Store(error),
        }
    }
}
