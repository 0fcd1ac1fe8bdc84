//! Styles of a line as markers that open and close in order, whatever the order in which they were written.

use super::doc::Style;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Link(usize),
    Bold,
    Italic,
    Strike,
    Code,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    Open(Mark),
    Close(Mark),
    Text(&'a str),
}

const MARKS: usize = 5;

fn marks(style: Style) -> [Option<Mark>; MARKS] {
    [
        style.link.map(Mark::Link),
        style.bold.then_some(Mark::Bold),
        style.italic.then_some(Mark::Italic),
        style.strike.then_some(Mark::Strike),
        style.code.then_some(Mark::Code),
    ]
}

/// Where a mark is in [`marks`].
fn kind(mark: Mark) -> usize {
    match mark {
        Mark::Link(_) => 0,
        Mark::Bold => 1,
        Mark::Italic => 2,
        Mark::Strike => 3,
        Mark::Code => 4,
    }
}

/// Markers are kept open as long as they can be, and one that lasts longer is outside. What ends inside of a link is
/// inside of it, so that one link is never written as two. Code is innermost.
pub(super) fn steps<'a>(pieces: &[(&'a str, Style)]) -> Vec<Step<'a>> {
    let wanted: Vec<[Option<Mark>; MARKS]> = pieces.iter().map(|(_, style)| marks(*style)).collect();
    // Until which piece each mark lasts.
    let mut lasts = vec![[0; MARKS]; pieces.len() + 1];
    for at in (0..pieces.len()).rev() {
        for kind in 0..MARKS {
            let goes_on = wanted.get(at + 1).is_some_and(|next| next[kind] == wanted[at][kind]);
            lasts[at][kind] = if goes_on { lasts[at + 1][kind] } else { at };
        }
    }
    let mut steps = Vec::new();
    let mut open: Vec<Mark> = Vec::new();
    for (at, (text, _)) in pieces.iter().enumerate() {
        let wants = |mark: &Mark| wanted[at].contains(&Some(*mark));
        let mut keep = open.iter().position(|mark| !wants(mark)).unwrap_or(open.len());
        let missing = wanted[at].iter().flatten().any(|mark| !open.contains(mark));
        if let Some(code) = open.iter().position(|mark| *mark == Mark::Code).filter(|_| missing) {
            keep = keep.min(code);
        }
        if wanted[at][0].is_some_and(|link| !open.contains(&link)) {
            let ends_first = |mark: &Mark| lasts[at][kind(*mark)] < lasts[at][0];
            keep = keep.min(open.iter().position(ends_first).unwrap_or(keep));
        }
        for mark in open.drain(keep..).rev() {
            steps.push(Step::Close(mark));
        }
        let mut new: Vec<usize> =
            (0..MARKS).filter(|kind| wanted[at][*kind].is_some_and(|mark| !open.contains(&mark))).collect();
        new.sort_by_key(|kind| (*kind == MARKS - 1, std::cmp::Reverse(lasts[at][*kind])));
        for mark in new.into_iter().filter_map(|kind| wanted[at][kind]) {
            steps.push(Step::Open(mark));
            open.push(mark);
        }
        steps.push(Step::Text(text));
    }
    steps.extend(open.into_iter().rev().map(Step::Close));
    steps
}
