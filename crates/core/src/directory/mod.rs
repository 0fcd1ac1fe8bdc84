//! Tenants, tokens, gateways, instances, links and grants: authentication and authorisation.
//!
//! Read from memory without waiting, written through to the store. Secrets are shown once, and stored encrypted or
//! hashed.

mod admin;
mod auth;
mod bots;
mod commands;
pub mod facts;
mod gateways;
pub mod index;
mod link_codes;
mod links;
mod location;
mod manage;
mod moves;
mod registry;
mod room;
mod unreadable;
mod view;

use std::sync::Arc;

use crate::base::Base;
use crate::env::Env;
use crate::error::DeskError;
use crate::lease::Lease;
use crate::port::bus::{Hint, To};
use crate::port::outcall::Outcall;
use crate::port::platform::Platforms;
use crate::port::store::StoreError;
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::vault::Sealer;

pub use auth::{Caller, Identity, ProvenInstance, Unproven};

pub use bots::{Bots, ListenerFailure};
pub use commands::Offers;
pub use facts::Fact;
use frontdesk_wire::{InstanceNo, TenantId};
pub use gateways::check_source;
pub(crate) use gateways::{ID_MAX_CHARS, check_id, known_tenant};
pub(crate) use links::DeskCommand;
pub use location::{ChatLocation, tenant_of};
pub use manage::Management;
pub use registry::{AmendError, Draft, Effect, Registry};
pub(crate) use room::check_room;
pub use unreadable::Unreadable;
pub use view::View;

pub struct DirectoryPlane {
    env: Arc<dyn Env>,
    /// If other servers write to the directory as well.
    shared: Option<Arc<Lease>>,
    registry: Registry,
    bots: Bots,
    offers: Offers,
    sealer: Arc<Sealer>,
    outcall: Arc<dyn Outcall>,
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
        let registry = Registry::open(stores.directory.clone()).await?;
        base.lease.note_directory(registry.read(|view| view.directory_version));
        let (bus, lease) = (base.bus.clone(), Arc::downgrade(&base.lease));
        registry.on_commit(move |version| {
            if lease.upgrade().is_some_and(|lease| !lease.is_alone()) {
                bus.send(To::All, Hint::Directory(version));
            }
        });
        Ok(Self {
            env: base.env.clone(),
            shared: base.bus.has_others().then(|| base.lease.clone()),
            bots: Bots::new(base.env.clone(), registry.clone(), sealer, platforms),
            offers: Offers::new(registry.clone(), platforms),
            registry,
            sealer: sealer.clone(),
            outcall: outcall.clone(),
            rules: base.rules.clone(),
        })
    }

    pub fn bots(&self) -> &Bots {
        &self.bots
    }

    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// Reads from the view. Must be short, because writers wait.
    pub fn read<R>(&self, look: impl FnOnce(&View) -> R) -> R {
        self.registry.read(look)
    }

    /// Decides on the current view and commits the result atomically.
    pub async fn write<R, E>(&self, decide: impl FnMut(&View, &mut Draft) -> Result<R, E>) -> Result<R, AmendError<E>> {
        self.registry.write(decide).await
    }

    /// Rises with every change.
    pub fn version(&self) -> u64 {
        self.registry.read(|view| view.directory_version)
    }

    /// Whether it has all changes of other servers up to a short while ago. If not, it authenticates no caller.
    pub fn is_current(&self) -> bool {
        self.shared.as_ref().is_none_or(|lease| lease.knows_directory())
    }

    /// Reads changes of other servers.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.registry.refresh().await
    }

    /// Sets what follows a committed change: sockets are closed, caches are dropped.
    pub(crate) fn on_effect(&self, act: impl Fn(&Effect) + Send + Sync + 'static) {
        self.registry.on_effect(Box::new(act));
    }

    /// Tenant of an instance or agent; empty if unknown.
    pub(crate) fn tenant_of_no(&self, no: InstanceNo) -> TenantId {
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
