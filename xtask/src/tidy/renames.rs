//! Names that were replaced by plainer ones: they are not used again, in Rust code or in documents.
//!
//! A word in a sentence is no name, so comments and documents are checked in their code spans and code blocks only.
//! Strings are not checked, because what is in them is fixed elsewhere: tables of SQL keep the names of the migrations
//! that made them (each has a checksum and is never edited), and names on the wire are given by a specification. The
//! clients in other languages have published names, and CHANGELOG.md says what was renamed.

use super::Finding;
use super::source::{Source, words};

/// Identifiers, and what they are called now.
const NAMES: [(&str, &str); 22] = [
    ("Letter", "InboxMessage"),
    ("Filed", "InboxMessage"),
    ("Ear", "LiveSession"),
    ("Ears", "LiveSession"),
    ("Attendance", "Streams"),
    ("attendance", "streams"),
    ("Seat", "Stream, or GatewayAccount in tests"),
    ("Signet", "SigningKey"),
    ("signet", "signing_key"),
    ("Shot", "Alarm, or job"),
    ("Soon", "BoxFuture"),
    ("Stand", "ActingAs"),
    ("House", "TenantIndex"),
    ("Floor", "PlatformIndex"),
    ("Shelf", "Skills, Data, or MediaStore"),
    ("shelf", "skills, data, or media"),
    ("Errand", "the word for this one task"),
    ("errand", "the word for this one task"),
    ("Sight", "KnownVisibility"),
    ("Place", "ChatLocation, or InboxSeq"),
    ("Kept", "BoundedCache, or what is in it"),
    ("Handed", "QueuedTask"),
];
/// Files and folders by the end of their path, without `.rs`, and what they are called now.
const FILES: [(&str, &str); 10] = [
    ("agents/words", "agents/messages.rs"),
    ("directory/people", "directory/gateways.rs"),
    ("directory/records", "directory/admin.rs"),
    ("shelf", "skills.rs and data.rs"),
    ("edge/door", "edge/scheduler_webhook.rs"),
    ("who", "auth.rs"),
    ("cli/agent", "demo_agent.rs"),
    ("tests/house", "tests/harness"),
    ("tests/town", "tests/scenario"),
    ("tests/ears", "tests/agents"),
];
/// Names that another specification defines, with the file: Unicode has a category "Letter".
const SPECIFIED: [(&str, &str); 1] = [("Letter", "crates/store/src/postgres/words.rs")];
const HISTORY: &str = "CHANGELOG.md";

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let path = source.path.as_str();
    let mut findings = Vec::new();
    let stem = path.trim_end_matches(".rs");
    if let Some((old, new)) = FILES.into_iter().find(|(old, _)| has_part(stem, old)) {
        findings.push(finding(path, 1, &format!("the file name {old}"), new));
    }
    let is_specified = |name: &str| SPECIFIED.contains(&(name, path));
    for (at, word) in source.words() {
        let old = NAMES.into_iter().find(|(old, _)| *old == word && !is_specified(word));
        findings.extend(old.map(|(old, new)| finding(path, source.line(at), old, new)));
    }
    findings.extend(in_spans(path, &comments(source)));
    findings
}

pub(super) fn check_document(path: &str, text: &str) -> Vec<Finding> {
    if path == HISTORY { Vec::new() } else { in_spans(path, text) }
}

fn finding(path: &str, line: usize, old: &str, new: &str) -> Finding {
    Finding::new(path, line, format!("{old} is an old name"), format!("it is called {new} now"))
}

/// Whether `path` has these folders or this file in a row.
fn has_part(path: &str, part: &str) -> bool {
    format!("/{path}/").contains(&format!("/{part}/"))
}

/// The text with everything blanked but its comments.
fn comments(source: &Source) -> String {
    let bytes = source.text.bytes().zip(source.spoken.bytes());
    let kept = bytes.map(|(byte, spoken)| if byte == spoken && byte != b'\n' { b' ' } else { byte });
    String::from_utf8_lossy(&kept.collect::<Vec<u8>>()).into_owned()
}

fn in_spans(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, span) in code_spans(text) {
        for (_, word) in words(span) {
            let old = NAMES.into_iter().find(|(old, _)| *old == word && !SPECIFIED.contains(&(word, path)));
            findings.extend(old.map(|(old, new)| finding(path, line, old, new)));
        }
        for part in
            span.split(|c: char| c.is_whitespace() || "()[]{},;:\"'".contains(c)).filter(|it| it.contains(['/', '.']))
        {
            let old = FILES.into_iter().find(|(old, _)| names_file(part, old));
            findings.extend(old.map(|(old, new)| finding(path, line, &format!("the file name {old}"), new)));
        }
    }
    findings
}

/// A Rust file or a folder, but not the route "/v1/who".
fn names_file(part: &str, old: &str) -> bool {
    let file = part.strip_suffix(".rs").or_else(|| part.strip_suffix('/'));
    file.is_some_and(|file| has_part(file.trim_start_matches('/'), old))
}

/// What is between backticks or in a fenced block, with its line.
fn code_spans(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start_matches([' ', '/', '!', '>', '*']).starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced {
            found.push((at + 1, line));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(|span| (at + 1, span)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|it| it.line).collect()
    }

    #[test]
    fn an_old_name_is_refused_in_code_and_in_spans_of_comments() {
        for text in [
            "struct Signet;",
            "fn f(seat: &Seat) {}",
            "use crate::agents::Letter;",
            "#[cfg(test)]\nmod tests { use super::Errand; }",
            "/// The `Attendance` of an agent.\nfn f() {}",
            "//! ```\n//! let shelf = 1;\n//! ```",
            "/* see `who.rs` */",
        ] {
            let findings = check(&Source::new("crates/a/src/a.rs", text));
            assert_eq!(findings.len(), 1, "{text}: {findings:?}");
        }
        assert_eq!(lines(&check(&Source::new("a.rs", "// é\n// `b`\n\nfn c() -> Soon {}\n// `Floor`"))), [4, 5]);
        for text in [
            "let soon = SignetRing::new();",
            "// Stand by. House rules. Soon after, `letters` come.",
            "let sql = \"SELECT id FROM shelf\"; // é `b`",
            "let a = \"`Signet`\";",
        ] {
            assert_eq!(check(&Source::new("a.rs", text)), [], "{text}");
        }
    }

    #[test]
    fn an_old_file_name_is_refused() {
        for path in [
            "crates/core/src/agents/shelf/mod.rs",
            "crates/core/src/directory/people.rs",
            "crates/frontdesk/src/edge/who.rs",
            "crates/frontdesk/src/cli/agent.rs",
            "crates/frontdesk/tests/house/mod.rs",
        ] {
            assert_eq!(check(&Source::new(path, "")).len(), 1, "{path}");
        }
        for path in ["crates/platforms/src/slack/people.rs", "crates/frontdesk/tests/agent.rs", "crates/a/src/whose.rs"]
        {
            assert_eq!(check(&Source::new(path, "")), [], "{path}");
        }
    }

    #[test]
    fn documents_are_checked_where_they_quote_code() {
        let text = "# House rules\nSoon a `Seat` is `free`.\n```rust\nlet a: Ear = b;\n```\nRead `edge/who.rs` and `core/shelf/`.\n";
        assert_eq!(lines(&check_document("docs/a.md", text)), [2, 4, 6, 6, 6]);
        assert_eq!(check_document(HISTORY, text), []);
        assert_eq!(check_document("docs/a.md", "`GET /v1/who` and `people.rs` of `slack/people.rs`"), []);
    }

    #[test]
    fn a_name_of_a_specification_is_allowed_in_its_file() {
        for (name, path) in SPECIFIED {
            let text = format!("let a = {name};");
            assert_eq!(check(&Source::new(path, text.as_str())), []);
            assert_eq!(check(&Source::new("crates/a/src/a.rs", text)).len(), 1);
        }
    }
}
