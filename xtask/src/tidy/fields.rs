//! Types of `core` whose fields must be private, or visible to their plane only: `Desk`, the planes, and what the edge and the
//! loops get of them.

use super::Finding;
use super::exceptions::Exceptions;
use super::source::{Source, closing, words};

const FOLDER: &str = "crates/core/src/";
/// Besides the types whose names end in `Plane`.
const CLOSED: [&str; 9] =
    ["Calls", "Desk", "Exchanges", "InboxStream", "Inboxes", "LiveState", "Management", "Messages", "TenantStores"];

pub(super) fn check(sources: &[Source], exceptions: &Exceptions) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test() && source.path.starts_with(FOLDER)) {
        let code = words(&source.code);
        let declared = code.windows(2).filter(|pair| pair[0].1 == "struct").map(|pair| pair[1].1);
        for name in declared.filter(|name| name.ends_with("Plane") || CLOSED.contains(name)) {
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

/// The fields of `struct <name> { .. }` that others than its own module and that above it see. Above `Desk` is the crate.
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
    let is_narrow = |at: usize| name != "Desk" && code[at..].starts_with("pub(super)");
    let open_ones = inside.filter(|(_, (at, word))| *word == "pub" && !is_narrow(*at));
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
        let plane = "pub struct CronPlane { pub(super) a: u8, pub(crate) b: u8, pub c: u8, d: u8 }";
        assert_eq!(found("crates/core/src/cron/mod.rs", plane, "").len(), 2);
    }

    #[test]
    fn an_exception_covers_one_field() {
        let findings = found("crates/core/src/desk.rs", DESK, "fields = [\"Desk.env\", \"Desk.gone\"]");
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].what.contains("\"Desk.gone\" is not needed any more"));
        assert!(findings[1].what.contains("Desk.store"));
    }
}
