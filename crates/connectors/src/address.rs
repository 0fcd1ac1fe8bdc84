//! Whom a call is for: the one agent of a connector, perhaps with a session behind an `@`.
//!
//! Never anybody else: a connector that was asked for another agent says that it does not know it.

use frontdesk_wire::agents::{AgentDescriptor, DeliveryReceipt, Fault, WakeOpts, WakeReceipt};

/// The session in `asked`, if it has one.
pub(crate) fn session_of<'a>(own: &str, asked: &'a str) -> Result<Option<&'a str>, Fault> {
    match asked.strip_prefix(own) {
        Some("") => Ok(None),
        Some(rest) => rest.strip_prefix('@').map(Some).ok_or_else(|| Fault::unknown_agent(asked)),
        None => Err(Fault::unknown_agent(asked)),
    }
}

pub(crate) fn only(agent_id: &str) -> Vec<AgentDescriptor> {
    vec![AgentDescriptor { agent_id: agent_id.into(), agent_name: None, capabilities: Vec::new() }]
}

/// A delivery is for the agent, whichever session was named.
pub(crate) fn note_dropped(mut receipt: DeliveryReceipt, session: Option<&str>) -> DeliveryReceipt {
    if session.is_some() {
        receipt.warnings.push("the session after the @ was ignored: deliveries are addressed to the agent".into());
    }
    receipt
}

/// Who asked for later gets it now, and is told.
pub(crate) fn note_early(mut receipt: WakeReceipt, opts: &WakeOpts) -> WakeReceipt {
    if opts.later_than(receipt.woken_at).is_some() {
        receipt.warnings.push("this connector cannot schedule; the message was sent now".into());
    }
    receipt
}
