//! Any text, limit and unit: no part exceeds the limit, nothing is lost, and a code fence that is cut is closed.
//!
//! The first two bytes of the input are the limit, the third is the unit, the rest is the text.

use frontdesk_core::split::split;
use frontdesk_wire::descriptor::LenUnit;

use super::super::engine::{Outcome, outcome};

const LIMIT_MAX: usize = 600;
/// From this limit on there is always space for the longest fence.
const FENCES_FIT: usize = 164;

pub fn split_text(input: &[u8]) -> Outcome {
    let Some((head, rest)) = input.split_first_chunk::<3>() else { return 0 };
    let max = 1 + usize::from(u16::from_le_bytes([head[0], head[1]])) % LIMIT_MAX;
    let unit = if head[2] % 2 == 0 { LenUnit::Chars } else { LenUnit::Utf16 };
    let text = String::from_utf8_lossy(rest);

    let parts = split(&text, max, unit);
    if unit.measure(&text) <= max {
        assert_eq!(parts, [text.as_ref()], "a text that fits is unchanged");
        return outcome(1);
    }
    assert!(!parts.is_empty());
    // A character larger than the limit cannot be split.
    let largest = text.chars().map(|c| unit.measure(c.encode_utf8(&mut [0; 4]))).max().unwrap_or_default();
    if largest <= max {
        for part in &parts {
            assert!(unit.measure(part) <= max, "{} is over {max}: {part:?}", unit.measure(part));
        }
    }
    let fenced = text.contains("```") || text.contains("~~~");
    if fenced {
        assert_subsequence(&text, &parts);
    } else {
        assert_pieces(&text, &parts);
    }
    let clear = max >= FENCES_FIT && has_clear_fences(&text, max);
    if clear {
        for part in &parts[..parts.len() - 1] {
            assert!(!ends_in_fence(part), "the fence is left open: {part:?}");
        }
    }
    outcome((fenced, parts.len().min(6), clear, unit == LenUnit::Utf16))
}

/// The parts give the text, except blanks and line ends at the cuts.
fn assert_pieces(text: &str, parts: &[String]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part.as_str()).unwrap_or_else(|| panic!("{part:?} is not in the rest {rest:?}"));
        let (gap, tail) = rest.split_at(at);
        assert_eq!(gap.trim_matches([' ', '\n']), "", "lost between two parts");
        rest = &tail[part.len()..];
    }
    assert_eq!(rest.trim_matches([' ', '\n']), "", "lost at the end");
}

/// Fences may be added, but nothing may be missing.
fn assert_subsequence(text: &str, parts: &[String]) {
    let mut written = parts.iter().flat_map(|part| part.chars());
    for (at, c) in text.char_indices().filter(|(_, c)| ![' ', '\n'].contains(c)) {
        assert!(written.any(|other| other == c), "lost from byte {at}: {:?}", &text[at..]);
    }
}

/// Runs of fence characters begin a line, and the line is short enough not to be cut. A run within a line is text, but
/// a cut can move it to the beginning of a part.
fn has_clear_fences(text: &str, max: usize) -> bool {
    text.split(['\n', '\r']).all(|line| {
        let inside = line.trim_start().trim_start_matches(['`', '~']);
        let run = line.trim_start().len() - inside.len();
        let is_text = !inside.contains("```") && !inside.contains("~~~");
        is_text && run <= 16 && (run == 0 || line.len() * 4 <= max)
    })
}

/// A fence is a line of three to sixteen backticks or tildes; one at least as long and without more text closes it.
fn ends_in_fence(part: &str) -> bool {
    let mut open: Option<(char, usize)> = None;
    for line in part.lines().map(str::trim_start) {
        let Some(mark) = line.chars().next().filter(|c| ['`', '~'].contains(c)) else { continue };
        let rest = line.trim_start_matches(mark);
        let run = line.len() - rest.len();
        if !(3..=16).contains(&run) {
            continue;
        }
        match open {
            Some((opened, least)) if mark == opened && run >= least && rest.trim().is_empty() => open = None,
            Some(_) => {}
            None if mark == '`' && rest.contains('`') => {} // code within a line
            None => open = Some((mark, run)),
        }
    }
    open.is_some()
}
