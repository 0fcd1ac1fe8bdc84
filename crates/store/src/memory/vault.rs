//! Encrypted capabilities, under every session key that may name them.

use frontdesk_core::port::store::{SealedCapability, Stored, Vault};
use frontdesk_wire::{SessionKey, TenantId};

use super::{MemoryStore, now};

impl Vault for MemoryStore {
    fn capability<'a>(
        &'a self,
        tenant: &'a TenantId,
        session_key: &'a SessionKey,
        kind: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<SealedCapability>> {
        let name = [tenant.as_str(), session_key, kind].map(str::to_owned);
        now(self.state().capabilities.get(&name).filter(|held| held.expires_ms > now_ms).cloned())
    }
}
