//! A Rust file as the rules see it: without comments, without strings, and with its tests marked.
//!
//! A scanner, not a parser. It knows comments, strings and characters, which is enough to match braces.

use std::ops::Range;

pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
    /// Comments and contents of strings are blanked; offsets are unchanged.
    pub(super) code: String,
    /// Only comments are blanked.
    pub(super) spoken: String,
    /// Byte ranges of `#[cfg(test)]` items.
    tests: Vec<Range<usize>>,
    is_test: bool,
}

impl Source {
    pub(super) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let (code, spoken) = mask(&text);
        let tests = test_items(&code);
        let is_test = is_test_file(&path);
        Self { path, text, code, spoken, tests, is_test }
    }

    /// A test file: under `tests/` or `benches/`, in the testkit, or a `tests.rs`.
    pub(super) fn is_test(&self) -> bool {
        self.is_test
    }

    pub(super) fn in_test(&self, at: usize) -> bool {
        self.is_test || self.tests.iter().any(|range| range.contains(&at))
    }

    pub(super) fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    /// Lines of the file without test items.
    pub(super) fn own_lines(&self) -> usize {
        let lines = |text: &str| text.matches('\n').count();
        let of_tests: usize = self.tests.iter().map(|range| lines(&self.text[range.clone()])).sum();
        lines(&self.text) - of_tests
    }

    /// Words of the code (identifiers and keywords) with their offsets.
    pub(super) fn words(&self) -> Vec<(usize, &str)> {
        words(&self.code)
    }
}

pub(super) fn words(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (start, c.is_alphanumeric() || c == '_') {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                found.push((from, &text[from..at]));
                start = None;
            }
            _ => {}
        }
    }
    found
}

/// The lowercase parts of a name: `HttpClient`, `http_client` and `http-client` are all http, client.
pub(super) fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before_lower) {
            parts.push(String::new());
        }
        before_lower = c.is_lowercase() || c.is_ascii_digit();
        if let (true, Some(last)) = (c.is_alphanumeric(), parts.last_mut()) {
            last.extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The offset after the brace that closes the one at `open`.
pub(super) fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// All of the testkit is test code. No part of it reaches the server, since members may have it as a dev-dependency
/// only (`edges.rs`, which checks its manifest as well). Its fakes have the names of vendors, its suites run over whole
/// stores, and they are long because they list many cases. So rules that except tests except it too, and those on the
/// structure of a crate. The other rules on files hold: `opening.rs`, `names.rs` and `renames.rs`.
fn is_test_file(path: &str) -> bool {
    path.starts_with("crates/testkit/")
        || path.split('/').any(|part| part == "tests" || part == "benches")
        || path.ends_with("/tests.rs")
}

fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, _) in code.match_indices("#[cfg(test)]") {
        if found.last().is_some_and(|last| last.contains(&at)) {
            continue;
        }
        let rest = &code[at..];
        let end = match (rest.find('{'), rest.find(';')) {
            (Some(open), semicolon) if semicolon.is_none_or(|s| open < s) => closing(code, at + open),
            (_, Some(semicolon)) => at + semicolon + 1,
            (_, None) => code.len(),
        };
        found.push(at..end);
    }
    found
}

fn mask(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let (mut code, mut spoken) = (bytes.to_vec(), bytes.to_vec());
    let blank = |target: &mut Vec<u8>, range: Range<usize>| {
        target[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    };
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") || rest.starts_with(b"/*") {
            let end = at + comment_length(rest);
            blank(&mut code, at..end);
            blank(&mut spoken, at..end);
            at = end;
        } else if let Some((head, tail, length)) = literal(bytes, at) {
            blank(&mut code, at + head..at + length - tail);
            at += length;
        } else {
            at += 1;
        }
    }
    // Only whole comments and whole contents are blanked, so the rest is still UTF-8.
    (String::from_utf8_lossy(&code).into_owned(), String::from_utf8_lossy(&spoken).into_owned())
}

fn comment_length(rest: &[u8]) -> usize {
    if rest.starts_with(b"//") {
        return rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// A string or character literal at this offset: bytes before its content, bytes after it, and its total length.
fn literal(bytes: &[u8], at: usize) -> Option<(usize, usize, usize)> {
    let rest = &bytes[at..];
    match rest[0] {
        b'"' => Some((1, 1, quoted_length(rest))),
        b'r' => {
            let begins = at == 0
                || !is_word(bytes[at - 1])
                || (matches!(bytes[at - 1], b'b' | b'c') && (at == 1 || !is_word(bytes[at - 2])));
            let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
            if !begins || rest.get(1 + hashes) != Some(&b'"') {
                return None;
            }
            let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let inside = &rest[2 + hashes..];
            let length = inside
                .windows(end.len())
                .position(|window| window == end)
                .unwrap_or(inside.len() - end.len().min(inside.len()));
            Some((2 + hashes, end.len(), 2 + hashes + length + end.len()))
        }
        b'\'' => {
            let text = std::str::from_utf8(&rest[1..rest.len().min(6)])
                .or_else(|error| std::str::from_utf8(&rest[1..=error.valid_up_to()]));
            let first = text.ok()?.chars().next()?;
            if first == '\\' {
                let end = rest.iter().skip(3).position(|byte| *byte == b'\'')?;
                return Some((1, 1, end + 4));
            }
            // Otherwise it is a lifetime.
            (rest.get(1 + first.len_utf8()) == Some(&b'\'')).then_some((1, 1, 2 + first.len_utf8()))
        }
        _ => None,
    }
}

fn quoted_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked_in_place() {
        let text = "let a = \"b{\\\"}\"; // é {\nlet c = '{'; /* { /* } */ } */ let d: &'static str = r#\"\"{\"#;\n";
        let source = Source::new("a.rs", text);
        assert_eq!(source.code.len(), text.len());
        assert!(!source.code.contains('{') && !source.code.contains('}'), "{}", source.code);
        assert!(source.code.contains("&'static str"));
        assert!(source.spoken.contains("b{") && !source.spoken.contains('é'));
        assert_eq!(source.line(text.find("let d").unwrap()), 2);
    }

    #[test]
    fn escaped_characters_and_bytes_are_scanned() {
        for text in [r"x('\'', '\\', b'\n', '\u{7b}') {", "f('é', '{', b'{') {", r#"g(br"{", b"{", cr"{", "r") {"#] {
            let source = Source::new("a.rs", text);
            assert_eq!(source.code.matches('{').count(), 1, "{text} became {}", source.code);
        }
    }

    #[test]
    fn tests_are_marked_and_not_counted() {
        let text = "//! a\nfn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n";
        let source = Source::new("a.rs", text);
        assert!(source.in_test(text.find("fn b").unwrap()));
        assert!(!source.in_test(text.find("fn a").unwrap()) && !source.in_test(text.find("fn c").unwrap()));
        assert_eq!(source.own_lines(), 4);
        let outside = Source::new("a.rs", "#[cfg(test)]\nmod tests;\nfn c() {}\n");
        assert!(!outside.in_test(outside.text.find("fn c").unwrap()));
        assert!(Source::new("crates/a/tests/b.rs", "").is_test());
        assert!(!Source::new("crates/a/src/b.rs", "").is_test());
        assert!(Source::new("crates/testkit/src/fakes/slack.rs", "").is_test());
    }

    #[test]
    fn names_are_split_into_parts() {
        assert_eq!(parts("HttpClient"), ["http", "client"]);
        assert_eq!(parts("http_client-2"), ["http", "client", "2"]);
        assert_eq!(parts("JSON"), ["json"]);
        assert_eq!(words("a.b_c(d)"), [(0, "a"), (2, "b_c"), (6, "d")]);
    }
}
