//! Number of methods of a type over all files of its crate. A type with too many has too many responsibilities.

use std::collections::BTreeMap;

use super::Finding;
use super::exceptions::Exceptions;
use super::modules::{Crate, Module};
use super::source::{Source, closing, words};

const METHODS_REFUSED: usize = 40;

/// Number of methods of a type, and the place of its first `impl` block.
struct Count<'a> {
    methods: usize,
    source: &'a Source,
    at: usize,
}

pub(super) fn check(crates: &[Crate<'_>], exceptions: &Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut excepted: Vec<&String> = exceptions.methods.keys().collect();
    for krate in crates {
        for (name, count) in methods(krate) {
            let limit = exceptions.methods.get(&name).map_or(METHODS_REFUSED - 1, |most| *most);
            if count.methods >= METHODS_REFUSED {
                excepted.retain(|known| **known != name);
            }
            if count.methods > limit {
                let what = format!("{name} has {} methods; the limit is {limit}", count.methods);
                let fix = "move a part of its work and fields into another type";
                findings.push(Finding::new(&count.source.path, count.source.line(count.at), what, fix));
            }
        }
    }
    findings.extend(excepted.into_iter().map(|name| exceptions.stale(name)));
    findings
}

/// By `crate::Type`, or by `crate::module::Type` if several types of a crate have that name.
fn methods<'a>(krate: &Crate<'a>) -> BTreeMap<String, Count<'a>> {
    let definitions = definitions(krate);
    let mut found: BTreeMap<String, Count<'a>> = BTreeMap::new();
    for module in &krate.modules {
        for Inherent { at, name, body } in inherent_impls(module.source) {
            let key = key(krate, &definitions, module, name);
            found.entry(key).or_insert(Count { methods: 0, source: module.source, at }).methods +=
                functions(body).len();
        }
    }
    found
}

/// The modules in which a type of this name is declared.
fn definitions<'a>(krate: &Crate<'a>) -> BTreeMap<&'a str, Vec<Vec<String>>> {
    let mut found: BTreeMap<&str, Vec<Vec<String>>> = BTreeMap::new();
    for module in &krate.modules {
        for pair in words(&module.source.code).windows(2) {
            if matches!(pair[0].1, "struct" | "enum" | "union") && !module.source.in_test(pair[0].0) {
                found.entry(pair[1].1).or_default().push(module.name.clone());
            }
        }
    }
    found
}

/// An `impl` belongs to the declaration with the longest common module path.
fn key(krate: &Crate<'_>, definitions: &BTreeMap<&str, Vec<Vec<String>>>, module: &Module<'_>, name: &str) -> String {
    let homes = definitions.get(name).map(Vec::as_slice).unwrap_or_default();
    let shared = |home: &&Vec<String>| home.iter().zip(&module.name).take_while(|(a, b)| a == b).count();
    match homes.iter().rev().max_by_key(|home| (shared(home), std::cmp::Reverse(home.len()))) {
        Some(home) if homes.len() > 1 => format!("{}::{}::{name}", krate.folder, home.join("::")),
        _ => format!("{}::{name}", krate.folder),
    }
}

/// An `impl Type { .. }`: its place, the name of the type, and its code with the braces.
pub(super) struct Inherent<'a> {
    at: usize,
    pub(super) name: &'a str,
    pub(super) body: &'a str,
}

/// All of them outside of tests.
pub(super) fn inherent_impls(source: &Source) -> Vec<Inherent<'_>> {
    let code = source.code.as_str();
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let before = code[..at].trim_end();
        // Elsewhere `impl` is a type, as in `fn f() -> impl Trait`.
        let begins_item = before.is_empty() || before.ends_with(['}', ';', ']', '{']);
        if word != "impl" || !begins_item || source.in_test(at) {
            continue;
        }
        let Some(open) = code[at..].find('{').map(|length| at + length) else { continue };
        let header = &code[at + word.len()..open];
        if let Some(name) = inherent_type(header) {
            found.push(Inherent { at, name, body: &code[open..closing(code, open)] });
        }
    }
    found
}

/// The offsets of `fn` for every function of an `impl` block.
pub(super) fn functions(body: &str) -> Vec<usize> {
    let all = words(body).into_iter().map(|(at, word)| (at, word == "fn"));
    // `fn(u8)` is a type, not a function.
    let is_named = |at: usize| !body[at + 2..].trim_start().starts_with('(');
    all.filter(|(at, is_fn)| *is_fn && depth(&body[..*at]) == 1 && is_named(*at)).map(|(at, _)| at).collect()
}

/// The name of the type that an `impl` header is for; none if it implements a trait.
fn inherent_type(header: &str) -> Option<&str> {
    let mut rest = header.trim_start();
    if rest.starts_with('<') {
        rest = &rest[end_of_angle(rest)..];
    }
    let rest = rest.split_once(" where ").map_or(rest, |(before, _)| before);
    if words(rest).iter().any(|(at, word)| *word == "for" && !rest[at + 3..].trim_start().starts_with('<')) {
        return None;
    }
    let path = rest.split('<').next()?.trim();
    path.rsplit("::").next().filter(|name| name.chars().next().is_some_and(char::is_alphabetic))
}

pub(super) fn end_of_angle(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if !text[..at].ends_with('-') => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

fn depth(text: &str) -> usize {
    text.matches('{').count().saturating_sub(text.matches('}').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, String)], exceptions: &str) -> Vec<Finding> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(format!("crates/core/src/{path}"), text.as_str())).collect();
        check(&Crate::all(&sources), &Exceptions::parse(exceptions).unwrap())
    }

    fn block(header: &str, methods: usize) -> String {
        format!(
            "{header} {{\n{}}}\n",
            "    pub fn m(&self) { let f: fn(u8) = |_| { fn inner() {} }; }\n".repeat(methods)
        )
    }

    #[test]
    fn methods_are_counted_over_all_files_of_a_crate() {
        let lib = |rest: &str| format!("struct Desk;\nstruct Other<T>(T);\n{rest}");
        let files = |first, second| {
            [
                ("lib.rs", lib(&block("impl Desk", first))),
                ("a.rs", block("impl<T: Fn() -> u8> crate::Other<T>", 30) + &block("impl super::Desk", second)),
            ]
        };
        assert_eq!(found(&files(20, 19), ""), []);
        let findings = found(&files(20, 20), "");
        assert_eq!((findings.len(), findings[0].line), (1, 3), "{findings:?}");
        assert!(findings[0].what.starts_with("core::Desk has 40 methods; the limit is 39"));
        let traits = [("lib.rs", lib(&(block("impl Desk", 20) + &block("impl<'a> Big<'a> for Desk", 50))))];
        assert_eq!(found(&traits, ""), []);
        let tests = [("lib.rs", lib(&format!("#[cfg(test)]\nmod tests {{\n{}}}\n", block("impl Desk", 50))))];
        assert_eq!(found(&tests, ""), []);
    }

    #[test]
    fn types_with_the_same_name_are_distinguished() {
        let own = |methods| format!("struct Session;\n{}", block("impl Session", methods));
        let files = [
            ("lib.rs", String::new()),
            ("a.rs", own(30)),
            ("b/mod.rs", own(30)),
            ("b/c.rs", block("impl Session", 15)),
        ];
        let findings = found(&files, "");
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].what.starts_with("core::b::Session has 45 methods"));
    }

    #[test]
    fn an_exception_has_a_number_and_expires() {
        let with = |methods| [("lib.rs", format!("struct Desk;\n{}", block("impl Desk", methods)))];
        let exception = "methods.\"core::Desk\" = 50";
        assert_eq!(found(&with(50), exception), []);
        assert_eq!(found(&with(45), exception), []);
        assert_eq!(found(&with(51), exception).len(), 1);
        let stale = found(&with(39), exception);
        assert!(stale[0].what.contains("is not needed any more"), "{stale:?}");
    }

    #[test]
    fn headers_of_impl_blocks_are_read() {
        for (header, name) in [
            (" Desk ", Some("Desk")),
            ("<T> a::b::Other<T> ", Some("Other")),
            (" Window<'_> where Self: Sized ", Some("Window")),
            (" Display for Desk ", None),
            ("<T: for<'a> F<'a>> X<T> ", Some("X")),
            (" dyn Env + '_ ", Some("dyn Env + '_")),
        ] {
            assert_eq!(inherent_type(header), name, "{header}");
        }
    }
}
