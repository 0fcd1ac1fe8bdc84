//! The markup of `WhatsApp`. It has no escapes, and no links but addresses, which must be left as they are.

use super::discord::broken;
use super::doc::{Kind, Style};
use super::inline::Mark;
use super::lines::{Link, Syntax, ZERO_WIDTH_SPACE};
use super::lower::Abilities;
use super::slack::{simple_style, single_marker, unmarked};

pub(super) const ABILITIES: Abilities = Abilities { tables: false, schemes: &["http", "https"], dotted_hosts: false };

pub(super) struct WhatsApp;

impl Syntax for WhatsApp {
    fn style(&self, style: Style, kind: &Kind, text: &str) -> Style {
        simple_style(style, kind, text)
    }

    fn marker(&self, mark: Mark) -> &'static str {
        single_marker(mark)
    }

    fn needs_border(&self, _mark: Mark) -> bool {
        true
    }

    fn open_link(&self, _out: &mut String, _link: &Link<'_>) {}

    fn close_link(&self, out: &mut String, link: &Link<'_>) {
        out.push_str(&format!(" ({})", link.url));
    }

    fn bare_link(&self, out: &mut String, url: &str) -> bool {
        out.push_str(url);
        true
    }

    fn text(&self, out: &mut String, text: &str, at_start: bool) {
        if at_start && text.starts_with(['>', '-', '*']) {
            out.push(ZERO_WIDTH_SPACE); // it would be a quote or a list
        }
        unmarked(text, |c| out.push(c));
    }

    fn inline_code(&self, out: &mut String, text: &str) {
        out.push_str(&format!("`{text}`"));
    }

    fn quote(&self, out: &mut String, depth: usize) {
        out.push_str(&"> ".repeat(depth));
    }

    fn bullet(&self) -> &'static str {
        "- "
    }

    /// There are no languages.
    fn fence(&self, _language: &str) -> Option<(String, &'static str)> {
        Some(("```".into(), "```"))
    }

    fn code_line(&self, out: &mut String, text: &str) {
        out.push_str(&broken(text, "```"));
    }
}
