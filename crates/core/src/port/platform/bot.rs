//! A bot of a platform, as its adapter sees it: with its settings, and with its secrets opened.

use std::collections::BTreeMap;

use frontdesk_wire::{BotId, Secret, TenantId};

use crate::intake::TenantSource;

/// A platform, and the id of a bot on it.
pub type PlatformBot = (String, BotId);

#[derive(Default)]
pub struct Bot {
    pub id: BotId,
    /// `None`: shared. Routes and links decide whose an event is.
    pub tenant: Option<TenantId>,
    settings: BTreeMap<String, String>,
    secrets: BTreeMap<String, Secret>,
    account: String,
}

impl Bot {
    pub fn new(
        id: impl Into<BotId>,
        tenant: Option<TenantId>,
        settings: BTreeMap<String, String>,
        secrets: BTreeMap<String, Secret>,
    ) -> Self {
        Self { id: id.into(), tenant, settings, secrets, account: String::new() }
    }

    /// A bot that was not added: one that a platform has by itself.
    pub fn bare(id: impl Into<BotId>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// An empty setting is the same as none.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn secret(&self, name: &str) -> Option<&Secret> {
        self.secrets.get(name).filter(|value| !value.expose().is_empty())
    }

    /// Secrets that the platform got for the bot, whose names begin with the prefix, by the rest of the name.
    pub fn granted<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Secret)> {
        let of = move |(name, secret): (&'a String, &'a Secret)| Some((name.strip_prefix(prefix)?, secret));
        self.secrets.iter().filter_map(of).filter(|(_, secret)| !secret.expose().is_empty())
    }

    /// A mark of the account behind the bot: it follows from the secrets and tells nothing about them.
    pub fn account(&self) -> &str {
        &self.account
    }

    #[must_use]
    pub(crate) fn of_account(mut self, account: String) -> Self {
        self.account = account;
        self
    }

    pub(crate) fn secrets(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.secrets.iter().map(|(name, secret)| (name.as_str(), secret))
    }

    /// How the tenant of this bot's events is found, where the platform does not say more.
    pub fn tenant_source(&self) -> TenantSource {
        self.tenant.clone().map_or(TenantSource::Shared, TenantSource::Tenant)
    }
}

/// Names and not values, so that no secret is ever printed.
impl std::fmt::Debug for Bot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bot")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("settings", &self.settings)
            .field("secrets", &self.secrets.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// One thing that the vendor says about a bot.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BotFinding {
    /// token, webhook, groups...
    pub check: &'static str,
    pub ok: bool,
    pub text: String,
}

impl BotFinding {
    pub fn new(check: &'static str, ok: bool, text: impl Into<String>) -> Self {
        Self { check, ok, text: text.into() }
    }
}

/// The names that `bot add` takes for a platform.
#[derive(Debug, Clone, Copy, Default)]
pub struct BotNames {
    pub settings: &'static [&'static str],
    /// Each of these must be given.
    pub required: &'static [&'static str],
    pub secrets: &'static [&'static str],
}

impl BotNames {
    /// Why a bot with these names cannot be added. `given` are settings, then secrets.
    pub fn refusal<'a>(
        &self,
        settings: impl Iterator<Item = &'a str>,
        secrets: impl Iterator<Item = &'a str>,
    ) -> Option<String> {
        let (settings, secrets): (Vec<&str>, Vec<&str>) = (settings.collect(), secrets.collect());
        let unknown = |kind: &str, name: &str, known: &[&str]| match known {
            [] => format!("unknown {kind} {name:?}; this platform has none"),
            known => format!("unknown {kind} {name:?}; known are {}", known.join(", ")),
        };
        if let Some(name) = settings.iter().find(|name| !self.settings.contains(name)) {
            return Some(unknown("setting", name, self.settings));
        }
        if let Some(name) = secrets.iter().find(|name| !self.secrets.contains(name)) {
            return Some(unknown("secret", name, self.secrets));
        }
        let missing = self.required.iter().find(|name| !settings.contains(name) && !secrets.contains(name))?;
        let flag = if self.secrets.contains(missing) { "--secret" } else { "--set" };
        Some(format!("{missing:?} is missing; give it with {flag} {missing}=..."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: BotNames =
        BotNames { settings: &["base_url", "mode"], required: &["token", "mode"], secrets: &["token"] };

    fn refusal(settings: &[&str], secrets: &[&str]) -> Option<String> {
        NAMES.refusal(settings.iter().copied(), secrets.iter().copied())
    }

    #[test]
    fn a_wrong_name_is_refused_with_the_known_ones() {
        assert_eq!(refusal(&["mode"], &["token"]), None);
        let text = refusal(&["mode", "base"], &["token"]).unwrap();
        assert!(text.contains("\"base\"") && text.contains("base_url, mode"), "{text}");
        let text = refusal(&["mode"], &["Token"]).unwrap();
        assert!(text.contains("unknown secret \"Token\"") && text.contains("known are token"), "{text}");
    }

    #[test]
    fn a_missing_name_is_refused_with_its_flag() {
        assert!(refusal(&["mode"], &[]).unwrap().contains("--secret token="));
        assert!(refusal(&[], &["token"]).unwrap().contains("--set mode="));
    }

    #[test]
    fn a_bot_is_printed_without_its_secrets() {
        let secrets = [("token".to_owned(), Secret::new("hunter2"))].into();
        let bot = Bot::new("b", None, BTreeMap::new(), secrets);
        let printed = format!("{bot:?}");
        assert!(printed.contains("token") && !printed.contains("hunter2"), "{printed}");
    }
}
