//! What the whole tree pulls in: one provider of cryptography, and no system library for TLS.
//!
//! The lock file also names crates that only other targets or unused options would build, so `ring`
//! is looked for in the features that members enable (see `edges`), and by `deny.toml`.

use anyhow::Context as _;
use toml::{Table, Value};

use super::Finding;

const BANNED: [(&str, &str); 4] = [
    ("openssl", "use rustls with aws-lc-rs"),
    ("openssl-sys", "use rustls with aws-lc-rs"),
    ("native-tls", "use rustls with aws-lc-rs"),
    ("rsa", "use the RSA of aws-lc-rs"),
];

pub(super) fn check(text: &str) -> anyhow::Result<Vec<Finding>> {
    let lock: Table = text.parse().context("Cargo.lock is not TOML")?;
    let packages = lock.get("package").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut findings = Vec::new();
    for name in packages.iter().filter_map(|it| it.get("name")?.as_str()) {
        let Some((_, mend)) = BANNED.iter().find(|(banned, _)| *banned == name) else { continue };
        let line = text.lines().position(|line| line == format!("name = {name:?}")).map_or(1, |at| at + 1);
        let mend = format!("{mend}; `cargo tree -i {name} --target all` says who wants it");
        findings.push(Finding::new("Cargo.lock", line, format!("{name} is in the tree"), mend));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banned_crate_is_found_at_its_line() {
        let lock = "version = 4\n\n[[package]]\nname = \"serde\"\nversion = \"1\"\n\n[[package]]\nname = \"rsa\"\nversion = \"0.9\"\n";
        let found = check(lock).unwrap();
        assert_eq!((found.len(), found[0].line), (1, 8));
        assert_eq!(check("version = 4\n").unwrap(), []);
    }
}
