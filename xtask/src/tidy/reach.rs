//! The server, the connectors and the platforms use the planes of `Desk`, not the stores behind them: what a plane
//! keeps in memory would not be told of a change that was made past it. Tests and benchmarks compare memory with the
//! store, so they may ask for it. `stores.rs` has the rule for the store as one object.

use std::collections::BTreeSet;

use super::Finding;
use super::paths::{Named, paths};
use super::source::{Source, words};

const FOLDERS: [&str; 3] = ["crates/frontdesk/src/", "crates/connectors/src/", "crates/platforms/src/"];
const EXCEPT: &str = "crates/frontdesk/src/bench/";
/// Traits that a folder may use all the same: platforms read and store files, and the built-in chat writes its log.
const GIVEN: [(&str, &str); 2] = [("crates/platforms/src/", "MediaStore"), ("crates/platforms/src/chat/", "ChatLog")];
/// The method of `Desk` that returns all of them.
const METHOD: &str = "stores";
/// The file and the trait that list the traits of a store. The compiler keeps the list complete: `Stores` is filled
/// from a `dyn Store`, so each of its fields is a supertrait.
const LIST: (&str, &str) = ("crates/core/src/port/store.rs", "Store");
const PORTS: &str = "frontdesk_core::port";
const FIX: &str = "add a method to the plane of core that has this store, and call that";

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let listed = sources.iter().find(|source| source.path == LIST.0).map(traits).unwrap_or_default();
    if listed.is_empty() {
        let what = format!("the traits of a store are not found: `pub trait {}: ..` was expected here", LIST.1);
        return vec![Finding::new(LIST.0, 1, what, "change LIST in xtask/src/tidy/reach.rs")];
    }
    sources.iter().flat_map(|source| look(source, &listed)).collect()
}

/// The supertraits in `pub trait Store: A + B { }`.
fn traits(source: &Source) -> BTreeSet<String> {
    let all = source.words();
    let declared = all.windows(2).find(|pair| pair[0].1 == "trait" && pair[1].1 == LIST.1);
    let Some(from) = declared.map(|pair| pair[1].0 + LIST.1.len()) else { return BTreeSet::new() };
    let bounds = source.code[from..].split(['{', ';']).next().unwrap_or_default();
    let last_words = bounds.split('+').filter_map(|bound| words(bound).pop());
    last_words.map(|(_, name)| name.to_owned()).collect()
}

fn look(source: &Source, traits: &BTreeSet<String>) -> Vec<Finding> {
    let path = source.path.as_str();
    if source.is_test() || path.starts_with(EXCEPT) || !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let finding = |at: usize, what: String| Finding::new(path, source.line(at), what, FIX);
    let is_call = |at: usize, word: &str| {
        let (before, after) = (source.code[..at].trim_end(), source.code[at + word.len()..].trim_start());
        word == METHOD && before.ends_with('.') && after.starts_with('(')
    };
    let called = source.words().into_iter().filter(|(at, word)| is_call(*at, word) && !source.in_test(*at));
    let mut findings: Vec<Finding> =
        called.map(|(at, _)| finding(at, "the stores are used past the planes".into())).collect();
    let is_given = |name: &str| GIVEN.iter().any(|(folder, given)| path.starts_with(folder) && *given == name);
    for named in paths(source) {
        if named.path.ends_with(&["Desk".into(), METHOD.into()]) {
            findings.push(finding(named.at, "the stores are used past the planes".into()));
        } else if hides_traits(&named) {
            let what = format!("{} hides which traits are used", named.joined());
            findings.push(Finding::new(path, source.line(named.at), what, "import each name that is used"));
        } else if named.is_under(PORTS) {
            let used = named.path.iter().skip(2).find(|name| traits.contains(*name) && !is_given(name));
            findings.extend(used.map(|name| finding(named.at, format!("the store trait {name} is used here"))));
        }
    }
    findings
}

/// `port::ledger::*`. Those that bring the whole store are found by `stores.rs`, and `port::platform::Acted::*` brings
/// variants.
fn hides_traits(named: &Named) -> bool {
    let [.., module, last] = named.path.as_slice() else { return false };
    let is_module = module.starts_with(|first: char| first.is_ascii_lowercase());
    let is_whole = ["port", "store", "stores"].contains(&module.as_str());
    last == "*" && named.is_under(PORTS) && is_module && !is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &str = "use super::vault::Vault;\npub trait Store:\n    super::Alarms\n    + Ledger\n    + MediaStore\n    + ChatLog\n    + Claims\n{\n}\n\
         impl<T> Store for T where T: Alarms + Vault {}";

    fn found(path: &str, text: &str) -> usize {
        check(&[Source::new(LIST.0, STORE), Source::new(path, text)]).len()
    }

    #[test]
    fn the_traits_are_those_that_the_store_lists() {
        let listed = traits(&Source::new(LIST.0, STORE));
        assert_eq!(listed.iter().collect::<Vec<_>>(), ["Alarms", "ChatLog", "Claims", "Ledger", "MediaStore"]);
        for text in ["", "pub trait Other: Ledger {}", "pub trait Store {}"] {
            let findings = check(&[Source::new(LIST.0, text)]);
            assert_eq!((findings.len(), findings[0].file.as_str()), (1, LIST.0), "{text}");
        }
        assert_eq!(check(&[]).len(), 1);
    }

    #[test]
    fn the_server_reaches_no_store_past_the_planes() {
        let edge = "crates/frontdesk/src/edge/a.rs";
        for text in [
            "fn f() { app.desk.stores().ledger.pending(1, 0, 9); }",
            "fn f() { desk\n    .stores ()\n    .chat }",
            "use frontdesk_core::Desk;\nfn f() { Desk::stores(&desk) }",
            "use frontdesk_core::port::store::{Ledger, Mail};",
            "use frontdesk_core::port::alarms::Alarms as _;",
            "use frontdesk_core::port::claims::Claims;",
            "use frontdesk_core::port::ledger::*;",
            "use frontdesk_core::port::{BoxFuture, claims::{*}};",
            "fn f(_: &dyn frontdesk_core::port::media::Ledger) {}",
        ] {
            assert_eq!(found(edge, text), 1, "{text}");
            assert_eq!(found("crates/frontdesk/src/work/mod.rs", text), 1, "{text}");
            assert_eq!(found("crates/connectors/src/relay.rs", text), 1, "{text}");
            assert_eq!(found("crates/platforms/src/chat/post.rs", text), 1, "{text}");
            assert_eq!(found("crates/frontdesk/src/bench/relay.rs", text), 0, "{text}");
            assert_eq!(found("crates/frontdesk/tests/cuts.rs", text), 0, "{text}");
            assert_eq!(found("crates/core/src/desk.rs", text), 0, "{text}");
            assert_eq!(found(edge, &format!("#[cfg(test)]\nmod tests {{ {text} }}")), 0, "{text}");
        }
        for text in [
            "mod stores;\nfn f() { get(stores::load); desk.tenant_stores().skills(\"a\"); }",
            "use frontdesk_core::port::store::{Mail, StoreError};",
            "use frontdesk_core::port::platform::Acted::*;",
            "use frontdesk_wire::agents::{Data, Alarms as _};",
            "// desk.stores()",
        ] {
            assert_eq!(found(edge, text), 0, "{text}");
        }
    }

    #[test]
    fn a_platform_has_the_stores_that_it_is_given() {
        let (media, log) =
            ("use frontdesk_core::port::media::MediaStore;", "use frontdesk_core::port::store::ChatLog;");
        assert_eq!(
            (found("crates/platforms/src/slack/a.rs", media), found("crates/platforms/src/chat/a.rs", log)),
            (0, 0)
        );
        assert_eq!((found("crates/platforms/src/slack/a.rs", log), found("crates/connectors/src/a.rs", media)), (1, 1));
    }
}
