//! Types whose fields must be private.

use super::Finding;
use super::exceptions::Exceptions;
use super::source::{Source, closing, words};

/// Folder under `crates/`, and type.
const CLOSED: [(&str, &str); 1] = [("core", "Desk")];

pub(super) fn check(sources: &[Source], exceptions: &Exceptions) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let of_crate = |folder: &str| source.path.starts_with(&format!("crates/{folder}/src/"));
        for (_, name) in CLOSED.iter().filter(|(folder, _)| of_crate(folder)) {
            for (at, field) in open_fields(source, name) {
                let key = format!("{name}.{field}");
                let what = format!("the field {key} is not private");
                let mend = "make it private and add a method for its use";
                found.push((key, Finding::new(&source.path, source.line(at), what, mend)));
            }
        }
    }
    exceptions.filter("fields", found)
}

/// The fields of `struct <name> { .. }` with any form of `pub`.
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
    let open_ones = inside.filter(|(_, (_, word))| *word == "pub");
    open_ones.filter_map(|(index, _)| field_after(code, &words[index + 1..])).collect()
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
    fn an_exception_covers_one_field() {
        let findings = found("crates/core/src/desk.rs", DESK, "fields = [\"Desk.env\", \"Desk.gone\"]");
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].what.contains("\"Desk.gone\" is not needed any more"));
        assert!(findings[1].what.contains("Desk.store"));
    }
}
