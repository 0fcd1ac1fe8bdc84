//! The `HTML` mode: the tags and named characters that the server knows.

use super::{Entity, Formatted, link, utf16_len};

struct Open {
    name: String,
    attributes: String,
    offset: usize,
}

pub(super) fn parse(input: &str) -> Result<Formatted, String> {
    let mut done = Formatted::default();
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    while let Some(c) = input[at..].chars().next() {
        let rest = &input[at..];
        match c {
            '&' => {
                let (decoded, length) = character(rest);
                done.text.push(decoded);
                at += length;
            }
            '<' => {
                let end = rest.find('>').ok_or_else(|| format!("Unclosed start tag at byte offset {at}"))?;
                let tag = &rest[1..end];
                if let Some(name) = tag.strip_prefix('/') {
                    close(&mut done, &mut open, &name.trim().to_lowercase(), at)?;
                } else {
                    let (name, attributes) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
                    let name = name.to_lowercase();
                    if kind(&name, attributes).is_none() {
                        return Err(format!("Unsupported start tag \"{name}\" at byte offset {at}"));
                    }
                    open.push(Open { name, attributes: attributes.to_owned(), offset: utf16_len(&done.text) });
                }
                at += end + 1;
            }
            _ => {
                done.text.push(c);
                at += c.len_utf8();
            }
        }
    }
    match open.last() {
        Some(tag) => Err(format!("Can't find end tag corresponding to start tag \"{}\"", tag.name)),
        None => Ok(done),
    }
}

fn kind(name: &str, attributes: &str) -> Option<&'static str> {
    Some(match name {
        "b" | "strong" => "bold",
        "i" | "em" => "italic",
        "u" | "ins" => "underline",
        "s" | "strike" | "del" => "strikethrough",
        "tg-spoiler" => "spoiler",
        "span" if attributes.contains("tg-spoiler") => "spoiler",
        "a" => "text_link",
        "code" => "code",
        "pre" => "pre",
        "blockquote" if attributes.contains("expandable") => "expandable_blockquote",
        "blockquote" => "blockquote",
        "tg-emoji" => "custom_emoji",
        _ => return None,
    })
}

fn close(done: &mut Formatted, open: &mut Vec<Open>, name: &str, at: usize) -> Result<(), String> {
    let Some(tag) = open.pop() else { return Err(format!("Unexpected end tag at byte offset {at}")) };
    if tag.name != name {
        let wanted = tag.name;
        return Err(format!("Unmatched end tag at byte offset {at}, expected \"</{wanted}>\", found \"</{name}>\""));
    }
    let length = utf16_len(&done.text) - tag.offset;
    let Some(kind) = kind(name, &tag.attributes).filter(|_| length > 0) else { return Ok(()) };
    let plain = |kind, argument| Some(Entity { kind, offset: tag.offset, length, argument });
    let entity = match kind {
        "text_link" => attribute(&tag.attributes, "href").and_then(|url| link(&url, tag.offset, length)),
        "custom_emoji" => plain(kind, attribute(&tag.attributes, "emoji-id")),
        // <pre><code class="language-x"> is one block with a language.
        "pre" => match done.entities.pop_if(|last| last.kind == "code" && last.length == length) {
            Some(inner) => plain(kind, inner.argument),
            None => plain(kind, None),
        },
        "code" => {
            let class = attribute(&tag.attributes, "class");
            plain(kind, class.and_then(|it| it.strip_prefix("language-").map(str::to_owned)))
        }
        _ => plain(kind, None),
    };
    done.entities.extend(entity);
    Ok(())
}

fn attribute(attributes: &str, name: &str) -> Option<String> {
    let rest = attributes.split_once(&format!("{name}="))?.1;
    let quote = rest.chars().next().filter(|c| *c == '"' || *c == '\'');
    let value = match quote {
        Some(quote) => rest[1..].split(quote).next()?,
        None => rest.split(char::is_whitespace).next()?,
    };
    let mut decoded = String::new();
    let mut at = 0;
    while let Some(c) = value[at..].chars().next() {
        let (c, length) = if c == '&' { character(&value[at..]) } else { (c, c.len_utf8()) };
        decoded.push(c);
        at += length;
    }
    Some(decoded)
}

/// The character that a reference means, and its length; a plain `&` otherwise.
fn character(rest: &str) -> (char, usize) {
    let plain = ('&', 1);
    let Some(end) = rest.find(';').filter(|end| *end < 12) else { return plain };
    let name = &rest[1..end];
    let decoded = match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        _ => name.strip_prefix('#').and_then(|number| match number.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16).ok().and_then(char::from_u32),
            None => number.parse().ok().and_then(char::from_u32),
        }),
    };
    decoded.map_or(plain, |c| (c, end + 1))
}
