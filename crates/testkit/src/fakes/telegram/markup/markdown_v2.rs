//! `MarkdownV2`, by the rules and with the error texts of the vendor's server.

use super::{Entity, Formatted, link, utf16_len};

const RESERVED: &str = "_*[]()~`>#+-=|{}.!\n";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Bold,
    Italic,
    Underline,
    Strikethrough,
    Spoiler,
    Code,
    Pre,
    PreCode,
    TextUrl,
    CustomEmoji,
    BlockQuote,
}

struct Open {
    kind: Kind,
    argument: Option<String>,
    /// In the text that comes out: UTF-16 units and bytes.
    offset: usize,
    begin: usize,
    /// In the text that went in.
    byte_offset: usize,
}

struct Parser<'a> {
    input: &'a str,
    at: usize,
    out: String,
    open: Vec<Open>,
    entities: Vec<Entity>,
    at_line_start: bool,
}

pub(super) fn parse(input: &str) -> Result<Formatted, String> {
    let mut parser =
        Parser { input, at: 0, out: String::new(), open: Vec::new(), entities: Vec::new(), at_line_start: true };
    while let Some(c) = parser.input[parser.at..].chars().next() {
        parser.step(c)?;
    }
    if parser.open.last().is_some_and(|open| open.kind == Kind::BlockQuote) {
        parser.close_quote(false);
    }
    if let Some(open) = parser.open.last() {
        return Err(format!("Can't find end of {:?} entity at byte offset {}", open.kind, open.byte_offset));
    }
    Ok(Formatted { text: parser.out, entities: parser.entities })
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.input[self.at..]
    }

    fn top(&self) -> Option<Kind> {
        self.open.last().map(|open| open.kind)
    }

    fn push(&mut self, c: char) {
        self.out.push(c);
        self.at_line_start = c == '\n';
    }

    fn step(&mut self, c: char) -> Result<(), String> {
        if c == '\\' && self.rest()[1..].starts_with(|next: char| ('\u{1}'..='\u{7e}').contains(&next)) {
            let next = self.rest()[1..].chars().next().unwrap_or_default();
            self.at += 2;
            self.push(next);
            self.at_line_start = false;
            return Ok(());
        }
        let in_code = matches!(self.top(), Some(Kind::Code | Kind::Pre | Kind::PreCode));
        let is_reserved = if in_code { c == '`' } else { RESERVED.contains(c) };
        if !is_reserved {
            self.at += c.len_utf8();
            self.push(c);
            return Ok(());
        }
        if let Some(kind) = self.top().filter(|kind| self.ends(*kind, c)) {
            return self.close(kind);
        }
        if c == '\n' {
            self.at += 1;
            self.push(c);
            let goes_on = self.rest().starts_with('>');
            if self.top() == Some(Kind::BlockQuote) && !goes_on {
                self.out.pop();
                self.close_quote(false);
                self.push('\n');
            } else if goes_on && self.open.iter().any(|open| open.kind == Kind::BlockQuote) {
                self.at += 1;
            }
            return Ok(());
        }
        self.begin(c)
    }

    fn ends(&self, kind: Kind, c: char) -> bool {
        let rest = self.rest();
        match kind {
            Kind::Bold => c == '*',
            Kind::Italic => c == '_' && !rest.starts_with("__"),
            Kind::Underline => rest.starts_with("__"),
            Kind::Strikethrough => c == '~',
            Kind::Spoiler => rest.starts_with("||"),
            Kind::Code => c == '`',
            Kind::Pre | Kind::PreCode => rest.starts_with("```"),
            Kind::TextUrl | Kind::CustomEmoji => c == ']',
            // "||" at the end of the last line makes a quotation that is collapsed at first.
            Kind::BlockQuote => {
                rest.starts_with("||")
                    && (rest.len() == 2 || (rest[2..].starts_with('\n') && !rest[3..].starts_with('>')))
            }
        }
    }

    fn begin(&mut self, c: char) -> Result<(), String> {
        let rest = self.rest();
        let byte_offset = self.at;
        let (kind, length) = match c {
            '_' if rest.starts_with("__") => (Kind::Underline, 2),
            '_' => (Kind::Italic, 1),
            '*' => (Kind::Bold, 1),
            '~' => (Kind::Strikethrough, 1),
            '|' if rest.starts_with("||") => (Kind::Spoiler, 2),
            '[' => (Kind::TextUrl, 1),
            '!' if rest.starts_with("![") => (Kind::CustomEmoji, 2),
            '`' if rest.starts_with("```") => (Kind::Pre, 3),
            '`' => (Kind::Code, 1),
            '>' if self.at_line_start && self.open.is_empty() => (Kind::BlockQuote, 1),
            _ => return Err(format!("Character '{c}' is reserved and must be escaped with the preceding '\\'")),
        };
        self.at += length;
        let mut open = Open { kind, argument: None, offset: utf16_len(&self.out), begin: self.out.len(), byte_offset };
        if kind == Kind::Pre {
            let rest = self.rest();
            let end = rest.find(|c: char| c.is_whitespace() || c == '`').unwrap_or(rest.len());
            if end > 0 && rest[end..].starts_with(char::is_whitespace) {
                open.kind = Kind::PreCode;
                open.argument = Some(rest[..end].to_owned());
                self.at += end;
            }
            if self.rest().starts_with('\n') {
                self.at += 1;
            }
        }
        self.open.push(open);
        Ok(())
    }

    fn close(&mut self, kind: Kind) -> Result<(), String> {
        if kind == Kind::BlockQuote {
            self.at += 2;
            self.close_quote(true);
            return Ok(());
        }
        let Some(open) = self.open.pop() else { return Ok(()) };
        self.at += match kind {
            Kind::Underline | Kind::Spoiler => 2,
            Kind::Pre | Kind::PreCode => 3,
            _ => 1,
        };
        let length = utf16_len(&self.out[open.begin..]);
        let is_link = matches!(kind, Kind::TextUrl | Kind::CustomEmoji);
        let url = if is_link { self.url(&open)? } else { String::new() };
        if length == 0 {
            return Ok(());
        }
        let plain = |kind, argument| Some(Entity { kind, offset: open.offset, length, argument });
        let entity = match kind {
            Kind::Bold => plain("bold", None),
            Kind::Italic => plain("italic", None),
            Kind::Underline => plain("underline", None),
            Kind::Strikethrough => plain("strikethrough", None),
            Kind::Spoiler => plain("spoiler", None),
            Kind::Code => plain("code", None),
            Kind::Pre | Kind::PreCode => plain("pre", open.argument.clone()),
            Kind::TextUrl => link(&url, open.offset, length),
            Kind::CustomEmoji => match url.strip_prefix("tg://emoji?id=") {
                Some(id) => plain("custom_emoji", Some(id.to_owned())),
                None => return Err("Custom emoji entity must contain a tg://emoji URL".to_owned()),
            },
            Kind::BlockQuote => None,
        };
        self.entities.extend(entity);
        Ok(())
    }

    /// What follows the text of a link in parentheses; without it the text is the URL.
    fn url(&mut self, open: &Open) -> Result<String, String> {
        if !self.rest().starts_with('(') {
            return Ok(self.out[open.begin..].to_owned());
        }
        self.at += 1;
        let begin = self.at;
        let mut url = String::new();
        loop {
            let mut rest = self.rest().chars();
            match rest.next() {
                None => return Err(format!("Can't find end of a URL at byte offset {begin}")),
                Some(')') => {
                    self.at += 1;
                    return Ok(url);
                }
                Some('\\') if rest.next().is_some_and(|next| next.is_ascii()) => {
                    url.extend(self.rest()[1..].chars().next());
                    self.at += 2;
                }
                Some(c) => {
                    url.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
    }

    fn close_quote(&mut self, collapsed: bool) {
        let Some(open) = self.open.pop() else { return };
        let length = utf16_len(&self.out[open.begin..]);
        let kind = if collapsed { "expandable_blockquote" } else { "blockquote" };
        if length > 0 {
            self.entities.push(Entity { kind, offset: open.offset, length, argument: None });
        }
    }
}
