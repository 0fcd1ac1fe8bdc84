//! Messages, reactions and typing of users and bots, with the dispatches that follow from them.

use bytes::Bytes;
use regex::Regex;
use serde_json::{Value, json};

use super::gateway::{Audience, dispatch};
use super::snowflake::{self, Id, text};
use super::state::{Channel, MAX_MESSAGES, MAX_TYPING, Message, Reaction, State};
use super::{files, permissions, shapes, threads};

/// Who is notified by a text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Mentions {
    pub(super) users: Vec<Id>,
    pub(super) roles: Vec<Id>,
    pub(super) everyone: bool,
}

/// `allowed` as in the API; null allows all.
pub(super) fn mentions(content: &str, allowed: &Value, replied_to: Option<Id>) -> Mentions {
    let ids = |pattern: &str| -> Vec<Id> {
        let found = Regex::new(pattern).ok();
        let all = found.iter().flat_map(|regex| regex.captures_iter(content));
        let mut ids: Vec<Id> = all.filter_map(|it| it[1].parse().ok()).collect();
        let mut seen = std::collections::BTreeSet::new();
        ids.retain(|id| seen.insert(*id));
        ids
    };
    let parses =
        |what: &str| allowed.is_null() || allowed["parse"].as_array().is_some_and(|it| it.contains(&json!(what)));
    let lists = |what: &str, id: Id| {
        let listed = allowed[what].as_array();
        listed.is_some_and(|list| list.iter().any(|it| snowflake::read(it) == Some(id)))
    };
    let mut users = ids(r"<@!?(\d+)>");
    users.retain(|id| parses("users") || lists("users", *id));
    let mut roles = ids(r"<@&(\d+)>");
    roles.retain(|id| parses("roles") || lists("roles", *id));
    let replied = replied_to.filter(|_| allowed["replied_user"].as_bool().unwrap_or(allowed.is_null()));
    if let Some(user) = replied.filter(|user| !users.contains(user)) {
        users.push(user);
    }
    let everyone = parses("everyone") && (content.contains("@everyone") || content.contains("@here"));
    Mentions { users, roles, everyone }
}

/// Puts the users that a text notifies into the message. Unknown names are only text.
pub(super) fn notify(state: &State, channel: &Channel, message: &mut Message, allowed: &Value) {
    let replied = message.reference.filter(|_| message.kind == 19).and_then(|(there, id)| state.message(there, id));
    let found = mentions(&message.content, allowed, replied.map(|message| message.author));
    message.mentions = found.users.into_iter().filter(|id| state.users.contains_key(id)).collect();
    let guild = channel.guild.and_then(|guild| state.guilds.get(&guild));
    message.mention_roles =
        found.roles.into_iter().filter(|id| guild.is_some_and(|it| it.roles.contains_key(id))).collect();
    let may = permissions::may(state, channel, message.author, permissions::MENTION_EVERYONE);
    message.mention_everyone = found.everyone && may && channel.guild.is_some();
}

/// Stores the message under its id, or under a new one, and tells the bots that see it.
pub(super) fn post(state: &mut State, now_ms: u64, channel: Id, mut message: Message) -> Id {
    if message.id == 0 {
        message.id = state.ids.next(now_ms);
    }
    let (id, author, is_hidden) = (message.id, message.author, message.only_for.is_some());
    let named = message.mentions.clone();
    let Some(place) = state.channels.get_mut(&channel) else { return id };
    place.messages.insert(id, message);
    if !is_hidden {
        place.last_message = Some(id);
    }
    while place.messages.len() > MAX_MESSAGES {
        place.messages.pop_first();
    }
    if let Some(thread) = place.thread.as_mut() {
        thread.sent += u64::from(id != channel);
        let was_archived = std::mem::take(&mut thread.archived);
        if was_archived {
            threads::updated(state, now_ms, channel);
        }
        threads::join(state, now_ms, channel, author);
        for user in named {
            threads::join(state, now_ms, channel, user);
        }
    }
    dispatch(state, Audience::Channel(channel), "MESSAGE_CREATE", |state, viewer| {
        shapes::dispatched(state, channel, id, viewer)
    });
    id
}

/// `is_edit`: the text was changed by its author, which users see.
pub(super) fn update(
    state: &mut State,
    now_ms: u64,
    channel: Id,
    id: Id,
    is_edit: bool,
    change: impl FnOnce(&mut Message),
) {
    let Some(message) = state.message_mut(channel, id) else { return };
    change(message);
    if is_edit {
        message.edited_ms = Some(now_ms);
    }
    dispatch(state, Audience::Channel(channel), "MESSAGE_UPDATE", |state, viewer| {
        shapes::dispatched(state, channel, id, viewer)
    });
}

pub(super) fn delete(state: &mut State, channel: Id, id: Id) -> bool {
    let Some(place) = state.channels.get_mut(&channel) else { return false };
    let guild = place.guild;
    let Some(gone) = place.messages.remove(&id) else { return false };
    if gone.only_for.is_none() {
        dispatch(state, Audience::Channel(channel), "MESSAGE_DELETE", |_, _| {
            Some(with_guild(json!({"id": id.to_string(), "channel_id": channel.to_string()}), guild))
        });
    }
    true
}

pub(super) fn with_guild(mut data: Value, guild: Option<Id>) -> Value {
    if let Some(guild) = guild {
        data["guild_id"] = text(guild);
    }
    data
}

/// Adds or removes a reaction; `false` if that changes nothing.
pub(super) fn react(state: &mut State, channel: Id, id: Id, user: Id, emoji: &str, add: bool) -> bool {
    let guild = state.channels.get(&channel).and_then(|channel| channel.guild);
    let Some(message) = state.message_mut(channel, id) else { return false };
    let author = message.author;
    let at = message.reactions.iter().position(|reaction| reaction.emoji == emoji);
    let is_changed = match (at, add) {
        (Some(at), true) => message.reactions[at].users.insert(user),
        (Some(at), false) => message.reactions[at].users.remove(&user),
        (None, true) => {
            message.reactions.push(Reaction { emoji: emoji.to_owned(), users: [user].into() });
            true
        }
        (None, false) => false,
    };
    message.reactions.retain(|reaction| !reaction.users.is_empty());
    if !is_changed {
        return false;
    }
    let event = if add { "MESSAGE_REACTION_ADD" } else { "MESSAGE_REACTION_REMOVE" };
    dispatch(state, Audience::Channel(channel), event, |state, _| {
        let mut data = json!({"user_id": user.to_string(), "channel_id": channel.to_string(),
            "message_id": id.to_string(), "emoji": shapes::emoji(emoji), "burst": false, "type": 0});
        if add {
            data["message_author_id"] = text(author);
            if let Some(member) = guild.and_then(|guild| shapes::member(state, guild, user)) {
                data["member"] = member;
            }
        }
        Some(with_guild(data, guild))
    });
    true
}

pub(super) fn typing(state: &mut State, now_ms: u64, channel: Id, user: Id) {
    let Some(place) = state.channels.get_mut(&channel) else { return };
    let guild = place.guild;
    if place.typing.len() == MAX_TYPING {
        place.typing.pop_front();
    }
    place.typing.push_back((now_ms, user));
    dispatch(state, Audience::Channel(channel), "TYPING_START", |state, _| {
        let mut data = json!({"channel_id": channel.to_string(), "user_id": user.to_string(),
            "timestamp": now_ms / 1_000});
        if let Some(member) = guild.and_then(|guild| shapes::member(state, guild, user)) {
            data["member"] = member;
        }
        Some(with_guild(data, guild))
    });
}

/// The part of a message that is shown where it was forwarded to.
pub(super) fn snapshot(state: &State, channel: Id, message: &Message) -> Value {
    let shown = shapes::message(state, channel, message, 0);
    let names = [
        "type",
        "content",
        "attachments",
        "embeds",
        "components",
        "timestamp",
        "edited_timestamp",
        "flags",
        "mentions",
        "mention_roles",
    ];
    names.iter().map(|name| ((*name).to_owned(), shown[name].clone())).collect()
}

/// An attachment as it is stored; the address comes when it is shown.
pub(super) fn attach(state: &mut State, now_ms: u64, channel: Id, file: &File<'_>) -> Value {
    let filename: String = file.name.chars().map(|it| if it.is_whitespace() || it == '/' { '_' } else { it }).collect();
    let mut stored = json!({"id": state.ids.next(now_ms).to_string(), "filename": filename, "size": file.bytes.len(),
        "content_type": file.mime});
    if let Some(description) = file.description {
        stored["description"] = json!(description);
    }
    if file.mime.starts_with("image/") {
        stored["width"] = json!(64);
        stored["height"] = json!(64);
    }
    // As clients name a voice message; other sounds have no waveform.
    if file.mime.starts_with("audio/ogg") && filename.starts_with("voice-message") {
        stored["duration_secs"] = json!(1.5);
        stored["waveform"] = json!("AAAA");
    }
    let path = files::path(channel, &stored);
    state.files.put(path, Bytes::copy_from_slice(file.bytes), file.mime);
    stored
}

pub(super) struct File<'a> {
    pub(super) name: &'a str,
    pub(super) mime: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) description: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_are_those_that_are_allowed() {
        let text = "<@1> <@!2> <@1> <@&3> @everyone";
        let all = mentions(text, &Value::Null, Some(9));
        assert_eq!(all, Mentions { users: vec![1, 2, 9], roles: vec![3], everyone: true });
        assert_eq!(mentions(text, &json!({"parse": []}), Some(9)), Mentions::default());
        let some = mentions(text, &json!({"users": ["2"], "parse": ["roles"], "replied_user": true}), Some(9));
        assert_eq!(some, Mentions { users: vec![2, 9], roles: vec![3], everyone: false });
    }
}
