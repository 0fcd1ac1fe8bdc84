//! Text to lines, by the events of `pulldown-cmark`.

use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;

use pulldown_cmark::{CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};

use super::doc::{Border, Container, DEPTH_MAX, Doc, Kind, Line, Style};
use super::url;

/// A longer info string is not treated as the language of a code block.
const LANGUAGE_MAX: usize = 32;

pub(super) fn parse(text: &str) -> Doc {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (doc, unused) = parse_once(&text, Vec::new());
    // Which definitions are used is known at the end only.
    if unused.is_empty() { doc } else { parse_once(&text, unused).0 }
}

/// The document, and the definitions that no link uses. Those in `as_text` are shown: `[10:30]: started` was meant as
/// text.
fn parse_once(text: &str, mut as_text: Vec<Range<usize>>) -> (Doc, Vec<Range<usize>>) {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let parser = Parser::new_ext(text, options);
    let known = parser.reference_definitions().iter();
    let definitions: Vec<(String, Range<usize>)> =
        known.map(|(_, definition)| (definition.dest.to_string(), definition.span.clone())).collect();
    as_text.sort_by_key(|span| std::cmp::Reverse(span.start));
    let mut builder = Builder { source: text, as_text, ..Builder::default() };
    for (event, range) in parser.into_offset_iter() {
        let reached = if matches!(event, Event::End(_)) { range.end } else { range.start };
        builder.show_definitions(reached);
        builder.take(event, range);
    }
    builder.show_definitions(usize::MAX);
    builder.end_line();
    let unused = definitions.into_iter().filter(|(target, _)| !builder.referred.contains(target));
    (builder.doc, unused.map(|(_, span)| span).collect())
}

struct Open {
    container: Container,
    /// It has a line already.
    begun: bool,
}

/// What decides about blank lines, for each quote and item, however deep.
struct Frame {
    begun: bool,
    loose: bool,
    /// The border before its first line is that of its parent.
    first: bool,
    /// It is in the path.
    shown: bool,
}

#[derive(Default)]
struct Builder<'a> {
    source: &'a str,
    /// Definitions to show, the next one last.
    as_text: Vec<Range<usize>>,
    doc: Doc,
    open: Vec<Open>,
    frames: Vec<Frame>,
    /// Id and next number of each open list, and whether it had an item.
    lists: Vec<(usize, Option<u64>, bool)>,
    path: Option<Rc<[Container]>>,
    line: Option<Line>,
    kind: Option<Kind>,
    block: usize,
    block_begun: bool,
    next_id: usize,
    style: [usize; 3],
    /// Open links and images, with the length of all text before them.
    links: Vec<(usize, usize)>,
    written: usize,
    /// Targets of the links that name a definition.
    referred: HashSet<String>,
    in_head: bool,
    cells: usize,
    /// Where the latest cell of a table ends in the source.
    cell_end: usize,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => {
                match tag {
                    TagEnd::TableCell => self.cell_end = range.end,
                    TagEnd::TableRow => self.add_surplus(range.end),
                    _ => {}
                }
                self.end(tag);
            }
            Event::Text(text) | Event::Html(text) => self.text(&text, false),
            Event::Code(text) => self.text(&text, true),
            Event::InlineHtml(text) if is_break(&text) => self.break_line(),
            Event::InlineHtml(text) => self.text(&text, false),
            Event::SoftBreak | Event::HardBreak => self.break_line(),
            Event::Rule => {
                self.begin_block(Kind::Rule);
                self.line();
                self.end_line();
                self.kind = None;
            }
            Event::TaskListMarker(done) => {
                let shown = self.frames.last().is_some_and(|frame| frame.shown);
                if let Some(Open { container: Container::Item { task, .. }, .. }) =
                    self.open.last_mut().filter(|_| shown)
                {
                    *task = Some(done);
                    self.path = None;
                }
            }
            // Behind options that are not set.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text, false);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => {
                if let Some(frame) = self.frames.last_mut().filter(|frame| !frame.begun) {
                    frame.loose = true;
                    if let Some(Open { container: Container::Item { loose, .. }, .. }) =
                        self.open.last_mut().filter(|_| frame.shown)
                    {
                        *loose = true;
                        self.path = None;
                    }
                }
                self.begin_block(Kind::Text);
            }
            Tag::Heading { level, .. } => self.begin_block(Kind::Heading(level as u8)),
            Tag::CodeBlock(kind) => {
                let info = match &kind {
                    CodeBlockKind::Fenced(info) => info.split([' ', ',', '\t']).next().unwrap_or_default(),
                    CodeBlockKind::Indented => "",
                };
                let is_name = |c: char| c.is_ascii_alphanumeric() || "+-_.#".contains(c);
                let language = if info.len() <= LANGUAGE_MAX && info.chars().all(is_name) { info } else { "" };
                self.begin_block(Kind::Code(language.into()));
            }
            Tag::BlockQuote(_) => {
                let id = self.id();
                self.enter(Container::Quote { id }, true, true);
            }
            Tag::List(first) => {
                self.end_line();
                let id = self.id();
                self.lists.push((id, first, false));
            }
            Tag::Item => {
                let id = self.id();
                let Some((list, number, had_item)) = self.lists.last_mut() else { return };
                let (list, this, first) = (*list, *number, !*had_item);
                *number = number.map(|number| number.saturating_add(1));
                *had_item = true;
                self.enter(Container::Item { id, list, number: this, task: None, loose: false }, false, first);
            }
            Tag::Table(_) => self.push_container(|id| Container::Table { id }),
            Tag::TableHead => {
                self.in_head = true;
                self.cells = 0;
                self.push_container(|id| Container::Row { id, head: true });
            }
            Tag::TableRow => {
                self.in_head = false;
                self.cells = 0;
                self.push_container(|id| Container::Row { id, head: false });
            }
            Tag::TableCell => self.begin_cell(),
            Tag::Emphasis => self.style[1] += 1,
            Tag::Strong => self.style[0] += 1,
            Tag::Strikethrough => self.style[2] += 1,
            Tag::Link { link_type, dest_url, .. } | Tag::Image { link_type, dest_url, .. } => {
                if !matches!(link_type, LinkType::Inline | LinkType::Autolink | LinkType::Email) {
                    self.referred.insert(dest_url.to_string());
                }
                let scheme = if link_type == LinkType::Email { "mailto:" } else { "" };
                self.doc.links.push(format!("{scheme}{}", url::encoded(&dest_url)));
                self.links.push((self.doc.links.len() - 1, self.written));
            }
            _ => self.begin_block(Kind::Text),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis => self.style[1] = self.style[1].saturating_sub(1),
            TagEnd::Strong => self.style[0] = self.style[0].saturating_sub(1),
            TagEnd::Strikethrough => self.style[2] = self.style[2].saturating_sub(1),
            TagEnd::Link | TagEnd::Image => {
                // A link without text shows its target.
                if let Some((link, before)) = self.links.last().copied()
                    && before == self.written
                {
                    let target = self.doc.links[link].clone();
                    self.text(&target, false);
                }
                self.links.pop();
            }
            TagEnd::Item | TagEnd::BlockQuote(_) => {
                self.end_line();
                if tag == TagEnd::Item && self.frames.last().is_some_and(|frame| !frame.begun && frame.shown) {
                    self.begin_block(Kind::Text);
                    self.line(); // the marker of an empty item is visible
                    self.end_line();
                }
                if self.frames.pop().is_some_and(|frame| frame.shown) {
                    self.leave();
                }
                self.kind = None;
            }
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
            }
            TagEnd::TableCell => self.end_cell(),
            TagEnd::Table | TagEnd::TableHead | TagEnd::TableRow => {
                self.end_line();
                self.leave();
                self.kind = None;
            }
            _ => {
                self.end_line();
                self.kind = None;
            }
        }
    }

    /// Those that are before this place of the source, as they were written.
    fn show_definitions(&mut self, reached: usize) {
        while let Some(span) = self.as_text.pop_if(|span| span.start < reached) {
            self.begin_block(Kind::Text);
            let definition = self.source.get(span).unwrap_or_default();
            self.text(definition.trim_end(), false);
            self.end_line();
            self.kind = None;
        }
    }

    fn begin_cell(&mut self) {
        let head = self.in_head;
        self.push_container(|id| Container::Cell { id, head });
        self.begin_block(Kind::Text);
        self.cells += 1;
    }

    fn end_cell(&mut self) {
        self.line(); // empty cells keep the others in their columns
        self.end_line();
        self.leave();
    }

    /// The parser emits no events for surplus cells of a row. They are shown as one more cell with their source text.
    fn add_surplus(&mut self, row_end: usize) {
        let surplus = self.source.get(self.cell_end..row_end).unwrap_or_default();
        let surplus = surplus.trim_matches(|c: char| c == '|' || c.is_whitespace());
        if !surplus.is_empty() {
            let surplus = surplus.to_owned();
            self.begin_cell();
            self.text(&surplus, false);
            self.end_cell();
        }
    }

    fn id(&mut self) -> usize {
        self.next_id += 1;
        self.next_id
    }

    fn enter(&mut self, container: Container, loose: bool, first: bool) {
        self.end_line();
        let shown = self.open.len() < DEPTH_MAX;
        self.frames.push(Frame { begun: false, loose, first, shown });
        if shown {
            self.open.push(Open { container, begun: false });
            self.path = None;
        }
        self.kind = None;
    }

    fn push_container(&mut self, container: impl FnOnce(usize) -> Container) {
        self.end_line();
        let container = container(self.id());
        self.open.push(Open { container, begun: false });
        self.path = None;
    }

    fn leave(&mut self) {
        self.open.pop();
        self.path = None;
    }

    fn begin_block(&mut self, kind: Kind) {
        self.end_line();
        self.block += 1;
        self.block_begun = false;
        self.kind = Some(kind);
    }

    /// Whether a blank line comes before a block that begins here.
    fn gap(&self) -> bool {
        for frame in self.frames.iter().rev() {
            if frame.begun || !frame.first {
                return frame.loose;
            }
        }
        true
    }

    fn border(&self) -> (bool, Border) {
        if self.block_begun {
            return (false, Border::Line);
        }
        let in_table = |open: &Open| matches!(open.container, Container::Table { .. }) && open.begun;
        let table = self.open.iter().rev().take(3).any(in_table);
        if table {
            return (false, if self.cells > 1 { Border::Cell } else { Border::Line });
        }
        let gap = self.gap() && !self.doc.lines.is_empty();
        (gap, if gap { Border::Block } else { Border::Line })
    }

    /// The line that is written to.
    fn line(&mut self) -> &mut Line {
        if self.line.is_none() {
            if self.kind.is_none() {
                self.kind = Some(Kind::Text); // text of a tight item has no paragraph
                self.block += 1;
                self.block_begun = false;
            }
            let (gap, border) = self.border();
            let path =
                Rc::clone(self.path.get_or_insert_with(|| self.open.iter().map(|open| open.container).collect()));
            let begins = self.open.iter().position(|open| !open.begun).unwrap_or(self.open.len());
            self.open[begins..].iter_mut().for_each(|open| open.begun = true);
            for frame in self.frames.iter_mut().rev() {
                if std::mem::replace(&mut frame.begun, true) {
                    break; // those around it have begun before: no need to visit thousands of them
                }
            }
            self.block_begun = true;
            let kind = self.kind.clone().unwrap_or(Kind::Text);
            self.line = Some(Line {
                path,
                begins,
                kind,
                block: self.block,
                gap,
                border,
                text: String::new(),
                runs: Vec::new(),
            });
        }
        self.line.get_or_insert_with(|| unreachable!("it was made above"))
    }

    fn text(&mut self, text: &str, code: bool) {
        let [bold, italic, strike] = self.style.map(|count| count > 0);
        // An image in a link leads where the link does.
        let link = self.links.first().map(|(link, _)| *link);
        let style = Style { bold, italic, strike, code, link };
        self.written += text.len();
        let mut rest = text;
        while let Some((line, after)) = rest.split_once('\n') {
            self.line().push(line, style);
            self.end_line();
            rest = after;
        }
        if !rest.is_empty() {
            self.line().push(rest, style);
        }
    }

    fn break_line(&mut self) {
        self.line();
        self.end_line();
    }

    fn end_line(&mut self) {
        if let Some(mut line) = self.line.take() {
            line.tidy();
            url::mark_bare(&mut line, &mut self.doc.links);
            self.doc.lines.push(line);
        }
    }
}

fn is_break(html: &str) -> bool {
    let name = html.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or_default();
    name.trim_end_matches('/').trim().eq_ignore_ascii_case("br")
}
