//! What is shared or forwarded: cards, chats and bundles of messages, as lines of text. They become the same as in the gateway's
//! own adapter.

use serde_json::Value;

use super::files::Found;
use super::mentions::{Mentions, normal};
use super::post;

const LINES_MAX: usize = 12;
const ENTRIES_MAX: usize = 8;
const CARD_KEYS: [&str; 11] =
    ["title", "text", "content", "label", "value", "name", "summary", "subtitle", "description", "placeholder", "hint"];
const SKIPPED_KEYS: [&str; 18] = [
    "tag",
    "type",
    "msg_type",
    "message_type",
    "chat_id",
    "open_chat_id",
    "share_chat_id",
    "file_key",
    "image_key",
    "user_id",
    "open_id",
    "union_id",
    "url",
    "href",
    "link",
    "token",
    "template",
    "locale",
];
const RICH_TAGS: [&str; 11] = [
    "plain_text",
    "lark_md",
    "markdown",
    "note",
    "div",
    "column_set",
    "column",
    "action",
    "button",
    "select_static",
    "date_picker",
];
const ACTION_TAGS: [&str; 5] = ["button", "select_static", "overflow", "date_picker", "picker"];

fn plain(text: &str) -> String {
    normal(text, &Mentions::default())
}

/// Texts and numbers that are not blank.
fn text_in(value: Option<&Value>) -> Option<String> {
    let text = match value? {
        Value::String(text) => plain(text),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    Some(text).filter(|text| !text.is_empty())
}

fn first_of(value: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| text_in(value.get(name)))
}

/// The first text with one of these names, wherever it is.
fn anywhere(value: &Value, names: &[&str]) -> Option<String> {
    match value {
        Value::Object(fields) => {
            let here = names.iter().find_map(|name| text_in(fields.get(*name).filter(|value| value.is_string())));
            here.or_else(|| fields.values().find_map(|value| anywhere(value, names)))
        }
        Value::Array(items) => items.iter().find_map(|item| anywhere(item, names)),
        _ => None,
    }
}

fn unique(lines: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    lines.into_iter().filter(|line| !line.is_empty() && seen.insert(line.clone())).collect()
}

pub(super) fn forwarded(payload: &Value) -> String {
    let title = first_of(payload, &["title", "summary", "preview"])
        .or_else(|| anywhere(payload, &["title", "summary", "preview", "description"]));
    let lists = ["messages", "items", "message_list", "records", "content"];
    let items = lists.iter().filter_map(|name| payload.get(*name)?.as_array()).flatten();
    let entries = unique(items.filter_map(entry).collect());
    let lines: Vec<String> = title.into_iter().chain(entries.into_iter().take(ENTRIES_MAX)).collect();
    if lines.is_empty() { "[Merged forward message]".to_owned() } else { lines.join("\n") }
}

fn entry(item: &Value) -> Option<String> {
    if !item.is_object() {
        return text_in(Some(item)).map(|text| format!("- {text}"));
    }
    let sender = first_of(item, &["sender_name", "user_name", "sender", "name"]);
    let kind = first_of(item, &["message_type", "msg_type"]).unwrap_or_default().to_lowercase();
    let body = if kind == "post" {
        let content = item.get("content").filter(|content| !content.is_null()).unwrap_or(item);
        Some(plain(&post::read(content, &mut Found::default(), &mut Mentions::default())))
    } else {
        let names = ["text", "summary", "preview", "content"];
        first_of(item, &names).or_else(|| anywhere(item, &["text", "content", "summary", "preview", "title"]))
    };
    let body = body.filter(|body| !body.is_empty())?;
    Some(sender.map_or_else(|| format!("- {body}"), |sender| format!("- {sender}: {body}")))
}

pub(super) fn shared_chat(payload: &Value) -> String {
    let names = ["chat_name", "name", "title"];
    let name = first_of(payload, &names).or_else(|| anywhere(payload, &names));
    let id = first_of(payload, &["chat_id", "open_chat_id", "share_chat_id"]);
    let mut text = name.map_or_else(|| "[Shared chat]".to_owned(), |name| format!("Shared chat: {name}"));
    if let Some(id) = id {
        text.push_str(&format!("\nChat ID: {id}"));
    }
    text
}

pub(super) fn card(payload: &Value) -> String {
    let card = payload.get("card").filter(|card| card.is_object()).unwrap_or(payload);
    let heading = card.get("header").and_then(|header| header.get("title"));
    let heading = heading.and_then(|title| {
        if title.is_object() { first_of(title, &["content", "text", "name"]) } else { text_in(Some(title)) }
    });
    let title =
        heading.or_else(|| text_in(payload.get("title"))).or_else(|| anywhere(card, &["title", "summary", "subtitle"]));
    let mut segments = Vec::new();
    collect(card, false, &mut segments);
    let body = unique(segments).into_iter().filter(|line| Some(line) != title.as_ref());
    let mut labels = Vec::new();
    actions(card, &mut labels);
    let labels = unique(labels);
    let mut lines: Vec<String> = title.clone().into_iter().chain(body).collect();
    if !labels.is_empty() {
        lines.push(format!("Actions: {}", labels.join(", ")));
    }
    lines.truncate(LINES_MAX);
    if lines.is_empty() { "[Interactive message]".to_owned() } else { lines.join("\n") }
}

fn tag_of(value: &Value) -> String {
    first_of(value, &["tag", "type"]).unwrap_or_default().to_lowercase()
}

fn collect(value: &Value, in_rich: bool, segments: &mut Vec<String>) {
    match value {
        Value::String(text) if in_rich => segments.push(plain(text)),
        Value::Array(items) => items.iter().for_each(|item| collect(item, in_rich, segments)),
        Value::Object(fields) => {
            let in_rich = in_rich || RICH_TAGS.contains(&tag_of(value).as_str());
            let texts = CARD_KEYS.iter().filter_map(|name| text_in(fields.get(*name).filter(|it| it.is_string())));
            segments.extend(texts.filter(|_| in_rich));
            for (_, item) in fields.iter().filter(|(name, _)| !SKIPPED_KEYS.contains(&name.as_str())) {
                collect(item, in_rich, segments);
            }
        }
        _ => {}
    }
}

fn actions(value: &Value, labels: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if ACTION_TAGS.contains(&tag_of(value).as_str()) {
                let label = first_of(value, &["text", "name", "value"]);
                labels.extend(label.or_else(|| anywhere(value, &["text", "content", "name", "value"])));
            }
            fields.values().for_each(|item| actions(item, labels));
        }
        Value::Array(items) => items.iter().for_each(|item| actions(item, labels)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cards_chats_and_bundles_are_lines() {
        let buttons = json!([{ "tag": "button", "text": { "tag": "plain_text", "content": "Go" } }]);
        let shown = card(&json!({
            "header": { "title": { "tag": "plain_text", "content": "Title" } },
            "elements": [{ "tag": "div", "text": { "tag": "lark_md", "content": "Body" } }, { "tag": "action", "actions": buttons }],
        }));
        assert_eq!(shown, "Title\nBody\nGo\nActions: Go");
        assert_eq!(card(&json!({ "elements": [] })), "[Interactive message]");
        let shared = json!({ "chat_id": "oc_1", "chat_name": "Team" });
        assert_eq!(shared_chat(&shared), "Shared chat: Team\nChat ID: oc_1");
        assert_eq!(forwarded(&json!({ "text": "Merged and Forwarded Message" })), "[Merged forward message]");
        let bundle =
            json!({ "title": "Chat", "items": [{ "sender_name": "Ann", "text": "a" }, { "text": "a" }, "b", "b"] });
        assert_eq!(forwarded(&bundle), "Chat\n- Ann: a\n- a\n- b");
    }
}
