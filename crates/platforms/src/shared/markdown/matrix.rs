//! The HTML of Matrix (`org.matrix.custom.html`): a few tags, everything else escaped.

use super::doc::{Container, Kind, Style};
use super::inline::{Mark, Step, steps};
use super::lower::Abilities;
use super::slice::{Slice, View};

pub(super) const ABILITIES: Abilities =
    Abilities { tables: true, schemes: &["http", "https", "mailto", "matrix"], dotted_hosts: false };

pub(super) fn render(slice: &Slice<'_>) -> String {
    let mut out = String::new();
    let mut open: Vec<Container> = Vec::new();
    let mut views = slice.views().peekable();
    let mut block = None;
    while let Some(view) = views.next() {
        let path: Vec<Container> = view.path.iter().map(|(it, _)| *it).collect();
        if block == Some(view.line.block) {
            out.push_str(if matches!(view.kind, Kind::Code(_)) { "\n" } else { "<br>" });
        } else {
            enter(&mut out, &mut open, &path);
            begin(&mut out, &view, slice.bare);
        }
        content(&mut out, &view, slice);
        if views.peek().is_none_or(|next| next.line.block != view.line.block) {
            finish(&mut out, &view, slice.bare);
        }
        block = Some(view.line.block);
    }
    enter(&mut out, &mut open, &[]);
    out
}

/// Closes and opens containers, from those of the line before to those of this one.
fn enter(out: &mut String, open: &mut Vec<Container>, path: &[Container]) {
    let shared = open.iter().zip(path).take_while(|(a, b)| a == b).count();
    // An item of the same list: the list stays open.
    let same_list = match (open.get(shared), path.get(shared)) {
        (Some(Container::Item { list, .. }), Some(Container::Item { list: next, .. })) => list == next,
        _ => false,
    };
    for (at, container) in open.drain(shared..).enumerate().collect::<Vec<_>>().into_iter().rev() {
        out.push_str(match container {
            Container::Quote { .. } => "</blockquote>",
            Container::Item { .. } if at == 0 && same_list => "</li>",
            Container::Item { number: Some(_), .. } => "</li></ol>",
            Container::Item { number: None, .. } => "</li></ul>",
            Container::Table { .. } => "</table>",
            Container::Row { head: true, .. } => "</tr></thead>",
            Container::Row { head: false, .. } => "</tr>",
            Container::Cell { head: true, .. } => "</th>",
            Container::Cell { head: false, .. } => "</td>",
        });
    }
    for (at, container) in path.iter().enumerate().skip(shared) {
        match container {
            Container::Quote { .. } => out.push_str("<blockquote>"),
            Container::Item { .. } if at == shared && same_list => out.push_str("<li>"),
            Container::Item { number: Some(1), .. } => out.push_str("<ol><li>"),
            Container::Item { number: Some(first), .. } => out.push_str(&format!("<ol start=\"{first}\"><li>")),
            Container::Item { number: None, .. } => out.push_str("<ul><li>"),
            Container::Table { .. } => out.push_str("<table>"),
            Container::Row { head: true, .. } => out.push_str("<thead><tr>"),
            Container::Row { head: false, .. } => out.push_str("<tr>"),
            Container::Cell { head: true, .. } => out.push_str("<th>"),
            Container::Cell { head: false, .. } => out.push_str("<td>"),
        }
        if let Container::Item { task: Some(done), .. } = container {
            out.push_str(if *done { "☑ " } else { "☐ " });
        }
        open.push(*container);
    }
}

fn is_paragraph(view: &View<'_>) -> bool {
    !matches!(view.path.last(), Some((Container::Item { loose: false, .. } | Container::Cell { .. }, _)))
}

fn begin(out: &mut String, view: &View<'_>, bare: bool) {
    match &view.kind {
        Kind::Heading(level) => out.push_str(&format!("<h{level}>")),
        Kind::Code(language) if language.is_empty() => out.push_str("<pre><code>"),
        Kind::Code(language) => out.push_str(&format!("<pre><code class=\"language-{language}\">")),
        Kind::Rule => out.push_str("<hr>"),
        Kind::Text if !bare && is_paragraph(view) => out.push_str("<p>"),
        Kind::Text => {}
    }
}

fn finish(out: &mut String, view: &View<'_>, bare: bool) {
    match &view.kind {
        Kind::Heading(level) => out.push_str(&format!("</h{level}>")),
        Kind::Code(_) => out.push_str("</code></pre>"),
        Kind::Text if !bare && is_paragraph(view) => out.push_str("</p>"),
        Kind::Rule | Kind::Text => {}
    }
}

fn content(out: &mut String, view: &View<'_>, slice: &Slice<'_>) {
    if matches!(view.kind, Kind::Code(_)) {
        return escaped(out, view.text);
    }
    let pieces: Vec<(&str, Style)> = view.pieces.clone();
    for step in steps(&pieces) {
        match step {
            Step::Text(text) => escaped(out, text),
            Step::Open(Mark::Link(link)) => {
                out.push_str("<a href=\"");
                escaped(out, &slice.doc.links[link]);
                out.push_str("\">");
            }
            Step::Open(mark) => out.push_str(&format!("<{}>", tag(mark))),
            Step::Close(mark) => out.push_str(&format!("</{}>", tag(mark))),
        }
    }
}

fn tag(mark: Mark) -> &'static str {
    match mark {
        Mark::Link(_) => "a",
        Mark::Bold => "strong",
        Mark::Italic => "em",
        Mark::Strike => "del",
        Mark::Code => "code",
    }
}

fn escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
}
