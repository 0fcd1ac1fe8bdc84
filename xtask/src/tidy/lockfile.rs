//! Checks all dependencies against `deny.toml`: no banned crate, no source except crates.io, no licence that is not
//! listed. `cargo deny` checks more, but is not installed everywhere.

use std::collections::BTreeSet;

use anyhow::Context as _;
use toml::{Table, Value};

use super::Finding;
use super::licences::is_allowed;
use super::metadata::Package;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The parts of `deny.toml` that are checked here.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// Name and reason.
    bans: Vec<(String, String)>,
    licences: BTreeSet<String>,
}

impl Policy {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let table: Table = text.parse().context("deny.toml is not TOML")?;
        let field = |section: &str, name: &str| table.get(section)?.get(name)?.as_array().cloned();
        let mut policy = Self::default();
        for ban in field("bans", "deny").unwrap_or_default() {
            let name = ban.get("name").or(Some(&ban)).and_then(Value::as_str).context("a ban without a name")?;
            let reason = ban.get("reason").and_then(Value::as_str).unwrap_or("deny.toml bans it");
            policy.bans.push((name.to_owned(), reason.to_owned()));
        }
        let licences = field("licenses", "allow").context("deny.toml has no licenses.allow")?;
        policy.licences.extend(licences.iter().filter_map(Value::as_str).map(str::to_owned));
        Ok(policy)
    }
}

/// Sources of the packages in a lock file. Members of the workspace have none.
pub(super) fn check_sources(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let source = line.strip_prefix("source = \"").and_then(|rest| rest.strip_suffix('"'));
        if let Some(source) = source.filter(|source| *source != REGISTRY) {
            let fix = "depend on a published version; deny.toml allows no other source";
            findings.push(Finding::new(path, at + 1, format!("a package comes from {source}"), fix));
        }
    }
    findings
}

/// Banned crates that are built here, or on another platform only.
pub(super) fn check_bans(lock: &str, packages: &[Package], policy: &Policy) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, reason) in &policy.bans {
        let Some(line) = line_of(lock, name) else { continue };
        let known = packages.iter().any(|package| package.name == *name);
        let built = packages.iter().any(|package| package.name == *name && package.is_built);
        if built || !known {
            let fix = format!("{reason}; `cargo tree -i {name} --target all` shows which package needs it");
            findings.push(Finding::new("Cargo.lock", line, format!("the banned crate {name} is in the tree"), fix));
        }
    }
    findings
}

pub(super) fn check_licences(lock: &str, packages: &[Package], policy: &Policy) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| package.is_built) {
        let licence = package.licence.as_deref().unwrap_or_default();
        if !is_allowed(licence, &policy.licences) {
            let (name, version) = (&package.name, &package.version);
            let what = format!("the licence {licence:?} of {name} {version} is not allowed by deny.toml");
            let fix =
                "use another crate, or add the licence to licenses.allow in deny.toml with the reason in the commit";
            findings.push(Finding::new("Cargo.lock", line_of(lock, name).unwrap_or(1), what, fix));
        }
    }
    findings
}

fn line_of(lock: &str, name: &str) -> Option<usize> {
    let entry = format!("name = {name:?}");
    lock.lines().position(|line| line == entry).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"serde\"\nversion = \"1\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\n\n[[package]]\nname = \"ring\"\nversion = \"0.17\"\n";

    fn policy() -> Policy {
        let text = "[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [\"rsa\", { name = \"ring\", reason = \"use aws-lc-rs\" }]\n";
        Policy::parse(text).unwrap()
    }

    fn package(name: &str, licence: Option<&str>, is_built: bool) -> Package {
        Package { name: name.into(), version: "1".into(), licence: licence.map(str::to_owned), is_built }
    }

    #[test]
    fn a_banned_crate_is_found_unless_nothing_builds_it() {
        let found = check_bans(LOCK, &[package("ring", None, true)], &policy());
        assert_eq!((found.len(), found[0].line), (1, 9));
        assert!(found[0].fix.starts_with("use aws-lc-rs"));
        assert_eq!(check_bans(LOCK, &[], &policy()).len(), 1, "another platform builds it");
        assert_eq!(check_bans(LOCK, &[package("ring", None, false)], &policy()), []);
        assert_eq!(check_bans("version = 4\n", &[], &policy()), []);
    }

    #[test]
    fn only_the_standard_registry_is_a_source() {
        assert_eq!(check_sources("Cargo.lock", LOCK), []);
        let forked = LOCK.replace("registry+https", "git+https");
        assert_eq!(check_sources("Cargo.lock", &forked)[0].line, 6);
    }

    #[test]
    fn a_licence_must_be_listed() {
        let packages =
            [package("serde", Some("MIT OR Apache-2.0"), true), package("ring", None, true), package("b", None, false)];
        let found = check_licences(LOCK, &packages, &policy());
        assert_eq!((found.len(), found[0].line), (1, 9), "{found:?}");
        assert!(Policy::parse("").is_err());
    }
}
