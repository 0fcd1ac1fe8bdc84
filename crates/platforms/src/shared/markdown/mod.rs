//! Markdown (`CommonMark`), as language models write it, in the dialects of chat vendors, cut into messages.
//!
//! ```
//! use frontdesk_platforms::shared::markdown::{Dialect, Unit, render};
//!
//! let parts = render(Dialect::Telegram, "**Done.** See [the log](https://example.org/log).", 4096, Unit::Utf16);
//! assert_eq!(parts[0].markup, r"*Done\.* See [the log](https://example.org/log)\.");
//! assert_eq!(parts[0].plain, "Done. See the log (https://example.org/log).");
//! ```
//!
//! 1. `parse`: text to a flat list of lines with styles (`doc`), by `pulldown-cmark`.
//! 2. `lower`: what the dialect does not have becomes text.
//! 3. `split`: finds the cuts. It renders what a message would be and measures that, so that limits hold for what is
//!    sent. Formatting that is cut is closed in one message and opened again in the next.
//! 4. `lines` with one `Syntax` per dialect, and `matrix` for HTML: a range of lines to markup.
//!
//! Line breaks of the text are kept: models write lines for a chat, not paragraphs for a page.

mod discord;
mod doc;
mod feishu;
mod inline;
mod lines;
mod lower;
mod matrix;
mod parse;
mod plain;
mod signal;
mod slack;
mod slice;
mod split;
mod table;
mod telegram;
/// A text that is shown as it is, although it is put into Markdown: a label, the name of a person.
pub fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            out.push('\\');
        }
        out.push(if c == '\n' { ' ' } else { c });
    }
    out
}

#[cfg(test)]
mod tests;
mod url;
mod whatsapp;

use frontdesk_wire::descriptor::LenUnit;

use lower::Abilities;
use slice::Slice;

pub use signal::{Styled, styled};

/// How a vendor writes formatted text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `MarkdownV2`
    Telegram,
    /// HTML, `org.matrix.custom.html`
    Matrix,
    Discord,
    /// mrkdwn
    Slack,
    WhatsApp,
    /// Of rich text and cards.
    Feishu,
    /// Text with styles beside it: [`styled`] reads the markup.
    Signal,
    /// No markup.
    Plain,
}

impl Dialect {
    pub const ALL: [Self; 8] = [
        Self::Telegram,
        Self::Matrix,
        Self::Discord,
        Self::Slack,
        Self::WhatsApp,
        Self::Feishu,
        Self::Signal,
        Self::Plain,
    ];

    fn abilities(self) -> Abilities {
        match self {
            Self::Telegram => telegram::ABILITIES,
            Self::Matrix => matrix::ABILITIES,
            Self::Discord => discord::ABILITIES,
            Self::Slack => slack::ABILITIES,
            Self::WhatsApp => whatsapp::ABILITIES,
            Self::Feishu => feishu::ABILITIES,
            Self::Signal => signal::ABILITIES,
            Self::Plain => plain::ABILITIES,
        }
    }

    fn markup(self, slice: &Slice<'_>) -> String {
        match self {
            Self::Telegram => lines::render(&telegram::Telegram, slice),
            Self::Matrix => matrix::render(slice),
            Self::Discord => lines::render(&discord::Discord, slice),
            Self::Slack => lines::render(&slack::Slack, slice),
            Self::WhatsApp => lines::render(&whatsapp::WhatsApp, slice),
            Self::Feishu => lines::render(&feishu::Feishu, slice),
            Self::Signal => lines::render(&signal::Signal, slice),
            Self::Plain => lines::render(&plain::Plain, slice),
        }
    }
}

/// How a vendor measures a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Chars,
    Utf16,
    Bytes,
}

impl Unit {
    pub fn measure(self, text: &str) -> usize {
        match self {
            Self::Chars => LenUnit::Chars.measure(text),
            Self::Utf16 => LenUnit::Utf16.measure(text),
            Self::Bytes => text.len(),
        }
    }
}

impl From<LenUnit> for Unit {
    fn from(unit: LenUnit) -> Self {
        match unit {
            LenUnit::Chars => Self::Chars,
            LenUnit::Utf16 => Self::Utf16,
        }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    pub markup: String,
    /// The same part of the text without markup, for a vendor that refuses the markup. It is within the limit too.
    pub plain: String,
}

/// The lowest limit that is kept: the longest form of one character (`&quot;`, or four bytes and a backslash) fits.
pub const LIMIT_MIN: usize = 8;

/// The text as messages, none of which is longer than `limit`. Empty if the text has nothing to show.
///
/// The markup is measured as it is sent. Telegram measures what is left after its markers were removed, which is never
/// longer, because each visible character is in the markup once.
pub fn render(dialect: Dialect, text: &str, limit: usize, unit: Unit) -> Vec<Rendered> {
    let limit = limit.max(LIMIT_MIN);
    let doc = lower::lower(parse::parse(text), &dialect.abilities(), |url| unit.measure(url) <= limit / 2);
    let message = |slice: &Slice<'_>| {
        let markup = dialect.markup(slice);
        let plain = if dialect == Dialect::Plain { markup.clone() } else { lines::render(&plain::Plain, slice) };
        Rendered { markup, plain }
    };
    let size = |slice: &Slice<'_>| {
        let Rendered { markup, plain } = message(slice);
        unit.measure(&markup).max(unit.measure(&plain))
    };
    let slices = split::Splitter::new(&doc, limit, size).slices();
    slices.iter().map(message).filter(|part| !part.plain.trim().is_empty()).collect()
}
