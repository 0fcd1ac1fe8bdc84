//! The renderer of the dialects that are written line by line: all but HTML. A [`Syntax`] says how one writes.

use super::doc::{Container, Kind, Style};
use super::inline::{Mark, Step, steps};
use super::slice::{Slice, View};
use super::url;

/// Breaks a marker without being seen, in dialects that have no escapes.
pub(super) const ZERO_WIDTH_SPACE: char = '\u{200B}';
const RULE: &str = "———";

pub(super) struct Link<'a> {
    pub(super) url: &'a str,
    /// Its text in this line and message.
    pub(super) text: String,
}

pub(super) trait Syntax {
    /// What it shows of a style.
    fn style(&self, style: Style, kind: &Kind, text: &str) -> Style;
    /// The same marker opens and closes. Links and code have methods of their own.
    fn marker(&self, mark: Mark) -> &'static str;
    /// Whether a marker is one only if no letter is next to it.
    fn needs_border(&self, _mark: Mark) -> bool {
        false
    }
    fn open_link(&self, out: &mut String, link: &Link<'_>);
    fn close_link(&self, out: &mut String, link: &Link<'_>);
    /// A link whose text is its target, if it is written in another way.
    fn bare_link(&self, _out: &mut String, _url: &str) -> bool {
        false
    }
    /// `at_start`: nothing but prefixes is before it in its line.
    fn text(&self, out: &mut String, text: &str, at_start: bool);
    /// With its delimiters.
    fn inline_code(&self, out: &mut String, text: &str);
    fn heading(&self, _level: u8) -> &'static str {
        ""
    }
    fn quote(&self, out: &mut String, depth: usize);
    fn bullet(&self) -> &'static str {
        "• "
    }
    fn number(&self, number: u64) -> String {
        format!("{number}. ")
    }
    /// Opens and closes a block of code. `None`: code has no markup.
    fn fence(&self, language: &str) -> Option<(String, &'static str)>;
    fn code_line(&self, out: &mut String, text: &str);
    /// Whether a quote may have a block of code in it.
    fn quotes_code(&self) -> bool {
        false
    }
}

pub(super) fn render(syntax: &dyn Syntax, slice: &Slice<'_>) -> String {
    let mut out = String::new();
    let mut views = slice.views().peekable();
    let mut before: Option<View<'_>> = None;
    while let Some(view) = views.next() {
        let same_block = before.as_ref().is_some_and(|before| before.line.block == view.line.block);
        if let Some(before) = &before {
            separate(syntax, &mut out, before, &view);
        }
        let fence = match &view.kind {
            Kind::Code(language) => syntax.fence(language),
            _ => None,
        };
        if let Some((opening, closing)) = fence {
            let quotes = quotes(syntax, &view);
            if !same_block {
                if view.path.iter().any(|(it, begins)| *begins && matches!(it, Container::Item { .. })) {
                    prefix(syntax, &mut out, &view);
                    out.truncate(out.trim_end_matches(' ').len());
                    out.push('\n');
                }
                quote(syntax, &mut out, quotes);
                out.push_str(&opening);
                out.push('\n');
            }
            quote(syntax, &mut out, quotes);
            syntax.code_line(&mut out, view.text);
            if views.peek().is_none_or(|next| next.line.block != view.line.block) {
                out.push('\n');
                quote(syntax, &mut out, quotes);
                out.push_str(closing);
            }
        } else {
            prefix(syntax, &mut out, &view);
            content(syntax, &mut out, &view, slice);
        }
        before = Some(view);
    }
    out
}

fn separate(syntax: &dyn Syntax, out: &mut String, before: &View<'_>, view: &View<'_>) {
    let innermost = |view: &View<'_>| view.path.last().map(|(it, _)| *it);
    let in_row = |view: &View<'_>| view.path.iter().rev().nth(1).map(|(it, _)| *it);
    if let (Some(Container::Cell { .. }), Some(Container::Cell { .. })) = (innermost(before), innermost(view))
        && in_row(before) == in_row(view)
    {
        out.push_str(if innermost(before) == innermost(view) { " " } else { " | " });
        return;
    }
    out.push('\n');
    if view.line.gap {
        let common = before.path.iter().zip(&view.path).take_while(|(a, b)| a.0 == b.0);
        let shared = common.filter(|(it, _)| matches!(it.0, Container::Quote { .. })).count();
        quote(syntax, out, shared.min(quotes(syntax, before)).min(quotes(syntax, view)));
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
}

fn quotes(syntax: &dyn Syntax, view: &View<'_>) -> usize {
    let is_code = matches!(view.kind, Kind::Code(_));
    if is_code && !syntax.quotes_code() {
        return 0;
    }
    view.path.iter().filter(|(it, _)| matches!(it, Container::Quote { .. })).count()
}

fn quote(syntax: &dyn Syntax, out: &mut String, depth: usize) {
    if depth > 0 {
        syntax.quote(out, depth);
    }
}

/// Quotes come first: dialects know them only at the beginning of a line.
fn prefix(syntax: &dyn Syntax, out: &mut String, view: &View<'_>) {
    let quotes = quotes(syntax, view);
    quote(syntax, out, quotes);
    let is_quote = |it: &(Container, bool)| matches!(it.0, Container::Quote { .. });
    let outside = view.path.iter().position(is_quote).filter(|_| quotes > 0).unwrap_or_default();
    for (at, (container, begins)) in view.path.iter().enumerate() {
        let Container::Item { number, task, .. } = container else { continue };
        if at < outside && !begins {
            continue; // what is around the quote does not indent its text
        }
        let shown = match (number, task) {
            (Some(number), _) => syntax.number(*number),
            (None, None) => syntax.bullet().to_owned(),
            (None, Some(_)) => String::new(),
        };
        let state = match task {
            Some(true) => "☑ ",
            Some(false) => "☐ ",
            None => "",
        };
        if *begins {
            out.push_str(&shown);
            out.push_str(state);
        } else {
            let width = shown.chars().filter(|c| *c != '\\').count() + state.chars().count();
            out.extend(std::iter::repeat_n(' ', width));
        }
    }
}

fn content(syntax: &dyn Syntax, out: &mut String, view: &View<'_>, slice: &Slice<'_>) {
    match &view.kind {
        Kind::Rule => return out.push_str(RULE),
        Kind::Code(_) => return syntax.code_line(out, view.text),
        Kind::Heading(level) if !view.text.is_empty() => out.push_str(syntax.heading(*level)),
        Kind::Heading(_) | Kind::Text => {}
    }
    let mut pieces: Vec<(&str, Style)> = Vec::with_capacity(view.pieces.len());
    let (mut start, mut end) = (0, 0);
    for (text, style) in &view.pieces {
        let code = style.code && !text.trim().is_empty();
        let style = syntax.style(Style { code, ..*style }, &view.kind, text);
        end += text.len();
        // Pieces that this dialect does not tell apart are one: two pairs of markers would touch.
        if let Some(last) = pieces.last_mut().filter(|last| last.1 == style) {
            last.0 = &view.text[start..end];
        } else {
            start = end - text.len();
            pieces.push((text, style));
        }
    }
    let mut state = Inline { link: None, in_code: false, closed: false, at_start: true };
    let all = steps(&pieces);
    for (at, step) in all.iter().enumerate() {
        state.write(syntax, out, *step, |link| link_at(&all[at..], link, slice));
    }
}

fn link_at<'a>(steps: &[Step<'_>], link: usize, slice: &Slice<'a>) -> Link<'a> {
    let until = steps.iter().take_while(|step| **step != Step::Close(Mark::Link(link)));
    let text = until.filter_map(|step| if let Step::Text(text) = step { Some(*text) } else { None }).collect();
    Link { url: &slice.doc.links[link], text }
}

struct Inline<'a> {
    /// The link that is open, and whether its text is written with it.
    link: Option<(Link<'a>, bool)>,
    in_code: bool,
    /// A marker that needs a border was written last.
    closed: bool,
    at_start: bool,
}

impl<'a> Inline<'a> {
    fn write(
        &mut self,
        syntax: &dyn Syntax,
        out: &mut String,
        step: Step<'_>,
        link_at: impl FnOnce(usize) -> Link<'a>,
    ) {
        match step {
            Step::Open(Mark::Link(id)) => {
                let link = link_at(id);
                let whole = url::is_shown_by(link.url, &link.text) && syntax.bare_link(out, link.url);
                if !whole {
                    syntax.open_link(out, &link);
                }
                self.link = Some((link, whole));
            }
            Step::Close(Mark::Link(_)) => {
                if let Some((link, false)) = self.link.take() {
                    syntax.close_link(out, &link);
                }
            }
            Step::Open(mark) => {
                if syntax.needs_border(mark) && out.ends_with(char::is_alphanumeric) {
                    out.push(ZERO_WIDTH_SPACE);
                }
                match mark {
                    Mark::Code => self.in_code = true,
                    _ => out.push_str(syntax.marker(mark)),
                }
                self.closed = false;
            }
            Step::Close(mark) => {
                match mark {
                    Mark::Code => self.in_code = false,
                    _ => out.push_str(syntax.marker(mark)),
                }
                self.closed = syntax.needs_border(mark);
            }
            Step::Text(text) => {
                if std::mem::take(&mut self.closed) && text.starts_with(char::is_alphanumeric) {
                    out.push(ZERO_WIDTH_SPACE);
                }
                let is_written = matches!(self.link, Some((_, true)));
                if self.in_code {
                    syntax.inline_code(out, text);
                } else if !is_written {
                    syntax.text(out, text, self.at_start);
                }
                self.at_start = false;
            }
        }
    }
}
