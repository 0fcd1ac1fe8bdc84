//! What a folder of `crates/platforms` may name: itself, `shared`, the kit, and of core the ports and the types that
//! every platform gets. A platform does not name another one, and `shared` names none.

use super::Finding;
use super::modules::{Crate, Module};
use super::paths::Named;

const CRATE: &str = "platforms";
/// What all of them may use. `lib.rs` lists the platforms.
const FOR_ALL: [&str; 2] = ["shared", "kit"];
const LIST: &str = "lib";
/// Of core: the ports, what events and errors are made of, and pure functions.
const OF_CORE: [&str; 9] = [
    "frontdesk_core::DeskError",
    "frontdesk_core::Env",
    "frontdesk_core::intake",
    "frontdesk_core::media::id_in",
    "frontdesk_core::media::url",
    "frontdesk_core::port",
    "frontdesk_core::sha256_hex",
    "frontdesk_core::short_hash",
    "frontdesk_core::split",
];
/// The built-in chat is part of the server: the edge calls it, and it hands messages to `Desk` itself.
const BUILT_IN: &str = "chat";
const OF_CORE_BUILT_IN: [&str; 3] =
    ["frontdesk_core::Desk", "frontdesk_core::Rules", "frontdesk_core::directory::check_source"];

/// Findings with the key of their exception: `file: path`.
pub(super) fn look(crates: &[Crate<'_>]) -> Vec<(String, Finding)> {
    let Some(platforms) = crates.iter().find(|krate| krate.folder == CRATE) else { return Vec::new() };
    let mut found: Vec<(String, Finding)> = Vec::new();
    for (from, module) in platforms.modules.iter().enumerate() {
        let own = module.name.first().map_or(LIST, String::as_str);
        for named in &module.paths {
            let Some((what, why)) = refusal(platforms, from, own, named) else { continue };
            let key = format!("{}: {what}", module.source.path);
            // One finding per file and path.
            if found.iter().all(|(known, _)| *known != key) {
                found.push((key, finding(module, named, &what, why)));
            }
        }
    }
    found
}

fn finding(module: &Module<'_>, named: &Named, what: &str, why: &str) -> Finding {
    let what = format!("{what} may not be used in this folder of crates/{CRATE}");
    Finding::new(&module.source.path, module.source.line(named.at), what, why)
}

fn refusal(platforms: &Crate<'_>, from: usize, own: &str, named: &Named) -> Option<(String, &'static str)> {
    if named.path[0] == "frontdesk_core" {
        let why = "a platform uses ports only: add what it needs to a port in crates/core/src/port/";
        return (!is_of_core(own, named)).then(|| (named.joined(), why));
    }
    let is_other = |other: &&str| own != LIST && *other != own && !FOR_ALL.contains(other);
    // Both, as `crate::slack::Token` may be a re-export from elsewhere.
    let other = [by_text(platforms, &named.path), resolved(platforms, from, &named.path)];
    let other = other.into_iter().flatten().find(is_other)?;
    let why = "a platform must not depend on another one: move what both need to crates/platforms/src/shared/";
    Some((format!("crate::{other}"), why))
}

fn is_of_core(own: &str, named: &Named) -> bool {
    let built_in: &[&str] = if own == BUILT_IN { &OF_CORE_BUILT_IN } else { &[] };
    let joined = named.joined();
    // What an imported module is used for is a path of its own.
    let is_module_of = |it: &str| it.strip_prefix(&joined).is_some_and(|rest| rest.starts_with("::"));
    let mut allowed = OF_CORE.iter().chain(built_in);
    allowed.any(|it| named.is_under(it) || (named.local.is_some() && is_module_of(it)))
}

/// The folder that the path names as written.
fn by_text<'a>(platforms: &'a Crate<'_>, path: &[String]) -> Option<&'a str> {
    let top = path.get(1).filter(|_| path[0] == "crate")?;
    platforms.modules.iter().filter_map(|module| module.name.first()).find(|name| *name == top).map(String::as_str)
}

/// The folder that declares the item. `None`: it is in `lib.rs`, or in another crate.
fn resolved<'a>(platforms: &'a Crate<'_>, from: usize, path: &[String]) -> Option<&'a str> {
    platforms.modules[platforms.resolve(from, path)?].name.first().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    const FILES: [(&str, &str); 6] = [
        (
            "lib.rs",
            "pub mod chat;\nmod kit;\npub mod shared;\npub mod slack;\npub use kit::Kit;\npub use slack::Token;\nuse slack::LISTED;",
        ),
        ("chat/mod.rs", "pub mod lines;"),
        ("chat/lines.rs", ""),
        ("kit.rs", "pub struct Kit;"),
        ("shared/mod.rs", "pub mod media;"),
        ("slack/mod.rs", "pub struct Token;\npub mod api;"),
    ];

    fn found(path: &str, text: &str) -> Vec<String> {
        let files = FILES.into_iter().filter(|(known, _)| *known != path).chain([(path, text)]);
        let sources: Vec<Source> =
            files.map(|(path, text)| Source::new(format!("crates/platforms/src/{path}"), text)).collect();
        look(&Crate::all(&sources)).into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn a_platform_does_not_see_another_one() {
        for text in [
            "use crate::slack::Token;",
            "use crate::slack::*;",
            "use super::super::slack::Token;",
            "fn f(_: super::super::slack::api::Api) {}",
            "use crate::Token;",
            "use super::super::{Kit, Token};",
            "use super::super::slack;\nfn f() { slack::api::call() }",
        ] {
            assert_eq!(found("chat/act.rs", text), ["crates/platforms/src/chat/act.rs: crate::slack"], "{text}");
            assert_eq!(found("slack/act.rs", text), Vec::<String>::new(), "{text}");
            assert_eq!(found("chat/tests.rs", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(found("kit.rs", "use super::slack::Token;").len(), 1);
        assert_eq!(found("shared/media.rs", "use super::super::slack::Token;").len(), 1);
        for text in
            ["use crate::chat::lines;", "use super::lines;", "use crate::shared::media;", "use super::super::Kit;"]
        {
            assert_eq!(found("chat/act.rs", text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn a_platform_uses_ports_of_core_only() {
        for text in [
            "use frontdesk_core::Desk;",
            "use frontdesk_core::outbound::Listener;",
            "use frontdesk_core as core;\nfn f(_: core::Desk) {}",
            "use frontdesk_core::media;\nfn f(_: media::MediaPlane) {}",
            "use frontdesk_core::media::*;",
            "use frontdesk_core::*;",
            "fn f() { frontdesk_core::directory::check_source(a) }",
        ] {
            assert_eq!(found("slack/act.rs", text).len(), 1, "{text}: {:?}", found("slack/act.rs", text));
        }
        for text in [
            "use frontdesk_core::port::platform::{Bot, Platform};\nuse frontdesk_core::{DeskError, Env};",
            "use frontdesk_core::media;\nfn f() { media::id_in(a, b) }",
            "use frontdesk_core::split;\nfn f() { split::split(a) }",
            "#[cfg(test)]\nmod tests { use frontdesk_core::Desk; }",
        ] {
            assert_eq!(found("slack/act.rs", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(found("chat/post.rs", "use frontdesk_core::Desk;"), Vec::<String>::new());
        assert_eq!(found("chat/post.rs", "use frontdesk_core::outbound::Listener;").len(), 1);
    }
}
