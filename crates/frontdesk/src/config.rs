//! Settings: the embedded `default.toml`, then a file, then `FRONTDESK_*`. The defaults are the schema.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use axum::http::HeaderName;
use frontdesk_connectors::TmuxSettings;
use frontdesk_core::Rules;
use frontdesk_core::WakeRules;
use frontdesk_core::agents::approval::ApprovalKey;
use frontdesk_platforms::chat::Commands;
use frontdesk_wire::cron::SigningAlg;
use serde::Deserialize;
use toml::{Table, Value};

pub const DEFAULTS: &str = include_str!("default.toml");
const PREFIX: &str = "FRONTDESK_";
/// Read by the command line itself, not settings of the server.
const NOT_SETTINGS: [&str; 3] = ["URL", "ADMIN_TOKEN", "LOG_FILTER"];
/// Variables of the test command, which servers under test inherit.
const OF_TESTS: [&str; 7] =
    ["BIN", "TEST_CACHE", "SCREENSHOT", "NODE_MODULES", "CHROMIUM", "SESSION_KEY_BIN", "GATE_SEED"];

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub listen: String,
    pub public_url: String,
    pub data_dir: PathBuf,
    /// Set by `--new`: creates an empty database in a data folder that has lost its own.
    #[serde(skip)]
    pub fresh: bool,
    pub log: LogForm,
    pub server: Server,
    pub relay: Relay,
    pub wake: Wake,
    pub vault: Vault,
    pub media: Media,
    pub ledger: Ledger,
    pub journal: Journal,
    pub explain: Explain,
    pub gate: Gate,
    pub link: Link,
    pub manage: Manage,
    pub identity: Identity,
    pub cron: Cron,
    pub agents: Agents,
    pub skills: Skills,
    pub outcall: Outcall,
    pub chat: Chat,
}

/// Settings of agent messaging.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agents {
    pub rate_per_s: u32,
    pub rate_burst: u32,
    pub inbox_days: u64,
    pub per_tenant: usize,
    pub caller_header: String,
    pub file_base: PathBuf,
    pub tmux: bool,
}

impl Agents {
    pub(crate) fn caller_header(&self) -> anyhow::Result<HeaderName> {
        self.caller_header.parse().with_context(|| {
            format!("[agents] caller_header: {:?} is not a valid HTTP header name", self.caller_header)
        })
    }

    pub(crate) fn connectors(&self) -> frontdesk_connectors::Settings {
        let file_base = Some(self.file_base.clone()).filter(|base| !base.as_os_str().is_empty());
        let tmux = self.tmux.then(TmuxSettings::default);
        frontdesk_connectors::Settings { file_base, tmux }
    }
}

/// Requirements for approved skills, if a tenant has no own ones.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skills {
    pub secured: bool,
    pub public_key: PathBuf,
}

impl Skills {
    /// Whether approval needs a signature, and the public key that verifies it.
    pub(crate) fn rules(&self) -> anyhow::Result<(bool, String)> {
        if self.public_key.as_os_str().is_empty() {
            if self.secured {
                bail!("skills.secured needs skills.public_key: the PEM file of an Ed25519 public key");
            }
            return Ok((false, String::new()));
        }
        let path = self.public_key.display();
        let pem = std::fs::read_to_string(&self.public_key).with_context(|| format!("skills.public_key: {path}"))?;
        ApprovalKey::from_pem(&pem).map_err(|why| anyhow::anyhow!("skills.public_key: {path}: {why}"))?;
        Ok((self.secured, pem))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogForm {
    Text,
    Json,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    pub window: usize,
    pub ack_limit_ms: u64,
    pub settle_ms: u64,
    pub frame_max_bytes: usize,
    pub instances_per_tenant: usize,
    pub gateways_per_tenant: usize,
}

/// Limits for connections and their memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub connections_max: usize,
    pub connections_per_peer: usize,
    pub answers_per_tenant_kib: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    pub retention_days: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wake {
    pub cooldown_ms: u64,
    pub retry_max_s: u64,
    pub notice_after_s: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vault {
    pub ttl_s: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Media {
    pub ttl_s: u64,
    pub max_bytes: usize,
    pub per_tenant_bytes: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    pub dedup_days: u64,
    pub reach_days: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    pub retention_days: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub visibility_ttl_s: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub ttl_s: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manage {
    pub jwks: String,
    pub issuer: String,
    pub tenant: String,
}

/// How bearer tokens are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifierKind {
    Static,
    Oidc,
    Introspect,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub verifier: VerifierKind,
    pub issuer: String,
    pub jwks: String,
    pub audience: String,
    pub tenant_claim: String,
    pub url: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cron {
    pub misfire_grace_s: u64,
    pub jitter_ms: u64,
    pub alg: SigningAlg,
    pub relay_keys: Vec<String>,
    pub armed_per_tenant: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcall {
    pub allow: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chat {
    pub commands: Commands,
    pub retention_days: u64,
    pub open_locally: bool,
}

impl Config {
    /// Loads defaults, file and environment. An error names the key and its origin.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        Self::load_noting(file).map(|(config, _)| config)
    }

    /// Also returns environment variables that start like settings but are none.
    pub fn load_noting(file: Option<&Path>) -> anyhow::Result<(Self, Vec<String>)> {
        // Names and values that are not Unicode are no settings.
        let read = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::layered(file, std::env::vars_os().filter_map(read))
    }

    fn layered(
        file: Option<&Path>,
        vars: impl Iterator<Item = (String, String)>,
    ) -> anyhow::Result<(Self, Vec<String>)> {
        let mut ignored = Vec::new();
        let mut table: Table = DEFAULTS.parse().context("the embedded defaults are not valid TOML")?;
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let given: Table = text.parse().with_context(|| format!("{} is not valid TOML", path.display()))?;
            overlay(&mut table, given, "").with_context(|| format!("in {}", path.display()))?;
        }
        for (name, text) in vars {
            let Some(path) =
                name.strip_prefix(PREFIX).filter(|path| !NOT_SETTINGS.contains(path) && !OF_TESTS.contains(path))
            else {
                continue;
            };
            if is_setting(&table, path) {
                set_from_env(&mut table, path, &text).with_context(|| format!("in the environment variable {name}"))?;
            } else {
                ignored.push(name);
            }
        }
        ignored.sort();
        let config: Self = Value::Table(table).try_into().context("invalid settings")?;
        config.check()?;
        Ok((config, ignored))
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.relay.window == 0 || self.relay.window > 4096 {
            bail!("relay.window must be 1 to 4096, not {}", self.relay.window);
        }
        if self.relay.frame_max_bytes < 4096 || self.relay.frame_max_bytes > 1 << 20 {
            bail!("relay.frame_max_bytes must be 4096 to 1048576: clients drop larger frames");
        }
        if self.server.answers_per_tenant_kib < 2048 {
            bail!("server.answers_per_tenant_kib must be at least 2048, the size of one large response");
        }
        if !self.public_url.is_empty() && !self.public_url.starts_with("http") {
            bail!("public_url must start with http:// or https://, not {:?}", self.public_url);
        }
        if !self.manage.jwks.is_empty() && self.manage.issuer.is_empty() {
            bail!("manage.jwks needs manage.issuer, the expected `iss` of the tokens");
        }
        let identity = &self.identity;
        if identity.verifier == VerifierKind::Oidc && (identity.issuer.is_empty() || identity.jwks.is_empty()) {
            bail!("identity.verifier = \"oidc\" needs identity.issuer and identity.jwks");
        }
        if identity.verifier == VerifierKind::Oidc && identity.audience.is_empty() {
            bail!(
                "identity.verifier = \"oidc\" needs identity.audience: without it every token of the issuer would be \
                 taken, also those made for other services"
            );
        }
        if identity.verifier == VerifierKind::Introspect && identity.url.is_empty() {
            bail!("identity.verifier = \"introspect\" needs identity.url");
        }
        self.agents.caller_header()?;
        self.skills.rules()?;
        if let Some(bad) = self.outcall.allow.iter().find(|entry| crate::outcall::Allow::parse(entry).is_none()) {
            bail!("outcall.allow: {bad:?} is neither a CIDR (10.0.0.0/8) nor a host name");
        }
        Ok(())
    }

    pub fn rules(&self) -> Rules {
        Rules {
            window: self.relay.window,
            ack_limit_ms: self.relay.ack_limit_ms,
            settle_ms: self.relay.settle_ms,
            frame_max_bytes: self.relay.frame_max_bytes,
            wake: WakeRules {
                cooldown_ms: self.wake.cooldown_ms,
                retry_max_ms: self.wake.retry_max_s.saturating_mul(1000),
                notice_after_ms: self.wake.notice_after_s.saturating_mul(1000),
            },
            vault_ttl_ms: self.vault.ttl_s.saturating_mul(1000),
            media_ttl_ms: self.media.ttl_s.saturating_mul(1000),
            media_max_bytes: self.media.max_bytes,
            link_ttl_ms: self.link.ttl_s.saturating_mul(1000),
            misfire_grace_ms: self.cron.misfire_grace_s.saturating_mul(1000),
            fire_jitter_ms: self.cron.jitter_ms,
            agents_max: self.agents.per_tenant,
            instances_max: self.relay.instances_per_tenant,
            gateways_max: self.relay.gateways_per_tenant,
            armed_max: self.cron.armed_per_tenant,
            media_tenant_bytes: self.media.per_tenant_bytes,
            fire_alg: self.cron.alg,
            sight_ms: self.gate.visibility_ttl_s.saturating_mul(1000),
            ..Rules::default()
        }
    }
}

/// Only keys that exist in the defaults can be set.
fn overlay(table: &mut Table, given: Table, path: &str) -> anyhow::Result<()> {
    for (key, value) in given {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (table.get_mut(&key), value) {
            (None, _) => bail!("unknown setting {full:?}; `frontdesk config example` lists all settings"),
            (Some(Value::Table(inner)), Value::Table(given)) => overlay(inner, given, &full)?,
            (Some(known), value) if known.same_type(&value) => *known = value,
            (Some(known), value) => bail!("{full} must be of type {}, not {}", known.type_str(), value.type_str()),
        }
    }
    Ok(())
}

/// Whether a variable is meant as a setting: it is a key, or starts with a key or section. Others belong to other
/// programs, or to an agent that stores its own token under our prefix.
fn is_setting(table: &Table, path: &str) -> bool {
    table
        .keys()
        .map(|key| key.to_uppercase())
        .any(|name| path.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
}

fn set_from_env(table: &mut Table, path: &str, text: &str) -> anyhow::Result<()> {
    for (key, value) in table.iter_mut() {
        let name = key.to_uppercase();
        if let Value::Table(inner) = value {
            if let Some(rest) = path.strip_prefix(&format!("{name}_")) {
                return set_from_env(inner, rest, text);
            }
        } else if name == path {
            *value = match value {
                Value::String(_) => Value::String(text.into()),
                Value::Integer(_) => Value::Integer(text.trim().parse().context("the value must be a whole number")?),
                Value::Boolean(_) => Value::Boolean(text.trim().parse().context("the value must be true or false")?),
                Value::Array(_) => {
                    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                    Value::Array(parts.map(|part| Value::String(part.into())).collect())
                }
                other => bail!("a setting of type {} cannot be set by an environment variable", other.type_str()),
            };
            return Ok(());
        }
    }
    bail!("unknown setting; `frontdesk config example` lists all settings")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(toml: &str, vars: &[(&str, &str)]) -> anyhow::Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        std::fs::write(&file, toml).unwrap();
        load_noting(&file, vars).map(|(config, _)| config)
    }

    fn load_noting(file: &Path, vars: &[(&str, &str)]) -> anyhow::Result<(Config, Vec<String>)> {
        Config::layered(Some(file), vars.iter().map(|(name, text)| ((*name).into(), (*text).into())))
    }

    #[test]
    fn variables_that_are_not_settings_are_ignored_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        std::fs::write(&file, "").unwrap();
        let vars = [
            ("FRONTDESK_TOKEN", "fd_1"),
            ("FRONTDESK_ID", "alice"),
            ("FRONTDESK_URL", "http://x"),
            ("FRONTDESK_RELAY_SETTLE_MS", "7"),
            ("FRONTDESK_RELAYED", "1"),
            ("OTHER", "1"),
        ];
        let (config, ignored) = load_noting(&file, &vars).unwrap();
        assert_eq!(config.relay.settle_ms, 7);
        assert_eq!(ignored, ["FRONTDESK_ID", "FRONTDESK_RELAYED", "FRONTDESK_TOKEN"]);
    }

    #[test]
    fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
        let vars = [("FRONTDESK_RELAY_SETTLE_MS", "7"), ("FRONTDESK_OUTCALL_ALLOW", "127.0.0.0/8, a.b"), ("PATH", "x")];
        let config = load("[relay]\nsettle_ms = 5\nwindow = 9", &vars).unwrap();
        assert_eq!((config.relay.settle_ms, config.relay.window, config.relay.ack_limit_ms), (7, 9, 5000));
        assert_eq!(config.outcall.allow, ["127.0.0.0/8", "a.b"]);
    }

    #[test]
    fn every_error_names_its_setting() {
        let text = |toml: &str, vars: &[(&str, &str)]| format!("{:#}", load(toml, vars).unwrap_err());
        assert!(text("[relay]\nwidow = 3", &[]).contains("relay.widow"));
        assert!(text("[relay]\nwindow = \"3\"", &[]).contains("must be of type integer"));
        assert!(text("[relay]\nwindow = 0", &[]).contains("relay.window must be 1 to 4096"));
        assert!(text("x", &[]).contains("is not valid TOML"));
        assert!(text("", &[("FRONTDESK_RELAY_WINDOW", "many")]).contains("FRONTDESK_RELAY_WINDOW"));
        for name in ["FRONTDESK_RELAY_WIDOW", "FRONTDESK_RELAY", "FRONTDESK_LISTEN_ON"] {
            let told = text("", &[(name, "1")]);
            assert!(told.contains("unknown setting") && told.contains(name), "{told}");
        }
        assert!(text("[outcall]\nallow = [\"10.0.0.0/99\"]", &[]).contains("10.0.0.0/99"));
        assert!(text("public_url = \"ftp://x\"", &[]).contains("public_url"));
        let oidc = "[identity]\nverifier = \"oidc\"\nissuer = \"https://i.example\"\njwks = \"https://i.example/keys\"";
        assert!(text(oidc, &[]).contains("identity.audience"), "an audience is required");
        assert!(load(&format!("{oidc}\naudience = \"desk\""), &[]).is_ok());
        assert!(text("[server]\nanswers_per_tenant_kib = 9", &[]).contains("answers_per_tenant_kib"));
    }
}
