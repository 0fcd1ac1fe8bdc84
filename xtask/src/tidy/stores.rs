//! The whole store as one object: `Store`, the trait with all of its traits, and `Stores`, with a pointer for each.
//!
//! A plane is lent `&Stores` when it is made and keeps only the traits that it needs, so that its fields show what it
//! can change. Only `Desk` keeps all. app.rs opens a store and may name it whole, as tests and the testkit may.

use super::Finding;
use super::modules::{Crate, Module};
use super::paths::{Named, declarations};

const APP: &str = "crates/frontdesk/src/app.rs";
const TRAIT: (&str, &str) = ("crates/core/src/port/store.rs", "Store");
const STRUCT: (&str, &str) = ("crates/core/src/port/stores.rs", "Stores");
/// Where `Stores` is exported, and kept.
const KEEPERS: [&str; 2] = ["crates/core/src/lib.rs", "crates/core/src/desk.rs"];
/// The same outside of core. `DeskError::Store` is something else.
const EXPORTED: [&str; 3] =
    ["frontdesk_core::Stores", "frontdesk_core::port::stores", "frontdesk_core::port::store::Store"];
/// Globs that bring one of them, or a module that has one.
const GLOBS: [&str; 3] = ["frontdesk_core::*", "frontdesk_core::port::*", "frontdesk_core::port::store::*"];
const FIX: &str = "take the traits that are needed, each as its own `Arc<dyn ..>`";

pub(super) fn check(crates: &[Crate<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in crates {
        for (from, module) in krate.modules.iter().enumerate() {
            let path = module.source.path.as_str();
            if krate.folder == "core" && ![TRAIT.0, STRUCT.0].contains(&path) {
                findings.extend(in_core(krate, from, module));
            } else if krate.folder != "core" && path != APP {
                findings
                    .extend(module.paths.iter().filter(|named| is_exported(named)).map(|it| named_here(module, it)));
            }
        }
    }
    findings
}

fn is_exported(named: &Named) -> bool {
    EXPORTED.iter().any(|whole| named.is_under(whole)) || GLOBS.contains(&named.joined().as_str())
}

fn in_core(core: &Crate<'_>, from: usize, module: &Module<'_>) -> Vec<Finding> {
    let leads_to = |named: &Named, (file, name): (&str, &str)| {
        let is_named = named.path.iter().any(|part| part == name || part == "*");
        is_named && core.resolve(from, &named.path).is_some_and(|at| core.modules[at].source.path == file)
    };
    // Under another name or by a glob, `Stores` would not be seen by `kept`.
    let is_hidden =
        |named: &Named| named.local.as_deref().is_some_and(|local| local != STRUCT.1) && leads_to(named, STRUCT);
    let named = module.paths.iter().filter(|named| leads_to(named, TRAIT) || is_hidden(named));
    let mut findings: Vec<Finding> = named.map(|named| named_here(module, named)).collect();
    if !KEEPERS.contains(&module.source.path.as_str()) {
        findings.extend(kept(module));
    }
    findings
}

fn named_here(module: &Module<'_>, named: &Named) -> Finding {
    let what = format!("{} is the whole store", named.joined());
    Finding::new(&module.source.path, module.source.line(named.at), what, FIX)
}

/// `Stores` as anything but the `&Stores` of an argument.
fn kept(module: &Module<'_>) -> Vec<Finding> {
    let source = module.source;
    let imports = declarations(&source.code);
    let is_kept = |at: usize| {
        let before = source.code[..at].trim_end_matches(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        let lent = before.trim_end().strip_suffix('&');
        lent.is_none_or(|rest| rest.trim_end().ends_with("->"))
    };
    let words = source.words().into_iter().filter(|(at, word)| *word == STRUCT.1 && !source.in_test(*at));
    let outside = words.filter(|(at, _)| !imports.iter().any(|(range, _)| range.contains(at)));
    let fix = "take `&Stores` as an argument, and keep the traits that are needed";
    outside
        .filter(|(at, _)| is_kept(*at))
        .map(|(at, _)| Finding::new(&source.path, source.line(at), "the whole store is kept or passed on here", fix))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    const CORE: [(&str, &str); 5] = [
        ("crates/core/src/lib.rs", "pub mod port;\npub mod desk;\npub use port::stores::Stores;"),
        (
            "crates/core/src/desk.rs",
            "use crate::port::stores::Stores;\nstruct Desk { stores: Stores }\nfn stores() -> &Stores {}",
        ),
        ("crates/core/src/port/mod.rs", "pub mod store;\npub mod stores;"),
        ("crates/core/src/port/store.rs", "pub use super::ledger::Ledger;\npub trait Store: Ledger {}"),
        (
            "crates/core/src/port/stores.rs",
            "use super::store::Store;\npub struct Stores { ledger: Arc<dyn Ledger> }\nfn f(_: Arc<dyn Store>) -> Stores {}",
        ),
    ];

    fn found(path: &str, text: &str) -> Vec<Finding> {
        let files = CORE.into_iter().filter(|(known, _)| *known != path).chain([(path, text)]);
        let sources: Vec<Source> = files.map(|(path, text)| Source::new(path, text)).collect();
        check(&Crate::all(&sources))
    }

    #[test]
    fn a_plane_keeps_only_the_traits_that_it_needs() {
        let plane = "crates/core/src/agents/mod.rs";
        for text in [
            "use crate::port::stores::Stores;\nstruct A { stores: Stores }",
            "struct A<'a> { stores: &'a crate::Stores }",
            "use crate::Stores;\nfn f(&self) -> &Stores {}",
            "use crate::Stores;\nfn f(stores: Arc<Stores>) {}",
            "use crate::Stores as All;\nstruct A { all: All }",
            "use crate::port::stores::*;",
            "use crate::port::store::*;",
            "use crate::port::store::{Ledger, Store};\nfn f(_: &dyn Store) {}",
            "fn f(_: &dyn crate::port::store::Store) {}",
        ] {
            assert_eq!(found(plane, text).len(), 1, "{text}: {:?}", found(plane, text));
            assert_eq!(found("crates/core/src/agents/tests.rs", text), [], "{text}");
            assert_eq!(found(plane, &format!("#[cfg(test)]\nmod tests {{ {text} }}")), [], "{text}");
        }
        for text in [
            "use crate::port::stores::Stores;\nfn f(stores: &Stores, all: &crate::Stores) { g(stores.ledger.clone()) }",
            "use crate::port::store::Ledger;\nstruct A { ledger: Arc<dyn Ledger> }",
            "fn f() { DeskError::Store(error) }",
            "enum E { Store(StoreError) }\n// Stores what a tenant has",
        ] {
            assert_eq!(found(plane, text), [], "{text}");
        }
    }

    #[test]
    fn desk_keeps_the_struct_and_not_the_trait() {
        assert_eq!(found("crates/core/src/other.rs", ""), []);
        let desk =
            found("crates/core/src/desk.rs", "\nuse crate::port::store::Store;\nstruct Desk { all: Arc<dyn Store> }");
        assert_eq!((desk.len(), desk[0].line), (1, 2), "{desk:?}");
    }

    #[test]
    fn outside_of_core_only_app_names_the_whole_store() {
        for text in [
            "use frontdesk_core::Stores;",
            "use frontdesk_core::port::stores::Stores as All;",
            "use frontdesk_core::port::store::{Ledger, Store};",
            "fn f(_: Arc<dyn frontdesk_core::port::store::Store>) {}",
            "use frontdesk_core::port;\nfn f(_: Arc<dyn port::store::Store>) {}",
            "use frontdesk_core::*;",
            "use frontdesk_core::port::*;",
            "use frontdesk_core::port::store::*;",
        ] {
            for path in
                ["crates/frontdesk/src/edge/a.rs", "crates/store/src/memory/a.rs", "crates/platforms/src/chat/a.rs"]
            {
                assert!(!found(path, text).is_empty(), "{path}: {text}");
            }
            for path in [APP, "crates/testkit/src/desk.rs", "crates/store/tests/a.rs"] {
                assert_eq!(found(path, text), [], "{path}: {text}");
            }
        }
        for text in [
            "use frontdesk_core::port::store::{Ledger, StoreError};",
            "use frontdesk_core::DeskError;\nfn f() { DeskError::Store(error) }",
            "struct Store;\nfn f(_: &dyn Store) {}",
        ] {
            assert_eq!(found("crates/store/src/memory/a.rs", text), [], "{text}");
        }
    }
}
