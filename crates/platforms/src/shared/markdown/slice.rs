//! A range of a document, line by line, as one message shows it.

use super::doc::{Container, Doc, Kind, Line, Style};

/// A place in a document: before the character at byte `at` of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pos {
    pub(super) line: usize,
    pub(super) at: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Slice<'a> {
    pub(super) doc: &'a Doc,
    pub(super) from: Pos,
    pub(super) to: Pos,
    /// Text only, for limits that markup does not fit into.
    pub(super) bare: bool,
}

/// A line, or the part of it that is in the slice.
pub(super) struct View<'a> {
    pub(super) line: &'a Line,
    /// Containers to show, and whether each begins here.
    pub(super) path: Vec<(Container, bool)>,
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) pieces: Vec<(&'a str, Style)>,
}

impl<'a> Slice<'a> {
    pub(super) fn views(&self) -> impl Iterator<Item = View<'a>> + use<'a> {
        let Self { doc, from, to, bare } = *self;
        let last = if to.at > 0 { to.line + 1 } else { to.line };
        let lines = doc.lines.get(from.line..last.min(doc.lines.len())).unwrap_or_default();
        let stale = lines.first().map(|line| begun_before(line, from.at)).unwrap_or_default();
        lines.iter().enumerate().map(move |(index, line)| {
            let start = if index == 0 { from.at } else { 0 };
            let end = if from.line + index == to.line { to.at } else { line.text.len() };
            view(line, start, end, &stale, bare)
        })
    }
}

/// Items whose marker an earlier message shows: what is left of them is not shown as an item again.
fn begun_before(line: &Line, at: usize) -> Vec<Container> {
    let count = if at > 0 { line.path.len() } else { line.begins };
    line.path[..count].iter().copied().filter(|it| matches!(it, Container::Item { .. })).collect()
}

fn view<'a>(line: &'a Line, start: usize, end: usize, stale: &[Container], bare: bool) -> View<'a> {
    let (mut start, mut end) = (start, end.max(start));
    if !line.is_code() {
        let text = &line.text[start..end];
        end = start + text.trim_end().len();
        start = end - line.text[start..end].trim_start().len();
    }
    let mut pieces = Vec::new();
    // A line may be the whole document: only its runs in this slice are visited.
    let first = line.runs.partition_point(|run| run.end <= start);
    let mut from = start;
    for run in line.runs[first..].iter().take_while(|_| end > start) {
        let to = run.end.min(end);
        pieces.push((&line.text[from..to], if bare { Style::default() } else { run.style }));
        from = to;
        if to == end {
            break;
        }
    }
    let path = if bare {
        Vec::new()
    } else {
        let begins = |at: usize| at >= line.begins && start == 0;
        let all = line.path.iter().enumerate().map(|(at, it)| (*it, begins(at)));
        all.filter(|(it, _)| !stale.contains(it)).collect()
    };
    let kind = if bare { Kind::Text } else { line.kind.clone() };
    View { line, path, kind, text: &line.text[start..end], pieces }
}
