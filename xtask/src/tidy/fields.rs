//! Fields of the types of `core` that the edge and the loops get by reference: `Desk`, the planes, and what public
//! methods of these lend. They must be private, or visible to their plane only.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::exceptions::Exceptions;
use super::methods::{end_of_angle, functions, inherent_impls};
use super::source::{Source, closing, words};

const FOLDER: &str = "crates/core/src/";
/// Types of the ports describe what the core is given. `reach.rs` and `stores.rs` say who may use the stores.
const PORTS: &str = "crates/core/src/port/";
/// Closed besides the types whose names end in `Plane`: the whole, and what is returned by value.
const CLOSED: [&str; 3] = ["Calls", "Desk", "InboxStream"];
/// Data without anything that changes behind a reference, so a reader of a field cannot break a rule of the plane.
const RECORDS: [&str; 4] = ["Bot", "Instance", "Notice", "Rules"];
/// All planes count in it, so its fields may be visible in the crate. The edge calls its methods.
const COUNTED_BY_ALL: &str = "Meters";

pub(super) fn check(sources: &[Source], exceptions: &Exceptions) -> Vec<Finding> {
    let is_own = |source: &&Source| source.path.starts_with(FOLDER) && !source.path.starts_with(PORTS);
    let core: Vec<&Source> = sources.iter().filter(is_own).filter(|source| !source.is_test()).collect();
    let closed = closed(&core);
    let mut found = Vec::new();
    for source in &core {
        for name in declared(source).into_iter().filter(|name| closed.contains(name)) {
            for (at, field) in open_fields(source, name) {
                let key = format!("{name}.{field}");
                let what = format!("the field {key} is not private");
                let fix = "make it private and add a method for its use";
                found.push((key, Finding::new(&source.path, source.line(at), what, fix)));
            }
        }
    }
    exceptions.filter("fields", found)
}

/// The names of the structs that a file declares.
fn declared(source: &Source) -> BTreeSet<&str> {
    let words = source.words();
    words.windows(2).filter(|pair| pair[0].1 == "struct").map(|pair| pair[1].1).collect()
}

/// `Desk`, the planes, and what public methods of these and of what they lend return as a reference.
fn closed<'a>(core: &[&'a Source]) -> BTreeSet<&'a str> {
    let known: BTreeSet<&str> = core.iter().flat_map(|source| declared(source)).collect();
    let mut lenders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for inherent in core.iter().flat_map(|source| inherent_impls(source)) {
        lenders.entry(inherent.name).or_default().extend(lent(inherent.body));
    }
    let mut left: Vec<&str> =
        known.iter().copied().filter(|name| name.ends_with("Plane") || CLOSED.contains(name)).collect();
    let mut closed = BTreeSet::new();
    while let Some(name) = left.pop() {
        if known.contains(name) && !RECORDS.contains(&name) && closed.insert(name) {
            left.extend(lenders.get(name).into_iter().flatten());
        }
    }
    closed
}

/// The types that public functions of an `impl` block lend: as `&T`, `Arc<T>`, or `MutexGuard<'_, T>`.
fn lent(body: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for at in functions(body) {
        let before = body[..at].trim_end();
        if !before.strip_suffix("async").unwrap_or(before).trim_end().ends_with("pub") {
            continue;
        }
        let returned = returned(&body[at..]);
        found.extend(words(returned).into_iter().filter(|(at, _)| is_lent(&returned[..*at])).map(|(_, name)| name));
    }
    found
}

/// The type after the arrow in `fn name<..>(..) -> Type where .. {`; empty without an arrow.
fn returned(function: &str) -> &str {
    let Some((at, name)) = words(function).get(1).copied() else { return "" };
    let mut rest = function[at + name.len()..].trim_start();
    if rest.starts_with('<') {
        rest = rest[end_of_angle(rest)..].trim_start();
    }
    let rest = rest[end_of_parentheses(rest)..].split(['{', ';']).next().unwrap_or_default();
    let Some(returned) = rest.trim_start().strip_prefix("->") else { return "" };
    let bounds = words(returned).into_iter().find(|(_, word)| *word == "where");
    bounds.map_or(returned, |(at, _)| &returned[..at])
}

fn end_of_parentheses(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// Whether what follows is a reference: after `&`, `&'a`, `Arc<` or `Guard<'_,`.
fn is_lent(before: &str) -> bool {
    let before = before.trim_end();
    let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
    let before = match before.rsplit_once('\'') {
        Some((rest, lifetime)) if is_name(lifetime) => rest,
        _ => before,
    };
    ["&", "Arc<", "Guard<'_,"].iter().any(|end| before.ends_with(end))
}

/// The fields of `struct <name> { .. }` that others than its own plane see.
fn open_fields<'a>(source: &'a Source, name: &str) -> Vec<(usize, &'a str)> {
    let code = source.code.as_str();
    let words = words(code);
    let declared = words.windows(2).find(|pair| pair[0].1 == "struct" && pair[1].1 == name);
    let Some(at) = declared.map(|pair| pair[1].0 + name.len()).filter(|at| !source.in_test(*at)) else {
        return Vec::new();
    };
    let Some(open) = code[at..].find(['{', ';', '(']).map(|length| at + length) else { return Vec::new() };
    if !code[open..].starts_with('{') {
        return Vec::new();
    }
    let inside = words.iter().enumerate().filter(|(_, (at, _))| (open..closing(code, open)).contains(at));
    let is_narrow = |at: usize| {
        let in_plane = !is_below_crate(&source.path) && code[at..].starts_with("pub(super)");
        in_plane || (name == COUNTED_BY_ALL && code[at..].starts_with("pub(crate)"))
    };
    let open_ones = inside.filter(|(_, (at, word))| *word == "pub" && !is_narrow(*at));
    open_ones.filter_map(|(index, _)| field_after(code, &words[index + 1..])).collect()
}

/// A file such as `desk.rs` or `cron/mod.rs`: there `super` is the crate.
fn is_below_crate(path: &str) -> bool {
    let own = path.strip_prefix(FOLDER).unwrap_or(path);
    own.strip_suffix("/mod.rs").unwrap_or(own).split('/').count() == 1
}

/// The name in `pub name:` or `pub(in a::b) name:`.
fn field_after<'a>(code: &str, words: &[(usize, &'a str)]) -> Option<(usize, &'a str)> {
    let is_field = |at: usize, word: &str| {
        let rest = code[at + word.len()..].trim_start();
        rest.starts_with(':') && !rest.starts_with("::")
    };
    words.iter().copied().find(|(at, word)| is_field(*at, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str, exceptions: &str) -> Vec<Finding> {
        check(&[Source::new(path, text)], &Exceptions::parse(exceptions).unwrap())
    }

    const DESK: &str = "struct Other { pub a: u8 }\npub struct Desk {\n    pub env: Env,\n    gate: Gate,\n    /// pub x: y\n    pub(crate) store: Arc<dyn a::Store>,\n}\n";

    #[test]
    fn open_fields_are_found_at_their_line() {
        let findings = found("crates/core/src/desk.rs", DESK, "");
        let lines: Vec<usize> = findings.iter().map(|it| it.line).collect();
        assert_eq!(lines, [3, 6], "{findings:?}");
        assert!(findings[1].what.contains("Desk.store is not private"));
        assert_eq!(found("crates/store/src/desk.rs", DESK, ""), []);
        assert_eq!(found("crates/core/src/desk.rs", "pub struct Desk(pub u8);\nstruct B { pub c: u8 }", ""), []);
        assert_eq!(found("crates/core/src/desk.rs", "pub struct Desk { env: Env }", ""), []);
    }

    #[test]
    fn a_field_may_be_visible_to_its_plane_only() {
        let plane = "pub struct CronPlane { pub(super) a: u8, pub(crate) b: u8, pub c: u8, d: u8 }";
        for (path, open) in [
            ("crates/core/src/cron/plane.rs", 2),
            ("crates/core/src/cron/plane/mod.rs", 2),
            ("crates/core/src/cron/mod.rs", 3),
            ("crates/core/src/cron.rs", 3),
        ] {
            assert_eq!(found(path, plane, "").len(), open, "{path}");
        }
    }

    #[test]
    fn what_planes_lend_is_closed_too() {
        let lenders = "pub struct CronPlane;\nimpl CronPlane {\n\
            pub fn heap(&self) -> &Heap { &self.heap }\n\
            pub async fn find<F: Fn() -> u8>(&self, f: impl Fn(&Never) -> u8) -> Result<Option<Arc<Seat>>, E> where F: A<Arc<Never>> {}\n\
            pub(crate) fn own(&self) -> &Never {}\n\
            pub fn given(&self) -> Never {}\n\
            pub fn read(&self, with: &Never) {}\n\
            pub fn bot(&self) -> &Bot {}\n}\n\
            impl Heap { pub fn lock(&self) -> MutexGuard<'_, Lane> {} pub fn first<'a>(&'a self) -> &'a Item {} }\n";
        for (name, is_closed) in
            [("Heap", true), ("Seat", true), ("Lane", true), ("Item", true), ("Never", false), ("Bot", false)]
        {
            let text = format!("{lenders}pub struct Heap {{ a: u8 }}\npub struct {name} {{ pub b: u8 }}");
            let text = if name == "Heap" { text.replace("pub struct Heap { a: u8 }", "") } else { text };
            assert_eq!(found("crates/core/src/cron/mod.rs", &text, "").len(), usize::from(is_closed), "{name}");
            assert_eq!(found("crates/core/src/port/cron.rs", &text, ""), [], "{name}");
        }
    }

    #[test]
    fn all_planes_count_in_the_meters() {
        let meters = "impl Desk { pub fn meters(&self) -> &Meters {} }\npub struct Desk;\n\
            pub struct Meters { pub(crate) a: Counter, pub b: Counter, c: Counter }";
        let findings = found("crates/core/src/desk.rs", meters, "");
        assert!(findings.len() == 1 && findings[0].what.contains("Meters.b"), "{findings:?}");
    }

    #[test]
    fn an_exception_covers_one_field() {
        let findings = found("crates/core/src/desk.rs", DESK, "fields = [\"Desk.env\", \"Desk.gone\"]");
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].what.contains("\"Desk.gone\" is not needed any more"));
        assert!(findings[1].what.contains("Desk.store"));
    }
}
