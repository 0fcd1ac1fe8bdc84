//! Targets of links: which are allowed, how they are written, and where a text has one without markup.

use super::doc::{Line, Style};

/// Characters that end a markup of some dialect, or that no URL has.
const ENCODED: &str = "<>\"|\\^`{} ";
/// What a sentence has behind a URL.
const TRAILING: &[char] = &['.', ',', ':', ';', '!', '?', '\'', '*', '_', '~', ']'];

pub(super) fn encoded(url: &str) -> String {
    let mut out = String::with_capacity(url.len());
    for c in url.chars() {
        if ENCODED.contains(c) || c.is_whitespace() || c.is_control() {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.push_str(&format!("%{byte:02X}")));
        } else {
            out.push(c);
        }
    }
    out
}

pub(super) fn has_scheme(url: &str, schemes: &[&str]) -> bool {
    let Some((scheme, rest)) = url.split_once(':') else { return false };
    let needs_host = scheme.to_ascii_lowercase().starts_with("http");
    let filled =
        if needs_host { rest.strip_prefix("//").is_some_and(|host| !host.is_empty()) } else { !rest.is_empty() };
    filled && schemes.iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Whether the host of a web address has a dot. Other addresses have none.
pub(super) fn has_dotted_host(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return true };
    let is_web = scheme.to_ascii_lowercase().starts_with("http");
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    !is_web || host.trim_matches('.').contains('.') || host.starts_with('[')
}

/// The text of the link is its target.
pub(super) fn is_shown_by(url: &str, text: &str) -> bool {
    url == text || url.strip_prefix("mailto:").is_some_and(|address| address == text)
}

/// Makes links of URLs in a text: their characters must not be taken for markup.
pub(super) fn mark_bare(line: &mut Line, links: &mut Vec<String>) {
    if line.is_code() || !line.text.contains("://") {
        return;
    }
    let mut done = line.clone_frame();
    for (start, end, style) in line.pieces() {
        let mut rest = &line.text[start..end];
        if !style.code && style.link.is_none() {
            while let Some((at, length)) = next_bare(rest) {
                done.push(&rest[..at], style);
                let found = &rest[at..at + length];
                links.push(encoded(found));
                done.push(found, Style { link: Some(links.len() - 1), ..style });
                rest = &rest[at + length..];
            }
        }
        done.push(rest, style);
    }
    *line = done;
}

/// Where the next URL begins, and how long it is.
fn next_bare(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(colon) = text[from..].find("://").map(|at| from + at) {
        from = colon + 3;
        let head = &text[..colon];
        let Some(scheme) = ["https", "http"].into_iter().find(|scheme| head.ends_with(scheme)) else { continue };
        let start = colon - scheme.len();
        if text[..start].ends_with(|c: char| c.is_alphanumeric()) {
            continue;
        }
        let ends = |c: char| c.is_whitespace() || c.is_control() || ENCODED.contains(c);
        let length = text[from..].find(ends).unwrap_or(text.len() - from);
        let kept = trimmed(&text[from..from + length]);
        if !kept.is_empty() {
            return Some((start, from - start + kept.len()));
        }
    }
    None
}

/// Without the punctuation of the sentence around it, and without a parenthesis that it did not open.
fn trimmed(url: &str) -> &str {
    let mut url = url;
    let mut unmatched = url.matches(')').count().saturating_sub(url.matches('(').count());
    loop {
        let shorter = url.trim_end_matches(TRAILING);
        match shorter.strip_suffix(')').filter(|_| unmatched > 0) {
            Some(without) => {
                unmatched -= 1;
                url = without;
            }
            None => return shorter,
        }
    }
}
