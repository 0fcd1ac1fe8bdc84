//! `[agents]` and `[skills]`: settings of the agents API, its connectors and its stores.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use axum::http::HeaderName;
use frontdesk_connectors::TmuxSettings;
use frontdesk_core::Rules;
use frontdesk_core::agents::approval::ApprovalKey;
use serde::Deserialize;

use super::Limits;

/// Settings of agent messaging.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub rate_per_s: u32,
    pub rate_burst: u32,
    pub inbox_days: u64,
    pub per_tenant: usize,
    pub caller_header: String,
    pub file_base: PathBuf,
    pub tmux: bool,
}

impl Settings {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.caller_header().map(drop)
    }

    pub(crate) fn limits(&self) -> anyhow::Result<Limits> {
        Ok(Limits::new(self.rate_per_s, self.rate_burst, self.caller_header()?))
    }

    fn caller_header(&self) -> anyhow::Result<HeaderName> {
        self.caller_header.parse().with_context(|| {
            format!("[agents] caller_header: {:?} is not a valid HTTP header name", self.caller_header)
        })
    }

    pub(crate) fn connectors(&self) -> frontdesk_connectors::Settings {
        let file_base = Some(self.file_base.clone()).filter(|base| !base.as_os_str().is_empty());
        let tmux = self.tmux.then(TmuxSettings::default);
        frontdesk_connectors::Settings { file_base, tmux }
    }

    pub(crate) fn apply(&self, rules: &mut Rules) {
        rules.agents_max = self.per_tenant;
    }
}

/// Requirements for approved skills, if a tenant has no own ones.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillSettings {
    pub secured: bool,
    pub public_key: PathBuf,
}

impl SkillSettings {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.read_key().map(drop)
    }

    pub(crate) fn apply(&self, rules: &mut Rules) -> anyhow::Result<()> {
        rules.skills_public_key = self.read_key()?;
        rules.skills_secured = self.secured;
        Ok(())
    }

    /// The public key that verifies approvals. Empty: there is none.
    fn read_key(&self) -> anyhow::Result<String> {
        if self.public_key.as_os_str().is_empty() {
            if self.secured {
                bail!("skills.secured needs skills.public_key: the PEM file of an Ed25519 public key");
            }
            return Ok(String::new());
        }
        let path = self.public_key.display();
        let pem = std::fs::read_to_string(&self.public_key).with_context(|| format!("skills.public_key: {path}"))?;
        ApprovalKey::from_pem(&pem).map_err(|why| anyhow::anyhow!("skills.public_key: {path}: {why}"))?;
        Ok(pem)
    }
}
