//! Messages of a channel: list, get, create, edit, delete.

use serde_json::{Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::permissions::{ATTACH_FILES, MANAGE_MESSAGES, READ_HISTORY, SEND_IN_THREADS, SEND_MESSAGES};
use super::super::posting;
use super::super::snowflake::{self, Id};
use super::super::state::Channel;
use super::{Call, body, number, shown};

/// How long a nonce is remembered: the vendor says a few minutes.
const NONCE_MS: u64 = 300_000;
const MAX_NONCES: usize = 10_000;
const LOADING: u64 = 1 << 7;

pub(super) fn run(call: &mut Call<'_>, method: &str, channel: &str, rest: &[&str]) -> Answer {
    match (method, rest) {
        ("GET", []) => list(call, channel),
        ("POST", []) => create(call, channel),
        ("POST", ["bulk-delete"]) => bulk_delete(call, channel),
        ("GET", [message]) => {
            let place = call.channel(channel, READ_HISTORY)?.id;
            let id = visible(call, place, message)?;
            shown(call, place, id)
        }
        ("PATCH", [message]) => edit(call, channel, message),
        ("DELETE", [message]) => delete(call, channel, message),
        _ => Err(ApiError::new(405, 0, "405: Method Not Allowed")),
    }
}

fn visible(call: &Call<'_>, channel: Id, message: &str) -> Result<Id, ApiError> {
    let id = number(message, "message_id")?;
    let found = call.state.message(channel, id).filter(|message| message.only_for.is_none());
    found.map(|message| message.id).ok_or_else(ApiError::unknown_message)
}

fn list(call: &mut Call<'_>, channel: &str) -> Answer {
    let place = call.channel(channel, 0)?;
    let id = place.id;
    if call.channel(channel, READ_HISTORY).is_err() {
        return Ok((200, json!([])));
    }
    let limit = call.request.query("limit").map_or(Some(50), |text| text.parse::<usize>().ok());
    let Some(limit) = limit.filter(|limit| (1..=100).contains(limit)) else {
        let text = "int value should be less than or equal to 100.";
        return Err(ApiError::form("limit", "NUMBER_TYPE_MAX", text));
    };
    let bound = |name: &str| call.request.query(name).and_then(|text| text.parse::<Id>().ok());
    let all = place.messages.values().filter(|message| message.only_for.is_none()).map(|message| message.id);
    let mut ids: Vec<Id> = if let Some(after) = bound("after") {
        all.filter(|id| *id > after).take(limit).collect()
    } else if let Some(middle) = bound("around") {
        let (older, newer): (Vec<Id>, Vec<Id>) = all.partition(|id| *id < middle);
        let half = limit / 2;
        let older = older.iter().rev().take(half).rev();
        older.chain(newer.iter().take(limit - half)).copied().collect()
    } else {
        let before = bound("before").unwrap_or(Id::MAX);
        let mut ids: Vec<Id> = all.filter(|id| *id < before).collect();
        ids.split_off(ids.len().saturating_sub(limit))
    };
    ids.reverse();
    let shown: Result<Vec<Value>, ApiError> =
        ids.iter().map(|message| shown(call, id, *message).map(|(_, value)| value)).collect();
    Ok((200, Value::Array(shown?)))
}

fn create(call: &mut Call<'_>, channel: &str) -> Answer {
    let place = call.channel(channel, 0)?;
    if !place.has_messages() {
        return Err(ApiError::new(400, 50008, "Cannot send messages in a non-text channel"));
    }
    let wanted = if place.thread.is_some() { SEND_IN_THREADS } else { SEND_MESSAGES };
    let files = if call.request.files.is_empty() { 0 } else { ATTACH_FILES };
    let place = call.channel(channel, wanted | files)?;
    if place.thread.as_ref().is_some_and(|thread| thread.archived && thread.locked) {
        return Err(ApiError::new(400, 50083, "Thread is archived"));
    }
    let id = place.id;
    let is_closed = |user: &Id| call.state.users.get(user).is_some_and(|user| user.closed_dm);
    if place.is_dm() && place.recipients.iter().any(is_closed) {
        return Err(ApiError::new(403, 50007, "Cannot send messages to this user"));
    }
    let request = call.request.body.clone();
    if let Some(again) = known_nonce(call, id, &request) {
        return shown(call, id, again);
    }
    let mut message = body::draft(call, id, &request)?;
    // Only answers to interactions can be for one user.
    message.flags &= !(1 << 6);
    let nonce = message.nonce.clone();
    let made = posting::post(call.state, call.now_ms, id, message);
    if let (Some(nonce), Some(bot)) = (nonce, call.state.bots.get_mut(&call.bot)) {
        bot.nonces.push_back((call.now_ms, nonce.to_string(), id, made));
        if bot.nonces.len() > MAX_NONCES {
            bot.nonces.pop_front();
        }
    }
    shown(call, id, made)
}

/// The message that was made with the same nonce, if the call wants to be told.
fn known_nonce(call: &Call<'_>, channel: Id, body: &Value) -> Option<Id> {
    if body["enforce_nonce"] != true || body["nonce"].is_null() {
        return None;
    }
    let nonce = body["nonce"].to_string();
    let known = &call.state.bots.get(&call.bot)?.nonces;
    let is_it = |(at, text, place, _): &&(u64, String, Id, Id)| {
        *text == nonce && *place == channel && at + NONCE_MS > call.now_ms
    };
    known.iter().rev().find(is_it).map(|(_, _, _, message)| *message)
}

fn edit(call: &mut Call<'_>, channel: &str, message: &str) -> Answer {
    let place = call.channel(channel, 0)?.id;
    let id = visible(call, place, message)?;
    let is_own = call.state.message(place, id).is_some_and(|message| message.author == call.bot);
    if !is_own {
        return Err(ApiError::new(403, 50005, "Cannot edit a message authored by another user"));
    }
    apply_edit(call, place, id)?;
    shown(call, place, id)
}

/// Only fields that the body names are changed.
pub(in super::super) fn apply_edit(call: &mut Call<'_>, place: Id, id: Id) -> Result<(), ApiError> {
    let given = call.request.body.clone();
    let mut edited = call.state.message(place, id).cloned().ok_or_else(ApiError::unknown_message)?;
    if given.get("content").is_some() {
        edited.content = body::content(&given)?;
    }
    if given.get("embeds").is_some() {
        edited.embeds = body::embeds(&given)?;
    }
    if given.get("components").is_some() {
        edited.components = body::components(&given)?;
    }
    if let Some(kept) = given["attachments"].as_array() {
        let kept: Vec<Id> = kept.iter().filter_map(|it| snowflake::read(&it["id"])).collect();
        edited.attachments.retain(|it| snowflake::read(&it["id"]).is_some_and(|id| kept.contains(&id)));
    }
    let added = body::attachments(call, place, &given, &call.request.files.clone())?;
    edited.attachments.extend(added);
    if let Some(flags) = given["flags"].as_u64() {
        edited.flags = edited.flags & !(1 << 2) | flags & (1 << 2);
    }
    let is_empty = edited.content.is_empty()
        && edited.embeds.is_empty()
        && edited.attachments.is_empty()
        && edited.components.is_empty();
    if is_empty {
        return Err(ApiError::new(400, 50006, "Cannot send an empty message"));
    }
    let was_loading = edited.flags & LOADING != 0;
    edited.flags &= !LOADING;
    if let Some(channel) = call.state.channels.get(&place) {
        posting::notify(call.state, channel, &mut edited, &given["allowed_mentions"]);
    }
    let is_edit = !was_loading && (given.get("content").is_some() || given.get("embeds").is_some());
    posting::update(call.state, call.now_ms, place, id, is_edit, |message| *message = edited);
    Ok(())
}

fn delete(call: &mut Call<'_>, channel: &str, message: &str) -> Answer {
    let place = call.channel(channel, 0)?.id;
    let id = visible(call, place, message)?;
    let is_own = call.state.message(place, id).is_some_and(|message| message.author == call.bot);
    if !is_own {
        call.channel(channel, MANAGE_MESSAGES)?;
        if call.state.channels.get(&place).is_some_and(Channel::is_dm) {
            return Err(ApiError::new(403, 50003, "Cannot execute action on a DM channel"));
        }
    }
    posting::delete(call.state, place, id);
    Ok((204, Value::Null))
}

fn bulk_delete(call: &mut Call<'_>, channel: &str) -> Answer {
    let place = call.channel(channel, MANAGE_MESSAGES)?.id;
    let ids = call.request.body["messages"].as_array().cloned().unwrap_or_default();
    for id in ids.iter().filter_map(snowflake::read) {
        posting::delete(call.state, place, id);
    }
    Ok((204, Value::Null))
}
