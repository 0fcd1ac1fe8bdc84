//! Skills and data of tenants, as contracts of the agents plane. The rules are here; the store below only persists.

use std::sync::Arc;

use frontdesk_wire::TenantId;
use frontdesk_wire::agents::{Class, Fault};

use super::approval::ApprovalKey;
use crate::base::Base;
use crate::directory::facts::SkillRules;
use crate::directory::{DirectoryPlane, Fact, known_tenant};
use crate::env::Env;
use crate::error::DeskError;
use crate::port::data::Data;
use crate::port::skills::Skills;
use crate::port::stores::Stores;
use crate::rules::Rules;

/// Everything that is written beside a body or content: notes, tags, filters.
pub(super) const ASIDE_MAX_BYTES: usize = 64 << 10;
/// One body or content.
pub(super) const TEXT_MAX_BYTES: usize = 1 << 20;

/// The skills and the data of all tenants.
pub struct TenantStores {
    pub(super) env: Arc<dyn Env>,
    directory: Arc<DirectoryPlane>,
    pub(super) skills: Arc<dyn Skills>,
    pub(super) data: Arc<dyn Data>,
    rules: Arc<Rules>,
}

impl TenantStores {
    pub(crate) fn new(base: &Base, stores: &Stores, directory: &Arc<DirectoryPlane>) -> Self {
        Self {
            env: base.env.clone(),
            directory: directory.clone(),
            skills: stores.skills.clone(),
            data: stores.data.clone(),
            rules: base.rules.clone(),
        }
    }

    /// Sets the approval rules of a tenant. Without a key nothing can be approved, so secured mode requires one.
    pub async fn set_skill_rules(
        &self,
        tenant: &TenantId,
        secured: bool,
        public_key_pem: &str,
    ) -> Result<(), DeskError> {
        if secured || !public_key_pem.is_empty() {
            let checked = ApprovalKey::from_pem(public_key_pem);
            checked.map_err(|why| {
                DeskError::BadRequest(format!("public_key_pem is not a valid Ed25519 public key in PEM: {why}"))
            })?;
        }
        let fact = SkillRules { tenant: tenant.clone(), secured, public_key_pem: public_key_pem.into() };
        self.directory.put(|view| known_tenant(view, tenant).map(|()| Fact::SkillRules(fact.clone()))).await
    }

    pub(super) fn approval(&self, tenant: &TenantId) -> Approval {
        let own = self.directory.read(|view| view.skill_rules(tenant).cloned());
        if self.directory.read(|view| view.unreadable().has("skill_rules", &[tenant])) {
            return Approval::Barred; // what it requires is not known here
        }
        let (secured, pem) = match &own {
            Some(own) => (own.secured, &own.public_key_pem),
            None => (self.rules.skills_secured, &self.rules.skills_public_key),
        };
        match ApprovalKey::from_pem(pem) {
            _ if !secured => Approval::Open,
            Ok(key) => Approval::Signed(key),
            Err(_) => Approval::Barred,
        }
    }
}

/// What an approval requires.
pub(super) enum Approval {
    /// Nothing: the status alone is enough.
    Open,
    /// A signature of this key.
    Signed(ApprovalKey),
    /// A signature, but no key is configured, so nothing can be approved.
    Barred,
}

pub(super) fn check_size(what: &str, bytes: usize, max: usize) -> Result<(), Fault> {
    if bytes <= max {
        return Ok(());
    }
    let text = format!("{what} has {bytes} bytes; the limit is {max}");
    Err(Fault::new(Class::TooLargeError, text).with("max_bytes", max))
}
