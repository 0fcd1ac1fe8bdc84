//! Text without markup, readable by people: for platforms that have none, and for messages whose markup was refused.

use super::doc::{Kind, Style};
use super::inline::Mark;
use super::lines::{Link, Syntax};
use super::lower::Abilities;
use super::url;

pub(super) const ABILITIES: Abilities = Abilities { tables: false, schemes: &[], dotted_hosts: false };

pub(super) struct Plain;

impl Syntax for Plain {
    fn style(&self, style: Style, _kind: &Kind, _text: &str) -> Style {
        Style { link: style.link, ..Style::default() }
    }

    fn marker(&self, _mark: Mark) -> &'static str {
        ""
    }

    fn open_link(&self, _out: &mut String, _link: &Link<'_>) {}

    fn close_link(&self, out: &mut String, link: &Link<'_>) {
        if !url::is_shown_by(link.url, &link.text) {
            out.push_str(&format!(" ({})", link.url));
        }
    }

    fn text(&self, out: &mut String, text: &str, _at_start: bool) {
        out.push_str(text);
    }

    fn inline_code(&self, out: &mut String, text: &str) {
        out.push_str(text);
    }

    fn quote(&self, out: &mut String, depth: usize) {
        out.push_str(&"> ".repeat(depth));
    }

    fn fence(&self, _language: &str) -> Option<(String, &'static str)> {
        None
    }

    fn code_line(&self, out: &mut String, text: &str) {
        out.push_str(text);
    }

    fn quotes_code(&self) -> bool {
        true
    }
}
