//! Documents: how long they may be, and that their relative links lead to files and headings that exist.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;

/// Documents with a limit of lines, so that they are read as a whole.
const LINES_MAX: [(&str, usize); 1] = [("docs/ARCHITECTURE.md", 200)];

/// `documents` are paths with their texts. `exists`: whether there is a file or folder at a path.
pub(super) fn check(documents: &[(String, String)], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let known: BTreeMap<&str, BTreeSet<String>> =
        documents.iter().map(|(path, text)| (path.as_str(), anchors(text))).collect();
    let mut findings = Vec::new();
    for (path, text) in documents {
        findings.extend(check_length(path, text));
        for (line, target) in links(text) {
            let fix = "correct the link, or remove it";
            let why = broken(path, &target, &known, &exists);
            findings.extend(why.map(|why| Finding::new(path, line, format!("the link {target} {why}"), fix)));
        }
    }
    findings
}

fn check_length(path: &str, text: &str) -> Option<Finding> {
    let (_, max) = LINES_MAX.iter().find(|(document, _)| *document == path)?;
    let lines = text.lines().count();
    let what = format!("the document has {lines} lines; the limit is {max}");
    (lines > *max).then(|| Finding::new(path, max + 1, what, "shorten it, or move details into another document"))
}

/// Why a link in this document leads nowhere. `None`: it does not, or it is not relative.
fn broken(
    path: &str,
    target: &str,
    known: &BTreeMap<&str, BTreeSet<String>>,
    exists: impl Fn(&str) -> bool,
) -> Option<&'static str> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    if file.contains(':') {
        return None; // https: or mailto:
    }
    let file = if file.is_empty() { Some(path.to_owned()) } else { resolved(path, file) };
    let Some(file) = file.filter(|file| exists(file)) else { return Some("leads to no file") };
    let anchors = known.get(file.as_str()).filter(|_| !anchor.is_empty())?;
    (!anchors.contains(anchor)).then_some("leads to no heading")
}

/// The path that a link in the file `from` leads to. `None`: it is outside of the repository.
fn resolved(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The targets of links, with their lines. Code has none.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in prose(text) {
        let outside = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for rest in outside.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push((line, target.to_owned()));
        }
    }
    found
}

/// The anchors of the headings, as GitHub makes them; a heading that is repeated has a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor = anchor(title.trim());
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// The lines outside of fenced code, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            found.push((at + 1, line));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Finding> {
        let documents: Vec<_> = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let exists = |path: &str| path == "docs" || path == "justfile" || files.iter().any(|(known, _)| *known == path);
        check(&documents, exists)
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let other = ("docs/B.md", "# Use `a.rs`, and more\n## Twice\n## Twice\n```\n# not this\n```\n#nor this");
        for (link, why) in [
            ("B.md", None),
            ("./B.md#use-ars-and-more", None),
            ("B.md#twice-1", None),
            ("B.md#twice-2", Some("leads to no heading")),
            ("B.md#not-this", Some("leads to no heading")),
            ("B.md#nor-this", Some("leads to no heading")),
            ("../justfile", None),
            ("../justfile#L4", None),
            ("../docs/", None),
            ("../B.md", Some("leads to no file")),
            ("../../B.md", Some("leads to no file")),
            ("#own", None),
            ("#other", Some("leads to no heading")),
            ("https://example.org/#x", None),
            ("mailto:a@example.org", None),
        ] {
            let text = format!("# Own\n\nSee [b]({link} \"title\"), not `[c](gone.md)`.\n```\n[d](gone.md)\n```\n");
            let findings = found(&[("docs/A.md", text.as_str()), other]);
            assert_eq!(findings.len(), usize::from(why.is_some()), "{link}: {findings:?}");
            for finding in findings {
                assert_eq!((finding.file.as_str(), finding.line), ("docs/A.md", 3), "{link}");
                assert_eq!(Some(finding.what.as_str()), why.map(|why| format!("the link {link} {why}")).as_deref());
            }
        }
        let two = found(&[("A.md", "[a](x.md), [`b`](y.md)")]);
        assert_eq!(two.len(), 2, "{two:?}");
    }

    #[test]
    fn the_architecture_is_short() {
        let text = "a line\n".repeat(200);
        assert_eq!(found(&[("docs/ARCHITECTURE.md", text.as_str()), ("docs/B.md", "b\n".repeat(900).as_str())]), []);
        let findings = found(&[("docs/ARCHITECTURE.md", format!("{text}one more\n").as_str())]);
        assert_eq!((findings.len(), findings[0].line), (1, 201), "{findings:?}");
        assert!(findings[0].what.contains("201 lines; the limit is 200"));
    }
}
