//! A platform, as the desk sees it: what it can do, how to act there, what can be seen there.

use frontdesk_wire::{Action, ActionResult, ChatInfo, Descriptor, Secret};

use super::Soon;
use super::store::StoreError;

/// On whose behalf, and as which bot, an action goes out.
#[derive(Debug, Clone, Copy)]
pub struct Stand<'a> {
    pub tenant: &'a str,
    pub bot: &'a str,
}

/// Duties of a platform. There is no method per feature: an action that `supported_ops` does not
/// name is refused before it gets here.
pub trait Platform: Send + Sync {
    fn descriptor(&self) -> &Descriptor;

    /// A bot that every tenant has here without asking.
    fn common_bot(&self) -> Option<&str> {
        None
    }

    /// Does one action, perhaps with a capability from the vault. May take long; must not panic.
    /// `ambiguous` in the result means that nobody knows whether it happened.
    fn act<'a>(
        &'a self,
        stand: Stand<'a>,
        action: &'a Action,
        capability: Option<&'a Secret>,
    ) -> Soon<'a, ActionResult>;

    /// The chat, if it is there and belongs to this tenant. Unknown is `None`.
    fn look<'a>(&'a self, stand: Stand<'a>, chat_id: &'a str) -> Soon<'a, Result<Option<ChatInfo>, StoreError>>;

    /// A word from the desk itself to the people in a chat, not from an agent.
    fn notice<'a>(&'a self, stand: Stand<'a>, chat_id: &'a str, text: &'a str) -> Soon<'a, ActionResult>;
}
