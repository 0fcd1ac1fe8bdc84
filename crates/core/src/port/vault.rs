//! Capabilities that never leave the server.

use frontdesk_wire::{BotId, ChatId, SessionKey, TenantId};

use super::stored::Stored;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedCapability {
    pub id: String,
    pub tenant: TenantId,
    pub kind: String,
    /// Every session key that a supported gateway might name.
    pub session_keys: Vec<SessionKey>,
    pub platform: String,
    pub bot: BotId,
    pub chat_id: ChatId,
    pub sealed: Vec<u8>,
    pub expires_ms: u64,
}

pub trait Vault: Send + Sync {
    /// The newest one of this tenant under this key and kind that is still good at `now_ms`.
    fn capability<'a>(
        &'a self,
        tenant: &'a TenantId,
        session_key: &'a SessionKey,
        kind: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<SealedCapability>>;
}
