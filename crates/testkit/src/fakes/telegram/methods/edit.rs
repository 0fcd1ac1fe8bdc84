//! Changes of messages that a bot sent, and deletion.

use serde_json::{Map, Value};

use super::super::answer::{Answer, ApiError};
use super::super::shapes;
use super::super::state::ChatKey;
use super::Call;
use super::media::checked_caption;
use super::send::{check_length, checked_text};

const SAME: &str = "message is not modified: specified new message content and reply markup are exactly the same as a \
                    current content and reply markup of the message";

fn own(call: &Call<'_>) -> Result<(ChatKey, i64), ApiError> {
    if call.params.some_text("inline_message_id").is_some() {
        return Err(ApiError::bad("MESSAGE_ID_INVALID"));
    }
    let key = call.chat_key()?;
    let id = call.params.int("message_id").ok_or_else(|| ApiError::bad("message identifier is not specified"))?;
    let stored = call.chat_of(key)?.message(id).ok_or_else(|| ApiError::bad("message to edit not found"))?;
    if stored.by_bot != Some(call.bot) {
        return Err(ApiError::bad("message can't be edited"));
    }
    Ok((key, id))
}

/// Sets these fields, and removes those of the list that are not set.
fn apply(call: &mut Call<'_>, at: (ChatKey, i64), set: Map<String, Value>, fields: &[&str]) -> Answer {
    let (key, id) = at;
    let now_s = call.now_s();
    let stored = call.state.chats.get_mut(&key).and_then(|chat| chat.messages.get_mut(&id));
    let stored = stored.ok_or_else(|| ApiError::bad("message to edit not found"))?;
    if fields.iter().all(|name| stored.json.get(*name) == set.get(*name)) {
        return Err(ApiError::bad(SAME));
    }
    for name in fields {
        stored.json.remove(*name);
    }
    stored.json.extend(set);
    stored.json.insert("edit_date".into(), now_s.into());
    shapes::message(call.state, key, id).ok_or_else(|| ApiError::bad("message to edit not found"))
}

pub(super) fn text(call: &mut Call<'_>) -> Answer {
    let formatted = checked_text(call)?;
    let at = own(call)?;
    check_length(&formatted)?;
    if !call.chat_of(at.0)?.message(at.1).is_some_and(|stored| stored.json.contains_key("text")) {
        return Err(ApiError::bad("there is no text in the message to edit"));
    }
    let mut set = Map::new();
    call.put_text(&mut set, "text", &formatted);
    set.extend(call.keyboard()?.map(|keyboard| ("reply_markup".to_owned(), keyboard)));
    apply(call, at, set, &["text", "entities", "reply_markup"])
}

pub(super) fn caption(call: &mut Call<'_>) -> Answer {
    let formatted = checked_caption(call)?;
    let at = own(call)?;
    if call.chat_of(at.0)?.message(at.1).is_some_and(|stored| stored.json.contains_key("text")) {
        return Err(ApiError::bad("there is no caption in the message to edit"));
    }
    let mut set = Map::new();
    call.put_text(&mut set, "caption", &formatted);
    set.extend(call.keyboard()?.map(|keyboard| ("reply_markup".to_owned(), keyboard)));
    apply(call, at, set, &["caption", "caption_entities", "reply_markup"])
}

pub(super) fn markup(call: &mut Call<'_>) -> Answer {
    let at = own(call)?;
    let set = call.keyboard()?.map(|keyboard| ("reply_markup".to_owned(), keyboard)).into_iter().collect();
    apply(call, at, set, &["reply_markup"])
}

/// Whether the bot may, and whether it is there.
fn remove(call: &mut Call<'_>, key: ChatKey, id: i64) -> Result<(), ApiError> {
    let chat = call.chat_of(key)?;
    let stored = chat.message(id).ok_or_else(|| ApiError::bad("message to delete not found"))?;
    let may = stored.by_bot == Some(call.bot) || key.bot != 0 || chat.is_admin(call.bot);
    if !may || chat.topics.contains_key(&id) {
        return Err(ApiError::bad("message can't be deleted"));
    }
    if let Some(stored) = call.state.chats.get_mut(&key).and_then(|chat| chat.messages.get_mut(&id)) {
        stored.deleted = true;
    }
    Ok(())
}

pub(super) fn delete(call: &mut Call<'_>) -> Answer {
    let key = call.chat_key()?;
    let id = call.params.int("message_id").ok_or_else(|| ApiError::bad("message identifier is not specified"))?;
    remove(call, key, id)?;
    Ok(true.into())
}

/// Those that are not there are skipped.
pub(super) fn delete_many(call: &mut Call<'_>) -> Answer {
    let key = call.chat_key()?;
    let ids = call.params.json("message_ids")?.unwrap_or_default();
    for id in ids.as_array().into_iter().flatten().filter_map(Value::as_i64) {
        let _ = remove(call, key, id);
    }
    Ok(true.into())
}
