//! Long messages: cut by the platform's own measure on paragraph, line, word, then grapheme borders;
//! a code fence that is cut is closed and opened again.

use frontdesk_wire::descriptor::LenUnit;
use unicode_segmentation::UnicodeSegmentation as _;

const FENCE: &str = "```";
const FENCE_CLOSE: &str = "\n```";
/// An info string longer than this is not repeated on the next part.
const FENCE_INFO_MAX: usize = 24;

pub fn split(text: &str, max: usize, unit: LenUnit) -> Vec<String> {
    let max = max.max(1);
    let mut parts = Vec::new();
    let mut rest = text;
    let mut fence: Option<String> = None;
    // Fences need room for themselves; a platform that short gets plain cuts.
    let keep_fences = max >= 4 * (FENCE_CLOSE.len() + FENCE_INFO_MAX);
    loop {
        let opening = fence.as_ref().map(|line| format!("{line}\n")).unwrap_or_default();
        let room = max - unit.measure(&opening).min(max - 1);
        if unit.measure(rest) <= room {
            if !rest.is_empty() || parts.is_empty() {
                parts.push(format!("{opening}{rest}"));
            }
            return parts;
        }
        let closing = if keep_fences { FENCE_CLOSE.len() } else { 0 };
        let cut = best_cut(rest, (room - closing.min(room - 1)).max(1), unit);
        let (piece, tail) = rest.split_at(cut);
        let after = if keep_fences { fence_after(fence.as_deref(), piece) } else { None };
        let body = if after.is_some() { piece.trim_end_matches('\n') } else { piece.trim_end_matches([' ', '\n']) };
        let closing = if after.is_some() { FENCE_CLOSE } else { "" };
        if !body.is_empty() {
            parts.push(format!("{opening}{body}{closing}"));
        }
        // What separated the parts is dropped once; indentation inside code stays.
        rest = if after.is_some() {
            tail.strip_prefix('\n').unwrap_or(tail)
        } else {
            tail.trim_start_matches([' ', '\n'])
        };
        fence = after;
    }
}

/// Where to cut so that the first piece measures at most `budget`: never zero.
fn best_cut(text: &str, budget: usize, unit: LenUnit) -> usize {
    let mut used = 0;
    let mut hard = 0;
    for (start, cluster) in text.grapheme_indices(true) {
        used += unit.measure(cluster);
        if used > budget {
            break;
        }
        hard = start + cluster.len();
    }
    if hard == 0 {
        // One cluster over the whole budget: the only case in which it is cut, between its characters.
        let mut used = 0;
        for (start, c) in text.char_indices() {
            used += unit.measure(c.encode_utf8(&mut [0; 4]));
            hard = start + c.len_utf8();
            if used >= budget {
                break;
            }
        }
        return hard;
    }
    let head = &text[..hard];
    // A border in the first quarter would make tiny parts; then a lesser border is better.
    let far_enough = |at: usize| at * 4 >= hard;
    let at_border = text[hard..].starts_with('\n');
    let paragraph = head.rfind("\n\n").filter(|at| far_enough(*at));
    let line = || if at_border { Some(hard) } else { head.rfind('\n').filter(|at| far_enough(*at)) };
    let word = || if text[hard..].starts_with(' ') { Some(hard) } else { head.rfind(' ').filter(|at| far_enough(*at)) };
    paragraph.or_else(line).or_else(word).filter(|at| *at > 0).unwrap_or(hard)
}

/// The fence that is open after `piece`, if one is: its opening line, to be written again.
fn fence_after(open: Option<&str>, piece: &str) -> Option<String> {
    let mut open = open.map(str::to_owned);
    for line in piece.lines() {
        let line = line.trim_start();
        if line.starts_with(FENCE) {
            open = match open {
                Some(_) => None,
                None if line.len() <= FENCE.len() + FENCE_INFO_MAX => Some(line.trim_end().to_owned()),
                None => Some(FENCE.to_owned()),
            };
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_text_is_one_part_as_it_is() {
        assert_eq!(split("hi  ", 10, LenUnit::Chars), ["hi  "]);
        assert_eq!(split("", 10, LenUnit::Chars), [""]);
    }

    #[test]
    fn paragraphs_before_lines_before_words_before_graphemes() {
        assert_eq!(split("aaaa\nbb\n\ncccc dd", 12, LenUnit::Chars), ["aaaa\nbb", "cccc dd"]);
        assert_eq!(split("aaaa bb\ncc dd", 10, LenUnit::Chars), ["aaaa bb", "cc dd"]);
        assert_eq!(split("aaaa bbbb cccc", 9, LenUnit::Chars), ["aaaa bbbb", "cccc"]);
        assert_eq!(split("aaaaaaaa", 3, LenUnit::Chars), ["aaa", "aaa", "aa"]);
        // A family of seven code points stays together.
        let family = "👨‍👩‍👧‍👦";
        assert_eq!(split(&format!("ab{family}"), 8, LenUnit::Chars), ["ab".to_owned(), family.to_owned()]);
    }

    #[test]
    fn the_unit_of_the_platform_counts() {
        assert_eq!(split("😀😀😀", 4, LenUnit::Utf16), ["😀😀", "😀"]);
        assert_eq!(split("😀😀😀", 4, LenUnit::Chars), ["😀😀😀"]);
    }

    #[test]
    fn a_cut_fence_is_closed_and_opened_again() {
        let code = (0..40).map(|n| format!("    let line_{n} = {n};\n")).collect::<Vec<_>>().concat();
        let parts = split(&format!("Look:\n```rust\n{code}```\nDone."), 200, LenUnit::Chars);
        assert!(parts.len() > 3);
        for part in &parts {
            assert!(part.chars().count() <= 200);
            assert_eq!(part.matches("```").count() % 2, 0, "{part}");
        }
        assert!(parts[1].starts_with("```rust\n    let line_"));
        let all = parts.join("\n");
        for n in 0..40 {
            assert_eq!(all.matches(&format!("    let line_{n} = {n};")).count(), 1);
        }
    }

    proptest! {
        #[test]
        fn no_part_is_over_the_limit_and_no_word_is_lost(text in "([a-zé😀 \n`]{0,12}[\n ]?){0,60}", max in 1usize..300) {
            for unit in [LenUnit::Chars, LenUnit::Utf16] {
                let max = max.max(2);
                let parts = split(&text, max, unit);
                let ink = |s: &str| s.chars().filter(|c| !c.is_whitespace() && *c != '`').collect::<String>();
                if !text.contains("```") {
                    // (a fence's info string is written again on the next part)
                    prop_assert_eq!(ink(&parts.concat()), ink(&text));
                }
                for part in &parts {
                    prop_assert!(unit.measure(part) <= max, "{:?} is over {}", part, max);
                }
            }
        }
    }
}
