//! The shelf: a tenant's skills and data behind the contracts of the agents plane. The rules are here; the
//! store below keeps what it is told.

mod data;
mod skills;

use std::sync::Arc;

use frontdesk_wire::agents::{Class, Fault};

pub use data::TenantData;
pub use skills::TenantSkills;

use super::people::known_tenant;
use super::{Desk, DeskError};
use crate::registry::Fact;
use crate::registry::facts::SkillRules;
use crate::skills::ApprovalKey;

/// What a writer may say beside a body or a content: notes, tags, filters.
const ASIDE_MAX_BYTES: usize = 64 << 10;
/// A body or a content.
const TEXT_MAX_BYTES: usize = 1 << 20;

impl Desk {
    /// A tenant's skills as a `SkillStore`.
    pub fn skills(self: &Arc<Self>, tenant: &str) -> TenantSkills {
        TenantSkills { desk: self.clone(), tenant: tenant.into(), caller: None }
    }

    /// A tenant's data as a `DataStore`.
    pub fn data(self: &Arc<Self>, tenant: &str) -> TenantData {
        TenantData { desk: self.clone(), tenant: tenant.into(), caller: None }
    }

    /// What this tenant asks of approved skills. Without a key nothing can be approved, so a secured tenant
    /// must name one.
    pub async fn set_skill_rules(&self, tenant: &str, secured: bool, public_key_pem: &str) -> Result<(), DeskError> {
        if secured || !public_key_pem.is_empty() {
            let checked = ApprovalKey::from_pem(public_key_pem);
            checked.map_err(|why| DeskError::BadRequest(format!("public_key_pem is of no use: {why}")))?;
        }
        let fact = SkillRules { tenant: tenant.into(), secured, public_key_pem: public_key_pem.into() };
        self.put(|view| known_tenant(view, tenant).map(|()| Fact::SkillRules(fact))).await
    }

    fn approval(&self, tenant: &str) -> Approval {
        let own = self.registry.read(|view| view.skill_rules.get(tenant).cloned());
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

/// What it takes to be approved.
enum Approval {
    /// The bare word.
    Open,
    /// A signature of this key.
    Signed(ApprovalKey),
    /// A signature, and there is no key to check it with.
    Barred,
}

fn check_size(what: &str, bytes: usize, max: usize) -> Result<(), Fault> {
    if bytes <= max {
        return Ok(());
    }
    let text = format!("{what} is {bytes} bytes long; at most {max} are taken");
    Err(Fault::new(Class::TooLargeError, text).with("max_bytes", max))
}
