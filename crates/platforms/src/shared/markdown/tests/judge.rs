//! What must hold for every input, dialect and limit.

use pulldown_cmark::{Event, Options, Parser};

use super::super::{Dialect, LIMIT_MIN, Rendered, Unit, render, styled};
use super::{html_judge, markdown_v2_judge};

pub(super) const UNITS: [Unit; 3] = [Unit::Chars, Unit::Utf16, Unit::Bytes];

/// Renders, and panics where a property does not hold.
pub(super) fn judged(dialect: Dialect, text: &str, limit: usize, unit: Unit) -> Vec<Rendered> {
    let parts = render(dialect, text, limit, unit);
    let mut shown = String::new();
    let mut plain = String::new();
    for part in &parts {
        for sent in [&part.markup, &part.plain] {
            let size = unit.measure(sent);
            assert!(size <= limit.max(LIMIT_MIN), "{dialect:?}: {size} is over {limit}: {sent:?}");
        }
        let visible = visible(dialect, &part.markup).unwrap_or_else(|why| {
            panic!("{dialect:?}: {why}\nmarkup: {}\ntext: {text:?}", part.markup);
        });
        if dialect == Dialect::Telegram {
            let without_quotes = |text: &str| ink(text).replace('>', "");
            assert_eq!(without_quotes(&visible), without_quotes(&part.plain), "of {text:?}");
        }
        shown.push_str(&visible);
        plain.push_str(&part.plain);
    }
    let expected = expected(text);
    assert_holds(&plain, &expected, text);
    assert_holds(&shown, &expected, text);
    parts
}

fn visible(dialect: Dialect, markup: &str) -> Result<String, String> {
    match dialect {
        Dialect::Telegram => markdown_v2_judge::visible(markup),
        Dialect::Matrix => html_judge::visible(markup),
        Dialect::Slack => Ok(markup.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")),
        Dialect::Signal => Ok(styled(markup).text),
        Dialect::Discord | Dialect::WhatsApp | Dialect::Feishu | Dialect::Plain => Ok(markup.to_owned()),
    }
}

fn ink(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// All visible characters of the text, in order.
fn expected(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut all = String::new();
    for event in Parser::new_ext(&text, options) {
        match event {
            Event::InlineHtml(text) if text.to_ascii_lowercase().starts_with("<br") => {}
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => all.push_str(&text),
            _ => {}
        }
    }
    ink(&all)
}

fn assert_holds(shown: &str, expected: &str, text: &str) {
    let mut written = shown.chars();
    for (at, c) in expected.char_indices() {
        assert!(written.any(|other| other == c), "lost: {:?} of {text:?}, shown {shown:?}", &expected[at..]);
    }
}
