//! One event from a platform, verified there, with what was stripped from it.

use frontdesk_wire::frame::PassthroughForward;
use frontdesk_wire::{MessageEvent, Secret};

/// A promise, written where the check was made: the bytes behind this event were verified
/// (signature, socket, or our own token) before anything was parsed from them.
pub struct Verified(());

impl Verified {
    /// Name what was checked; the name is for the reader of the code.
    pub fn by(_what: &'static str) -> Self {
        Self(())
    }
}

/// A credential that came inside an event. It goes to the vault, never to an agent.
pub struct RawCapability {
    pub kind: String,
    pub value: Secret,
    pub ttl_ms: u64,
}

/// How the event asks to be handed over.
pub enum Handover {
    Event,
    /// As a sanitized request, for agents that understand it.
    Forward(PassthroughForward),
}

pub struct Intake {
    /// The tenant as our records resolve it from the event's own discriminator.
    pub tenant: String,
    pub bot: String,
    pub event: MessageEvent,
    pub capabilities: Vec<RawCapability>,
    pub handover: Handover,
    /// Addressed to the bot by mention or reply.
    pub addressed: bool,
}

impl Intake {
    pub fn new(_proof: Verified, tenant: String, bot: String, event: MessageEvent) -> Self {
        Self { tenant, bot, event, capabilities: Vec::new(), handover: Handover::Event, addressed: false }
    }
}
