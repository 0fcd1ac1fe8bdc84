//! `Caller` and `ProvenInstance` are authenticated identities: they are created only where the proof is checked.

use super::Finding;
use super::source::Source;

const HOME: &str = "crates/core/src/directory/auth.rs";
const PROVEN: [&str; 2] = ["Caller", "ProvenInstance"];
const MEND: &str =
    "take it from `DirectoryPlane::prove_gateway` or `prove_instance`; never build one from an id in a body";

pub(super) fn check(source: &Source) -> Vec<Finding> {
    if source.path == HOME || source.path.starts_with("xtask/") {
        return Vec::new();
    }
    let made =
        source.words().into_iter().filter(|(at, word)| PROVEN.contains(word) && is_made(&source.code, *at, word));
    let outside = made.filter(|(at, _)| !source.in_test(*at));
    let finding = |(at, word): (usize, &str)| {
        Finding::new(&source.path, source.line(at), format!("a {word} is created here"), MEND)
    };
    outside.map(finding).collect()
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
    fn only_authentication_creates_a_caller() {
        for text in [
            "let c = Caller { tenant };",
            "f(desk::Caller{ a })",
            "Ok(Caller\n{ a })",
            "return &Caller { a };",
            "g(ProvenInstance { a })",
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
        ] {
            assert_eq!(check(&Source::new("crates/core/src/desk/mail.rs", text)), [], "{text}");
        }
    }
}
