//! The limits of Meta for a message.

use std::collections::HashSet;

use serde_json::Value;

use super::Refused;

type Checked = Result<(), Refused>;

fn bad(text: impl Into<String>) -> Refused {
    Refused(400, 131_009, text.into())
}

/// A text of 1 to `max` characters.
fn text(value: &Value, name: &str, max: usize) -> Checked {
    match value.as_str().map(|text| text.encode_utf16().count()) {
        Some(length) if (1..=max).contains(&length) => Ok(()),
        Some(length) => Err(bad(format!("{name} has {length} characters; 1 to {max} are allowed"))),
        None => Err(Refused(400, 131_008, format!("{name} is missing"))),
    }
}

pub(super) fn message(body: &Value) -> Checked {
    let to = body["to"].as_str().unwrap_or_default().trim_start_matches('+');
    if to.is_empty() || !to.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Refused(400, 100, "(#100) The parameter to is required.".into()));
    }
    if let Some(data) = body.get("biz_opaque_callback_data") {
        text(data, "biz_opaque_callback_data", 512)?;
    }
    let kind = body["type"].as_str().unwrap_or("text");
    let content = &body[kind];
    if !content.is_object() {
        return Err(Refused(400, 131_008, format!("{kind} is missing")));
    }
    match kind {
        "text" => text(&content["body"], "text.body", 4_096),
        "reaction" => {
            text(&content["message_id"], "reaction.message_id", 512)?;
            content["emoji"].as_str().map(drop).ok_or_else(|| bad("reaction.emoji is missing"))
        }
        "image" | "video" | "document" => {
            if content.get("caption").is_some() {
                text(&content["caption"], "caption", 1_024)?;
            }
            has_file(content)
        }
        "audio" | "sticker" if content.get("caption").is_some() => Err(bad("this kind has no caption")),
        "audio" | "sticker" => has_file(content),
        "template" => {
            text(&content["name"], "template.name", 512)?;
            text(&content["language"]["code"], "template.language.code", 16)
        }
        "interactive" => interactive(content),
        "location" | "contacts" => Ok(()),
        kind => Err(bad(format!("the type {kind} is not supported"))),
    }
}

fn has_file(content: &Value) -> Checked {
    match content["id"].is_string() || content["link"].is_string() {
        true => Ok(()),
        false => Err(Refused(400, 131_008, "id or link is missing".into())),
    }
}

fn interactive(content: &Value) -> Checked {
    let mut ids = HashSet::new();
    let mut titles = HashSet::new();
    match content["type"].as_str() {
        Some("button") => {
            text(&content["body"]["text"], "body", 1_024)?;
            let buttons = content["action"]["buttons"].as_array().map_or(&[][..], Vec::as_slice);
            if !(1..=3).contains(&buttons.len()) {
                return Err(bad(format!("{} buttons; 1 to 3 are allowed", buttons.len())));
            }
            for button in buttons.iter().map(|button| &button["reply"]) {
                text(&button["id"], "button id", 256)?;
                text(&button["title"], "button title", 20)?;
                if !ids.insert(button["id"].as_str()) || !titles.insert(button["title"].as_str()) {
                    return Err(bad("ids and titles of buttons must differ"));
                }
            }
            Ok(())
        }
        Some("list") => {
            text(&content["body"]["text"], "body", 4_096)?;
            text(&content["action"]["button"], "list button", 20)?;
            let sections = content["action"]["sections"].as_array().map_or(&[][..], Vec::as_slice);
            let rows: Vec<&Value> =
                sections.iter().filter_map(|section| section["rows"].as_array()).flatten().collect();
            if !(1..=10).contains(&rows.len()) {
                return Err(bad(format!("{} rows; 1 to 10 are allowed", rows.len())));
            }
            for row in rows {
                text(&row["id"], "row id", 200)?;
                text(&row["title"], "row title", 24)?;
                if row.get("description").is_some() {
                    text(&row["description"], "row description", 72)?;
                }
                if !ids.insert(row["id"].as_str()) {
                    return Err(bad("ids of rows must differ"));
                }
            }
            Ok(())
        }
        _ => Err(bad("interactive.type is not supported")),
    }
}
