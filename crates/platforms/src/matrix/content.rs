//! Contents of the events that are sent.

use std::collections::BTreeSet;

use frontdesk_wire::action::PromptOption;
use frontdesk_wire::descriptor::LenUnit;
use serde_json::{Map, Value, json};

use crate::shared::fit::split_to_fit;
use crate::shared::markdown::{Dialect, Unit, literal, render};

pub(super) const TEXT_MAX_CHARS: usize = 16_000;
/// A shorter part fits, whatever it contains.
const PART_MIN_CHARS: usize = 1_000;
/// An event is at most 65,536 bytes, with everything that the homeserver adds.
const CONTENT_MAX_BYTES: usize = 56 << 10;
/// The text of an edit for clients that show no edits: the whole of it is beside it.
const FALLBACK_MAX_CHARS: usize = 500;
/// Where a prompt keeps its options, so that a reaction to it can be read without memory of our own.
const PROMPT_FIELD: &str = "org.frontdesk.prompt";
const KEYCAP: &str = "\u{fe0f}\u{20e3}";
/// Options that can be chosen by a reaction: the digits of a keypad, and ten.
pub(super) const REACTIONS_MAX: usize = 10;
const TEN: &str = "🔟";

/// The text as one message: `body`, and `formatted_body` if there is something to format.
pub(super) fn text(msgtype: &str, markdown: &str) -> Map<String, Value> {
    let (mut plain, mut html) = (String::new(), String::new());
    for part in render(Dialect::Matrix, markdown, CONTENT_MAX_BYTES, Unit::Bytes) {
        let gap = if plain.is_empty() { "" } else { "\n" };
        plain.push_str(gap);
        plain.push_str(&part.plain);
        html.push_str(&part.markup);
    }
    if plain.is_empty() {
        markdown.clone_into(&mut plain);
    }
    // One paragraph is shown as a line, without a margin.
    let line = html.strip_prefix("<p>").and_then(|rest| rest.strip_suffix("</p>"));
    let html = line.filter(|line| !line.contains("<p>")).unwrap_or(&html);
    let mut content = Map::new();
    content.insert("msgtype".into(), msgtype.into());
    let mut mentioned = BTreeSet::new();
    user_ids(&plain, &mut mentioned);
    user_ids(html, &mut mentioned);
    content.insert(
        "m.mentions".into(),
        match mentioned.is_empty() {
            true => json!({}),
            false => json!({ "user_ids": mentioned }),
        },
    );
    if !html.is_empty() && html != plain {
        content.insert("format".into(), "org.matrix.custom.html".into());
        content.insert("formatted_body".into(), html.into());
    }
    content.insert("body".into(), plain.into());
    content
}

/// Users that the text names: as links to matrix.to, or by their ids.
fn user_ids(text: &str, found: &mut BTreeSet<String>) {
    const FOUND_MAX: usize = 50;
    for (at, _) in text.match_indices('@') {
        let is_inside = text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '.' || c == '_');
        let rest = &text[at + 1..];
        let name = rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || "._=-/+".contains(c)));
        let (Some(end), false) = (name.filter(|end| *end > 0), is_inside) else { continue };
        let Some(server) = rest[end..].strip_prefix(':') else { continue };
        let length = server.find(|c: char| !(c.is_ascii_alphanumeric() || ".-:".contains(c))).unwrap_or(server.len());
        let server = server[..length].trim_end_matches(['.', ':', '-']);
        if !server.is_empty() && found.len() < FOUND_MAX {
            found.insert(format!("@{}:{server}", &rest[..end]));
        }
    }
}

/// Leaves out what can be done without until the content fits: the markup, then the text for clients that show no edits.
/// `false`: the text itself is too long.
pub(super) fn make_fit(content: &mut Map<String, Value>) -> bool {
    if fits(content) {
        return true;
    }
    let drop_markup = |content: &mut Map<String, Value>| {
        content.remove("format");
        content.remove("formatted_body");
    };
    match content.get_mut("m.new_content").and_then(Value::as_object_mut) {
        Some(new) => drop_markup(new),
        None => drop_markup(content),
    }
    if !fits(content) && content.contains_key("m.new_content") {
        content.insert("body".into(), "*".into());
    }
    fits(content)
}

pub(super) fn fits(content: &Map<String, Value>) -> bool {
    serde_json::to_string(content).is_ok_and(|json| json.len() <= CONTENT_MAX_BYTES)
}

/// Parts that each fit into an event with their markup.
pub(super) fn split_text(markdown: &str) -> Vec<String> {
    let fits = |part: &str| fits(&text("m.text", part));
    split_to_fit(markdown, TEXT_MAX_CHARS, PART_MIN_CHARS, LenUnit::Chars, &fits)
}

/// In a thread, and in reply to a message.
pub(super) fn relate(content: &mut Map<String, Value>, thread: Option<&str>, reply_to: Option<&str>) {
    let relates = match (thread, reply_to) {
        (None, None) => return,
        (None, Some(reply_to)) => json!({ "m.in_reply_to": { "event_id": reply_to } }),
        (Some(root), reply_to) => json!({
            "rel_type": "m.thread",
            "event_id": root,
            // For clients that know no threads.
            "is_falling_back": reply_to.is_none(),
            "m.in_reply_to": { "event_id": reply_to.unwrap_or(root) },
        }),
    };
    content.insert("m.relates_to".into(), relates);
}

pub(super) fn edit(message_id: &str, new: Map<String, Value>) -> Map<String, Value> {
    let body = new.get("body").and_then(Value::as_str).unwrap_or_default();
    let fallback: String = body.chars().take(FALLBACK_MAX_CHARS).collect();
    let mut content = Map::new();
    content.insert("msgtype".into(), new.get("msgtype").cloned().unwrap_or_default());
    content.insert("body".into(), format!("* {fallback}").into());
    content.insert("m.mentions".into(), json!({})); // an edit does not mention users again
    content.insert("m.relates_to".into(), json!({ "rel_type": "m.replace", "event_id": message_id }));
    content.insert("m.new_content".into(), Value::Object(new));
    content
}

/// A prompt is a numbered text. Its options can be chosen by reactions, or by writing the command.
pub(super) fn prompt(markdown: &str, prompt_id: &str, options: &[PromptOption]) -> Map<String, Value> {
    let by_reaction = options.len() <= REACTIONS_MAX;
    let mut shown = markdown.trim_end().to_owned();
    shown.push('\n');
    for (index, option) in options.iter().enumerate() {
        let label = literal(&option.label);
        match option_key(index).filter(|_| by_reaction) {
            Some(key) => shown.push_str(&format!("\n{key} {label}")),
            None => shown.push_str(&format!("\n{}. {label} (/{})", index + 1, option.id)),
        }
    }
    let mut content = text("m.text", &shown);
    if by_reaction {
        let listed: Vec<Value> = options.iter().map(|it| json!({ "id": it.id, "label": it.label })).collect();
        content.insert(PROMPT_FIELD.into(), json!({ "prompt_id": prompt_id, "options": listed }));
    }
    content
}

/// The reaction that stands for an option.
pub(super) fn option_key(index: usize) -> Option<String> {
    match index {
        0..9 => Some(format!("{}{KEYCAP}", index + 1)),
        9 => Some(TEN.into()),
        _ => None,
    }
}

/// The option that a reaction stands for.
pub(super) fn option_of_key(key: &str) -> Option<usize> {
    (0..REACTIONS_MAX).find(|index| {
        let known = option_key(*index).unwrap_or_default();
        // Some clients leave out the variation selector.
        known == key || known.replace('\u{fe0f}', "") == key
    })
}

/// The prompt's id and the chosen option, if the content is one of our prompts and has it.
pub(super) fn chosen_option(content: &Value, index: usize) -> Option<(String, PromptOption)> {
    let prompt = &content[PROMPT_FIELD];
    let option = prompt["options"].get(index)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let option = PromptOption { id: text(&option["id"])?, label: text(&option["label"])?, style: None };
    Some((text(&prompt["prompt_id"])?, option))
}
