//! The name of a vendor is allowed only in the folder of its platform, and in comments and tests.

use super::Finding;
use super::source::{Source, parts, words};

const VENDORS: [&str; 8] = ["discord", "telegram", "slack", "whatsapp", "matrix", "twilio", "wecom", "feishu"];
/// Session keys have a rule for one vendor, because the gateway has it.
const ALLOWED: [&str; 1] = ["crates/wire/src/session_key.rs"];
/// The dialects of all vendors are rendered from one document, so they are together.
const DIALECTS: &str = "crates/platforms/src/shared/markdown/";

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let path = source.path.as_str();
    let is_allowed = ALLOWED.contains(&path) || path.starts_with(DIALECTS);
    if source.is_test() || is_allowed || path.starts_with("xtask/") || path.contains("/examples/") {
        return Vec::new();
    }
    let home = path.strip_prefix("crates/platforms/src/").and_then(|rest| rest.split(['/', '.']).next());
    let mut findings = Vec::new();
    for (at, word) in words(&source.spoken) {
        let parts = parts(word);
        let Some(vendor) = VENDORS.into_iter().find(|vendor| parts.iter().any(|part| part == vendor)) else { continue };
        // lib.rs lists all folders.
        let listed = path == "crates/platforms/src/lib.rs" || home == Some(vendor);
        if !listed && !source.in_test(at) {
            let mend = format!("move it to crates/platforms/src/{vendor}/, or use the terms of the contract");
            findings.push(Finding::new(
                path,
                source.line(at),
                format!("the vendor name {vendor:?} is used here"),
                mend,
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_is_named_only_in_its_folder() {
        let code = "fn slack_token() {}\nlet a = \"discord.com\";\nstruct TelegramUpdate;\n";
        assert_eq!(check(&Source::new("crates/core/src/a.rs", code)).len(), 3);
        assert_eq!(check(&Source::new("crates/platforms/src/slack/act.rs", code)).len(), 2);
        assert_eq!(check(&Source::new("crates/platforms/src/lib.rs", "pub mod slack;")), []);
        assert_eq!(check(&Source::new("crates/core/src/a.rs", "// as Discord does\nlet slacker = 1;\n")), []);
        assert_eq!(check(&Source::new("crates/core/tests/a.rs", code)), []);
        assert_eq!(
            check(&Source::new("crates/core/src/a.rs", "#[cfg(test)]\nmod tests { const A: &str = \"slack\"; }")),
            []
        );
        assert_eq!(check(&Source::new("crates/wire/src/session_key.rs", "let whatsapp = 1;")), []);
        assert_eq!(check(&Source::new("crates/platforms/src/shared/markdown/mod.rs", "mod slack;")), []);
        assert_eq!(check(&Source::new("crates/platforms/src/shared/media.rs", "mod slack;")).len(), 1);
    }
}
