//! Text with styles beside it, as Signal has them. The markup has markers that occur in no text; [`styled`] takes them out
//! again and says where they were.

use super::doc::{Kind, Style};
use super::inline::Mark;
use super::lines::{Link, Syntax};
use super::lower::Abilities;
use super::slack::simple_style;
use super::url;

pub(super) const ABILITIES: Abilities = Abilities { tables: false, schemes: &[], dotted_hosts: false };

/// Characters that Unicode has promised never to use. The last one begins and ends a block of code.
const MARKERS: [(char, &str); 5] = [
    ('\u{FDD0}', "BOLD"),
    ('\u{FDD1}', "ITALIC"),
    ('\u{FDD2}', "STRIKETHROUGH"),
    ('\u{FDD3}', "MONOSPACE"),
    (BLOCK, "MONOSPACE"),
];
const BLOCK: char = '\u{FDD4}';

pub(super) struct Signal;

fn push_text(out: &mut String, text: &str) {
    out.extend(text.chars().filter(|c| MARKERS.iter().all(|(marker, _)| marker != c)));
}

impl Syntax for Signal {
    fn style(&self, style: Style, kind: &Kind, text: &str) -> Style {
        simple_style(style, kind, text)
    }

    fn marker(&self, mark: Mark) -> &'static str {
        match mark {
            Mark::Bold => "\u{FDD0}",
            Mark::Italic => "\u{FDD1}",
            Mark::Strike => "\u{FDD2}",
            Mark::Code | Mark::Link(_) => "",
        }
    }

    fn open_link(&self, _out: &mut String, _link: &Link<'_>) {}

    fn close_link(&self, out: &mut String, link: &Link<'_>) {
        if !url::is_shown_by(link.url, &link.text) {
            push_text(out, &format!(" ({})", link.url));
        }
    }

    fn text(&self, out: &mut String, text: &str, _at_start: bool) {
        push_text(out, text);
    }

    fn inline_code(&self, out: &mut String, text: &str) {
        out.push('\u{FDD3}');
        push_text(out, text);
        out.push('\u{FDD3}');
    }

    fn quote(&self, out: &mut String, depth: usize) {
        out.push_str(&"> ".repeat(depth));
    }

    fn fence(&self, _language: &str) -> Option<(String, &'static str)> {
        Some((BLOCK.to_string(), "\u{FDD4}"))
    }

    fn code_line(&self, out: &mut String, text: &str) {
        push_text(out, text);
    }

    fn quotes_code(&self) -> bool {
        true
    }
}

/// A text as it is sent, with its styles as `start:length:STYLE`, in UTF-16 units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Styled {
    pub text: String,
    pub styles: Vec<String>,
}

/// Reads the markup of [`Dialect::Signal`](super::Dialect::Signal).
pub fn styled(markup: &str) -> Styled {
    let (mut text, mut at) = (String::with_capacity(markup.len()), 0);
    let mut found: Vec<(usize, usize, &str)> = Vec::new();
    let mut open: [Option<usize>; MARKERS.len()] = [None; MARKERS.len()];
    let mut chars = markup.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(index) = MARKERS.iter().position(|(marker, _)| *marker == c) else {
            text.push(c);
            at += c.len_utf16();
            continue;
        };
        match open[index].take() {
            None => {
                // The lines of a block are between two lines of markers.
                chars.next_if(|next| c == BLOCK && *next == '\n');
                open[index] = Some(at);
            }
            Some(start) => {
                if c == BLOCK && text.ends_with('\n') && at > start {
                    text.pop();
                    at -= 1;
                }
                found.push((start, at - start, MARKERS[index].1));
            }
        }
    }
    found.retain(|(_, length, _)| *length > 0);
    found.sort_unstable();
    let styles = found.into_iter().map(|(start, length, style)| format!("{start}:{length}:{style}")).collect();
    Styled { text, styles }
}

#[cfg(test)]
mod tests {
    use super::super::{Dialect, Unit, render};
    use super::*;

    fn shown(markdown: &str) -> (String, Vec<String>) {
        let parts = render(Dialect::Signal, markdown, 8_000, Unit::Utf16);
        let Styled { text, styles } = styled(&parts[0].markup);
        (text, styles)
    }

    #[test]
    fn styles_are_beside_the_text_in_utf16_units() {
        for (markdown, text, styles) in [
            ("a **b** c", "a b c", &["2:1:BOLD"][..]),
            ("😀 *i* ~~s~~ `c`", "😀 i s c", &["3:1:ITALIC", "5:1:STRIKETHROUGH", "7:1:MONOSPACE"]),
            ("**b *both***", "b both", &["0:6:BOLD", "2:4:ITALIC"]),
            ("# Title\n\nText", "Title\n\nText", &["0:5:BOLD"]),
            ("```rust\nlet a;\nlet b;\n```\nend", "let a;\nlet b;\n\nend", &["0:13:MONOSPACE"]),
            ("2 * 3 * 4 snake_case", "2 * 3 * 4 snake_case", &[]),
            ("[a](https://e.org) https://e.org", "a (https://e.org) https://e.org", &[]),
            ("a\u{FDD0}b **c**", "ab c", &["3:1:BOLD"]),
        ] {
            assert_eq!(
                shown(markdown),
                (text.to_owned(), styles.iter().map(|it| (*it).to_owned()).collect()),
                "{markdown}"
            );
        }
    }

    #[test]
    fn a_style_is_never_outside_of_the_text() {
        for markdown in ["**", "```\n", "```\n\n```", "**a", "`` ` ``", "***a***", "> ```\n> x\n> ```"] {
            for part in render(Dialect::Signal, markdown, 16, Unit::Utf16) {
                let Styled { text, styles } = styled(&part.markup);
                let length = Unit::Utf16.measure(&text);
                for style in styles {
                    let numbers: Vec<usize> = style.split(':').take(2).map(|it| it.parse().unwrap()).collect();
                    assert!(numbers[0] + numbers[1] <= length && numbers[1] > 0, "{markdown}: {style} of {text:?}");
                }
            }
        }
    }
}
