//! `Caller` and `ProvenInstance` are authenticated identities: they are created only where the proof is checked.
//!
//! An `impl` of one of them, which may be anywhere in its crate, calls it `Self`, and an import or a `type` may give it
//! another name. So `Self { .. }` is looked for in such a block, and other names are refused.

use std::ops::Range;

use super::Finding;
use super::paths::paths;
use super::source::{Source, closing, words};

const HOME: &str = "crates/core/src/directory/auth.rs";
const PROVEN: [&str; 2] = ["Caller", "ProvenInstance"];
/// The constructor that checks no proof, and the file that may call it besides `HOME`: there an `Identity`, whose token
/// was verified, gets the one instance that it is bound to.
const UNCHECKED: [&str; 2] = ["ProvenInstance", "of"];
const CALLS_UNCHECKED: &str = "crates/core/src/directory/gateways.rs";
const FIX: &str =
    "take it from `DirectoryPlane::prove_gateway` or `prove_instance`; never build one from an id in a body";

pub(super) fn check(source: &Source) -> Vec<Finding> {
    if source.path == HOME || source.path.starts_with("xtask/") {
        return Vec::new();
    }
    let code = source.code.as_str();
    let blocks = impls(code);
    let is_made = |at: usize, word: &str| match word {
        "Self" => blocks.iter().any(|block| block.contains(&at)) && is_made(code, at, word),
        _ => PROVEN.contains(&word) && is_made(code, at, word),
    };
    let made = source.words().into_iter().filter(|(at, word)| is_made(*at, word));
    let outside = made.filter(|(at, _)| !source.in_test(*at));
    let finding = |at: usize, what: String| Finding::new(&source.path, source.line(at), what, FIX);
    let mut findings: Vec<Finding> =
        outside.map(|(at, word)| finding(at, format!("a proven identity is created here, as {word}"))).collect();
    for (at, name) in other_names(source) {
        findings.push(finding(at, format!("{name} gets another name here, by which it could be created")));
    }
    if source.path != CALLS_UNCHECKED {
        let calls = paths(source).into_iter().filter(|named| named.path.ends_with(&UNCHECKED.map(str::to_owned)));
        findings.extend(
            calls.map(|named| {
                finding(named.at, format!("a proven identity is created here, by {}", UNCHECKED.join("::")))
            }),
        );
    }
    findings
}

/// The blocks in which `Self` is one of them: `impl Caller { }`, `impl<'a> From<&'a X> for desk::Caller { }`.
fn impls(code: &str) -> Vec<Range<usize>> {
    let all = words(code);
    let mut found = Vec::new();
    for (at, _) in all.iter().filter(|(_, word)| *word == "impl") {
        let from = at + "impl".len();
        let Some(open) = code[from..].find('{').map(|length| from + length) else { continue };
        let header = &code[from..open];
        // `for<'a> Fn(&'a X)` is a bound.
        let is_target = |(at, word): &(usize, &str)| *word == "for" && !header[at + 3..].trim_start().starts_with('<');
        let of = words(header)
            .into_iter()
            .find(is_target)
            .map_or_else(|| after_generics(header), |(at, _)| &header[at + 3..]);
        if last_of_path(of).is_some_and(|name| PROVEN.contains(&name)) {
            found.push(open..closing(code, open));
        }
    }
    found
}

fn after_generics(header: &str) -> &str {
    let mut depth = 0usize;
    for (at, c) in header.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 && !c.is_whitespace() => return &header[at..],
            _ => {}
        }
    }
    ""
}

/// `Caller` of ` desk::Caller where ..`.
fn last_of_path(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    text[..end].rsplit("::").next()
}

/// `use a::Caller as C` and `type C = Caller;`.
fn other_names(source: &Source) -> Vec<(usize, &'static str)> {
    let one = |name: &str| PROVEN.into_iter().find(|proven| *proven == name);
    let is_other =
        |local: &Option<String>, name: &str| local.as_deref().is_some_and(|local| local != name && local != "_");
    let imports = paths(source).into_iter().filter_map(|named| {
        let name = one(named.path.last()?)?;
        is_other(&named.local, name).then_some((named.at, name))
    });
    let all = source.words();
    let aliases = all.windows(2).filter(|pair| pair[0].1 == "type" && !source.in_test(pair[0].0)).filter_map(|pair| {
        let (at, name) = pair[1];
        let rest = source.code[at + name.len()..].trim_start().strip_prefix('=')?;
        let of = rest.split(';').next()?.trim();
        let whole = of.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
        Some((at, one(last_of_path(of).filter(|_| whole)?)?))
    });
    imports.chain(aliases).collect()
}

/// `Caller {` as an expression, not as a type before a body and not as a pattern.
fn is_made(code: &str, at: usize, name: &str) -> bool {
    if !code[at + name.len()..].trim_start().starts_with('{') {
        return false;
    }
    let path_start = |text: &str| text.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_' || c == ':').len();
    let before = code[..path_start(&code[..at])].trim_end();
    let before = before.strip_suffix('&').unwrap_or(before).trim_end();
    let last = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    !(before.ends_with("->") || matches!(last, "struct" | "impl" | "for" | "let" | "enum" | "trait"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_identities_are_taken_for_proven() {
        let text = "fn f() { view.instance(&who.tenant, name).map(ProvenInstance::of) }";
        assert_eq!(check(&Source::new(CALLS_UNCHECKED, text)), []);
        assert_eq!(check(&Source::new("crates/core/src/directory/links.rs", text)).len(), 1);
        assert_eq!(check(&Source::new(CALLS_UNCHECKED, "g(ProvenInstance { a })")).len(), 1);
    }

    #[test]
    fn only_authentication_creates_a_caller() {
        for text in [
            "let c = Caller { tenant };",
            "f(desk::Caller{ a })",
            "Ok(Caller\n{ a })",
            "return &Caller { a };",
            "g(ProvenInstance { a })",
            "impl Caller {\n    fn new() -> Self {\n        Self { a }\n    }\n}",
            "impl<'a, T: for<'b> F<'b>> From<&'a Body> for desk::Caller { fn from(_: &Body) -> Self { Self{ a } } }",
            "impl Default for ProvenInstance where A: B { fn default() -> Self { return Self { a }; } }",
            "use crate::directory::Caller as C;",
            "use frontdesk_core::directory::{Caller as C, auth};",
            "type C = directory::Caller;",
            "fn f() { ProvenInstance::of(&instance) }",
            "use crate::directory::auth;\nfn f() { view.instance(a, b).map(auth::ProvenInstance::of) }",
        ] {
            assert_eq!(check(&Source::new("crates/core/src/desk/mail.rs", text)).len(), 1, "{text}");
            assert_eq!(check(&Source::new(HOME, text)), []);
        }
        for text in [
            "pub struct Caller { a: u8 }",
            "impl Caller { }",
            "impl Debug for Caller { }",
            "fn f() -> Caller { g() }",
            "fn f() -> &Caller { g() }",
            "let Caller { tenant, .. } = caller;",
            "let a: Caller = b;",
            "// Caller { }",
            "#[cfg(test)]\nmod tests { fn f() { g(Caller { a }) } }",
            "#[cfg(test)]\nmod tests { use super::Caller as C; type D = Caller; }",
            "impl Caller { fn f(&self) -> Self { self.clone() } }\nimpl Other { fn g() -> Self { Self { a } } }",
            "impl From<Caller> for Other { fn from(_: Caller) -> Self { Self { a } } }",
            "impl Wrapped<Caller> { fn f() -> Self { Self { a } } }\nimpl<T: Into<Caller>> Other<T> { fn f() -> Self { Self { a } } }",
            "fn f() -> impl Fn() -> Caller { move || g() }",
            "type Joined = (Caller, u8);\ntype Held = Arc<Caller>;\nuse a::{Caller, ProvenInstance};",
        ] {
            assert_eq!(check(&Source::new("crates/core/src/desk/mail.rs", text)), [], "{text}");
        }
    }
}
