//! Where a document is cut into messages. A cut is tried by rendering what is before it: the sizes are those of the
//! messages, and each message is complete by itself.

use unicode_segmentation::GraphemeCursor;

use super::doc::{Border, Doc, Kind};
use super::slice::{Pos, Slice};

/// Steps of one search; a cut is found in about four.
const STEPS_MAX: usize = 48;
/// From here on the place of a cut is halved, not estimated.
const ESTIMATES_MAX: usize = 6;

pub(super) struct Splitter<'a, F> {
    doc: &'a Doc,
    limit: usize,
    /// The size of a message.
    size: F,
    /// Bytes of text before each line, counting one for the end of a line.
    starts: Vec<usize>,
}

impl<'a, F: Fn(&Slice<'_>) -> usize> Splitter<'a, F> {
    pub(super) fn new(doc: &'a Doc, limit: usize, size: F) -> Self {
        let mut starts = Vec::with_capacity(doc.lines.len() + 1);
        starts.push(0);
        for line in &doc.lines {
            starts.push(starts.last().copied().unwrap_or_default() + line.text.len() + 1);
        }
        Self { doc, limit, size, starts }
    }

    pub(super) fn slices(&self) -> Vec<Slice<'a>> {
        let end = Pos { line: self.doc.lines.len(), at: 0 };
        let mut slices = Vec::new();
        let mut from = Pos { line: 0, at: 0 };
        while from < end {
            let slice = self.next(from, end);
            slices.push(slice);
            from = slice.to;
        }
        slices
    }

    fn next(&self, from: Pos, end: Pos) -> Slice<'a> {
        let whole = self.slice(from, end);
        let left = self.offset(end) - self.offset(from);
        // A character takes four bytes and one unit at least.
        if left / 4 <= self.limit && self.fits(&whole) {
            return whole;
        }
        let most = left.min(self.limit.saturating_mul(4).saturating_add(64));
        if let Some(hard) = self.search(from, most, |to| self.slice(from, to)) {
            let nice = self.slice(from, self.border(from, hard));
            return if self.fits(&nice) { nice } else { self.slice(from, hard) };
        }
        // Not even one character fits with its markup.
        let bare = |to| Slice { bare: true, ..self.slice(from, to) };
        let line = self.doc.lines[from.line].text.len() + 1 - from.at;
        let to = self.search(from, line.min(most), bare).unwrap_or_else(|| self.within_cluster(from, bare));
        bare(to)
    }

    fn slice(&self, from: Pos, to: Pos) -> Slice<'a> {
        Slice { doc: self.doc, from, to, bare: false }
    }

    fn fits(&self, slice: &Slice<'_>) -> bool {
        (self.size)(slice) <= self.limit
    }

    fn offset(&self, pos: Pos) -> usize {
        self.starts[pos.line] + pos.at
    }

    /// The last place at or before this many bytes of text that is not inside of a grapheme cluster. Only text behind
    /// `from` is looked at: clusters may be as long as the document.
    fn place(&self, from: Pos, offset: usize) -> Pos {
        let line = self.starts.partition_point(|start| *start <= offset) - 1;
        let Some(text) = self.doc.lines.get(line).map(|line| line.text.as_str()) else { return Pos { line, at: 0 } };
        let at = offset - self.starts[line];
        if at >= text.len() && !text.is_empty() {
            return Pos { line: line + 1, at: 0 };
        }
        let base = if line == from.line { from.at } else { 0 };
        let text = &text[base..];
        let mut at = text.floor_char_boundary(at - base);
        let mut cursor = GraphemeCursor::new(at, text.len(), true);
        if at > 0 && !cursor.is_boundary(text, 0).unwrap_or(true) {
            at = cursor.prev_boundary(text, 0).ok().flatten().unwrap_or(0);
        }
        Pos { line, at: base + at }
    }

    /// A place whose slice fits and is nearly full, or the best there is. `most`: bytes of text that may fit.
    fn search(&self, from: Pos, most: usize, slice: impl Fn(Pos) -> Slice<'a>) -> Option<Pos> {
        let start = self.offset(from);
        let (mut low, mut high) = (0, most + 1);
        let mut guess = self.limit.clamp(1, most);
        let mut best = None;
        for step in 0..STEPS_MAX {
            let to = self.place(from, start + guess);
            let size = if to <= from { 0 } else { (self.size)(&slice(to)) };
            if size <= self.limit {
                low = guess;
                if to > from {
                    best = best.max(Some(to));
                }
                if size * 16 >= self.limit * 15 {
                    break;
                }
            } else {
                high = guess;
            }
            if low + 1 >= high {
                break;
            }
            let estimate = guess.saturating_mul(self.limit) / size.max(1);
            guess = match step < ESTIMATES_MAX && size > 0 {
                true => estimate.clamp(low + 1, high - 1),
                false => low + (high - low) / 2,
            };
        }
        best
    }

    /// The best border before `hard`: between blocks, lines, sentences, words. One in the first quarter would make tiny
    /// messages; then a lesser border is better.
    fn border(&self, from: Pos, hard: Pos) -> Pos {
        let start = self.offset(from);
        let least = start + (self.offset(hard) - start) / 4;
        let mut best: Option<(Border, usize)> = None;
        for line in (from.line + 1..=hard.line).rev().take_while(|line| self.starts[*line] > least) {
            let Some(next) = self.doc.lines.get(line) else { continue };
            // A heading stays with what it is a heading of.
            let after_heading = matches!(self.doc.lines[line - 1].kind, Kind::Heading(_));
            let rank = if after_heading { Border::Cell } else { next.border };
            if rank > best.map_or(Border::Cell, |(rank, _)| rank) {
                best = Some((rank, line));
            }
            if rank == Border::Block {
                break;
            }
        }
        match best {
            Some((_, line)) => Pos { line, at: 0 },
            None => self.in_line(least, hard),
        }
    }

    fn in_line(&self, least: usize, hard: Pos) -> Pos {
        let Some(line) = self.doc.lines.get(hard.line) else { return hard };
        let least = least.saturating_sub(self.starts[hard.line]);
        if hard.at == 0 || line.text[hard.at..].starts_with(char::is_whitespace) {
            return hard;
        }
        let head = &line.text[..hard.at];
        let mut word = None;
        for (at, c) in head.char_indices().rev().take_while(|(at, _)| *at > least) {
            if !c.is_whitespace() {
                if "。！？".contains(c) {
                    return Pos { line: hard.line, at: at + c.len_utf8() };
                }
                continue;
            }
            if head[..at].ends_with(['.', '!', '?', ';', ':', '…']) {
                return Pos { line: hard.line, at: at + c.len_utf8() };
            }
            word = word.or(Some(at + c.len_utf8()));
        }
        Pos { line: hard.line, at: word.unwrap_or(hard.at) }
    }

    /// A cluster that is longer than a message is cut between its characters; one character is the least.
    fn within_cluster(&self, from: Pos, bare: impl Fn(Pos) -> Slice<'a>) -> Pos {
        let text = self.doc.lines[from.line].text.as_str();
        let to =
            |at: usize| if at < text.len() { Pos { line: from.line, at } } else { Pos { line: from.line + 1, at: 0 } };
        let first = text[from.at..].chars().next().map_or(from.at, |c| from.at + c.len_utf8());
        let (mut low, mut high) = (first, text.floor_char_boundary(from.at + self.limit * 4).max(first));
        while low < high {
            let middle = text.ceil_char_boundary(low + (high - low).div_ceil(2)).min(high);
            if self.fits(&bare(to(middle))) {
                low = middle;
            } else {
                high = text.floor_char_boundary(middle - 1).max(low);
            }
        }
        to(low)
    }
}
