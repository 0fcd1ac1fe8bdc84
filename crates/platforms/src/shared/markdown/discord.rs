//! Discord's markdown. Mentions (`<@1>`, `<#1>`) are left as they are: `allowed_mentions` of the message, not its text,
//! decides which of them notify a user.

use super::doc::{Kind, Style};
use super::inline::Mark;
use super::lines::{Link, Syntax, ZERO_WIDTH_SPACE};
use super::lower::Abilities;

pub(super) const ABILITIES: Abilities = Abilities { tables: false, schemes: &["http", "https"], dotted_hosts: false };
const RESERVED: &str = "\\*~`|[]";

pub(super) struct Discord;

impl Syntax for Discord {
    fn style(&self, style: Style, kind: &Kind, _text: &str) -> Style {
        // There are three levels of headings.
        let bold = style.bold || matches!(kind, Kind::Heading(4..));
        Style { bold, ..style }
    }

    fn marker(&self, mark: Mark) -> &'static str {
        match mark {
            Mark::Bold => "**",
            Mark::Italic => "_",
            Mark::Strike => "~~",
            Mark::Code | Mark::Link(_) => "",
        }
    }

    fn needs_border(&self, mark: Mark) -> bool {
        mark == Mark::Italic
    }

    /// A link whose text looks like another address is shown as its source.
    fn open_link(&self, out: &mut String, link: &Link<'_>) {
        if !link.text.contains("://") {
            out.push('[');
        }
    }

    fn close_link(&self, out: &mut String, link: &Link<'_>) {
        if link.text.contains("://") {
            out.push_str(&format!(" (<{}>)", link.url));
        } else {
            out.push_str(&format!("]({})", link.url.replace('(', "%28").replace(')', "%29")));
        }
    }

    fn bare_link(&self, out: &mut String, url: &str) -> bool {
        out.push_str(&format!("<{url}>"));
        true
    }

    fn text(&self, out: &mut String, text: &str, at_start: bool) {
        let mut before = None;
        let mut chars = text.chars().peekable();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let mut at = 0;
        while let Some(c) = chars.next() {
            let in_word = before.is_some_and(|c: char| c.is_ascii_alphanumeric())
                && chars.peek().is_some_and(char::is_ascii_alphanumeric);
            let opens_block = at_start && (at == 0 && "#>-+".contains(c) || digits > 0 && at == digits && c == '.');
            if RESERVED.contains(c) || (c == '_' && !in_word) || opens_block {
                out.push('\\');
            }
            out.push(c);
            before = Some(c);
            at += c.len_utf8();
        }
    }

    fn inline_code(&self, out: &mut String, text: &str) {
        if !text.contains('`') {
            out.push_str(&format!("`{text}`"));
            return;
        }
        let pad = |edge: bool| if edge { " " } else { "" };
        let (before, after) = (pad(text.starts_with('`')), pad(text.ends_with('`')));
        out.push_str(&format!("``{before}{}{after}``", broken(text, "``")));
    }

    fn heading(&self, level: u8) -> &'static str {
        match level {
            1 => "# ",
            2 => "## ",
            3 => "### ",
            _ => "",
        }
    }

    fn quote(&self, out: &mut String, depth: usize) {
        out.push_str("> ");
        out.push_str(&"\\> ".repeat(depth - 1));
    }

    fn bullet(&self) -> &'static str {
        "- "
    }

    fn fence(&self, language: &str) -> Option<(String, &'static str)> {
        Some((format!("```{language}"), "```"))
    }

    fn code_line(&self, out: &mut String, text: &str) {
        out.push_str(&broken(text, "```"));
    }

    fn quotes_code(&self) -> bool {
        true
    }
}

/// A run of backticks that would end the code is broken by a character that is not seen: there is no escape in code.
pub(super) fn broken(text: &str, run: &str) -> String {
    if !text.contains(run) {
        return text.to_owned();
    }
    text.replace('`', &format!("`{ZERO_WIDTH_SPACE}"))
}
