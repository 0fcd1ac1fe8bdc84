//! Splits long messages by the platform's own measure at paragraph, line, word, then grapheme borders; a code fence
//! that is cut is closed and opened again.

use frontdesk_wire::descriptor::LenUnit;
use unicode_segmentation::UnicodeSegmentation as _;

/// An info string longer than this is not repeated on the next part.
const FENCE_INFO_MAX: usize = 24;
/// Longer runs of backticks or tildes are taken as text.
const FENCE_RUN_MAX: usize = 16;

/// A code fence that is open: what opens it again, and what closes it.
#[derive(Clone)]
struct Fence {
    mark: char,
    run: usize,
    opening: String,
}

impl Fence {
    /// The run of backticks or tildes that a line begins with, if it may be a fence, and what follows it.
    fn run_of(line: &str) -> Option<(char, usize, &str)> {
        let line = line.trim_start();
        let mark = line.chars().next().filter(|c| ['`', '~'].contains(c))?;
        let rest = line.trim_start_matches(mark);
        let run = line.len() - rest.len();
        (3..=FENCE_RUN_MAX).contains(&run).then_some((mark, run, rest))
    }

    /// The fence that this line opens, if it does.
    fn opened_by(line: &str) -> Option<Self> {
        let (mark, run, info) = Self::run_of(line)?;
        if mark == '`' && info.contains('`') {
            return None; // code within a line
        }
        let info = if info.len() <= FENCE_INFO_MAX { info.trim_end() } else { "" };
        Some(Self { mark, run, opening: format!("{}{info}", String::from(mark).repeat(run)) })
    }

    /// A line of the same mark, at least as long and with nothing after it.
    fn is_closed_by(&self, line: &str) -> bool {
        Self::run_of(line)
            .is_some_and(|(mark, run, rest)| mark == self.mark && run >= self.run && rest.trim().is_empty())
    }

    fn closing(&self) -> String {
        format!("\n{}", String::from(self.mark).repeat(self.run))
    }
}

pub fn split(text: &str, max: usize, unit: LenUnit) -> Vec<String> {
    let max = max.max(1);
    let mut parts = Vec::new();
    let mut rest = text;
    let mut fence: Option<Fence> = None;
    // Fences need room for themselves; a platform that short gets plain cuts.
    let longest = text.lines().filter_map(Fence::run_of).map(|(_, run, _)| run).max().unwrap_or(0);
    // A cut makes new beginnings of lines: what was a run of marks inside a line may be a fence after it.
    let closing_room = if longest == 0 { 0 } else { 1 + FENCE_RUN_MAX };
    let keep_fences = longest > 0 && max >= 4 * (closing_room + FENCE_INFO_MAX);
    loop {
        let opening = fence.as_ref().map(|fence| format!("{}\n", fence.opening)).unwrap_or_default();
        let room = max - unit.measure(&opening).min(max - 1);
        if unit.measure(rest) <= room {
            if !rest.is_empty() || parts.is_empty() {
                parts.push(format!("{opening}{rest}"));
            }
            return parts;
        }
        let reserved = if keep_fences { closing_room } else { 0 };
        let cut = best_cut(rest, (room - reserved.min(room - 1)).max(1), unit);
        let (piece, tail) = rest.split_at(cut);
        let after = if keep_fences { fence_after(fence.as_ref(), piece) } else { None };
        let body = if after.is_some() { piece.trim_end_matches('\n') } else { piece.trim_end_matches([' ', '\n']) };
        let closing = after.as_ref().map(Fence::closing).unwrap_or_default();
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
            if used > budget && hard > 0 {
                break;
            }
            hard = start + c.len_utf8();
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

/// The fence that is open after `piece`, if one is.
fn fence_after(open: Option<&Fence>, piece: &str) -> Option<Fence> {
    let mut open = open.cloned();
    for line in piece.lines() {
        match &open {
            Some(fence) if fence.is_closed_by(line) => open = None,
            Some(_) => {}
            None => open = Fence::opened_by(line),
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

    #[test]
    fn tildes_and_longer_fences_are_closed_and_opened_again_as_they_were() {
        let code = (0..40).map(|n| format!("    let line_{n} = {n};\n")).collect::<Vec<_>>().concat();
        for (open, close) in [("~~~rust", "~~~"), ("````markdown", "````"), ("~~~~~", "~~~~~")] {
            // A shorter fence, or one of the other kind, is text inside.
            let inside = format!("```\n~~~ not a close\n{code}```\n");
            let parts = split(&format!("Look:\n{open}\n{inside}{close}\nDone."), 220, LenUnit::Chars);
            assert!(parts.len() > 3, "{parts:?}");
            for (number, part) in parts.iter().enumerate() {
                assert!(part.chars().count() <= 220);
                let inside = (0..40).any(|n| part.contains(&format!("line_{n} ")));
                if inside && number > 0 {
                    assert!(part.starts_with(&format!("{open}\n")), "{part}");
                }
                if number + 1 < parts.len() {
                    assert!(part.ends_with(&format!("\n{close}")), "{part}");
                }
            }
            let all = parts.join("\n");
            for n in 0..40 {
                assert_eq!(all.matches(&format!("    let line_{n} = {n};")).count(), 1);
            }
        }
    }

    proptest! {
        #[test]
        fn no_part_is_over_the_limit_and_no_word_is_lost(text in "([a-zé😀 \n`~]{0,12}[\n ]?){0,60}", max in 1usize..300) {
            for unit in [LenUnit::Chars, LenUnit::Utf16] {
                let max = max.max(2);
                let parts = split(&text, max, unit);
                let ink = |s: &str| s.chars().filter(|c| !c.is_whitespace() && !['`', '~'].contains(c)).collect::<String>();
                if !text.contains("```") && !text.contains("~~~") {
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
