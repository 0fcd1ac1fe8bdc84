//! A parsed text as a flat list of lines. Each line names the containers that it is in, so that any range of lines can
//! be rendered alone: this is what makes cutting simple.

use std::rc::Rc;

/// Quotes and list items may be nested this deep; deeper ones are read, but not shown as nested.
pub(super) const DEPTH_MAX: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Doc {
    pub(super) lines: Vec<Line>,
    /// Targets of links; a [`Style`] has the index.
    pub(super) links: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) path: Rc<[Container]>,
    /// Containers of the path from here on begin with this line.
    pub(super) begins: usize,
    pub(super) kind: Kind,
    /// Lines of one paragraph, code block or cell have the same number.
    pub(super) block: usize,
    /// A blank line is shown before it.
    pub(super) gap: bool,
    pub(super) border: Border,
    pub(super) text: String,
    pub(super) runs: Vec<Run>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Heading(u8),
    /// With its language, which may be empty.
    Code(Rc<str>),
    Rule,
}

/// How good the border before a line is as a place for a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Border {
    Cell,
    Line,
    Block,
}

/// Ids tell neighbours of the same kind apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Quote { id: usize },
    Item { id: usize, list: usize, number: Option<u64>, task: Option<bool>, loose: bool },
    Table { id: usize },
    Row { id: usize, head: bool },
    Cell { id: usize, head: bool },
}

/// The text up to `end` (in bytes), from the end of the run before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) end: usize,
    pub(super) style: Style,
}

/// Styles are sets, not a tree: nesting is decided when they are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) bold: bool,
    pub(super) italic: bool,
    pub(super) strike: bool,
    pub(super) code: bool,
    pub(super) link: Option<usize>,
}

impl Style {
    /// What both have.
    fn common(self, other: Self) -> Self {
        Self {
            bold: self.bold && other.bold,
            italic: self.italic && other.italic,
            strike: self.strike && other.strike,
            code: false,
            link: self.link.filter(|link| other.link == Some(*link)),
        }
    }
}

impl Line {
    pub(super) fn push(&mut self, text: &str, style: Style) {
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        let end = self.text.len();
        match self.runs.last_mut() {
            Some(last) if last.style == style => last.end = end,
            _ => self.runs.push(Run { end, style }),
        }
    }

    pub(super) fn is_code(&self) -> bool {
        matches!(self.kind, Kind::Code(_))
    }

    /// The runs as start, end and style.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (usize, usize, Style)> {
        let mut start = 0;
        self.runs.iter().map(move |run| {
            let piece = (start, run.end, run.style);
            start = run.end;
            piece
        })
    }

    /// Removes blanks at both ends, and takes styles off blanks where a style begins or ends: most dialects do not
    /// accept a marker next to a blank.
    pub(super) fn tidy(&mut self) {
        if self.is_code() {
            return;
        }
        let mut pieces: Vec<(&str, Style, bool)> = Vec::new();
        for (start, end, style) in self.pieces() {
            let text = &self.text[start..end];
            if style.code {
                pieces.push((text, style, false));
                continue;
            }
            let core = text.trim();
            if core.is_empty() {
                pieces.push((text, style, true));
                continue;
            }
            let lead = text.len() - text.trim_start().len();
            pieces.push((&text[..lead], style, true));
            pieces.push((core, style, false));
            pieces.push((&text[lead + core.len()..], style, true));
        }
        let Some(first) = pieces.iter().position(|piece| !piece.2) else {
            (self.text, self.runs) = (String::new(), Vec::new());
            return;
        };
        let last = pieces.iter().rposition(|piece| !piece.2).unwrap_or(first);
        let kept = &pieces[first..=last];
        // The style of the next piece that is not blank, for each piece.
        let mut after = vec![Style::default(); kept.len()];
        let mut next = Style::default();
        for (at, piece) in kept.iter().enumerate().rev() {
            after[at] = next;
            next = if piece.2 { next } else { piece.1 };
        }
        let mut done = Self { text: String::new(), runs: Vec::new(), ..self.clone_frame() };
        let mut before = Style::default();
        for (at, (text, style, blank)) in kept.iter().enumerate() {
            if *blank {
                done.push(text, style.common(before).common(after[at]));
            } else {
                done.push(text, *style);
                before = *style;
            }
        }
        *self = done;
    }

    /// The line without its text.
    pub(super) fn clone_frame(&self) -> Self {
        Self {
            path: Rc::clone(&self.path),
            begins: self.begins,
            kind: self.kind.clone(),
            block: self.block,
            gap: self.gap,
            border: self.border,
            text: String::new(),
            runs: Vec::new(),
        }
    }
}
