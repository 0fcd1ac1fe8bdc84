//! The caller of the agents plane, and which agent it may act as.

use std::borrow::Cow;

use frontdesk_wire::agents::{Class, DeliveryPayload, Fault, Origin};
use frontdesk_wire::{InstanceId, TenantId};

/// The caller, as verified by its token. `caller` is the name it gives itself, used for attribution only.
#[derive(Debug, Clone, Copy)]
pub struct AgentsCaller<'a> {
    pub tenant: &'a TenantId,
    pub operator: bool,
    pub caller: Option<&'a str>,
    /// The token is bound to this agent: it can read, answer and register only as this agent, which is always recorded
    /// as the sender.
    pub bound: Option<&'a InstanceId>,
}

/// An [`AgentsCaller`] of the stores, which outlive the request.
#[derive(Clone)]
pub(super) struct StoreCaller {
    pub(super) tenant: TenantId,
    operator: bool,
    /// For attribution.
    pub(super) name: Option<String>,
    bound: Option<InstanceId>,
}

impl StoreCaller {
    pub(super) fn new(who: AgentsCaller<'_>) -> Self {
        let AgentsCaller { tenant, operator, caller, bound } = who;
        let name = caller.filter(|name| !name.is_empty()).map(str::to_owned);
        Self { tenant: tenant.clone(), operator, name, bound: bound.cloned() }
    }

    pub(super) fn rights(&self) -> AgentsCaller<'_> {
        let (caller, bound) = (self.name.as_deref(), self.bound.as_ref());
        AgentsCaller { tenant: &self.tenant, operator: self.operator, caller, bound }
    }
}

impl<'a> AgentsCaller<'a> {
    /// A caller of a tenant that has no name and no rights of an operator.
    pub fn of(tenant: &'a TenantId) -> Self {
        Self { tenant, operator: false, caller: None, bound: None }
    }

    pub fn operator(tenant: &'a TenantId) -> Self {
        Self { operator: true, ..Self::of(tenant) }
    }

    /// Refuses what only operators may do.
    pub(super) fn check_operator(&self, what: &str) -> Result<(), Fault> {
        if self.operator {
            return Ok(());
        }
        Err(Fault::new(Class::ForbiddenError, format!("{what} requires a token of scope operator")))
    }

    /// Refuses operations on another agent than the one that the token is bound to.
    pub(super) fn check_own(&self, id: &InstanceId, what: &str) -> Result<(), Fault> {
        let Some(own) = self.bound.filter(|own| *own != id) else { return Ok(()) };
        let text = format!(
            "this token is bound to the agent {own:?} and cannot {what} {id:?}; use that agent's own token, or one \
             that is not bound to an agent"
        );
        Err(Fault::new(Class::ForbiddenError, text))
    }

    /// Checks the sender that a body claims. With a bound token it must be that agent or absent.
    pub fn check_name(&self, field: &str, claimed: Option<&str>) -> Result<(), Fault> {
        let claimed = claimed.filter(|name| !name.is_empty());
        let (Some(own), Some(claimed)) = (self.bound, claimed.filter(|name| self.bound.is_none_or(|own| own != name)))
        else {
            return Ok(());
        };
        let text = format!(
            "{field} names {claimed:?}, but this token is bound to the agent {own:?}; leave it out, or name {own:?}"
        );
        Err(Fault::new(Class::ForbiddenError, text))
    }

    /// Sets the agent of a bound token as the sender of the envelope.
    pub(super) fn sign(&self, origin: &mut Origin) -> Result<(), Fault> {
        self.check_name("origin.caller_agent_id", origin.caller_agent_id.as_deref())?;
        if let Some(own) = self.bound {
            origin.caller_agent_id = Some(own.to_string());
        }
        Ok(())
    }

    pub(super) fn signed<'p>(&self, payload: &'p DeliveryPayload) -> Result<Cow<'p, DeliveryPayload>, Fault> {
        if self.bound.is_none() {
            return Ok(Cow::Borrowed(payload));
        }
        Ok(Cow::Owned(self.signed_own(payload.clone())?))
    }

    pub(super) fn signed_own(&self, mut payload: DeliveryPayload) -> Result<DeliveryPayload, Fault> {
        if self.bound.is_some() {
            self.sign(&mut payload.meta_mut().origin)?;
        }
        Ok(payload)
    }
}
