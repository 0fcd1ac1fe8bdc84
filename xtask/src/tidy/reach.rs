//! The server uses the planes of `Desk`, not the stores behind them: what a plane keeps in memory would not be told of a
//! change that was made past it. Tests and benchmarks compare memory with the store, so they may ask for it.

use super::Finding;
use super::paths::paths;
use super::source::Source;

const FOLDERS: [&str; 2] = ["crates/frontdesk/src/", "crates/connectors/src/"];
const EXCEPT: &str = "crates/frontdesk/src/bench/";
/// The method of `Desk` that returns all of them.
const METHOD: &str = "stores";
/// The traits of a store, in `frontdesk_core::port`. Its data types may be named.
const TRAITS: [&str; 15] = [
    "Alarms",
    "ChatLog",
    "Cursors",
    "Data",
    "Desks",
    "Directory",
    "Inbox",
    "Journal",
    "Ledger",
    "MediaStore",
    "Sessions",
    "Skills",
    "Store",
    "Upkeep",
    "Vault",
];
const MEND: &str = "add a method to the plane of core that has this store, and call that";

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let path = source.path.as_str();
    if source.is_test() || path.starts_with(EXCEPT) || !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let finding = |at: usize, what: String| Finding::new(path, source.line(at), what, MEND);
    let is_call = |at: usize, word: &str| {
        let (before, after) = (source.code[..at].trim_end(), source.code[at + word.len()..].trim_start());
        word == METHOD && before.ends_with('.') && after.starts_with('(')
    };
    let called = source.words().into_iter().filter(|(at, word)| is_call(*at, word) && !source.in_test(*at));
    let mut findings: Vec<Finding> =
        called.map(|(at, _)| finding(at, "the stores are used past the planes".into())).collect();
    for named in paths(source).iter().filter(|named| named.is_under("frontdesk_core::port")) {
        if let Some(name) = named.path.iter().skip(2).find(|name| TRAITS.contains(&name.as_str())) {
            findings.push(finding(named.at, format!("the store trait {name} is used here")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn the_server_reaches_no_store_past_the_planes() {
        let edge = "crates/frontdesk/src/edge/a.rs";
        for text in [
            "fn f() { app.desk.stores().ledger.pending(1, 0, 9); }",
            "fn f() { desk\n    .stores ()\n    .chat }",
            "use frontdesk_core::port::store::{Ledger, Mail};",
            "use frontdesk_core::port::alarms::Alarms as _;",
            "fn f(_: &dyn frontdesk_core::port::media::MediaStore) {}",
        ] {
            assert_eq!(found(edge, text), 1, "{text}");
            assert_eq!(found("crates/frontdesk/src/work/mod.rs", text), 1, "{text}");
            assert_eq!(found("crates/connectors/src/relay.rs", text), 1, "{text}");
            assert_eq!(found("crates/frontdesk/src/bench/relay.rs", text), 0, "{text}");
            assert_eq!(found("crates/frontdesk/tests/cuts.rs", text), 0, "{text}");
            assert_eq!(found("crates/core/src/desk.rs", text), 0, "{text}");
            assert_eq!(found(edge, &format!("#[cfg(test)]\nmod tests {{ {text} }}")), 0, "{text}");
        }
        for text in [
            "mod stores;\nfn f() { get(stores::load); desk.tenant_stores().skills(\"a\"); }",
            "use frontdesk_core::port::store::{Mail, StoreError};",
            "use frontdesk_wire::agents::{Data, SkillStore as _};",
            "// desk.stores()",
        ] {
            assert_eq!(found(edge, text), 0, "{text}");
        }
    }
}
