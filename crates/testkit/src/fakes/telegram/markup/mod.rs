//! Text with markup: parse modes, entities and their UTF-16 offsets.

mod detect;
mod html;
mod legacy;
mod markdown_v2;

use serde_json::{Value, json};

/// A part of a text that is shown in another way. Offset and length count UTF-16 code units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entity {
    pub(super) kind: &'static str,
    pub(super) offset: usize,
    pub(super) length: usize,
    /// The URL of a link, the language of a block of code, the id of a custom emoji, the id of a mentioned user.
    pub(super) argument: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Formatted {
    pub(super) text: String,
    pub(super) entities: Vec<Entity>,
}

pub(super) fn utf16_len(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// By parse mode; an error says what cannot be parsed.
pub(super) fn parse(text: &str, mode: Option<&str>) -> Result<Formatted, String> {
    let parsed = match mode.map(str::to_lowercase).as_deref() {
        None | Some("" | "none") => Formatted { text: text.to_owned(), entities: Vec::new() },
        Some("markdownv2") => markdown_v2::parse(text)?,
        Some("markdown") => legacy::parse(text)?,
        Some("html") => html::parse(text)?,
        Some(_) => return Err("unsupported parse_mode".to_owned()),
    };
    Ok(parsed)
}

/// Removes whitespace around the text, adds what clients detect by themselves (mentions, commands, links), and sorts.
pub(super) fn finish(mut formatted: Formatted) -> Formatted {
    formatted.entities.sort_by_key(|entity| (entity.offset, usize::MAX - entity.length));
    trim(&mut formatted);
    let found = detect::detect(&formatted);
    formatted.entities.extend(found);
    formatted.entities.sort_by_key(|entity| (entity.offset, usize::MAX - entity.length));
    formatted
}

fn trim(formatted: &mut Formatted) {
    let is_blank = |c: char| c == ' ' || c == '\n';
    formatted.text.truncate(formatted.text.trim_end_matches(is_blank).len());
    let end = utf16_len(&formatted.text);
    formatted.entities.retain(|entity| entity.offset < end);
    for entity in &mut formatted.entities {
        entity.length = entity.length.min(end - entity.offset);
    }
    // Blanks that an entity begins with are kept.
    let first = formatted.entities.first().map_or(end, |entity| entity.offset);
    let blanks = formatted.text.chars().take(first).take_while(|c| is_blank(*c)).count();
    formatted.text.drain(..blanks);
    for entity in &mut formatted.entities {
        entity.offset -= blanks;
    }
}

/// As the API shows it. `user_of` gives the user of a mention by id.
pub(super) fn entities_json(entities: &[Entity], user_of: impl Fn(i64) -> Option<Value>) -> Value {
    let shown = entities.iter().filter_map(|entity| {
        let mut shown = json!({"type": entity.kind, "offset": entity.offset, "length": entity.length});
        let argument = entity.argument.clone();
        match entity.kind {
            "text_link" => shown["url"] = argument?.into(),
            "text_mention" => shown["user"] = user_of(argument?.parse().ok()?)?,
            "pre" if argument.is_some() => shown["language"] = argument.into(),
            "custom_emoji" => shown["custom_emoji_id"] = argument?.into(),
            _ => {}
        }
        Some(shown)
    });
    Value::Array(shown.collect())
}

/// Entities that a caller sent instead of a parse mode.
pub(super) fn entities_of(list: &Value) -> Vec<Entity> {
    let field = |item: &Value, name: &str| item[name].as_str().map(str::to_owned);
    let number = |item: &Value, name: &str| item[name].as_u64().and_then(|it| usize::try_from(it).ok());
    let read = |item: &Value| {
        let kind = KINDS.into_iter().find(|kind| item["type"] == *kind)?;
        let user = item["user"]["id"].as_i64().map(|id| id.to_string());
        let argument =
            field(item, "url").or_else(|| field(item, "language")).or_else(|| field(item, "custom_emoji_id")).or(user);
        Some(Entity { kind, offset: number(item, "offset")?, length: number(item, "length")?, argument })
    };
    list.as_array().into_iter().flatten().filter_map(read).collect()
}

const KINDS: [&str; 12] = [
    "bold",
    "italic",
    "underline",
    "strikethrough",
    "spoiler",
    "blockquote",
    "expandable_blockquote",
    "code",
    "pre",
    "text_link",
    "text_mention",
    "custom_emoji",
];

/// A link's own kind: `tg://user?id=7` mentions a user.
fn link(url: &str, offset: usize, length: usize) -> Option<Entity> {
    if let Some(id) = url.strip_prefix("tg://user?id=") {
        return Some(Entity { kind: "text_mention", offset, length, argument: Some(id.to_owned()) });
    }
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let parsed = url::Url::parse(&url).ok()?;
    let has_host = parsed.host_str().is_some_and(|host| host.contains('.') || host == "localhost");
    (has_host || parsed.scheme() == "tg").then(|| Entity {
        kind: "text_link",
        offset,
        length,
        argument: Some(parsed.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16_slice(text: &str, offset: usize, length: usize) -> String {
        let units: Vec<u16> = text.encode_utf16().skip(offset).take(length).collect();
        String::from_utf16_lossy(&units)
    }

    fn shown(text: &str, mode: &str) -> (String, Vec<(&'static str, usize, usize)>) {
        let done = finish(parse(text, Some(mode)).unwrap());
        (done.text, done.entities.iter().map(|it| (it.kind, it.offset, it.length)).collect())
    }

    #[test]
    fn markdown_v2_is_parsed() {
        assert_eq!(shown("*a _b_*", "MarkdownV2"), ("a b".into(), vec![("bold", 0, 3), ("italic", 2, 1)]));
        assert_eq!(shown("🧊 ||x||", "MarkdownV2"), ("🧊 x".into(), vec![("spoiler", 3, 1)]));
        assert_eq!(shown("__u__ ~s~", "MarkdownV2").1, [("underline", 0, 1), ("strikethrough", 2, 1)]);
        assert_eq!(shown("`a\\`b`", "MarkdownV2"), ("a`b".into(), vec![("code", 0, 3)]));
        assert_eq!(shown("```rust\nfn f\\(\\)```", "MarkdownV2"), ("fn f()".into(), vec![("pre", 0, 6)]));
        assert_eq!(shown(">a\n>b\nc", "MarkdownV2"), ("a\nb\nc".into(), vec![("blockquote", 0, 3)]));
        assert_eq!(shown(">a\n>b||", "MarkdownV2"), ("a\nb".into(), vec![("expandable_blockquote", 0, 3)]));
        assert_eq!(shown("[t](https://a.example/x_y)", "MarkdownV2"), ("t".into(), vec![("text_link", 0, 1)]));
        assert_eq!(shown("[Ann](tg://user?id=7)", "MarkdownV2").1, [("text_mention", 0, 3)]);
        assert_eq!(shown("1\\. a\\-b", "MarkdownV2"), ("1. a-b".into(), vec![]));
        assert_eq!(shown("\n  a  \n", "MarkdownV2"), ("a".into(), vec![]));
    }

    #[test]
    fn markdown_v2_is_refused_as_the_server_does() {
        let refused = |text| parse(text, Some("MarkdownV2")).unwrap_err();
        assert_eq!(refused("a."), "Character '.' is reserved and must be escaped with the preceding '\\'");
        assert_eq!(refused("é *a"), "Can't find end of Bold entity at byte offset 3");
        assert_eq!(refused("_a"), "Can't find end of Italic entity at byte offset 0");
        assert_eq!(refused("`a"), "Can't find end of Code entity at byte offset 0");
        assert_eq!(refused("[a](b"), "Can't find end of a URL at byte offset 4");
        for reserved in ["#a", "a+b", "a-b", "a=b", "a|b", "{", "}", "!", "a > b", "(", ")", "]"] {
            assert!(refused(reserved).contains("is reserved"), "{reserved}");
        }
        assert_eq!(parse("a", Some("rst")).unwrap_err(), "unsupported parse_mode");
    }

    #[test]
    fn html_is_parsed() {
        assert_eq!(shown("<b>a <i>b</i></b> &lt;&#33;", "HTML").0, "a b <!");
        assert_eq!(shown("<b>a <i>b</i></b>", "HTML").1, [("bold", 0, 3), ("italic", 2, 1)]);
        assert_eq!(shown("<a href=\"https://a.example/\">t</a>", "HTML").1, [("text_link", 0, 1)]);
        assert_eq!(shown("<pre><code class=\"language-rs\">x</code></pre>", "HTML").1, [("pre", 0, 1)]);
        assert_eq!(shown("<tg-spoiler>x</tg-spoiler>", "HTML").1, [("spoiler", 0, 1)]);
        let refused = |text| parse(text, Some("HTML")).unwrap_err();
        assert_eq!(refused("<x>a</x>"), "Unsupported start tag \"x\" at byte offset 0");
        assert_eq!(refused("<b>a"), "Can't find end tag corresponding to start tag \"b\"");
        assert!(refused("<b>a</i>").starts_with("Unmatched end tag at byte offset 4"));
    }

    #[test]
    fn mentions_commands_and_links_are_detected_in_utf16_units() {
        let done = finish(parse("🧊 /go@a_bot @ann_b #x https://a.example, c@d.example", None).unwrap());
        let found: Vec<(&str, String)> =
            done.entities.iter().map(|it| (it.kind, utf16_slice(&done.text, it.offset, it.length))).collect();
        let wanted = [
            ("bot_command", "/go@a_bot"),
            ("mention", "@ann_b"),
            ("hashtag", "#x"),
            ("url", "https://a.example"),
            ("email", "c@d.example"),
        ];
        assert_eq!(found, wanted.map(|(kind, text)| (kind, text.to_owned())));
        assert!(finish(parse("`@ann_b`", Some("MarkdownV2")).unwrap()).entities.iter().all(|it| it.kind == "code"));
    }
}
