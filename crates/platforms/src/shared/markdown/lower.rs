//! What a dialect does not have becomes text: targets of links that it would refuse, and tables.

use super::doc::{Container, Doc, Line, Style};
use super::{table, url};

/// What a dialect can show.
pub(super) struct Abilities {
    pub(super) tables: bool,
    pub(super) schemes: &'static [&'static str],
    /// It drops links to hosts without a dot, such as `http://localhost`.
    pub(super) dotted_hosts: bool,
}

/// `fits`: the target of a link is short enough for one message.
pub(super) fn lower(doc: Doc, abilities: &Abilities, fits: impl Fn(&str) -> bool) -> Doc {
    let Doc { lines, links } = doc;
    let is_kept = |link: &String| {
        let has_host = !abilities.dotted_hosts || url::has_dotted_host(link);
        url::has_scheme(link, abilities.schemes) && has_host && fits(link)
    };
    let kept: Vec<bool> = links.iter().map(is_kept).collect();
    let first_links: Vec<Option<usize>> =
        lines.iter().map(|line| line.runs.first().and_then(|run| run.style.link)).collect();
    let mut done = Vec::with_capacity(lines.len());
    let mut lines = lines.into_iter().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let Some(table) = table_of(&line).filter(|_| !abilities.tables) else {
            let next = first_links.get(at + 1).copied().flatten();
            done.push(without_links(line, &links, |link| kept[link], next));
            continue;
        };
        let mut cells = vec![without_links(line, &links, |_| false, None)];
        while let Some((_, line)) = lines.next_if(|(_, line)| table_of(line) == Some(table)) {
            cells.push(without_links(line, &links, |_| false, None));
        }
        done.extend(table::monospace(&cells));
    }
    Doc { lines: done, links }
}

fn table_of(line: &Line) -> Option<usize> {
    line.path.iter().find_map(|container| match container {
        Container::Table { id } => Some(*id),
        _ => None,
    })
}

/// Takes links off and writes their targets behind them. `next`: the link that the next line begins with.
fn without_links(line: Line, links: &[String], kept: impl Fn(usize) -> bool, next: Option<usize>) -> Line {
    if line.runs.iter().all(|run| run.style.link.is_none_or(&kept)) {
        return line;
    }
    let mut done = line.clone_frame();
    let pieces: Vec<(usize, usize, Style)> = line.pieces().collect();
    let mut link_from = 0;
    for (at, (start, end, style)) in pieces.iter().copied().enumerate() {
        let Some(link) = style.link.filter(|link| !kept(*link)) else {
            done.push(&line.text[start..end], style);
            continue;
        };
        if at == 0 || pieces[at - 1].2.link != Some(link) {
            link_from = start;
        }
        let style = Style { link: None, ..style };
        done.push(&line.text[start..end], style);
        let following = pieces.get(at + 1).map_or(next, |piece| piece.2.link);
        let shown = url::is_shown_by(&links[link], &line.text[link_from..end]);
        if following != Some(link) && !shown && !links[link].is_empty() {
            done.push(&format!(" ({})", links[link]), Style { code: false, ..style });
        }
    }
    done
}
