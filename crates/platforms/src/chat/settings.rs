//! `[chat]`, and the rules that follow from it and from those of the core.

use frontdesk_core::Rules;
use serde::{Deserialize, Serialize};

/// How a typed `/command` reaches the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Commands {
    /// As an ordinary event, which current gateways understand.
    #[default]
    Event,
    /// As a sanitized request, for agents that support it.
    Forward,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub commands: Commands,
    pub retention_days: u64,
    pub open_locally: bool,
}

#[derive(Debug, Clone)]
pub struct ChatRules {
    pub commands: Commands,
    pub capability_ttl_ms: u64,
    pub media_ttl_ms: u64,
    pub media_max_bytes: usize,
    /// Limits for all files of one tenant; 0: no limit.
    pub media_tenant_bytes: u64,
    pub media_tenant_files: u64,
    /// Public URL of this server, for media links.
    pub base_url: String,
}

impl Settings {
    pub fn rules(&self, core: &Rules, base_url: &str) -> ChatRules {
        ChatRules {
            commands: self.commands,
            capability_ttl_ms: core.vault_ttl_ms,
            media_ttl_ms: core.media_ttl_ms,
            media_max_bytes: core.media_max_bytes,
            media_tenant_bytes: core.media_tenant_bytes,
            media_tenant_files: core.media_tenant_files,
            base_url: base_url.into(),
        }
    }
}
