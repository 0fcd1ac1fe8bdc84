//! Allowed dependencies of crates: `wire <- core <- {store, platforms, connectors} <- frontdesk`, `wire <- client`.

use anyhow::Context as _;
use toml::{Table, Value};

use super::Finding;

/// Members that each member may import. A new member needs an entry here first.
const MEMBERS: [(&str, &[&str]); 9] = [
    ("frontdesk-wire", &[]),
    ("frontdesk-core", &["frontdesk-wire"]),
    ("frontdesk-store", &["frontdesk-wire", "frontdesk-core"]),
    ("frontdesk-platforms", &["frontdesk-wire", "frontdesk-core"]),
    ("frontdesk-connectors", &["frontdesk-wire", "frontdesk-core"]),
    ("frontdesk-client", &["frontdesk-wire"]),
    ("frontdesk-testkit", &["frontdesk-wire", "frontdesk-core", "frontdesk-client"]),
    ("xtask", &[]),
    (
        "frontdesk",
        &[
            "frontdesk-wire",
            "frontdesk-core",
            "frontdesk-store",
            "frontdesk-platforms",
            "frontdesk-connectors",
            "frontdesk-client",
        ],
    ),
];

/// External crates that only some members may use, with the reason.
const KEPT: [(&str, &[&str], &str); 10] = [
    ("axum", &["frontdesk", "frontdesk-client"], "HTTP servers belong into frontdesk and the client"),
    ("hyper", &["frontdesk"], "HTTP servers belong into frontdesk"),
    ("hyper-util", &["frontdesk"], "HTTP servers belong into frontdesk"),
    ("tower", &["frontdesk"], "HTTP servers belong into frontdesk"),
    (
        "reqwest",
        &["frontdesk", "frontdesk-client"],
        "all outgoing calls use the guarded Outcall port; the client calls only its own server",
    ),
    ("rusqlite", &["frontdesk-store"], "SQL stays behind the store port"),
    ("tokio-postgres", &["frontdesk-store", "frontdesk-testkit"], "SQL stays behind the store port"),
    ("redis", &["frontdesk-store"], "the bus stays behind its port"),
    ("clap", &["frontdesk"], "the command line belongs into frontdesk"),
    (
        "tokio-websockets",
        &["frontdesk-client", "frontdesk-testkit", "frontdesk"],
        "WebSocket clients belong into the client",
    ),
];

/// Banned for all members: all cryptography comes from one provider.
const BANNED: [&str; 4] = ["ring", "openssl", "native-tls", "rsa"];
const ONE_PROVIDER: &str = "use aws-lc-rs: one provider for all cryptography";
const PURE: &str = "frontdesk-wire";
const IO: [&str; 3] = ["tokio", "tokio-util", "futures-util"];

pub(super) fn check(path: &str, text: &str) -> anyhow::Result<Vec<Finding>> {
    let manifest: Table = text.parse().with_context(|| format!("{path} is not TOML"))?;
    let name = manifest.get("package").and_then(|it| it.get("name")).and_then(Value::as_str).unwrap_or_default();
    let Some((_, allowed)) = MEMBERS.into_iter().find(|(member, _)| *member == name) else {
        let fix = "add it to MEMBERS in xtask/src/tidy/edges.rs, with what it may import";
        return Ok(vec![Finding::new(path, 1, format!("{name:?} is not a known member"), fix)]);
    };
    let mut findings = Vec::new();
    for (dependency, options, for_tests) in dependencies(&manifest) {
        let fix = match refusal(name, allowed, dependency, for_tests) {
            Some(why) => why,
            None if enables_ring(options) => ONE_PROVIDER.to_owned(),
            None => continue,
        };
        findings.push(Finding::new(
            path,
            line_of(text, dependency),
            format!("{name} may not depend on {dependency}"),
            fix,
        ));
    }
    Ok(findings)
}

/// Why the crate in `crates/<folder>` may not name `other` in its source, if it may not.
pub(super) fn refusal_in_source(folder: &str, other: &str) -> Option<String> {
    let prefixed = format!("frontdesk-{folder}");
    let (name, allowed) = MEMBERS.into_iter().find(|(member, _)| *member == folder || *member == prefixed)?;
    // A crate may name itself: `frontdesk::` in main.rs.
    (name != other).then(|| refusal(name, allowed, other, false)).flatten()
}

/// Why `name` may not import `other`, if it may not. Both are names of packages.
fn refusal(name: &str, allowed: &[&str], other: &str, for_tests: bool) -> Option<String> {
    let is_member = MEMBERS.iter().any(|(member, _)| *member == other);
    // A crate names itself to have a feature of its own in its tests.
    let may_test = for_tests && (other == "frontdesk-testkit" || name == "frontdesk" || name == other);
    if is_member && !allowed.contains(&other) && !may_test {
        return Some("members may import only lower ones: move the type down, or put a port between them".to_owned());
    }
    if BANNED.contains(&other) {
        return Some(ONE_PROVIDER.to_owned());
    }
    if let Some((_, users, why)) = KEPT.iter().find(|(kept, ..)| *kept == other && name != "xtask") {
        // Tests of frontdesk may open and lock the database.
        let may_use = users.contains(&name) || (for_tests && name == "frontdesk");
        return (!may_use).then(|| format!("{why}; only {} may use it", users.join(", ")));
    }
    let is_io = name == PURE && IO.contains(&other) && !for_tests;
    is_io.then(|| "wire has only data types: no runtime and no I/O".to_owned())
}

/// Name, options, and whether it is a dev-dependency; of all targets.
fn dependencies(manifest: &Table) -> Vec<(&str, &Value, bool)> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(|all| all.values());
    let tables = targets.filter_map(Value::as_table).chain([manifest]);
    let mut found = Vec::new();
    for table in tables {
        for (kind, for_tests) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
            let listed = table.get(kind).and_then(Value::as_table).into_iter().flatten();
            found.extend(listed.map(|(name, options)| {
                let real = options.get("package").and_then(Value::as_str).unwrap_or(name);
                (real, options, for_tests)
            }));
        }
    }
    found
}

pub(super) fn enables_ring(options: &Value) -> bool {
    let features = options.get("features").and_then(Value::as_array);
    features.is_some_and(|all| all.iter().filter_map(Value::as_str).any(|name| name == "ring"))
}

fn line_of(text: &str, name: &str) -> usize {
    text.lines().position(|line| line.trim_start().trim_start_matches('"').starts_with(name)).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, rest: &str) -> Vec<Finding> {
        check("Cargo.toml", &format!("[package]\nname = \"{name}\"\n{rest}")).unwrap()
    }

    #[test]
    fn members_import_only_lower_ones() {
        assert_eq!(found("frontdesk-core", "[dependencies]\nfrontdesk-wire.workspace = true\n"), []);
        let bad = found("frontdesk-wire", "[dependencies]\nserde = \"1\"\nfrontdesk-core.workspace = true\n");
        assert_eq!((bad.len(), bad[0].line), (1, 5));
        for (name, other) in [
            ("frontdesk-core", "frontdesk-store"),
            ("frontdesk-store", "frontdesk-platforms"),
            ("frontdesk-platforms", "frontdesk-store"),
            ("frontdesk-client", "frontdesk-core"),
            ("frontdesk", "frontdesk-testkit"),
        ] {
            assert_eq!(found(name, &format!("[dependencies]\n{other}.workspace = true\n")).len(), 1, "{name} {other}");
        }
        assert_eq!(found("frontdesk-store", "[dev-dependencies]\nfrontdesk-testkit.workspace = true\n"), []);
        assert_eq!(found("frontdesk-store", "[dev-dependencies]\nfrontdesk-platforms.workspace = true\n").len(), 1);
        assert_eq!(found("frontdesk-new", "").len(), 1);
    }

    #[test]
    fn some_crates_are_reserved_for_some_members() {
        assert_eq!(found("frontdesk", "[dependencies]\naxum = \"0.8\"\nreqwest = \"1\"\n"), []);
        assert_eq!(found("frontdesk-store", "[dependencies]\naxum = \"0.8\"\n").len(), 1);
        assert_eq!(found("frontdesk-platforms", "[target.'cfg(unix)'.dependencies]\nreqwest = \"1\"\n").len(), 1);
        assert_eq!(
            found("frontdesk-core", "[dependencies]\nweb = { package = \"hyper\", version = \"1\" }\n").len(),
            1
        );
        assert_eq!(found("frontdesk-wire", "[dependencies]\ntokio = \"1\"\n").len(), 1);
        assert_eq!(
            found("frontdesk", "[dependencies]\nrustls = { version = \"1\", features = [\"ring\"] }\n").len(),
            1
        );
        assert_eq!(found("frontdesk", "[dependencies]\nrsa = \"1\"\n").len(), 1);
    }
}
