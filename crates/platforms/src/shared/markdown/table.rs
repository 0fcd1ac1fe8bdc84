//! Tables for dialects that have none: a block of code with aligned columns.

use std::rc::Rc;

use unicode_width::UnicodeWidthStr as _;

use super::doc::{Border, Container, Kind, Line, Style};

/// Cells are filled up to this width at most: one long cell must not make all rows long.
const WIDTH_MAX: usize = 32;

struct Row {
    head: bool,
    cells: Vec<String>,
}

/// The lines of one table, each of which is (a part of) a cell, as lines of code.
pub(super) fn monospace(lines: &[Line]) -> Vec<Line> {
    let Some(first) = lines.first() else { return Vec::new() };
    let rows = rows(lines);
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or_default();
    let mut widths = vec![1; columns];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(cell.width().min(WIDTH_MAX));
        }
    }
    let mut texts = Vec::with_capacity(rows.len() + 1);
    for row in &rows {
        texts.push(aligned(&row.cells, &widths));
        if row.head {
            texts.push(widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("-+-"));
        }
    }
    let outside = first.path.iter().take_while(|it| !matches!(it, Container::Table { .. })).count();
    let path: Rc<[Container]> = first.path[..outside].into();
    let line = |(at, text): (usize, String)| {
        let begins = if at == 0 { first.begins.min(outside) } else { outside };
        let (gap, border) = if at == 0 { (first.gap, first.border) } else { (false, Border::Line) };
        let kind = Kind::Code("".into());
        let block = first.block;
        let mut line =
            Line { path: Rc::clone(&path), begins, kind, block, gap, border, text: String::new(), runs: Vec::new() };
        line.push(&text, Style::default());
        line
    };
    texts.into_iter().enumerate().map(line).collect()
}

fn rows(lines: &[Line]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let (mut row, mut cell) = (None, None);
    for line in lines {
        for container in line.path.iter() {
            match container {
                Container::Row { id, head } if row != Some(*id) => {
                    row = Some(*id);
                    rows.push(Row { head: *head, cells: Vec::new() });
                }
                _ => {}
            }
        }
        let Some(cells) = rows.last_mut().map(|row| &mut row.cells) else { continue };
        let this = line.path.iter().rev().find_map(|container| match container {
            Container::Cell { id, .. } => Some(*id),
            _ => None,
        });
        match cells.last_mut().filter(|_| this == cell) {
            // A break in a cell.
            Some(last) => *last = format!("{last} {}", line.text),
            None => cells.push(line.text.clone()),
        }
        cell = this;
    }
    rows
}

/// A row up to its last cell that is not empty: a table of many empty cells must not become many blanks.
fn aligned(cells: &[String], widths: &[usize]) -> String {
    let filled = cells.iter().rposition(|cell| !cell.is_empty()).map_or(0, |last| last + 1);
    let mut out = String::new();
    for (at, (cell, width)) in cells[..filled].iter().zip(widths).enumerate() {
        if at > 0 {
            out.push_str(" | ");
        }
        out.push_str(cell);
        if at + 1 < filled {
            out.push_str(&" ".repeat(width.saturating_sub(cell.width())));
        }
    }
    out
}
