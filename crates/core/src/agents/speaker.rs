//! Who asks something of the agents plane, and as whom it may act.

use std::borrow::Cow;

use frontdesk_wire::agents::{Class, DeliveryPayload, Fault, Origin};

/// Who asks, as a token proved it. `caller` is what it calls itself: attribution, nothing more.
#[derive(Debug, Clone, Copy, Default)]
pub struct Speaker<'a> {
    pub tenant: &'a str,
    pub operator: bool,
    pub caller: Option<&'a str>,
    /// The token belongs to this agent: it reads, answers and registers as this one only, and is always named as
    /// the sender.
    pub bound: Option<&'a str>,
}

impl Speaker<'_> {
    /// Refuses what only the agent itself may do when the token belongs to another one.
    pub(super) fn check_own(&self, id: &str, what: &str) -> Result<(), Fault> {
        let Some(own) = self.bound.filter(|own| *own != id) else { return Ok(()) };
        let text = format!(
            "this token is bound to the agent {own:?} and cannot {what} {id:?}; use that agent's own token, or one \
             that is not bound to an agent"
        );
        Err(Fault::new(Class::ForbiddenError, text))
    }

    /// A name that a body claims as its sender. With a bound token it is that agent's or none.
    pub fn check_name(&self, field: &str, claimed: Option<&str>) -> Result<(), Fault> {
        let claimed = claimed.filter(|name| !name.is_empty());
        let (Some(own), Some(claimed)) = (self.bound, claimed.filter(|name| Some(*name) != self.bound)) else {
            return Ok(());
        };
        let text = format!(
            "{field} names {claimed:?}, but this token is bound to the agent {own:?}; leave it out, or name {own:?}"
        );
        Err(Fault::new(Class::ForbiddenError, text))
    }

    /// Writes the agent of a bound token into the envelope as the sender.
    pub(super) fn sign(&self, origin: &mut Origin) -> Result<(), Fault> {
        self.check_name("origin.caller_agent_id", origin.caller_agent_id.as_deref())?;
        if let Some(own) = self.bound {
            origin.caller_agent_id = Some(own.into());
        }
        Ok(())
    }

    pub(super) fn signed<'p>(&self, payload: &'p DeliveryPayload) -> Result<Cow<'p, DeliveryPayload>, Fault> {
        if self.bound.is_none() {
            return Ok(Cow::Borrowed(payload));
        }
        let mut payload = payload.clone();
        self.sign(&mut payload.meta_mut().origin)?;
        Ok(Cow::Owned(payload))
    }
}
