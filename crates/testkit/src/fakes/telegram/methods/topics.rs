//! Topics of a forum.

use serde_json::{Map, Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::posting::{Author, Post, open_topic, post};
use super::super::state::ChatKey;
use super::Call;

const DEFAULT_COLOR: i64 = 7_322_096;
const MAX_NAME: usize = 128;

fn forum(call: &Call<'_>) -> Result<ChatKey, ApiError> {
    let key = call.chat_key()?;
    let chat = call.chat_of(key)?;
    if !chat.is_forum {
        return Err(ApiError::bad("the chat is not a forum"));
    }
    if !chat.is_admin(call.bot) {
        return Err(ApiError::bad("not enough rights to create a topic"));
    }
    Ok(key)
}

fn topic(call: &Call<'_>) -> Result<(ChatKey, i64), ApiError> {
    let key = forum(call)?;
    let id = call.params.int("message_thread_id").unwrap_or_default();
    match call.chat_of(key)?.topics.contains_key(&id) {
        true => Ok((key, id)),
        false => Err(ApiError::bad("message thread not found")),
    }
}

pub(super) fn create(call: &mut Call<'_>) -> Answer {
    let key = forum(call)?;
    let name = call.params.some_text("name").filter(|name| name.chars().count() <= MAX_NAME);
    let name = name.ok_or_else(|| ApiError::bad("TOPIC_TITLE_EMPTY"))?;
    let color = call.params.int("icon_color").unwrap_or(DEFAULT_COLOR);
    let (now_s, author) = (call.now_s(), Author::Bot(call.bot));
    let id = open_topic(call.state, key, now_s, author, &name, color);
    Ok(json!({"message_thread_id": id, "name": name, "icon_color": color}))
}

/// A message that clients show as a note in the topic.
fn note(call: &mut Call<'_>, key: ChatKey, thread: i64, name: &str, body: Value) {
    let content: Map<String, Value> = [(name.to_owned(), body)].into_iter().collect();
    let (now_s, author) = (call.now_s(), Author::Bot(call.bot));
    let _ = post(call.state, key, now_s, author, Post { thread: Some(thread), reply_to: None, content });
}

pub(super) fn edit(call: &mut Call<'_>) -> Answer {
    let (key, id) = topic(call)?;
    let name = call.params.some_text("name");
    let known = call.state.chats.get_mut(&key).and_then(|chat| chat.topics.get_mut(&id));
    if let (Some(topic), Some(name)) = (known, name) {
        if topic.name == name {
            return Err(ApiError::bad("TOPIC_NOT_MODIFIED"));
        }
        topic.name.clone_from(&name);
        note(call, key, id, "forum_topic_edited", json!({"name": name}));
    }
    Ok(true.into())
}

pub(super) fn close(call: &mut Call<'_>, closed: bool) -> Answer {
    let (key, id) = topic(call)?;
    if let Some(topic) = call.state.chats.get_mut(&key).and_then(|chat| chat.topics.get_mut(&id)) {
        if topic.closed == closed {
            return Err(ApiError::bad("TOPIC_NOT_MODIFIED"));
        }
        topic.closed = closed;
    }
    let name = if closed { "forum_topic_closed" } else { "forum_topic_reopened" };
    note(call, key, id, name, json!({}));
    Ok(true.into())
}

pub(super) fn delete(call: &mut Call<'_>) -> Answer {
    let (key, id) = topic(call)?;
    if let Some(chat) = call.state.chats.get_mut(&key) {
        chat.topics.remove(&id);
        for stored in chat.messages.values_mut() {
            stored.deleted |= stored.json.get("message_thread_id").and_then(Value::as_i64) == Some(id);
        }
    }
    Ok(true.into())
}
