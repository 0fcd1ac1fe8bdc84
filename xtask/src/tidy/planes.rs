//! The planes of `crates/core`: a module may import lower planes, but not higher ones.

use std::collections::BTreeSet;

use super::Finding;
use super::exceptions::Exceptions;
use super::modules::{Crate, Module};

const CRATE: &str = "core";

/// The planes from low to high, each a module of `crates/core/src` (file or folder; it need not exist). Modules in one
/// row form one plane and may import each other.
const PLANES: [&[&str]; 14] = [
    &["port"],
    &["upkeep"],
    &["env"],
    &["seal", "vault"],
    &["directory"],
    &["media"],
    &["gate"],
    &["delivery"],
    &["inbound"],
    &["outbound"],
    &["cron"],
    &["agents"],
    &["cluster"],
    &["desk"],
];

/// Modules in no plane are shared: all planes may import them, and they may import each other and these.
const BELOW_SHARED: [&str; 2] = ["port", "env"];

pub(super) fn check(crates: &[Crate<'_>], exceptions: &Exceptions) -> Vec<Finding> {
    let Some(core) = crates.iter().find(|krate| krate.folder == CRATE) else { return Vec::new() };
    let mut found = Vec::new();
    for (from, module) in core.modules.iter().enumerate() {
        let Some(own) = module.name.first() else { continue }; // lib.rs names all planes
        let mut known = BTreeSet::new();
        for named in &module.paths {
            for other in [by_text(core, &named.path), resolved(core, from, &named.path)].into_iter().flatten() {
                let Some(why) = refusal(own, other) else { continue };
                if known.insert(other) {
                    found.push((format!("{} -> {other}", module.source.path), finding(module, named.at, other, why)));
                }
            }
        }
    }
    exceptions.filter("planes", found)
}

/// The top-level module that the path names as written.
fn by_text<'a>(core: &'a Crate<'_>, path: &[String]) -> Option<&'a str> {
    let top = path.get(1).filter(|_| path[0] == "crate")?;
    core.modules.iter().filter_map(|module| module.name.first()).find(|name| *name == top).map(String::as_str)
}

/// The top-level module that declares the item, behind all re-exports.
fn resolved<'a>(core: &'a Crate<'_>, from: usize, path: &[String]) -> Option<&'a str> {
    core.modules[core.resolve(from, path)?].name.first().map(String::as_str)
}

fn refusal(own: &str, other: &str) -> Option<String> {
    if own == other {
        return None;
    }
    match (level(own), level(other)) {
        (Some(own_level), Some(level)) if level > own_level => {
            Some(format!("the plane {own} may import only lower planes, and {other} is higher"))
        }
        (None, Some(_)) if !BELOW_SHARED.contains(&other) => {
            Some(format!("{own} is shared by all planes and may import only shared modules, port and env"))
        }
        _ => None,
    }
}

fn level(module: &str) -> Option<usize> {
    PLANES.iter().position(|row| row.contains(&module))
}

fn finding(module: &Module<'_>, at: usize, other: &str, why: String) -> Finding {
    let fix = format!(
        "move what is needed down or into a shared module, or pass it in from {other}; the order is PLANES in \
         xtask/src/tidy/planes.rs"
    );
    Finding::new(&module.source.path, module.source.line(at), format!("crate::{other} is imported: {why}"), fix)
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn found(files: &[(&str, &str)], exceptions: &str) -> Vec<Finding> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(format!("crates/core/src/{path}"), *text)).collect();
        check(&Crate::all(&sources), &Exceptions::parse(exceptions).unwrap())
    }

    const FILES: [(&str, &str); 5] = [
        ("lib.rs", "pub mod desk;\npub mod gate;\npub mod port;\npub mod split;\npub use desk::Desk;"),
        ("desk/mod.rs", "pub struct Desk;\nuse crate::gate;\nuse crate::split;\nuse crate::port;"),
        ("gate/mod.rs", "use crate::port::store::Store;\nuse crate::split::split;"),
        ("port/mod.rs", "pub mod store;"),
        ("split.rs", "use crate::port;"),
    ];

    fn with(path: &str, text: &'static str) -> Vec<(&'static str, &'static str)> {
        FILES.into_iter().map(|(own, old)| (own, if own == path { text } else { old })).collect()
    }

    #[test]
    fn only_lower_planes_are_imported() {
        assert_eq!(found(&FILES, ""), []);
        for (file, text) in [
            ("gate/mod.rs", "use crate::desk::Desk;"),
            ("gate/mod.rs", "\nuse crate::Desk;"),
            ("gate/mod.rs", "fn f(_: &super::Desk) {}"),
            ("port/mod.rs", "pub mod store;\nuse crate::gate;"),
            ("split.rs", "use crate::gate;"),
            ("split.rs", "use crate::desk::{Desk, self};"),
        ] {
            assert_eq!(found(&with(file, text), "").len(), 1, "{file}: {text}");
        }
        let findings = found(&with("gate/mod.rs", "\nuse crate::Desk;"), "");
        assert_eq!((findings[0].file.as_str(), findings[0].line), ("crates/core/src/gate/mod.rs", 2));
        assert_eq!(found(&with("gate/mod.rs", "#[cfg(test)]\nmod tests { use crate::desk::Desk; }"), ""), []);
    }

    #[test]
    fn an_exception_names_the_file_and_the_plane() {
        let upward = with("gate/mod.rs", "use crate::desk::Desk;");
        assert_eq!(found(&upward, "planes = [\"crates/core/src/gate/mod.rs -> desk\"]"), []);
        let stale = found(&FILES, "planes = [\"crates/core/src/gate/mod.rs -> desk\"]");
        assert!(stale[0].what.contains("is not needed any more"), "{stale:?}");
    }

    #[test]
    fn the_table_names_each_module_once() {
        let all: Vec<&str> = PLANES.concat();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(BELOW_SHARED.iter().all(|module| level(module).is_some()));
    }
}
