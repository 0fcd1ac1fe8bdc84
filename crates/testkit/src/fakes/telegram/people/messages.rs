//! Messages of users, their changes, buttons and reactions.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::super::markup::{self, Formatted, utf16_len};
use super::super::methods::{media_content, mime_of};
use super::super::posting::{Author, Post, announce, emit, post};
use super::super::shapes;
use super::super::state::{Callback, Chat, ChatKey, ChatKind, State};
use super::{ActError, At, NewFile, Say, chat_key, missing};

fn formatted(state: &State, name: &str, text: &str, mode: Option<&str>) -> Result<Map<String, Value>, ActError> {
    let parsed: Formatted = markup::finish(markup::parse(text, mode).map_err(ActError)?);
    let mut content = Map::new();
    content.insert(name.into(), parsed.text.into());
    let shown = markup::entities_json(&parsed.entities, |id| state.users.get(&id).map(shapes::user));
    if shown.as_array().is_some_and(|list| !list.is_empty()) {
        let name = if name == "text" { "entities" } else { "caption_entities" };
        content.insert(name.into(), shown);
    }
    Ok(content)
}

/// Puts the message of a user into the chat and tells the bots. A private chat begins with its first message.
fn send(state: &mut State, now_s: u64, at: &At, mut content: Map<String, Value>) -> Result<Value, ActError> {
    let key = chat_key(state, at)?;
    state.chats.entry(key).or_insert_with(|| Chat::new(at.chat, ChatKind::Private));
    if let Some(quote) = &at.quote {
        content.insert("quote".into(), quoted(state, key, at.reply_to, quote)?);
    }
    if let Some(id) = at.reply_to.filter(|id| state.chat(key).is_none_or(|chat| chat.message(*id).is_none())) {
        return Err(missing(id));
    }
    let author = at.from.map_or(Author::Chat, Author::User);
    let id = post(state, key, now_s, author, Post { thread: at.topic, reply_to: at.reply_to, content });
    let id = id.ok_or_else(|| ActError("the bot of this private chat does not exist".into()))?;
    announce(state, key, id, false);
    shapes::message(state, key, id).ok_or_else(|| missing(id))
}

fn quoted(state: &State, key: ChatKey, reply_to: Option<i64>, quote: &str) -> Result<Value, ActError> {
    let id = reply_to.ok_or_else(|| ActError("a quote needs reply_to".into()))?;
    let stored = state.chat(key).and_then(|chat| chat.message(id)).ok_or_else(|| missing(id))?;
    let whole = ["text", "caption"].iter().find_map(|name| stored.json.get(*name)?.as_str()).unwrap_or_default();
    let at = whole.find(quote).ok_or_else(|| ActError(format!("{quote:?} is no part of message {id}")))?;
    Ok(json!({"text": quote, "position": utf16_len(&whole[..at]), "is_manual": true}))
}

pub(super) fn say(state: &mut State, now_s: u64, said: Say) -> Result<Value, ActError> {
    let content = formatted(state, "text", &said.text, said.parse_mode.as_deref())?;
    send(state, now_s, &said.at, content)
}

pub(super) fn media(
    state: &mut State,
    now_s: u64,
    at: &At,
    file: NewFile,
    group: Option<&str>,
) -> Result<Value, ActError> {
    let bytes = match &file.content_hex {
        Some(text) => hex::decode(text).map_err(|_| ActError("content_hex is not valid hex".into()))?,
        None => file.content.clone().into_bytes(),
    };
    let mime = file.mime.as_deref().unwrap_or(mime_of(&file.kind));
    let mut content =
        media_content(state, &file.kind, file.file_name.as_deref(), mime, Bytes::from(bytes), &Value::Null);
    if let Some(size) = file.size {
        claim_size(state, &mut content, size);
    }
    if let Some(caption) = &file.caption {
        content.extend(formatted(state, "caption", caption, file.parse_mode.as_deref())?);
    }
    if let Some(group) = group {
        content.insert("media_group_id".into(), group.into());
    }
    send(state, now_s, at, content)
}

/// The size in the message and that of `getFile`.
fn claim_size(state: &mut State, content: &mut Map<String, Value>, size: u64) {
    for value in content.values_mut() {
        let items = if let Value::Array(list) = value { list.iter_mut().collect() } else { vec![value] };
        for item in items {
            if let Some(id) = item["file_id"].as_str().map(str::to_owned) {
                item["file_size"] = size.into();
                state.files.set_size(&id, size);
            }
        }
    }
}

pub(super) fn album(state: &mut State, now_s: u64, at: &At, files: Vec<NewFile>) -> Result<Value, ActError> {
    let group = format!("album{}", state.number());
    let sent: Result<Vec<Value>, ActError> =
        files.into_iter().map(|file| media(state, now_s, at, file, Some(&group))).collect();
    Ok(Value::Array(sent?))
}

pub(super) fn location(
    state: &mut State,
    now_s: u64,
    at: &At,
    latitude: f64,
    longitude: f64,
) -> Result<Value, ActError> {
    let mut content = Map::new();
    content.insert("location".into(), json!({"latitude": latitude, "longitude": longitude}));
    send(state, now_s, at, content)
}

pub(super) fn edit(state: &mut State, now_s: u64, at: &At, id: i64, text: &str) -> Result<Value, ActError> {
    let key = chat_key(state, at)?;
    let is_text = state.chat(key).and_then(|chat| chat.message(id)).map(|it| it.json.contains_key("text"));
    let name = if is_text.ok_or_else(|| missing(id))? { "text" } else { "caption" };
    let content = formatted(state, name, text, None)?;
    if let Some(stored) = state.chats.get_mut(&key).and_then(|chat| chat.messages.get_mut(&id)) {
        for name in [name, "entities", "caption_entities"] {
            stored.json.remove(name);
        }
        stored.json.extend(content);
        stored.json.insert("edit_date".into(), now_s.into());
    }
    announce(state, key, id, true);
    shapes::message(state, key, id).ok_or_else(|| missing(id))
}

pub(super) fn delete(state: &mut State, at: &At, id: i64) -> Result<Value, ActError> {
    let key = chat_key(state, at)?;
    let stored = state.chats.get_mut(&key).and_then(|chat| chat.messages.get_mut(&id)).ok_or_else(|| missing(id))?;
    stored.deleted = true;
    Ok(true.into())
}

pub(super) fn press(
    state: &mut State,
    at: &At,
    id: i64,
    data: Option<String>,
    label: Option<String>,
) -> Result<Value, ActError> {
    let key = chat_key(state, at)?;
    let stored = state.chat(key).and_then(|chat| chat.message(id)).ok_or_else(|| missing(id))?;
    let bot = stored.by_bot.ok_or_else(|| ActError(format!("message {id} was not sent by a bot")))?;
    let rows = stored.json.get("reply_markup").and_then(|it| it["inline_keyboard"].as_array()).into_iter().flatten();
    let mut buttons = rows.flat_map(|row| row.as_array().into_iter().flatten());
    let is_meant = |button: &&Value| {
        data.as_ref().is_none_or(|data| button["callback_data"] == data.as_str())
            && label.as_ref().is_none_or(|label| button["text"] == label.as_str())
    };
    let button = buttons.find(is_meant).ok_or_else(|| ActError(format!("message {id} has no such button")))?;
    let Some(data) = button["callback_data"].as_str().map(str::to_owned) else {
        // A link opens in the client of the user.
        return Ok(json!({"url": button["url"]}));
    };
    let from = at.from.ok_or_else(|| ActError("from is needed: who pressed it".into()))?;
    let query = format!("{}{:06}", from, state.number());
    let body = json!({"id": query, "from": shapes::user_by_id(state, from), "data": data,
        "chat_instance": format!("{}", at.chat.unsigned_abs().wrapping_mul(7_919)),
        "message": shapes::message(state, key, id)});
    state.callbacks.insert(query.clone(), Callback { bot, answer: None });
    emit(state, bot, "callback_query", body);
    Ok(json!({"callback_query_id": query}))
}

pub(super) fn react(state: &mut State, now_s: u64, at: &At, id: i64, emoji: Option<String>) -> Result<Value, ActError> {
    let key = chat_key(state, at)?;
    let from = at.from.ok_or_else(|| ActError("from is needed: who reacts".into()))?;
    let new = emoji.map_or_else(|| json!([]), |emoji| json!([{"type": "emoji", "emoji": emoji}]));
    let stored = state.chats.get_mut(&key).and_then(|chat| chat.messages.get_mut(&id)).ok_or_else(|| missing(id))?;
    let old = stored.reactions.insert(from, new.clone()).unwrap_or_else(|| json!([]));
    let chat = state.chat(key).map(|chat| shapes::chat(state, chat));
    let body = json!({"chat": chat, "message_id": id, "user": shapes::user_by_id(state, from), "date": now_s,
        "old_reaction": old, "new_reaction": new});
    for bot in state.bots_in(key) {
        // Only administrators of a group are told.
        if key.bot != 0 || state.chat(key).is_some_and(|chat| chat.is_admin(bot)) {
            emit(state, bot, "message_reaction", body.clone());
        }
    }
    Ok(true.into())
}
