//! Slack's mrkdwn. It has no escapes but those of `&`, `<` and `>`: other characters that could be taken for markers get
//! a character behind them that is not seen.

use super::discord::broken;
use super::doc::{Kind, Style};
use super::inline::Mark;
use super::lines::{Link, Syntax, ZERO_WIDTH_SPACE};
use super::lower::Abilities;

pub(super) const ABILITIES: Abilities =
    Abilities { tables: false, schemes: &["http", "https", "mailto"], dotted_hosts: false };

pub(super) struct Slack;

fn push(out: &mut String, c: char) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        c => out.push(c),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| push(&mut out, c));
    out
}

/// Characters with those broken that could open or close a style: all but those inside of a word or between blanks.
pub(super) fn unmarked(text: &str, mut push: impl FnMut(char)) {
    let mut before = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        push(c);
        if "*_~`".contains(c) {
            let next = chars.peek().copied();
            let in_word = before.is_some_and(char::is_alphanumeric) && next.is_some_and(char::is_alphanumeric);
            let is_alone = before.is_some_and(char::is_whitespace) && next.is_some_and(char::is_whitespace);
            if !in_word && !is_alone {
                push(ZERO_WIDTH_SPACE);
            }
        }
        before = Some(c);
    }
}

pub(super) fn single_marker(mark: Mark) -> &'static str {
    match mark {
        Mark::Bold => "*",
        Mark::Italic => "_",
        Mark::Strike => "~",
        Mark::Code | Mark::Link(_) => "",
    }
}

/// Headings are bold. Code that has a backtick is shown as text: there is no way to write it as code.
pub(super) fn simple_style(style: Style, kind: &Kind, text: &str) -> Style {
    let code = style.code && !text.contains('`');
    Style { bold: style.bold || matches!(kind, Kind::Heading(_)), code, ..style }
}

impl Syntax for Slack {
    fn style(&self, style: Style, kind: &Kind, text: &str) -> Style {
        simple_style(style, kind, text)
    }

    fn marker(&self, mark: Mark) -> &'static str {
        single_marker(mark)
    }

    fn needs_border(&self, _mark: Mark) -> bool {
        true
    }

    fn open_link(&self, out: &mut String, link: &Link<'_>) {
        out.push_str(&format!("<{}|", escaped(link.url)));
    }

    fn close_link(&self, out: &mut String, _link: &Link<'_>) {
        out.push('>');
    }

    fn bare_link(&self, out: &mut String, url: &str) -> bool {
        out.push_str(&format!("<{}>", escaped(url)));
        true
    }

    fn text(&self, out: &mut String, text: &str, at_start: bool) {
        if at_start && text.starts_with('>') {
            out.push(ZERO_WIDTH_SPACE); // it would be a quote, also when it is escaped
        }
        unmarked(text, |c| push(out, c));
    }

    fn inline_code(&self, out: &mut String, text: &str) {
        out.push_str(&format!("`{}`", escaped(text)));
    }

    fn quote(&self, out: &mut String, depth: usize) {
        out.push_str("> ");
        out.push_str(&"&gt; ".repeat(depth - 1));
    }

    /// The language would be shown as a line of code.
    fn fence(&self, _language: &str) -> Option<(String, &'static str)> {
        Some(("```".into(), "```"))
    }

    fn code_line(&self, out: &mut String, text: &str) {
        out.push_str(&escaped(&broken(text, "```")));
    }
}
