//! Rich text that people write, as Markdown. It becomes the same as in the gateway's own adapter.

use serde_json::Value;

use super::files::{FileRef, Found};
use super::mentions::{EVERYBODY, Mentions, is_space, normal};
use super::value::first;

const ESCAPED: &str = "\\`*_{}[]()#+-!|>~";
const LANGUAGES: [&str; 2] = ["zh_cn", "en_us"];
pub(super) const FALLBACK: &str = "[Rich text message]";
/// Elements deeper than this are left out.
const DEPTH_MAX: usize = 16;
/// Fields of an element of an unknown kind that are read first.
const TEXT_FIELDS: [&str; 5] = ["text", "title", "content", "children", "elements"];
/// Known kinds that may have no text. Their fields are read as such, and not as elements.
const KNOWN_EMPTY: [&str; 3] = ["text", "a", "code"];

/// What is noted on the way.
struct Walk<'a> {
    found: &'a mut Found,
    mentions: &'a mut Mentions,
    depth: usize,
    /// Values that were looked at. Each is looked at once.
    #[cfg(test)]
    visits: usize,
}

/// Title and lines. Files and mentions that are in it are noted.
pub(super) fn read(payload: &Value, found: &mut Found, mentions: &mut Mentions) -> String {
    let mut walk = Walk {
        found,
        mentions,
        depth: 0,
        #[cfg(test)]
        visits: 0,
    };
    walk.post(payload)
}

/// The post itself, or that of one of its languages.
fn resolved(payload: &Value) -> Option<&Value> {
    let wrapped = payload.get("post");
    let itself = |value: &'_ Value| value.get("content").is_some_and(Value::is_array);
    if itself(payload) {
        return Some(payload);
    }
    wrapped.and_then(|post| if itself(post) { Some(post) } else { in_language(post) }).or_else(|| in_language(payload))
}

fn in_language(value: &Value) -> Option<&Value> {
    let is_post = |value: &&Value| value.get("content").is_some_and(Value::is_array);
    let named = LANGUAGES.iter().find_map(|name| value.get(*name).filter(is_post));
    named.or_else(|| value.as_object()?.values().find(is_post))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if ESCAPED.contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Texts and numbers.
fn shown(value: &Value, name: &str) -> String {
    match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn trimmed(value: &Value, name: &str) -> String {
    shown(value, name).trim_matches(is_space).to_owned()
}

fn inline_code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

fn styled(element: &Value) -> String {
    let text = shown(element, "text");
    let has = |name: &str| match &element["style"][name] {
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() == Some(1.0),
        Value::String(text) => text == "true",
        _ => false,
    };
    if has("code") {
        return inline_code(&text);
    }
    let mut out = escaped(&text);
    if out.is_empty() {
        return out;
    }
    for (name, open, close) in
        [("bold", "**", "**"), ("italic", "*", "*"), ("underline", "<u>", "</u>"), ("strikethrough", "~~", "~~")]
    {
        if has(name) {
            out = format!("{open}{out}{close}");
        }
    }
    out
}

fn code_block(element: &Value) -> String {
    let (language, other) = (shown(element, "language"), shown(element, "lang"));
    let language = first([language.as_str(), &other]).trim_matches(is_space).replace(['\n', '\r'], " ");
    let (text, content) = (shown(element, "text"), shown(element, "content"));
    let code = first([text.as_str(), &content]).replace("\r\n", "\n");
    let end = if code.ends_with('\n') { "" } else { "\n" };
    format!("```{language}\n{code}{end}```")
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

impl Walk<'_> {
    fn post(&mut self, payload: &Value) -> String {
        let Some(post) = resolved(payload) else { return FALLBACK.to_owned() };
        let nobody = Mentions::default();
        let mut parts = vec![normal(shown(post, "title").trim_matches(is_space), &nobody)];
        for row in post["content"].as_array().into_iter().flatten() {
            let Some(items) = row.as_array() else { continue };
            let line: String = items.iter().map(|item| self.element(item)).collect();
            parts.push(normal(&line, &nobody));
        }
        parts.retain(|part| !part.is_empty());
        let text = parts.join("\n");
        if text.is_empty() { FALLBACK.to_owned() } else { text }
    }

    fn element(&mut self, element: &Value) -> String {
        if let Some(text) = element.as_str() {
            return text.to_owned();
        }
        if !element.is_object() {
            return String::new();
        }
        let tag = trimmed(element, "tag").to_lowercase();
        match tag.as_str() {
            "text" => styled(element),
            "a" => {
                let (href, text) = (trimmed(element, "href"), element.get("text").is_some());
                let label = if text { trimmed(element, "text") } else { href.clone() };
                match (label.is_empty(), href.is_empty()) {
                    (true, _) => String::new(),
                    (false, true) => escaped(&label),
                    (false, false) => format!("[{}]({href})", escaped(&label)),
                }
            }
            "at" => {
                let placeholder = trimmed(element, "user_id");
                if placeholder == EVERYBODY {
                    self.mentions.note_all();
                    return "@all".to_owned();
                }
                let name = trimmed(element, "user_name");
                let name =
                    self.mentions.get(&placeholder).map_or_else(|| first([name.as_str(), "user"]), |it| it.shown());
                format!("@{}", escaped(name))
            }
            "img" | "image" => {
                self.found.image(&trimmed(element, "image_key"));
                let (text, alt) = (trimmed(element, "text"), trimmed(element, "alt"));
                match first([text.as_str(), &alt]) {
                    "" => "[Image]".to_owned(),
                    alt => format!("[Image: {alt}]"),
                }
            }
            "media" | "file" | "audio" | "video" => {
                let names = ["file_name", "title", "text"].map(|name| trimmed(element, name));
                let name = first(names.iter().map(String::as_str));
                let key = trimmed(element, "file_key");
                if !key.is_empty() {
                    let kind = match tag.as_str() {
                        "media" | "video" => "video",
                        "audio" => "audio",
                        _ => "file",
                    };
                    self.found.files.push(FileRef::new(&key, name, kind));
                }
                if name.is_empty() { "[Attachment]".to_owned() } else { format!("[Attachment: {name}]") }
            }
            "emotion" | "emoji" => {
                let (text, kind) = (trimmed(element, "text"), trimmed(element, "emoji_type"));
                match first([text.as_str(), &kind]) {
                    "" => "[Emoji]".to_owned(),
                    label => format!(":{}:", escaped(label)),
                }
            }
            "br" => "\n".to_owned(),
            "hr" | "divider" => "\n\n---\n\n".to_owned(),
            "code" => {
                let (text, content) = (shown(element, "text"), shown(element, "content"));
                match first([text.as_str(), &content]) {
                    "" => String::new(),
                    code => inline_code(code),
                }
            }
            "code_block" | "pre" => code_block(element),
            _ => joined(TEXT_FIELDS.iter().map(|name| self.nested(&element[*name]))),
        }
    }

    /// An element without a text may have one in its other fields.
    fn nested(&mut self, value: &Value) -> String {
        if self.depth >= DEPTH_MAX {
            return String::new();
        }
        self.depth += 1;
        #[cfg(test)]
        {
            self.visits += 1;
        }
        let text = match value {
            Value::String(text) => escaped(text),
            Value::Array(items) => joined(items.iter().map(|item| self.nested(item))),
            Value::Object(fields) => match self.element(value) {
                direct if !direct.is_empty() => direct,
                _ => {
                    let is_known = KNOWN_EMPTY.contains(&trimmed(value, "tag").to_lowercase().as_str());
                    // Those of an unknown kind were read, and are not read again: that would double with each level.
                    let is_left = |name: &str| is_known || !TEXT_FIELDS.contains(&name);
                    joined(fields.iter().filter(|(name, _)| is_left(name)).map(|(_, item)| self.nested(item)))
                }
            },
            _ => String::new(),
        };
        self.depth -= 1;
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(payload: &Value) -> (String, Vec<String>) {
        let mut found = Found::default();
        let text = read(payload, &mut found, &mut Mentions::default());
        (text, found.files.into_iter().map(|file| file.key).collect())
    }

    #[test]
    fn elements_become_markdown() {
        let rows = json!([
            [{ "tag": "text", "text": "a_b", "style": ["bold"] }, { "tag": "text", "text": "x", "style": { "bold": true } }],
            [{ "tag": "a", "href": "https://e.org", "text": "here" }, { "tag": "at", "user_id": "@_all" }],
            [{ "tag": "img", "image_key": "img_1" }, { "tag": "img", "image_key": "img_1" }],
            [{ "tag": "media", "file_key": "file_1", "file_name": "a.mp4" }],
            [{ "tag": "code_block", "language": "rust", "text": "let  a;\n" }],
            [{ "tag": "emotion", "emoji_type": "SMILE" }, { "tag": "unknown", "text": "n*", "children": [{ "tag": "text", "text": "t" }] }],
            "no row",
        ]);
        let (text, keys) = text(&json!({ "title": " T ", "content": rows }));
        assert_eq!(
            text,
            "T\na\\_b**x**\n[here](https://e.org)@all\n[Image][Image]\n[Attachment: a.mp4]\n```rust\nlet a;\n```\n:SMILE:n\\* t"
        );
        assert_eq!(keys, ["img_1", "file_1"]);
    }

    #[test]
    fn a_post_is_found_in_any_wrapping() {
        let post = json!({ "title": "", "content": [[{ "tag": "text", "text": "x" }]] });
        for payload in [
            post.clone(),
            json!({ "post": { "en_us": post } }),
            json!({ "zh_cn": post, "ja_jp": { "content": [] } }),
            json!({ "post": post, "en_us": {} }),
            json!({ "ja_jp": post }),
        ] {
            assert_eq!(text(&payload).0, "x", "{payload}");
        }
        for payload in [json!({}), json!(5), json!({ "content": [] }), json!({ "content": [[]], "title": 5 })] {
            assert!(["5", FALLBACK].contains(&text(&payload).0.as_str()), "{payload}");
        }
    }

    #[test]
    fn deep_elements_are_read_once_and_not_to_the_end() {
        let nest = |levels: usize, leaf: Value| {
            (0..levels).fold(leaf, |inner, level| match level % 3 {
                0 => json!({ "content": inner }),
                1 => json!({ "tag": "x", "tags": [inner] }),
                _ => json!({ "children": inner, "other": {} }),
            })
        };
        let read = |element: Value| {
            let (mut found, mut mentions) = (Found::default(), Mentions::default());
            let mut walk = Walk { found: &mut found, mentions: &mut mentions, depth: 0, visits: 0 };
            let text = walk.post(&json!({ "content": [[element]] }));
            (text, walk.visits)
        };
        let (text, visits) = read(nest(120, json!({ "tag": "text", "text": "deep" })));
        assert!(!text.contains("deep") && visits < 200, "{visits} {text}");
        let (_, visits) = read((0..120).fold(json!({}), |inner, _| json!({ "content": inner })));
        assert!(visits < 200, "{visits}");
        let (text, _) =
            read(json!({ "tag": "x", "elements": [{ "tag": "div", "other": { "tag": "text", "text": "t" } }] }));
        assert_eq!(text, "t div", "fields are in the order of their names");
    }

    #[test]
    fn code_has_a_fence_that_is_long_enough() {
        assert_eq!((inline_code("a"), inline_code("`a``b")), ("`a`".to_owned(), "``` `a``b ```".to_owned()));
    }
}
