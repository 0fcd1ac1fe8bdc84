//! `MarkdownV2` of Telegram. Only `_` is used for italic and nothing for underline, so that `__` never occurs: Telegram
//! would always read it as underline.

use super::doc::{Kind, Style};
use super::inline::Mark;
use super::lines::{Link, Syntax};
use super::lower::Abilities;

/// Telegram silently drops links to others.
pub(super) const ABILITIES: Abilities =
    Abilities { tables: false, schemes: &["http", "https", "tg"], dotted_hosts: true };
const RESERVED: &str = "_*[]()~`>#+-=|{}.!\\";

pub(super) struct Telegram;

fn escaped(out: &mut String, text: &str, reserved: &str) {
    for c in text.chars() {
        if reserved.contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
}

impl Syntax for Telegram {
    /// Code cannot be part of another entity, nor contain one.
    fn style(&self, style: Style, kind: &Kind, _text: &str) -> Style {
        let bold = style.bold || matches!(kind, Kind::Heading(_));
        match style.code && style.link.is_none() {
            true => Style { code: true, ..Style::default() },
            false => Style { bold, code: false, ..style },
        }
    }

    fn marker(&self, mark: Mark) -> &'static str {
        match mark {
            Mark::Bold => "*",
            Mark::Italic => "_",
            Mark::Strike => "~",
            Mark::Code | Mark::Link(_) => "",
        }
    }

    fn open_link(&self, out: &mut String, _link: &Link<'_>) {
        out.push('[');
    }

    fn close_link(&self, out: &mut String, link: &Link<'_>) {
        out.push_str("](");
        escaped(out, link.url, ")\\");
        out.push(')');
    }

    fn text(&self, out: &mut String, text: &str, _at_start: bool) {
        escaped(out, text, RESERVED);
    }

    fn inline_code(&self, out: &mut String, text: &str) {
        out.push('`');
        escaped(out, text, "`\\");
        out.push('`');
    }

    /// Quotes cannot be nested: inner ones are shown as text.
    fn quote(&self, out: &mut String, depth: usize) {
        out.push('>');
        out.push_str(&"\\> ".repeat(depth - 1));
    }

    fn number(&self, number: u64) -> String {
        format!("{number}\\. ")
    }

    fn fence(&self, language: &str) -> Option<(String, &'static str)> {
        Some((format!("```{language}"), "```"))
    }

    fn code_line(&self, out: &mut String, text: &str) {
        escaped(out, text, "`\\");
    }
}
