//! One channel: get, change, delete, typing.

use serde_json::Value;

use super::super::answer::{Answer, ApiError};
use super::super::permissions::{MANAGE_CHANNELS, MANAGE_THREADS, SEND_IN_THREADS, SEND_MESSAGES};
use super::super::{channels, posting, shapes, threads};
use super::Call;

pub(super) fn run(call: &mut Call<'_>, method: &str, channel: &str, rest: &[&str]) -> Answer {
    match (method, rest) {
        ("GET", []) => shown(call, channel),
        ("PATCH", []) => change(call, channel),
        ("DELETE", []) => delete(call, channel),
        ("POST", ["typing"]) => {
            let wanted = if call.channel(channel, 0)?.thread.is_some() { SEND_IN_THREADS } else { SEND_MESSAGES };
            let id = call.channel(channel, wanted)?.id;
            posting::typing(call.state, call.now_ms, id, call.bot);
            Ok((204, Value::Null))
        }
        _ => Err(ApiError::not_found()),
    }
}

fn shown(call: &Call<'_>, channel: &str) -> Answer {
    let place = call.channel(channel, 0)?;
    Ok((200, shapes::channel(call.state, place, call.bot)))
}

/// The owner of a thread may rename it; everything else needs a permission.
fn change(call: &mut Call<'_>, channel: &str) -> Answer {
    let place = call.channel(channel, 0)?;
    let (id, is_thread) = (place.id, place.thread.is_some());
    let is_owner = place.thread.as_ref().is_some_and(|thread| thread.owner == call.bot);
    if place.is_dm() {
        return Err(ApiError::new(403, 50003, "Cannot execute action on a DM channel"));
    }
    if !is_owner {
        call.channel(channel, if is_thread { MANAGE_THREADS } else { MANAGE_CHANNELS })?;
    }
    let given = call.request.body.clone();
    if let Some(name) = given.get("name") {
        let length = name.as_str().map_or(0, |name| name.chars().count());
        if !(1..=100).contains(&length) {
            return Err(ApiError::form("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length."));
        }
    }
    let was_archived = call.state.channels.get(&id).and_then(|it| it.thread.as_ref()).is_some_and(|it| it.archived);
    if was_archived && given["archived"] != false {
        return Err(ApiError::new(400, 50083, "Thread is archived"));
    }
    channels::change(call.state, call.now_ms, id, &given);
    shown(call, channel)
}

fn delete(call: &mut Call<'_>, channel: &str) -> Answer {
    let place = call.channel(channel, 0)?;
    let (id, is_thread, is_dm) = (place.id, place.thread.is_some(), place.is_dm());
    let value = shapes::channel(call.state, place, call.bot);
    if is_dm {
        return Ok((200, value));
    }
    call.channel(channel, if is_thread { MANAGE_THREADS } else { MANAGE_CHANNELS })?;
    if is_thread {
        threads::delete(call.state, id);
    } else {
        channels::delete(call.state, id);
    }
    Ok((200, value))
}
