//! The sections of the settings that only set rules of the core.

use anyhow::bail;
use frontdesk_core::{Rules, WakeRules};
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    pub window: usize,
    pub ack_limit_ms: u64,
    pub settle_ms: u64,
    pub frame_max_bytes: usize,
    pub flight_per_tenant_kib: usize,
    pub instances_per_tenant: usize,
    pub gateways_per_tenant: usize,
    pub directory_per_tenant_kib: usize,
}

impl Relay {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.window == 0 || self.window > 4096 {
            bail!("relay.window must be 1 to 4096, not {}", self.window);
        }
        if self.frame_max_bytes < 4096 || self.frame_max_bytes > 1 << 20 {
            bail!("relay.frame_max_bytes must be 4096 to 1048576: clients drop larger frames");
        }
        Ok(())
    }

    pub(crate) fn apply(&self, rules: &mut Rules) {
        rules.window = self.window;
        rules.ack_limit_ms = self.ack_limit_ms;
        rules.settle_ms = self.settle_ms;
        rules.frame_max_bytes = self.frame_max_bytes;
        rules.flight_tenant_bytes = self.flight_per_tenant_kib.saturating_mul(1024);
        rules.instances_max = self.instances_per_tenant;
        rules.gateways_max = self.gateways_per_tenant;
        rules.directory_max_bytes = self.directory_per_tenant_kib.saturating_mul(1024);
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wake {
    pub cooldown_ms: u64,
    pub retry_max_s: u64,
    pub notice_after_s: u64,
}

impl Wake {
    pub(crate) fn apply(&self, rules: &mut Rules) {
        rules.wake = WakeRules {
            cooldown_ms: self.cooldown_ms,
            retry_max_ms: self.retry_max_s.saturating_mul(1000),
            notice_after_ms: self.notice_after_s.saturating_mul(1000),
        };
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vault {
    pub ttl_s: u64,
}

impl Vault {
    pub(crate) fn apply(&self, rules: &mut Rules) {
        rules.vault_ttl_ms = self.ttl_s.saturating_mul(1000);
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Media {
    pub ttl_s: u64,
    pub max_bytes: usize,
    pub per_tenant_bytes: u64,
    pub per_tenant_files: u64,
}

impl Media {
    pub(crate) fn apply(&self, rules: &mut Rules) {
        rules.media_ttl_ms = self.ttl_s.saturating_mul(1000);
        rules.media_max_bytes = self.max_bytes;
        rules.media_tenant_bytes = self.per_tenant_bytes;
        rules.media_tenant_files = self.per_tenant_files;
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub visibility_ttl_s: u64,
}

impl Gate {
    pub(crate) fn apply(&self, rules: &mut Rules) {
        rules.visibility_ttl_ms = self.visibility_ttl_s.saturating_mul(1000);
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub ttl_s: u64,
}

impl Link {
    pub(crate) fn apply(&self, rules: &mut Rules) {
        rules.link_ttl_ms = self.ttl_s.saturating_mul(1000);
    }
}
