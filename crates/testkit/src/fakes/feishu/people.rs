//! What people do, as tests say it.

use serde::Deserialize;
use serde_json::{Value, json};

use super::state::{App, Chat, File, Message, State, User};

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    SetApp(App),
    AddUser {
        open_id: String,
        #[serde(default)]
        user_id: String,
        #[serde(default)]
        union_id: String,
        #[serde(default)]
        name: String,
    },
    AddChat {
        id: String,
        #[serde(default)]
        name: String,
        /// p2p, group or topic
        mode: String,
        #[serde(default = "private")]
        kind: String,
        #[serde(default = "yes")]
        has_bot: bool,
        members: Vec<String>,
    },
    /// A message of a person: text, or any other content.
    Say {
        chat: String,
        from: String,
        #[serde(default)]
        text: String,
        #[serde(default = "text_type")]
        msg_type: String,
        #[serde(default)]
        content: Value,
        /// `open_id`s; `@_user_1` in the text is the first.
        #[serde(default)]
        mentions: Vec<String>,
        #[serde(default)]
        reply_to: String,
        #[serde(default)]
        thread: bool,
        /// Files that the content names: key, name, type and content in hex.
        #[serde(default)]
        files: Vec<(String, String, String, String)>,
        /// user or app
        #[serde(default = "user")]
        sender_type: String,
    },
    React {
        message: String,
        from: String,
        emoji: String,
        #[serde(default)]
        remove: bool,
    },
    /// Presses the button whose value has this token, or chooses the option.
    Press {
        message: String,
        from: String,
        token: String,
    },
    Recall {
        message: String,
    },
    /// An event as it is.
    Event {
        kind: String,
        event: Value,
    },
    /// The check of the address.
    Challenge,
    /// All tokens end.
    EndTokens,
    /// All sockets are closed.
    Disconnect,
    /// Sockets answer no ping.
    Silence {
        on: bool,
    },
}

fn private() -> String {
    "private".into()
}

fn yes() -> bool {
    true
}

fn text_type() -> String {
    "text".into()
}

fn user() -> String {
    "user".into()
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    #[error("there is no {0}")]
    Unknown(String),
}

fn ids(state: &State, open_id: &str) -> Value {
    let user = state.users.get(open_id).cloned().unwrap_or_default();
    let mut ids = json!({ "open_id": open_id });
    for (name, id) in [("user_id", user.user_id), ("union_id", user.union_id)] {
        if !id.is_empty() {
            ids[name] = id.into();
        }
    }
    ids
}

pub(super) fn act(state: &mut State, now_ms: u64, act: Act) -> Result<Value, ActError> {
    match act {
        Act::SetApp(app) => state.app = app,
        Act::AddUser { open_id, user_id, union_id, name } => {
            state.users.insert(open_id, User { user_id, union_id, name });
        }
        Act::AddChat { id, name, mode, kind, has_bot, members } => {
            state.chats.insert(id, Chat { name, mode, kind, has_bot, members });
        }
        Act::Say { .. } => return say(state, now_ms, act),
        Act::React { message, from, emoji, remove } => {
            let id = format!("react_{}", state.number());
            let known = state.message(&message).ok_or_else(|| ActError::Unknown(message.clone()))?;
            match remove {
                true => known.reactions.retain(|(_, name, who)| *name != emoji || *who != from),
                false => known.reactions.push((id, emoji.clone(), from.clone())),
            }
            let kind = if remove { "im.message.reaction.deleted_v1" } else { "im.message.reaction.created_v1" };
            let event = json!({ "message_id": message, "operator_type": "user", "user_id": ids(state, &from),
                "reaction_type": { "emoji_type": emoji }, "action_time": now_ms.to_string() });
            return Ok(json!({ "id": state.tell(now_ms, kind, event) }));
        }
        Act::Press { message, from, token } => return press(state, now_ms, &message, &from, &token),
        Act::Recall { message } => {
            state.message(&message).ok_or(ActError::Unknown(message))?.is_deleted = true;
        }
        Act::Event { kind, event } => return Ok(json!({ "id": state.tell(now_ms, &kind, event) })),
        Act::Challenge => {
            let payload = json!({ "challenge": "the-challenge", "token": state.app.verification_token, "type": "url_verification" });
            return Ok(json!({ "id": state.push("url_verification", payload) }));
        }
        Act::EndTokens => state.tokens.clear(),
        Act::Disconnect => state.sockets.values_mut().for_each(|is_closed| *is_closed = true),
        Act::Silence { on } => state.is_silent = on,
    }
    Ok(Value::Null)
}

fn say(state: &mut State, now_ms: u64, act: Act) -> Result<Value, ActError> {
    let Act::Say { chat, from, text, msg_type, content, mentions, reply_to, thread, files, sender_type } = act else {
        return Ok(Value::Null);
    };
    let mode = state.chats.get(&chat).ok_or_else(|| ActError::Unknown(chat.clone()))?.mode.clone();
    for (key, name, mime, content) in files {
        let bytes = hex::decode(content).unwrap_or_default().into();
        state.files.insert(key, File { name, mime, bytes });
    }
    let content = if content.is_null() { json!({ "text": text }) } else { content };
    let number = state.number();
    let (mut root_id, mut parent_id, mut thread_id) = (String::new(), String::new(), String::new());
    if !reply_to.is_empty() {
        let parent = state.message(&reply_to).ok_or_else(|| ActError::Unknown(reply_to.clone()))?;
        if thread && parent.thread_id.is_empty() {
            parent.thread_id = format!("omt_{number}");
        }
        thread_id.clone_from(&parent.thread_id);
        root_id = if parent.root_id.is_empty() { reply_to.clone() } else { parent.root_id.clone() };
        parent_id = reply_to;
    } else if mode == "topic" {
        thread_id = format!("omt_{number}");
    }
    let named = mentions.iter().enumerate().map(|(at, open_id)| {
        let app = &state.app;
        let is_bot = *open_id == app.open_id;
        let name = if is_bot {
            app.name.clone()
        } else {
            state.users.get(open_id).map(|it| it.name.clone()).unwrap_or_default()
        };
        json!({ "key": format!("@_user_{}", at + 1), "id": ids(state, open_id), "name": name, "tenant_key": "tenant1" })
    });
    let named: Vec<Value> = named.collect();
    let message_id = format!("om_{}", state.number());
    let chat_type = match mode.as_str() {
        "p2p" => "p2p",
        "topic" => "topic_group",
        _ => "group",
    };
    let raw = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
    let mut message = json!({ "message_id": message_id, "chat_id": chat, "chat_type": chat_type,
        "message_type": msg_type, "content": raw, "create_time": now_ms.to_string() });
    for (name, value) in [("root_id", &root_id), ("parent_id", &parent_id), ("thread_id", &thread_id)] {
        if !value.is_empty() {
            message[name] = value.as_str().into();
        }
    }
    if !named.is_empty() {
        message["mentions"] = named.clone().into();
    }
    let sender = json!({ "sender_id": ids(state, &from), "sender_type": sender_type, "tenant_key": "tenant1" });
    state.messages.push(Message {
        message_id: message_id.clone(),
        chat_id: chat,
        thread_id: thread_id.clone(),
        root_id,
        parent_id,
        msg_type,
        content,
        sender: from,
        mentions: named.into(),
        create_ms: now_ms,
        ..Message::default()
    });
    let id = state.tell(now_ms, "im.message.receive_v1", json!({ "sender": sender, "message": message }));
    Ok(json!({ "message_id": message_id, "thread_id": thread_id, "id": id }))
}

/// The button or menu of a card that has this token.
fn element(card: &Value, token: &str) -> Option<Value> {
    for group in card["elements"].as_array()? {
        for element in group["actions"].as_array().into_iter().flatten() {
            if element["value"]["hp1"] == token {
                return Some(json!({ "tag": element["tag"], "value": element["value"], "timezone": "Europe/Berlin" }));
            }
            let is_meant =
                |option: &&Value| option["value"].as_str().is_some_and(|value| value.split('\n').next() == Some(token));
            if let Some(option) = element["options"].as_array().into_iter().flatten().find(is_meant) {
                return Some(json!({ "tag": element["tag"], "value": element["value"], "option": option["value"] }));
            }
        }
    }
    None
}

fn press(state: &mut State, now_ms: u64, message: &str, from: &str, token: &str) -> Result<Value, ActError> {
    let known = state.message(message).ok_or_else(|| ActError::Unknown(message.to_owned()))?;
    let action = element(&known.content, token).ok_or_else(|| ActError::Unknown(format!("button {token}")))?;
    let context = json!({ "open_message_id": message, "open_chat_id": known.chat_id });
    let token = format!("c-{}", state.number());
    let mut operator = ids(state, from);
    operator["tenant_key"] = "tenant1".into();
    let event =
        json!({ "operator": operator, "token": token, "action": action, "host": "im_message", "context": context });
    Ok(json!({ "id": state.tell(now_ms, "card.action.trigger", event) }))
}
