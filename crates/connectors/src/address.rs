//! Addresses of a connector: its one agent, optionally with a session after an `@`.
//!
//! Any other agent id is refused as unknown.

use frontdesk_wire::agents::{AgentDescriptor, DeliveryReceipt, Fault, WakeOpts, WakeReceipt};

/// The session in `asked`, if there is one.
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

/// Deliveries are addressed to the agent, so a session in the address only causes a warning.
pub(crate) fn note_dropped(mut receipt: DeliveryReceipt, session: Option<&str>) -> DeliveryReceipt {
    if session.is_some() {
        receipt.warnings.push("the session after the @ was ignored: deliveries are addressed to the agent".into());
    }
    receipt
}

/// Adds a warning if a later time was asked for, because the message was sent at once.
pub(crate) fn note_early(mut receipt: WakeReceipt, opts: &WakeOpts) -> WakeReceipt {
    if opts.later_than(receipt.woken_at).is_some() {
        receipt.warnings.push("this connector cannot schedule; the message was sent now".into());
    }
    receipt
}
