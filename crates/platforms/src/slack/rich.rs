//! What a message shows beside its text: forwarded and quoted messages in its blocks, and previews of links. Gateways
//! put the same lines behind the text.

use serde_json::Value;

/// Deeper blocks are not read.
const DEPTH_MAX: usize = 16;
/// Of one message; texts have at most 40,000 characters.
const LINES_MAX: usize = 2_000;
const PREVIEW_MAX_CHARS: usize = 500;
const PREVIEWS_MAX: usize = 20;

/// A field of an object, if it is a text. Others, and `null`, count as empty.
pub(super) fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

pub(super) fn list_of<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// The text with what only its blocks and attachments show.
pub(super) fn whole_text(text: &str, message: &Value) -> String {
    let mut whole = text.to_owned();
    let rich = rich_text(list_of(message, "blocks"));
    let rich = rich.trim();
    if !rich.is_empty() && !whole.trim().contains(rich) {
        whole = joined(&[whole.trim(), rich], "\n");
    }
    let previews = previews(list_of(message, "attachments"), &whole);
    if !previews.is_empty() {
        whole = joined(&[whole.trim(), previews.join("\n\n").trim()], "\n\n");
    }
    whole
}

/// Those that are not empty.
fn joined(texts: &[&str], between: &str) -> String {
    let texts: Vec<&str> = texts.iter().copied().filter(|text| !text.is_empty()).collect();
    texts.join(between)
}

fn rich_text(blocks: &[Value]) -> String {
    let mut lines = Vec::new();
    for block in blocks.iter().filter(|block| text_of(block, "type") == "rich_text") {
        walk(list_of(block, "elements"), 0, "", 0, &mut lines);
    }
    lines.join("\n")
}

fn walk(elements: &[Value], quotes: usize, bullet: &str, depth: usize, lines: &mut Vec<String>) {
    if depth > DEPTH_MAX {
        return;
    }
    for element in elements {
        let inner = list_of(element, "elements");
        match text_of(element, "type") {
            "rich_text_section" => push(&inline(inner), quotes, bullet, lines),
            "rich_text_quote" => walk(inner, quotes + 1, "", depth + 1, lines),
            "rich_text_list" => {
                let is_bullet = text_of(element, "style") == "bullet";
                for (at, item) in inner.iter().enumerate() {
                    let bullet = if is_bullet { "• ".to_owned() } else { format!("{}. ", at + 1) };
                    walk(std::slice::from_ref(item), quotes, &bullet, depth + 1, lines);
                }
            }
            "rich_text_preformatted" => {
                let shown = |child: &Value| match text_of(child, "type") {
                    "rich_text_section" => inline(list_of(child, "elements")),
                    _ => inline(std::slice::from_ref(child)),
                };
                let code: Vec<String> = inner.iter().map(shown).filter(|line| !line.is_empty()).collect();
                if !code.is_empty() {
                    let code = format!("```{}\n{}\n```", text_of(element, "language"), code.join("\n"));
                    push(&code, quotes, bullet, lines);
                }
            }
            _ => push(&inline(std::slice::from_ref(element)), quotes, bullet, lines),
        }
    }
}

fn push(text: &str, quotes: usize, bullet: &str, lines: &mut Vec<String>) {
    if !text.trim().is_empty() && lines.len() < LINES_MAX {
        let quote = if quotes > 0 { format!("{} ", ">".repeat(quotes)) } else { String::new() };
        lines.push(format!("{quote}{bullet}{text}").trim_end().to_owned());
    }
}

fn inline(elements: &[Value]) -> String {
    let shown = |element: &Value| {
        let of = |name| text_of(element, name);
        match of("type") {
            "text" => of("text").to_owned(),
            "link" => format!("{} ({})", if of("text").is_empty() { of("url") } else { of("text") }, of("url")),
            "channel" => format!("<#{}>", of("channel_id")),
            "user" => format!("<@{}>", of("user_id")),
            "usergroup" => format!("<!subteam^{}>", of("usergroup_id")),
            "emoji" => format!(":{}:", of("name")),
            "broadcast" => format!("<!{}>", if element["range"].is_string() { of("range") } else { "here" }),
            "date" => of("fallback").to_owned(),
            _ => String::new(),
        }
    };
    elements.iter().map(shown).collect()
}

fn previews(attachments: &[Value], text: &str) -> Vec<String> {
    let mut shown = Vec::new();
    for preview in attachments.iter().take(PREVIEWS_MAX) {
        let of = |name| text_of(preview, name);
        if preview["is_msg_unfurl"].as_bool() == Some(true) {
            continue; // a message of this workspace
        }
        let url = if of("title_link").is_empty() { of("from_url") } else { of("title_link") };
        let head = match (of("title"), url) {
            ("", "") => None,
            ("", url) => Some(format!("📎 {url}")),
            (title, "") => Some(format!("📎 {title}")),
            (title, url) => Some(format!("📎 [{title}]({url})")),
        };
        let body = if of("text").is_empty() { of("fallback") } else { of("text") }.trim();
        let body = match body.chars().count() > PREVIEW_MAX_CHARS {
            true => format!("{}...", body.chars().take(PREVIEW_MAX_CHARS - 3).collect::<String>()),
            false => body.to_owned(),
        };
        let section = match (head, body.is_empty()) {
            (Some(head), false) => format!("{head}\n   {body}"),
            (Some(head), true) => head,
            (None, false) => format!("📎 {body}"),
            (None, true) => continue,
        };
        if text.contains(&section) {
            continue;
        }
        let footer = of("footer");
        shown.push(if footer.is_empty() { section } else { format!("{section}\n   _{footer}_") });
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_the_blocks_show_follows_the_text() {
        let section =
            |text: &str| json!({ "type": "rich_text_section", "elements": [{ "type": "text", "text": text }] });
        let message = |elements: Value| json!({ "blocks": [{ "type": "rich_text", "elements": elements }] });
        assert_eq!(whole_text("hello", &message(json!([section("hello")]))), "hello", "it is there already");
        let quoted = message(json!([section("look"), { "type": "rich_text_quote", "elements": [
            { "type": "text", "text": "said " }, section("before")] }]));
        assert_eq!(whole_text("look", &quoted), "look\nlook\n> said\n> before");
        let list = message(json!([
            { "type": "rich_text_list", "style": "ordered", "elements": [section("one"), section("two")] },
            { "type": "rich_text_list", "style": "bullet", "elements": [section("three")] },
            { "type": "rich_text_preformatted", "language": "sh", "elements": [{ "type": "text", "text": "ls" }] },
        ]));
        assert_eq!(whole_text("", &list), "1. one\n2. two\n• three\n```sh\nls\n```");
        let inline = message(json!([{ "type": "rich_text_section", "elements": [
            { "type": "user", "user_id": "U1" }, { "type": "emoji", "name": "wave" },
            { "type": "link", "url": "https://a.example" }, { "type": "broadcast", "range": "here" }, { "type": "x" }] }]));
        assert_eq!(whole_text("", &inline), "<@U1>:wave:https://a.example (https://a.example)<!here>");
    }

    #[test]
    fn previews_of_links_follow_and_messages_do_not() {
        let message = json!({ "attachments": [
            { "title": "Page", "title_link": "https://a.example", "text": "x".repeat(600), "footer": "A" },
            { "is_msg_unfurl": true, "text": "own" },
            { "fallback": "only this" },
            null, 5,
        ] });
        let text = whole_text("see", &message);
        assert!(
            text.starts_with("see\n\n📎 [Page](https://a.example)\n   xxx") && text.contains("...\n   _A_"),
            "{text}"
        );
        assert!(text.ends_with("\n\n📎 only this") && !text.contains("own"), "{text}");
    }

    #[test]
    fn deep_and_odd_blocks_end() {
        let mut deep = json!({ "type": "text", "text": "x" });
        for _ in 0..60 {
            deep = json!({ "type": "rich_text_quote", "elements": [deep] });
        }
        let message = json!({ "blocks": [{ "type": "rich_text", "elements": [deep] }, 7, { "type": "rich_text" }] });
        assert_eq!(whole_text("t", &message), "t");
    }
}
