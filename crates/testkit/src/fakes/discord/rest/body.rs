//! The body of a message: what is allowed in it, and what it becomes.

use serde_json::{Value, json};

use super::super::answer::ApiError;
use super::super::posting::{self, File};
use super::super::snowflake::{self, Id};
use super::super::state::Message;
use super::{Call, Upload};

pub(in super::super) const MAX_CONTENT: usize = 2_000;
const MAX_FILES: usize = 10;
const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;
/// Flags that a client may set: no embeds, ephemeral, silent, voice message, components of the second kind.
const SETTABLE: u64 = 1 << 2 | 1 << 6 | 1 << 12 | 1 << 13 | 1 << 15;
const TOO_LONG: &str = "BASE_TYPE_MAX_LENGTH";

fn at_most(field: &str, most: usize) -> ApiError {
    ApiError::form(field, TOO_LONG, &format!("Must be {most} or fewer in length."))
}

/// `body` is the message itself: a part of the request where the request has more than it.
pub(in super::super) fn draft(call: &mut Call<'_>, channel: Id, body: &Value) -> Result<Message, ApiError> {
    let content = content(body)?;
    let mut message = Message {
        author: call.bot,
        content,
        embeds: embeds(body)?,
        components: components(body)?,
        tts: body["tts"] == true,
        nonce: nonce(body)?,
        flags: body["flags"].as_u64().unwrap_or(0) & SETTABLE,
        ..Message::default()
    };
    exclusive_mentions(&body["allowed_mentions"])?;
    reference(call, channel, body, &mut message)?;
    message.attachments = attachments(call, channel, body, &call.request.files.clone())?;
    message.stickers = stickers(body);
    let is_empty = message.content.is_empty()
        && message.embeds.is_empty()
        && message.components.is_empty()
        && message.attachments.is_empty()
        && message.stickers.is_empty()
        && message.snapshot.is_none();
    if is_empty {
        return Err(ApiError::new(400, 50006, "Cannot send an empty message"));
    }
    let place = call.state.channels.get(&channel).ok_or_else(ApiError::unknown_channel)?;
    posting::notify(call.state, place, &mut message, &body["allowed_mentions"]);
    Ok(message)
}

pub(super) fn content(body: &Value) -> Result<String, ApiError> {
    let text = match &body["content"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => {
            let message = format!("Could not interpret \"{other}\" as string.");
            return Err(ApiError::form("content", "STRING_TYPE_CONVERT", &message));
        }
    };
    // White space at both ends is removed before the length counts.
    let text = text.trim().to_owned();
    if text.chars().count() > MAX_CONTENT { Err(at_most("content", MAX_CONTENT)) } else { Ok(text) }
}

fn nonce(body: &Value) -> Result<Option<Value>, ApiError> {
    match &body["nonce"] {
        Value::Null => Ok(None),
        Value::String(text) if text.chars().count() > 25 => Err(at_most("nonce", 25)),
        nonce => Ok(Some(nonce.clone())),
    }
}

pub(super) fn embeds(body: &Value) -> Result<Vec<Value>, ApiError> {
    let mut embeds = body["embeds"].as_array().cloned().unwrap_or_default();
    if embeds.len() > 10 {
        return Err(at_most("embeds", 10));
    }
    let mut total = 0;
    for (at, embed) in embeds.iter_mut().enumerate() {
        for (field, most) in [("title", 256), ("description", 4_096)] {
            let length = embed[field].as_str().map_or(0, |text| text.chars().count());
            total += length;
            if length > most {
                return Err(at_most(&format!("embeds.{at}.{field}"), most));
            }
        }
        if embed.get("type").is_none() {
            embed["type"] = json!("rich");
        }
    }
    if total > 6_000 {
        let text = "Embed size exceeds maximum size of 6000";
        return Err(ApiError::form("embeds.0", "MAX_EMBED_SIZE_EXCEEDED", text));
    }
    Ok(embeds)
}

/// Each component gets a number, as in answers of the API.
pub(super) fn components(body: &Value) -> Result<Vec<Value>, ApiError> {
    let mut rows = body["components"].as_array().cloned().unwrap_or_default();
    let is_second_kind = body["flags"].as_u64().unwrap_or(0) & (1 << 15) != 0;
    if rows.len() > 5 && !is_second_kind {
        return Err(ApiError::form("components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 5 in length."));
    }
    let (mut number, mut names) = (0, Vec::new());
    for (at, row) in rows.iter_mut().enumerate() {
        enumerate(row, &format!("components.{at}"), &mut number, &mut names)?;
    }
    Ok(rows)
}

fn enumerate(item: &mut Value, path: &str, number: &mut u64, names: &mut Vec<String>) -> Result<(), ApiError> {
    *number += 1;
    if item.get("id").is_none_or(|id| id.is_null() || *id == 0) {
        item["id"] = json!(*number);
    }
    if let Some(name) = item["custom_id"].as_str().map(str::to_owned) {
        let field = format!("{path}.custom_id");
        if name.is_empty() || name.chars().count() > 100 {
            return Err(ApiError::form(&field, "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length."));
        }
        if names.contains(&name) {
            let text = "Component custom id cannot be duplicated";
            return Err(ApiError::form(&field, "COMPONENT_CUSTOM_ID_DUPLICATED", text));
        }
        names.push(name);
    }
    let is_plain_button = item["type"] == 2 && !matches!(item["style"].as_u64(), Some(5 | 6));
    if is_plain_button && item.get("custom_id").is_none() {
        let text = "A custom id is required";
        return Err(ApiError::form(path, "COMPONENT_CUSTOM_ID_REQUIRED", text));
    }
    if item["label"].as_str().is_some_and(|label| label.chars().count() > 80) {
        return Err(at_most(&format!("{path}.label"), 80));
    }
    if let Some(inner) = item["components"].as_array_mut() {
        for (at, item) in inner.iter_mut().enumerate() {
            enumerate(item, &format!("{path}.components.{at}"), number, names)?;
        }
    }
    Ok(())
}

fn exclusive_mentions(allowed: &Value) -> Result<(), ApiError> {
    for kind in ["users", "roles"] {
        let parses = allowed["parse"].as_array().is_some_and(|list| list.contains(&json!(kind)));
        if parses && allowed[kind].as_array().is_some_and(|list| !list.is_empty()) {
            let text = format!("parse:[\"{kind}\"] and {kind}: [ids...] are mutually exclusive.");
            return Err(ApiError::form("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", &text));
        }
    }
    Ok(())
}

fn reference(call: &Call<'_>, channel: Id, body: &Value, message: &mut Message) -> Result<(), ApiError> {
    let given = &body["message_reference"];
    let Some(id) = snowflake::read(&given["message_id"]) else { return Ok(()) };
    let there = snowflake::read(&given["channel_id"]).unwrap_or(channel);
    let is_forward = given["type"] == 1;
    let Some(found) = call.state.message(there, id).filter(|_| is_forward || there == channel) else {
        if given["fail_if_not_exists"] == false {
            return Ok(());
        }
        return Err(ApiError::form("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message"));
    };
    message.reference = Some((there, id));
    if is_forward {
        message.snapshot = Some(posting::snapshot(call.state, there, found));
    } else {
        message.kind = 19;
    }
    Ok(())
}

/// The files of the request; `attachments` of the body may describe them, and names those that an edit keeps.
pub(super) fn attachments(
    call: &mut Call<'_>,
    channel: Id,
    body: &Value,
    files: &[Upload],
) -> Result<Vec<Value>, ApiError> {
    if files.len() > MAX_FILES {
        return Err(at_most("attachments", MAX_FILES));
    }
    let mut stored = Vec::new();
    for file in files {
        if file.bytes.len() > MAX_FILE_BYTES {
            return Err(ApiError::new(413, 40005, "Request entity too large"));
        }
        let number: String = file.field.chars().filter(char::is_ascii_digit).collect();
        let described = body["attachments"].as_array().and_then(|list| {
            list.iter().find(|it| {
                it["id"].as_u64().map(|id| id.to_string()).or(it["id"].as_str().map(str::to_owned))
                    == Some(number.clone())
            })
        });
        let name = described.and_then(|it| it["filename"].as_str()).unwrap_or(&file.filename);
        let description = described.and_then(|it| it["description"].as_str());
        let file = File { name, mime: &file.mime, bytes: &file.bytes, description };
        stored.push(posting::attach(call.state, call.now_ms, channel, &file));
    }
    Ok(stored)
}

fn stickers(body: &Value) -> Vec<Value> {
    let ids = body["sticker_ids"].as_array().cloned().unwrap_or_default();
    ids.iter()
        .filter_map(snowflake::read)
        .map(|id| json!({"id": id.to_string(), "name": "sticker", "format_type": 1}))
        .collect()
}
