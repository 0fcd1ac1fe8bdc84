//! The first `Markdown` mode: no nesting, and escapes only outside of entities.

use super::{Entity, Formatted, link, utf16_len};

pub(super) fn parse(input: &str) -> Result<Formatted, String> {
    let mut done = Formatted::default();
    let mut at = 0;
    while let Some(c) = input[at..].chars().next() {
        let rest = &input[at..];
        let next = rest[c.len_utf8()..].chars().next();
        if c == '\\' && next.is_some_and(|next| "_*`[".contains(next)) {
            done.text.extend(next);
            at += 2;
            continue;
        }
        let (kind, mark) = match c {
            '_' => ("italic", "_"),
            '*' => ("bold", "*"),
            '`' if rest.starts_with("```") => ("pre", "```"),
            '`' => ("code", "`"),
            '[' => ("text_link", "]"),
            _ => {
                done.text.push(c);
                at += c.len_utf8();
                continue;
            }
        };
        let opening = if kind == "text_link" { 1 } else { mark.len() };
        let missing = || format!("Can't find end of the entity starting at byte offset {at}");
        let length = rest[opening..].find(mark).ok_or_else(missing)?;
        let inner = &rest[opening..opening + length];
        let (offset, size) = (utf16_len(&done.text), utf16_len(inner));
        done.text.push_str(inner);
        let mut end = at + opening + length + mark.len();
        if kind == "text_link" {
            if let Some(url) = input[end..].strip_prefix('(') {
                let length = url.find(')').ok_or_else(missing)?;
                done.entities.extend(link(&url[..length], offset, size));
                end += length + 2;
            }
        } else if size > 0 {
            done.entities.push(Entity { kind, offset, length: size, argument: None });
        }
        at = end;
    }
    Ok(done)
}
