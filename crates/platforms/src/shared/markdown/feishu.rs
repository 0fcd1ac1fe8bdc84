//! The Markdown of Feishu's rich text and cards. It has no escapes: characters that could be taken for markers get a character
//! behind them that is not seen.

use super::discord::broken;
use super::doc::{Kind, Style};
use super::inline::Mark;
use super::lines::{Link, Syntax, ZERO_WIDTH_SPACE};
use super::lower::Abilities;
use super::slack::unmarked;

pub(super) const ABILITIES: Abilities = Abilities { tables: false, schemes: &["http", "https"], dotted_hosts: false };

pub(super) struct Feishu;

impl Syntax for Feishu {
    /// Headings are bold, because cards do not know them. Code that has a backtick is shown as text.
    fn style(&self, style: Style, kind: &Kind, text: &str) -> Style {
        let code = style.code && !text.contains('`');
        Style { bold: style.bold || matches!(kind, Kind::Heading(_)), code, ..style }
    }

    fn marker(&self, mark: Mark) -> &'static str {
        match mark {
            Mark::Bold => "**",
            Mark::Italic => "*",
            Mark::Strike => "~~",
            Mark::Code | Mark::Link(_) => "",
        }
    }

    fn needs_border(&self, _mark: Mark) -> bool {
        true
    }

    fn open_link(&self, out: &mut String, _link: &Link<'_>) {
        out.push('[');
    }

    fn close_link(&self, out: &mut String, link: &Link<'_>) {
        out.push_str(&format!("]({})", link.url.replace('(', "%28").replace(')', "%29")));
    }

    fn bare_link(&self, out: &mut String, url: &str) -> bool {
        out.push_str(url);
        true
    }

    fn text(&self, out: &mut String, text: &str, at_start: bool) {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let is_numbered = digits > 0 && text[digits..].starts_with('.');
        if at_start && (text.starts_with(['>', '-', '+', '#']) || is_numbered) {
            out.push(ZERO_WIDTH_SPACE); // it would be a quote, a list or a heading
        }
        unmarked(text, |c| {
            out.push(c);
            if c == ']' {
                out.push(ZERO_WIDTH_SPACE); // with what follows it would be a link
            }
        });
    }

    fn inline_code(&self, out: &mut String, text: &str) {
        out.push_str(&format!("`{text}`"));
    }

    fn quote(&self, out: &mut String, depth: usize) {
        out.push_str("> ");
        out.push_str(&format!("{ZERO_WIDTH_SPACE}> ").repeat(depth - 1));
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
}
