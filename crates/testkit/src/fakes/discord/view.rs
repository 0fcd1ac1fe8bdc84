//! A channel as users see it.

use serde_json::{Value, json};

use super::shapes;
use super::snowflake::Id;
use super::state::{Message, State};

fn message(state: &State, channel: Id, message: &Message) -> Value {
    let mut shown = shapes::message(state, channel, message, 0);
    let reactions = message.reactions.iter().map(|reaction| {
        let users: Vec<String> = reaction.users.iter().map(u64::to_string).collect();
        json!({"emoji": reaction.emoji, "users": users})
    });
    shown["reactions"] = reactions.collect();
    shown["only_for"] = json!(message.only_for.map(|user| user.to_string()));
    shown
}

pub(super) fn newest(state: &State, channel: Id) -> Option<Value> {
    let (_, newest) = state.channels.get(&channel)?.messages.last_key_value()?;
    Some(message(state, channel, newest))
}

pub(super) fn channel(state: &State, id: Id) -> Option<Value> {
    let channel = state.channels.get(&id)?;
    let messages: Vec<Value> = channel.messages.values().map(|it| message(state, id, it)).collect();
    let threads = state.channels.values().filter(|it| it.parent == Some(id) && it.thread.is_some());
    let threads: Vec<Value> = threads.map(|thread| shapes::channel(state, thread, 0)).collect();
    let typing = channel.typing.iter().map(|(at_ms, user)| json!({"at_ms": at_ms, "user": user.to_string()}));
    Some(json!({"channel": shapes::channel(state, channel, 0), "messages": messages, "threads": threads,
        "typing": typing.collect::<Vec<_>>()}))
}
