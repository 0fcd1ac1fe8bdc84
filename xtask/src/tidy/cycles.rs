//! Files of a crate that import each other in a cycle: they can only be understood, moved and tested together.
//!
//! A module and its direct child (`a/mod.rs` and `a/b.rs`, `a.rs` and `a/b.rs`, `lib.rs` and `a.rs`) may import
//! each other; every other cycle is a finding unless `xtask/tidy.toml` excepts it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Finding;
use super::exceptions::Exceptions;
use super::modules::Crate;

/// Which file imports which, with the line of the first such import.
type Graph = BTreeMap<String, BTreeMap<String, usize>>;

pub(super) fn check(crates: &[Crate<'_>], exceptions: &Exceptions) -> Vec<Finding> {
    let excepted = exceptions.cycles.as_slice();
    let found: Vec<(BTreeSet<String>, Finding)> =
        crates.iter().map(graph).flat_map(|graph| cycles(&graph, excepted)).collect();
    let in_cycles: BTreeSet<&String> = found.iter().flat_map(|(files, _)| files).collect();
    let stale = excepted.iter().flatten().filter(|file| !in_cycles.contains(file));
    let mut findings: Vec<Finding> = stale.map(|file| exceptions.stale(file)).collect();
    let is_excepted = |files: &BTreeSet<String>| excepted.iter().any(|group| files.is_subset(group));
    findings.extend(found.into_iter().filter(|(files, _)| !is_excepted(files)).map(|(_, finding)| finding));
    findings
}

fn graph(krate: &Crate<'_>) -> Graph {
    let mut graph = Graph::new();
    for (from, module) in krate.modules.iter().enumerate() {
        let imports = graph.entry(module.source.path.clone()).or_default();
        for named in &module.paths {
            let Some(to) = krate.resolve(from, &named.path) else { continue };
            let target = &krate.modules[to];
            // Re-exporting items of a folder is not a dependency on it.
            let is_list = named.is_reexport && target.name.starts_with(&module.name);
            if to != from && !is_list && !are_parent_and_child(&module.name, &target.name) {
                let line = module.source.line(named.at);
                imports.entry(target.source.path.clone()).or_insert(line);
            }
        }
    }
    graph
}

fn are_parent_and_child(a: &[String], b: &[String]) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    short.len() + 1 == long.len() && long.starts_with(short)
}

/// Groups of files that reach each other, each with a finding that shows the shortest cycle.
fn cycles(graph: &Graph, excepted: &[BTreeSet<String>]) -> Vec<(BTreeSet<String>, Finding)> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (file.as_str(), reached(graph, file))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for file in graph.keys().map(String::as_str) {
        if seen.contains(file) || !reach[file].contains(file) {
            continue;
        }
        let group: BTreeSet<&str> = reach[file].iter().copied().filter(|other| reach[other].contains(file)).collect();
        seen.extend(group.iter().copied());
        let cycle = shortest_cycle(graph, &group, excepted);
        let line = graph[cycle[0]][cycle[1 % cycle.len()]];
        let shown: Vec<&str> = cycle.iter().copied().chain([cycle[0]]).collect();
        let mut what = format!("files import each other in a cycle: {}", shown.join(" -> "));
        if group.len() > cycle.len() {
            let all: Vec<&str> = group.iter().copied().collect();
            what = format!("{what} (all {} files of it: {})", group.len(), all.join(", "));
        }
        let fix = "move what both need into a separate file that imports neither";
        found.push((group.iter().map(|it| (*it).to_owned()).collect(), Finding::new(cycle[0], line, what, fix)));
    }
    found
}

/// All files that can be reached from this one by at least one import.
fn reached<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(file) = open.pop() {
        for next in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

/// The shortest cycle of the group, preferably one that is not excepted.
fn shortest_cycle<'g>(graph: &'g Graph, group: &BTreeSet<&'g str>, excepted: &[BTreeSet<String>]) -> Vec<&'g str> {
    let is_known = |cycle: &[&str]| excepted.iter().any(|files| cycle.iter().all(|file| files.contains(*file)));
    let cycles = group.iter().filter_map(|start| cycle_through(graph, start, group));
    cycles.min_by_key(|cycle| (is_known(cycle), cycle.len())).unwrap_or_else(|| group.iter().copied().collect())
}

/// Breadth first from `start` back to itself.
fn cycle_through<'g>(graph: &'g Graph, start: &'g str, group: &BTreeSet<&'g str>) -> Option<Vec<&'g str>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(file) = open.pop_front() {
        for next in graph[file].keys().map(String::as_str).filter(|next| group.contains(next)) {
            if next == start {
                let mut way = vec![file];
                while way[way.len() - 1] != start {
                    way.push(came_from[way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(next) {
                came_from.insert(next, file);
                open.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn found(files: &[(&str, &str)], exceptions: &str) -> Vec<Finding> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(format!("crates/a/src/{path}"), *text)).collect();
        check(&Crate::all(&sources), &Exceptions::parse(exceptions).unwrap())
    }

    const THREE: [(&str, &str); 4] = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
        ("a.rs", "\nuse crate::b::B;\n"),
        ("b.rs", "fn f() { crate::c::g() }"),
        ("c.rs", "use super::a;"),
    ];

    #[test]
    fn a_cycle_is_reported_once_with_its_files() {
        let findings = found(&THREE, "");
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!((findings[0].file.as_str(), findings[0].line), ("crates/a/src/a.rs", 2));
        assert!(findings[0].what.ends_with("a.rs -> crates/a/src/b.rs -> crates/a/src/c.rs -> crates/a/src/a.rs"));
    }

    #[test]
    fn a_module_and_its_child_may_import_each_other() {
        let pair = [
            ("lib.rs", "mod a;\npub use a::b::B;"),
            ("a/mod.rs", "mod b;\nmod c;\nuse b::B;\npub struct A;"),
            ("a/b.rs", "use super::A;\npub struct B;"),
            ("a/c.rs", "use crate::B;"),
        ];
        assert_eq!(found(&pair, ""), []);
        let grandchild = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b;\nuse b::c::C;\npub struct A;"),
            ("a/b/mod.rs", "mod c;"),
            ("a/b/c.rs", "use crate::a::A;\npub struct C;"),
        ];
        assert_eq!(found(&grandchild, "").len(), 1);
        let listed = grandchild.map(|(path, text)| {
            (path, if path == "a/mod.rs" { "mod b;\npub use b::c::C;\npub struct A;" } else { text })
        });
        assert_eq!(found(&listed, ""), []);
        let tests_only = [
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "#[cfg(test)]\nmod tests { use crate::a; }"),
        ];
        assert_eq!(found(&tests_only, ""), []);
    }

    #[test]
    fn an_excepted_cycle_may_shrink_and_not_grow() {
        let all = "cycles = [[\"crates/a/src/a.rs\", \"crates/a/src/b.rs\", \"crates/a/src/c.rs\"]]";
        assert_eq!(found(&THREE, all), []);
        let smaller = [THREE[0], ("a.rs", "use crate::b;"), ("b.rs", "use crate::a;"), ("c.rs", "")];
        let findings = found(&smaller, all);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.contains("\"crates/a/src/c.rs\" is not needed any more"), "{findings:?}");
        let broken = [THREE[0], ("a.rs", ""), ("b.rs", ""), ("c.rs", "")];
        assert_eq!(found(&broken, all).len(), 3, "each file of the entry is stale");
        let two = "cycles = [[\"crates/a/src/a.rs\", \"crates/a/src/b.rs\"]]";
        assert_eq!(found(&THREE, two).len(), 1, "the larger cycle is not excepted");
        let grown =
            [THREE[0], ("a.rs", "use crate::b;"), ("b.rs", "use crate::a;\nuse crate::c;"), ("c.rs", "use crate::b;")];
        let findings = found(&grown, two);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].what.contains("b.rs -> crates/a/src/c.rs"), "the new one is shown: {findings:?}");
    }
}
