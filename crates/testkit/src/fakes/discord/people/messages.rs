//! Messages, reactions, typing and threads of users.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::posting::{self, File};
use super::super::snowflake::Id;
use super::super::state::{Message, State, kind};
use super::super::threads::{self, NewThread};
use super::super::{permissions, shapes};
use super::guilds::shown as channel_shown;
use super::{ActError, Done};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewFile {
    pub name: String,
    pub mime: String,
    /// As text, or as hexadecimal digits.
    pub content: String,
    pub content_hex: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Say {
    /// A channel or a thread. Without it the direct messages with `bot`.
    pub channel: Option<Id>,
    pub bot: Option<Id>,
    pub from: Id,
    pub text: String,
    pub reply_to: Option<Id>,
    /// A reply that does not notify its author.
    pub no_ping: bool,
    /// A message of this channel that is forwarded: channel and message.
    pub forward: Option<(Id, Id)>,
    pub files: Vec<NewFile>,
    /// As in the API.
    pub embeds: Vec<Value>,
    /// Names of stickers.
    pub stickers: Vec<String>,
    /// A voice message: one file of sound.
    pub voice: bool,
}

pub(super) fn say(state: &mut State, now_ms: u64, say: Say) -> Done {
    let channel = match (say.channel, say.bot) {
        (Some(channel), _) => channel,
        (None, Some(bot)) => state.dm_of(now_ms, bot, say.from),
        (None, None) => return Err(ActError("channel or bot must be named".into())),
    };
    let place = state.channels.get(&channel).ok_or_else(|| ActError::missing("channel", channel))?;
    if !place.has_messages() {
        return Err(ActError(format!("channel {channel} holds no messages itself")));
    }
    if !permissions::sees(state, place, say.from) && state.users.get(&say.from).is_none_or(|user| !user.bot) {
        return Err(ActError(format!("user {} does not see channel {channel}", say.from)));
    }
    let mut message = Message {
        author: say.from,
        content: say.text,
        embeds: say.embeds,
        flags: if say.voice { 1 << 13 } else { 0 },
        ..Message::default()
    };
    if let Some(reply_to) = say.reply_to {
        state.message(channel, reply_to).ok_or_else(|| ActError::missing("message", reply_to))?;
        message.kind = 19;
        message.reference = Some((channel, reply_to));
    }
    if let Some((there, id)) = say.forward {
        let found = state.message(there, id).ok_or_else(|| ActError::missing("message", id))?;
        message.snapshot = Some(posting::snapshot(state, there, found));
        message.reference = Some((there, id));
    }
    for name in say.stickers {
        let id = state.ids.next(now_ms).to_string();
        message.stickers.push(json!({"id": id, "name": name, "format_type": 1}));
    }
    for file in say.files {
        let bytes = match &file.content_hex {
            Some(digits) => hex::decode(digits).map_err(|error| ActError(error.to_string()))?,
            None => file.content.into_bytes(),
        };
        let mime = if file.mime.is_empty() { "application/octet-stream" } else { &file.mime };
        let file = File { name: &file.name, mime, bytes: &bytes, description: None };
        message.attachments.push(posting::attach(state, now_ms, channel, &file));
    }
    let allowed = if say.no_ping { json!({"parse": ["users", "roles", "everyone"]}) } else { Value::Null };
    if let Some(place) = state.channels.get(&channel) {
        posting::notify(state, place, &mut message, &allowed);
    }
    let id = posting::post(state, now_ms, channel, message);
    shown(state, channel, id)
}

fn shown(state: &State, channel: Id, id: Id) -> Done {
    let message = state.message(channel, id).ok_or_else(|| ActError::missing("message", id))?;
    Ok(shapes::message(state, channel, message, 0))
}

pub(super) fn edit(state: &mut State, now_ms: u64, channel: Id, id: Id, text: &str) -> Done {
    let mut edited = state.message(channel, id).cloned().ok_or_else(|| ActError::missing("message", id))?;
    text.clone_into(&mut edited.content);
    if let Some(place) = state.channels.get(&channel) {
        posting::notify(state, place, &mut edited, &Value::Null);
    }
    posting::update(state, now_ms, channel, id, true, |message| *message = edited);
    shown(state, channel, id)
}

pub(super) fn delete(state: &mut State, channel: Id, id: Id) -> Done {
    if posting::delete(state, channel, id) { Ok(Value::Null) } else { Err(ActError::missing("message", id)) }
}

pub(super) fn react(state: &mut State, channel: Id, id: Id, from: Id, emoji: &str, add: bool) -> Done {
    state.message(channel, id).ok_or_else(|| ActError::missing("message", id))?;
    Ok(posting::react(state, channel, id, from, emoji, add).into())
}

pub(super) fn typing(state: &mut State, now_ms: u64, channel: Id, from: Id) -> Done {
    if !state.channels.contains_key(&channel) {
        return Err(ActError::missing("channel", channel));
    }
    posting::typing(state, now_ms, channel, from);
    Ok(Value::Null)
}

pub(super) fn open_thread(
    state: &mut State,
    now_ms: u64,
    parent: Id,
    owner: Id,
    name: &str,
    on: Option<Id>,
    private: bool,
) -> Done {
    let kind = if private { kind::PRIVATE_THREAD } else { kind::PUBLIC_THREAD };
    let new = NewThread { parent, kind, owner, name, on, auto_archive_min: 4_320, tags: Vec::new() };
    let id = threads::open(state, now_ms, new);
    channel_shown(state, id)
}

pub(super) fn post_in_forum(
    state: &mut State,
    now_ms: u64,
    parent: Id,
    owner: Id,
    name: &str,
    content: String,
    tags: Vec<Id>,
) -> Done {
    let id = state.ids.next(now_ms);
    let mut new = NewThread { parent, kind: kind::PUBLIC_THREAD, owner, name, on: None, auto_archive_min: 4_320, tags };
    threads::open_as(state, now_ms, &mut new, id);
    let mut message = Message { id, author: owner, content, ..Message::default() };
    if let Some(place) = state.channels.get(&id) {
        posting::notify(state, place, &mut message, &Value::Null);
    }
    posting::post(state, now_ms, id, message);
    channel_shown(state, id)
}

pub(super) fn thread_member(state: &mut State, now_ms: u64, thread: Id, user: Id, is_in: bool) -> Done {
    if is_in {
        threads::join(state, now_ms, thread, user);
    } else {
        threads::leave(state, now_ms, thread, user);
    }
    channel_shown(state, thread)
}

pub(super) fn delete_thread(state: &mut State, thread: Id) -> Done {
    if threads::delete(state, thread) { Ok(Value::Null) } else { Err(ActError::missing("thread", thread)) }
}
