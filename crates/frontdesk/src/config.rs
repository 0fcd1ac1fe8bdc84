//! Settings: the embedded `default.toml` and those of the platforms, then a file, then `FRONTDESK_*`. The defaults are
//! the schema.
//!
//! Each section is a type of the module that uses it, with its checks. Here they are only loaded and put together.
//! `[platform.NAME]` stays a table until that platform takes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use frontdesk_core::{RetentionDays, Rules};
use frontdesk_platforms::{Kit, chat};
use serde::Deserialize;
use toml::{Table, Value};

use crate::bridge::EXEC_VARIABLES;
use crate::edge::{agents, cron, server};
use crate::env::SystemEnv;
use crate::logging::LogForm;
use crate::work;
use crate::{identity, keys, outcall, rules};

pub use crate::identity::VerifierKind;

const DEFAULTS: &str = include_str!("default.toml");
/// Keys of this section are not checked here: a platform knows its own.
const PLATFORM: &str = "platform";
const PREFIX: &str = "FRONTDESK_";
/// Read by the command line itself or by the clients, not settings of the server.
const NOT_SETTINGS: [&str; 5] = ["URL", "ADMIN_TOKEN", "LOG_FILTER", "IDENTITY_TOKEN", "AGENT_TOKEN"];
/// Variables of the test command, which servers under test inherit.
const OF_TESTS: [&str; 10] = [
    "BIN",
    "TEST_CACHE",
    "TEST_POSTGRES",
    "TEST_REDIS",
    "TEST_STORE",
    "SCREENSHOT",
    "NODE_MODULES",
    "CHROMIUM",
    "SESSION_KEY_BIN",
    "GATE_SEED",
];

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
    pub store: Address,
    pub bus: Address,
    pub desk: DeskSettings,
    pub keys: keys::Settings,
    pub server: server::Settings,
    pub relay: rules::Relay,
    pub wake: rules::Wake,
    pub vault: rules::Vault,
    pub media: rules::Media,
    pub ledger: work::Ledger,
    pub journal: work::Journal,
    pub explain: work::Explain,
    pub gate: rules::Gate,
    pub link: rules::Link,
    pub manage: identity::ManageSettings,
    pub identity: identity::Settings,
    pub cron: cron::Settings,
    pub agents: agents::Settings,
    pub skills: agents::SkillSettings,
    pub outcall: outcall::Settings,
    pub chat: chat::Settings,
    pub platform: Table,
}

/// Address of a store or a bus; empty for the embedded one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    pub url: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeskSettings {
    pub name: String,
}

/// All settings with their defaults and comments: those of the server, then the sections of the platforms.
pub fn defaults() -> String {
    format!("{DEFAULTS}\n{}", frontdesk_platforms::default_settings())
}

/// Says where the error is, but does not show the line: a password may be on it.
fn invalid_toml(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let line = error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
    let line = line.map_or_else(String::new, |line| format!(" at line {line}"));
    anyhow::anyhow!("{} is not valid TOML{line}: {}", path.display(), error.message())
}

impl Config {
    /// Loads defaults, file and environment. An error names the key and its origin.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        Self::load_noting(file).map(|(config, _)| config)
    }

    /// Also returns environment variables that start like settings but are none.
    pub fn load_noting(file: Option<&Path>) -> anyhow::Result<(Self, Vec<String>)> {
        // Variables whose name or value is not Unicode cannot be settings.
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
        let mut table: Table = defaults().parse().context("the embedded defaults are not valid TOML")?;
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let given: Table = text.parse().map_err(|error| invalid_toml(path, &text, &error))?;
            overlay(&mut table, given, "").with_context(|| format!("in {}", path.display()))?;
        }
        for (name, text) in vars {
            let Some(path) = name.strip_prefix(PREFIX).filter(|path| !is_known(&name, path)) else { continue };
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
        if !self.public_url.is_empty() && !self.public_url.starts_with("http") {
            bail!("public_url must start with http:// or https://, not {:?}", self.public_url);
        }
        self.check_store()?;
        self.relay.check()?;
        self.server.check()?;
        self.manage.check()?;
        self.identity.check()?;
        self.agents.check()?;
        self.skills.check()?;
        self.outcall.check()?;
        self.check_platforms()
    }

    /// Settings that servers on one database must share are given by the operator, and not generated by each server.
    pub fn check_store(&self) -> anyhow::Result<()> {
        if self.store.url.is_empty() {
            if !self.bus.url.is_empty() {
                bail!("bus.url is for servers that share a database; set store.url as well, or remove it");
            }
            return Ok(());
        }
        if !["postgres://", "postgresql://"].iter().any(|scheme| self.store.url.starts_with(scheme)) {
            bail!("store.url must start with postgres://; empty is the embedded database in data_dir");
        }
        let is_redis = ["redis://", "rediss://"].iter().any(|scheme| self.bus.url.starts_with(scheme));
        if !self.bus.url.is_empty() && !is_redis {
            bail!("bus.url must start with redis:// or rediss://; empty uses the database");
        }
        let needed = [
            ("public_url", self.public_url.is_empty(), "the URL of the load balancer"),
            ("keys.master_file", self.keys.master_file.as_os_str().is_empty(), "one master key for all servers"),
            ("keys.admin_token_file", self.keys.admin_token_file.as_os_str().is_empty(), "one admin token for all"),
        ];
        for (name, is_missing, what) in needed {
            if is_missing {
                bail!("{name} must be set if store.url is: {what}");
            }
        }
        Ok(())
    }

    /// Platforms check their sections when they are opened, which does nothing else.
    fn check_platforms(&self) -> anyhow::Result<()> {
        let kit = Kit {
            env: Arc::new(SystemEnv),
            outcall: Arc::new(outcall::GuardedClient::new(&self.outcall.allow)),
            media: Arc::new(frontdesk_platforms::NoMedia),
            public_url: self.public_url.clone(),
            settings: self.platform.clone(),
        };
        frontdesk_platforms::in_the_box(&kit)?;
        Ok(())
    }

    pub fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        self.relay.apply(&mut rules);
        self.wake.apply(&mut rules);
        self.vault.apply(&mut rules);
        self.media.apply(&mut rules);
        self.gate.apply(&mut rules);
        self.link.apply(&mut rules);
        self.cron.apply(&mut rules);
        self.agents.apply(&mut rules);
        if !self.desk.name.is_empty() {
            rules.desk_name.clone_from(&self.desk.name);
        } else if let Ok(host) = rustix::system::uname().nodename().to_str() {
            host.clone_into(&mut rules.desk_name);
        }
        rules
    }

    pub(crate) fn retention(&self) -> RetentionDays {
        RetentionDays {
            dedup: self.ledger.dedup_days,
            explain: self.explain.retention_days,
            inbox: self.agents.inbox_days,
            journal: self.journal.retention_days,
            chat: self.chat.retention_days,
            reach: self.ledger.reach_days,
        }
    }
}

/// Only keys that exist in the defaults can be set, except in the sections of platforms.
fn overlay(table: &mut Table, given: Table, path: &str) -> anyhow::Result<()> {
    let is_raw = path.split('.').next() == Some(PLATFORM);
    for (key, value) in given {
        if is_raw && !table.contains_key(&key) {
            table.insert(key, value);
            continue;
        }
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

/// Whether a variable is for the command line, a client, a command of `agent run` or a test.
fn is_known(name: &str, path: &str) -> bool {
    NOT_SETTINGS.contains(&path) || OF_TESTS.contains(&path) || EXEC_VARIABLES.contains(&name)
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
    let Some(value) = find(table, path) else { return Err(unknown_variable(table, path)) };
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
    Ok(())
}

/// All tables are searched whose name the path begins with: the name of one platform can begin with that of another.
fn find<'a>(table: &'a mut Table, path: &str) -> Option<&'a mut Value> {
    table.iter_mut().find_map(|(key, value)| {
        let name = key.to_uppercase();
        match value {
            Value::Table(inner) => find(inner, path.strip_prefix(&name)?.strip_prefix('_')?),
            _ => (name == path).then_some(value),
        }
    })
}

fn unknown_variable(table: &Table, path: &str) -> anyhow::Error {
    let platforms = table.get(PLATFORM).and_then(Value::as_table).filter(|_| path.starts_with("PLATFORM_"));
    let known = platforms.map(|it| it.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
    let known = known.map(|names| format!(" platforms with settings: {names};")).unwrap_or_default();
    anyhow::anyhow!("unknown setting;{known} `frontdesk config example` lists all settings")
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
    fn variables_of_clients_and_of_commands_are_no_settings() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.toml");
        std::fs::write(&file, "").unwrap();
        let of_clients = ["FRONTDESK_IDENTITY_TOKEN", "FRONTDESK_AGENT_TOKEN"];
        let mut table: Table = defaults().parse().unwrap();
        for name in EXEC_VARIABLES.into_iter().chain(of_clients) {
            let (_, ignored) = load_noting(&file, &[(name, "x")]).unwrap();
            assert_eq!(ignored, Vec::<String>::new(), "{name} is known");
            let path = name.strip_prefix(PREFIX).unwrap();
            assert!(find(&mut table, path).is_none(), "{name} would hide a setting");
        }
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
        assert!(text("x", &[]).contains("is not valid TOML at line 1"));
        let broken = text("[store]\nurl = \"postgres://a:secret@b/c", &[]);
        assert!(broken.contains("at line 2") && !broken.contains("secret"), "{broken}");
        assert!(text("", &[("FRONTDESK_RELAY_WINDOW", "many")]).contains("FRONTDESK_RELAY_WINDOW"));
        for name in ["FRONTDESK_RELAY_WIDOW", "FRONTDESK_RELAY", "FRONTDESK_LISTEN_ON"] {
            let message = text("", &[(name, "1")]);
            assert!(message.contains("unknown setting") && message.contains(name), "{message}");
        }
        assert!(text("[outcall]\nallow = [\"10.0.0.0/99\"]", &[]).contains("10.0.0.0/99"));
        assert!(text("public_url = \"ftp://x\"", &[]).contains("public_url"));
        let oidc = "[identity]\nverifier = \"oidc\"\nissuer = \"https://i.example\"\njwks = \"https://i.example/keys\"";
        assert!(text(oidc, &[]).contains("identity.audience"), "an audience is required");
        assert!(load(&format!("{oidc}\naudience = \"desk\""), &[]).is_ok());
        assert!(text("[bus]\nurl = \"redis://x\"", &[]).contains("store.url"));
        assert!(text("", &[("FRONTDESK_STORE_URL", "mysql://x")]).contains("postgres://"));
        let mut shared = "[store]\nurl = \"postgres://x/y\"".to_owned();
        for (name, line) in [
            ("public_url", "public_url = \"https://desk.example\""),
            ("keys.master_file", "keys.master_file = \"/k\""),
            ("keys.admin_token_file", "keys.admin_token_file = \"/t\""),
        ] {
            assert!(text(&shared, &[]).contains(&format!("{name} must be set if store.url is")), "{name}");
            shared = format!("{line}\n{shared}");
        }
        assert!(load(&shared, &[]).is_ok());
        assert!(text("[server]\nanswers_per_tenant_kib = 9", &[]).contains("answers_per_tenant_kib"));
        assert!(text("[server]\nkeep_alive_s = 0", &[]).contains("server.keep_alive_s must be from 1 to 3600"));
    }
    #[test]
    fn a_platform_takes_its_own_section() {
        let max_bytes = |config: &Config| config.platform["hooks"]["max_bytes"].as_integer();
        assert_eq!(max_bytes(&load("", &[]).unwrap()), Some(262_144));
        let file = "[platform.hooks]\nmax_bytes = 5";
        assert_eq!(max_bytes(&load(file, &[]).unwrap()), Some(5));
        let vars = [("FRONTDESK_PLATFORM_HOOKS_MAX_BYTES", "7")];
        assert_eq!(max_bytes(&load(file, &vars).unwrap()), Some(7));

        let text = |toml: &str, vars: &[(&str, &str)]| format!("{:#}", load(toml, vars).unwrap_err());
        let unknown = text("[platform.hooks]\nmax_byte = 5", &[]);
        assert!(unknown.contains("[platform.hooks]: unknown field `max_byte`, expected `max_bytes`"), "{unknown}");
        let typed = text("[platform.hooks]\nmax_bytes = \"5\"", &[]);
        assert!(typed.contains("platform.hooks.max_bytes must be of type integer"), "{typed}");
        for wrong in ["0", "1048577", "-1"] {
            let message = text(&format!("[platform.hooks]\nmax_bytes = {wrong}"), &[]);
            assert!(message.contains("[platform.hooks]") && message.contains("max_bytes"), "{message}");
        }
        let absent = text("[platform.pigeons]\nloft = 1", &[]);
        assert!(absent.contains("no platform \"pigeons\"; known platforms: "), "{absent}");
        assert!(absent.contains("hooks"), "{absent}");
        assert!(text("platform = 1", &[]).contains("platform must be of type table"));
        let defaults = load("", &[]).unwrap();
        let sections: Vec<&str> = defaults.platform.keys().map(String::as_str).collect();
        for name in ["FRONTDESK_PLATFORM_HOOKS_MAX_BYTE", "FRONTDESK_PLATFORM_PIGEONS_LOFT", "FRONTDESK_CHAT_COLOUR"] {
            let message = text("", &[(name, "1")]);
            assert!(message.contains("unknown setting") && message.contains(name), "{message}");
            let platforms = message.split_once("platforms with settings: ").map(|(_, names)| names);
            assert_eq!(platforms.is_some(), name.contains("PLATFORM_"), "{message}");
            let named: Option<Vec<&str>> =
                platforms.and_then(|names| Some(names.split_once(';')?.0.split(", ").collect()));
            assert!(named.is_none_or(|named| named == sections && named.contains(&"hooks")), "{message}");
        }
    }

    #[test]
    fn a_variable_finds_its_table_although_another_name_begins_alike() {
        let mut table: Table = "[platform.a]\nc = 1\n[platform.a_b]\nc = 2".parse().unwrap();
        set_from_env(&mut table, "PLATFORM_A_B_C", "3").unwrap();
        assert_eq!((&table["platform"]["a_b"]["c"], &table["platform"]["a"]["c"]), (&3.into(), &1.into()));
        assert!(set_from_env(&mut table, "PLATFORM_A_D", "3").is_err());
    }

    #[test]
    fn the_printed_defaults_are_a_valid_settings_file() {
        let config = load(&defaults(), &[]).unwrap();
        assert_eq!(config.rules().window, Rules::default().window);
    }
}
