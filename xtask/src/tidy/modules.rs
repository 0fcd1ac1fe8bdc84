//! The files of a crate as modules, and the file that a path leads to.
//!
//! Re-exports are followed: with `pub use b::Thing` in `a/mod.rs`, `crate::a::Thing` leads to `a/b.rs`.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::paths::{Named, paths};
use super::source::Source;

/// Longer chains of re-exports are treated as circular.
const REEXPORTS_MAX: usize = 8;

pub(super) struct Module<'a> {
    pub(super) source: &'a Source,
    /// Names from the root: `crates/core/src/port/mod.rs` is `["port"]`.
    pub(super) name: Vec<String>,
    pub(super) paths: Vec<Named>,
    /// Names of its items.
    declared: HashSet<&'a str>,
}

/// One crate under `crates/`, or `xtask`.
pub(super) struct Crate<'a> {
    /// The name of its folder.
    pub(super) folder: String,
    pub(super) modules: Vec<Module<'a>>,
    by_name: HashMap<Vec<String>, usize>,
}

impl<'a> Crate<'a> {
    /// All crates with files in `sources`, without tests, examples, and `main.rs` beside a library.
    pub(super) fn all(sources: &'a [Source]) -> Vec<Self> {
        let mut crates: BTreeMap<String, Vec<Module<'a>>> = BTreeMap::new();
        for source in sources.iter().filter(|source| !source.is_test()) {
            let Some((folder, file)) = source.path.split_once("/src/") else { continue };
            let folder = folder.strip_prefix("crates/").unwrap_or(folder).to_owned();
            let name = module_name(file);
            crates.entry(folder).or_default().push(Module {
                source,
                name,
                paths: paths(source),
                declared: declared(source),
            });
        }
        let with_library = |modules: &[Module<'_>]| modules.iter().any(|it| it.source.path.ends_with("/src/lib.rs"));
        let mut found = Vec::new();
        for (folder, mut modules) in crates {
            if with_library(&modules) {
                modules.retain(|module| !module.source.path.ends_with("/src/main.rs"));
            }
            let by_name = modules.iter().enumerate().map(|(at, module)| (module.name.clone(), at)).collect();
            found.push(Self { folder, modules, by_name });
        }
        found
    }

    /// The module that a path in the module `from` leads to, if it is in this crate.
    pub(super) fn resolve(&self, from: usize, path: &[String]) -> Option<usize> {
        self.follow(from, path, 0)
    }

    fn follow(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        let (mut name, rest) = self.start(from, path)?;
        let mut rest = rest.iter();
        let item = loop {
            let Some(next) = rest.next() else { return self.by_name.get(&name).copied() };
            name.push(next.clone());
            if !self.by_name.contains_key(&name) {
                name.pop();
                break next;
            }
        };
        let here = *self.by_name.get(&name)?;
        if depth == REEXPORTS_MAX || item == "*" {
            return Some(here);
        }
        Some(self.reexported(here, item, depth).unwrap_or(here))
    }

    /// The module that declares an item which `here` only imports.
    fn reexported(&self, here: usize, item: &str, depth: usize) -> Option<usize> {
        let module = &self.modules[here];
        if module.declared.contains(item) {
            return None;
        }
        let imports = module.paths.iter().filter(|named| named.local.is_some());
        let (globs, named): (Vec<&Named>, Vec<&Named>) = imports.partition(|named| named.local.as_deref() == Some("*"));
        if let Some(import) = named.into_iter().find(|named| named.local.as_deref() == Some(item)) {
            return self.follow(here, &import.path, depth + 1);
        }
        let targets =
            globs.into_iter().filter_map(|glob| self.follow(here, &glob.path[..glob.path.len() - 1], depth + 1));
        targets.into_iter().find(|target| self.modules[*target].declared.contains(item))
    }

    /// The module at which a path begins, and the rest of the path. `None`: another crate.
    fn start<'p>(&self, from: usize, path: &'p [String]) -> Option<(Vec<String>, &'p [String])> {
        let own = &self.modules[from].name;
        match path.first()?.as_str() {
            "crate" => Some((Vec::new(), &path[1..])),
            "self" => Some((own.clone(), &path[1..])),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                Some((own[..own.len().checked_sub(ups)?].to_vec(), &path[ups..]))
            }
            child => {
                let mut name = own.clone();
                name.push(child.to_owned());
                self.by_name.contains_key(&name).then(|| (own.clone(), path))
            }
        }
    }
}

fn module_name(file: &str) -> Vec<String> {
    let mut name: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(name.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        name.pop();
    }
    name
}

fn declared(source: &Source) -> HashSet<&str> {
    const KEYWORDS: [&str; 9] = ["struct", "enum", "trait", "type", "fn", "const", "static", "union", "macro_rules"];
    let words = source.words();
    words.windows(2).filter(|pair| KEYWORDS.contains(&pair[0].1)).map(|pair| pair[1].1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Vec<Source> {
        all.iter().map(|(path, text)| Source::new(format!("crates/a/src/{path}"), *text)).collect()
    }

    fn lead(sources: &[Source], from: &str, path: &str) -> Option<String> {
        let krate = Crate::all(sources).pop().expect("one crate");
        let at = krate.modules.iter().position(|it| it.source.path.ends_with(from)).expect("the file");
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        krate.resolve(at, &path).map(|it| krate.modules[it].source.path.replace("crates/a/src/", ""))
    }

    #[test]
    fn paths_lead_to_files() {
        let sources = files(&[
            ("lib.rs", "mod b;\npub mod c;\npub use b::d::Thing;\npub use c::*;\nstruct Own;"),
            ("main.rs", "fn main() {}"),
            ("b/mod.rs", "mod d;\nmod e;\nuse crate::c::Other;"),
            ("b/d.rs", "pub struct Thing;"),
            ("b/e.rs", ""),
            ("c.rs", "pub struct Other;"),
        ]);
        for (from, path, to) in [
            ("b/e.rs", "crate::c::Other", Some("c.rs")),
            ("b/e.rs", "super::d::Thing", Some("b/d.rs")),
            ("b/e.rs", "super::super::Own", Some("lib.rs")),
            ("b/e.rs", "crate::Thing", Some("b/d.rs")),
            ("b/e.rs", "crate::Other", Some("c.rs")),
            ("b/e.rs", "super::Other::new", Some("c.rs")),
            ("b/e.rs", "self::inner", Some("b/e.rs")),
            ("b/mod.rs", "d::Thing", Some("b/d.rs")),
            ("b/e.rs", "super::super::super::x", None),
            ("b/e.rs", "std::time", None),
        ] {
            assert_eq!(lead(&sources, from, path).as_deref(), to, "{path} in {from}");
        }
    }

    #[test]
    fn circular_re_exports_end() {
        let sources = files(&[("lib.rs", "mod b;\npub use b::X;"), ("b.rs", "pub use crate::X;")]);
        assert!(lead(&sources, "b.rs", "crate::X").is_some());
    }
}
