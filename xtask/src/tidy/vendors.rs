//! The name of a vendor is allowed only in the folder of its platform, and in comments and tests.

use std::collections::BTreeSet;

use super::Finding;
use super::source::{Source, parts, words};

const PLATFORMS: &str = "crates/platforms/src/";
/// Folders of platforms that have the name of no vendor, or one that is an ordinary word.
const NO_VENDORS: [&str; 4] = ["chat", "hooks", "shared", "signal"];
/// Session keys have a rule for one vendor, because the gateway has it.
const ALLOWED: [&str; 1] = ["crates/wire/src/session_key.rs"];
/// The dialects of all vendors are rendered from one document, so they are together.
const DIALECTS: &str = "crates/platforms/src/shared/markdown/";

/// The vendors that have a platform: the names of their folders.
pub(super) fn all(sources: &[Source]) -> BTreeSet<&str> {
    let inside = sources.iter().filter_map(|source| source.path.strip_prefix(PLATFORMS));
    let folders = inside.filter_map(|path| Some(path.split_once('/')?.0));
    folders.filter(|name| !NO_VENDORS.contains(name)).collect()
}

pub(super) fn check(source: &Source, vendors: &BTreeSet<&str>) -> Vec<Finding> {
    let path = source.path.as_str();
    let is_allowed = ALLOWED.contains(&path) || path.starts_with(DIALECTS);
    if source.is_test() || is_allowed || path.starts_with("xtask/") || path.contains("/examples/") {
        return Vec::new();
    }
    let home = path.strip_prefix(PLATFORMS).and_then(|rest| rest.split(['/', '.']).next());
    let mut findings = Vec::new();
    for (at, word) in words(&source.spoken) {
        let parts = parts(word);
        let mut foreign = parts.iter().map(String::as_str).filter(|part| vendors.contains(part) && home != Some(part));
        let Some(vendor) = foreign.next() else { continue };
        // lib.rs lists all folders.
        let listed = path.strip_prefix(PLATFORMS) == Some("lib.rs");
        if !listed && !source.in_test(at) {
            let fix = format!("move it to crates/platforms/src/{vendor}/, or use the terms of the contract");
            findings.push(Finding::new(path, source.line(at), format!("the vendor name {vendor:?} is used here"), fix));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, code: &str) -> Vec<Finding> {
        super::check(&Source::new(path, code), &["discord", "slack", "telegram", "whatsapp"].into())
    }

    #[test]
    fn vendors_are_the_folders_of_platforms() {
        let paths =
            ["platforms/src/lib.rs", "platforms/src/hooks/mod.rs", "platforms/src/slack/act.rs", "core/src/chat/a.rs"];
        let sources = paths.map(|path| Source::new(format!("crates/{path}"), ""));
        assert_eq!(all(&sources), ["slack"].into());
    }

    #[test]
    fn a_vendor_is_named_only_in_its_folder() {
        let code = "fn slack_token() {}\nlet a = \"discord.com\";\nstruct TelegramUpdate;\n";
        assert_eq!(check("crates/core/src/a.rs", code).len(), 3);
        assert_eq!(check("crates/platforms/src/slack/act.rs", code).len(), 2);
        assert_eq!(check("crates/platforms/src/slack/act.rs", "fn slack_as_telegram() {}").len(), 1);
        assert_eq!(check("crates/platforms/src/lib.rs", "pub mod slack;"), []);
        assert_eq!(check("crates/core/src/a.rs", "// as Discord does\nlet slacker = 1;\n"), []);
        assert_eq!(check("crates/core/tests/a.rs", code), []);
        assert_eq!(check("crates/core/src/a.rs", "#[cfg(test)]\nmod tests { const A: &str = \"slack\"; }"), []);
        assert_eq!(check("crates/wire/src/session_key.rs", "let whatsapp = 1;"), []);
        assert_eq!(check("crates/platforms/src/shared/markdown/mod.rs", "mod slack;"), []);
        assert_eq!(check("crates/platforms/src/shared/media.rs", "mod slack;").len(), 1);
    }
}
