//! Changes of channels, by users or bots, with the dispatches that follow from them.

use serde_json::Value;

use super::gateway::{Audience, dispatch};
use super::snowflake::{self, Id};
use super::state::{Overwrite, State};
use super::{permissions, shapes, threads};

pub(super) fn read_overwrites(list: &Value) -> Vec<Overwrite> {
    let bits = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0);
    let items = list.as_array().into_iter().flatten();
    let read = |item: &Value| {
        Some(Overwrite {
            id: snowflake::read(&item["id"])?,
            is_member: item["type"] == 1 || item["type"] == "member",
            allow: bits(&item["allow"]),
            deny: bits(&item["deny"]),
        })
    };
    items.filter_map(read).collect()
}

pub(super) fn announce(state: &mut State, id: Id, event: &str) {
    let Some(guild) = state.channels.get(&id).and_then(|channel| channel.guild) else { return };
    dispatch(state, Audience::Guild(guild), event, |state, viewer| {
        Some(shapes::channel(state, state.channels.get(&id)?, viewer.bot))
    });
}

/// Fields as in the API: name, topic, overwrites, and what concerns threads.
pub(super) fn change(state: &mut State, now_ms: u64, id: Id, given: &Value) {
    let seen_before = seen_by(state, id);
    let Some(channel) = state.channels.get_mut(&id) else { return };
    if let Some(name) = given["name"].as_str() {
        name.clone_into(&mut channel.name);
    }
    if let Some(topic) = given.get("topic") {
        channel.topic = topic.as_str().map(str::to_owned);
    }
    if given["permission_overwrites"].is_array() {
        channel.overwrites = read_overwrites(&given["permission_overwrites"]);
    }
    let Some(thread) = channel.thread.as_mut() else {
        announce(state, id, "CHANNEL_UPDATE");
        return sync_threads(state, &[(id, seen_before)]);
    };
    thread.archived = given["archived"].as_bool().unwrap_or(thread.archived);
    thread.locked = given["locked"].as_bool().unwrap_or(thread.locked);
    thread.auto_archive_min = given["auto_archive_duration"].as_u64().unwrap_or(thread.auto_archive_min);
    threads::updated(state, now_ms, id);
}

pub(super) fn delete(state: &mut State, id: Id) {
    announce(state, id, "CHANNEL_DELETE");
    state.channels.retain(|_, channel| channel.id != id && channel.parent != Some(id));
}

pub(super) fn seen_by(state: &State, id: Id) -> Vec<Id> {
    let Some(channel) = state.channels.get(&id) else { return Vec::new() };
    state.bots.keys().copied().filter(|bot| permissions::sees(state, channel, *bot)).collect()
}

/// Bots that see a channel now and did not before are told its threads.
pub(super) fn sync_threads(state: &mut State, before: &[(Id, Vec<Id>)]) {
    for (id, seen_before) in before {
        let Some(guild) = state.channels.get(id).and_then(|channel| channel.guild) else { continue };
        for bot in seen_by(state, *id) {
            if !seen_before.contains(&bot) {
                threads::list_sync(state, guild, bot, &[*id]);
            }
        }
    }
}
