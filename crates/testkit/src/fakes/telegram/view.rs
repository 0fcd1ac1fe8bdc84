//! A chat as a user sees it.

use serde_json::{Value, json};

use super::shapes;
use super::state::{ChatKey, State};

pub(super) fn newest(state: &State, bot: i64, chat: i64) -> Option<Value> {
    let key = ChatKey::seen_by(chat, bot);
    let (id, _) = state.chat(key)?.messages.iter().rfind(|(_, stored)| !stored.deleted)?;
    shapes::message(state, key, *id)
}

pub(super) fn chat(state: &State, bot: i64, id: i64) -> Option<Value> {
    let key = ChatKey::seen_by(id, bot);
    let chat = state.chat(key)?;
    let live = chat.messages.iter().filter(|(_, stored)| !stored.deleted);
    let messages = live.filter_map(|(id, stored)| {
        let mut shown = shapes::message(state, key, *id)?;
        let given = stored.reactions.iter().filter(|(_, list)| list.as_array().is_some_and(|list| !list.is_empty()));
        let reactions: Vec<Value> = given.map(|(by, list)| json!({"by": by, "reaction": list})).collect();
        if !reactions.is_empty() {
            shown["reactions"] = Value::Array(reactions);
        }
        Some(shown)
    });
    let topics = chat.topics.iter().map(|(id, topic)| {
        json!({"message_thread_id": id, "name": topic.name, "icon_color": topic.icon_color, "closed": topic.closed})
    });
    Some(json!({"chat": shapes::chat(state, chat), "messages": messages.collect::<Vec<_>>(),
        "topics": topics.collect::<Vec<_>>(), "drafts": chat.drafts, "actions": chat.actions,
        "members": chat.members, "blocked": chat.blocked}))
}
