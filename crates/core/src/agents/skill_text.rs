//! Header lines in the text of a skill, such as `# Status: Draft`: parsing and rewriting.
//!
//! Other implementations do this with JavaScript regular expressions, and the hash of a skill must be the same in
//! all of them. So whitespace is `\s` of JavaScript, lines end where `$` matches there, and a rewrite removes the
//! same blank lines.

use std::collections::HashSet;

use frontdesk_wire::agents::SkillStatus;

use crate::hash::sha256_hex;

const NAME_MAX: usize = 256;
/// Lists show tags without the body, so tags are limited. Those above the limits are ignored.
const TAGS_MAX: usize = 256;
const TAGS_MAX_BYTES: usize = 8 << 10;
/// Hex digits of the content hash that form the version.
const VERSION_DIGITS: usize = 12;

/// A line of the form `# Word: value`, as byte offsets.
struct Header<'a> {
    /// Offset of the `#`.
    start: usize,
    value: &'a str,
    value_end: usize,
    /// Where the text continues after a rewrite; the blanks before it are removed.
    end: usize,
}

/// `\s` of JavaScript. Unlike whitespace in Rust it includes U+FEFF and excludes U+0085.
fn is_blank(c: char) -> bool {
    matches!(c, '\t'..='\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{202f}' | '\u{205f}' | '\u{3000}' | '\u{feff}')
}

fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

fn is_inner_blank(c: char) -> bool {
    is_blank(c) && !ends_line(c)
}

/// The first line with this word and a non-empty value; it may be indented.
fn find<'a>(text: &'a str, word: &str) -> Option<Header<'a>> {
    line_starts(text).find_map(|line| {
        let start = skip(text, line, is_inner_blank);
        let after = after_word(text, start, word, is_inner_blank)?;
        let from = skip(text, after, is_inner_blank);
        let value = value_at(text, from);
        (!value.is_empty()).then(|| header(text, start, from, value))
    })
}

/// The first `# Skill: value` as other implementations match it: not indented, and the value may be on a later line.
fn find_skill(text: &str) -> Option<Header<'_>> {
    line_starts(text).find_map(|start| {
        let after = after_word(text, start, "Skill", is_blank)?;
        let from = skip(text, after, is_blank);
        if from < text.len() {
            return Some(header(text, start, from, value_at(text, from)));
        }
        // Only blanks up to the end of the text: the last one that is not a line end is the value.
        let (at, blank) = text[after..].char_indices().rfind(|(_, c)| !ends_line(*c))?;
        Some(header(text, start, after + at, &text[after + at..][..blank.len_utf8()]))
    })
}

fn header<'a>(text: &'a str, start: usize, from: usize, value: &'a str) -> Header<'a> {
    let value_end = from + value.len();
    Header { start, value, value_end, end: end_of_blanks(text, value_end) }
}

/// The end of the text if only blanks follow; otherwise the last line end within the blanks.
fn end_of_blanks(text: &str, from: usize) -> usize {
    let until = skip(text, from, is_blank);
    if until == text.len() {
        return until;
    }
    text[from..until].rfind(ends_line).map_or(from, |at| from + at)
}

/// The rest of the line, without trailing blanks.
fn value_at(text: &str, from: usize) -> &str {
    let line = text[from..].split(ends_line).next().unwrap_or_default();
    line.trim_end_matches(is_blank)
}

/// Offset after `#`, the word and its colon.
fn after_word(text: &str, start: usize, word: &str, blank: fn(char) -> bool) -> Option<usize> {
    let rest = text[start..].strip_prefix('#')?.trim_start_matches(blank);
    let rest = rest.strip_prefix(word)?.trim_start_matches(blank).strip_prefix(':')?;
    Some(text.len() - rest.len())
}

fn skip(text: &str, from: usize, what: fn(char) -> bool) -> usize {
    text.len() - text[from..].trim_start_matches(what).len()
}

fn line_starts(text: &str) -> impl Iterator<Item = usize> + '_ {
    std::iter::once(0).chain(text.match_indices(ends_line).map(|(at, end)| at + end.len()))
}

/// The words after `# Status:`.
fn status_words(source: &str) -> impl Iterator<Item = &str> {
    let value = find(source, "Status").map_or("", |line| line.value);
    value.split(is_blank).filter(|word| !word.is_empty())
}

/// The status in the body; Draft if it is absent or unknown.
pub fn status_of(source: &str) -> SkillStatus {
    status_words(source).next().and_then(SkillStatus::read).unwrap_or(SkillStatus::Draft)
}

/// The word after the status, which is the signature of an approval.
pub(super) fn second_word(source: &str) -> Option<&str> {
    status_words(source).nth(1)
}

/// The body with another status: replaces the Status line, or inserts one after `# Skill:`, or at the beginning.
pub fn with_status(source: &str, status: &str) -> String {
    let line = format!("# Status: {status}");
    if let Some(old) = find(source, "Status") {
        return [&source[..old.start], &line, &source[old.end..]].concat();
    }
    if let Some(skill) = find_skill(source) {
        return [&source[..skill.value_end], "\n", &line, &source[skill.end..]].concat();
    }
    [&line, "\n", source].concat()
}

/// Like `with_status`, but keeps the blank lines after an existing Status line.
pub(super) fn with_status_alone(source: &str, status: &str) -> String {
    let Some(old) = find(source, "Status") else { return with_status(source, status) };
    [&source[..old.start], "# Status: ", status, &source[old.value_end..]].concat()
}

/// The values of `# Tags:` in lower case, without duplicates.
pub fn tags(source: &str) -> Vec<String> {
    let (mut tags, mut seen) = (Vec::new(), HashSet::new());
    let mut room = TAGS_MAX_BYTES;
    for tag in find(source, "Tags").map_or("", |line| line.value).split(',') {
        let tag = tag.trim_matches(is_blank).to_lowercase();
        if !tag.is_empty() && tag.len() <= room && seen.insert(tag.clone()) {
            room -= tag.len();
            tags.push(tag);
        }
        if tags.len() == TAGS_MAX {
            break;
        }
    }
    tags
}

pub fn description(source: &str) -> Option<String> {
    find(source, "Description").map(|line| line.value.to_owned())
}

/// Names are safe in paths and patterns: ASCII letters, digits and `_ - .`; the first character is a letter or digit.
pub fn is_name(name: &str) -> bool {
    let well_formed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    name.len() <= NAME_MAX
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && name.bytes().all(well_formed)
}

/// Hash of the bytes as stored.
pub fn content_hash(source: &str) -> String {
    sha256_hex(source)
}

pub fn version_of(content_hash: &str) -> String {
    content_hash.chars().take(VERSION_DIGITS).collect()
}

/// The text that is signed: with LF line ends, and without Status and Tags lines, which may change independently.
pub(super) fn canonical(source: &str) -> String {
    let text = source.replace("\r\n", "\n").replace('\r', "\n");
    let kept: Vec<&str> = text.split('\n').filter(|line| !is_unsigned(line)).collect();
    kept.join("\n")
}

/// A Status or Tags line. A line that contains another line separator does not count, because the text after the
/// separator would be unsigned.
fn is_unsigned(line: &str) -> bool {
    if line.contains(ends_line) {
        return false;
    }
    let Some(rest) = line.trim_start_matches(is_blank).strip_prefix('#') else { return false };
    let rest = rest.trim_start_matches(is_blank);
    let word = |word: &str| {
        let (head, rest) = rest.split_at_checked(word.len())?;
        Some(head.eq_ignore_ascii_case(word) && rest.trim_start_matches(is_blank).starts_with(':'))
    };
    word("Status").unwrap_or(false) || word("Tags").unwrap_or(false)
}
