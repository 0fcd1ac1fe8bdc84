//! Threads: on a message, without one, as a post of a forum; and their members.

use serde_json::{Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::permissions::{CREATE_PRIVATE_THREADS, CREATE_PUBLIC_THREADS, MANAGE_THREADS, SEND_MESSAGES};
use super::super::snowflake::{self, Id};
use super::super::state::kind;
use super::super::threads::{self, NewThread};
use super::super::{posting, shapes};
use super::{Call, body, number, shown};

fn name(call: &Call<'_>) -> Result<String, ApiError> {
    let Some(name) = call.request.body["name"].as_str() else {
        return Err(ApiError::form("name", "BASE_TYPE_REQUIRED", "This field is required"));
    };
    if (1..=100).contains(&name.chars().count()) {
        return Ok(name.to_owned());
    }
    Err(ApiError::form("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length."))
}

fn minutes(call: &Call<'_>) -> Result<u64, ApiError> {
    match &call.request.body["auto_archive_duration"] {
        Value::Null => Ok(4_320),
        given => given.as_u64().filter(|it| matches!(it, 60 | 1_440 | 4_320 | 10_080)).ok_or_else(|| {
            let text = "Value must be one of {60, 1440, 4320, 10080}.";
            ApiError::form("auto_archive_duration", "BASE_TYPE_CHOICES", text)
        }),
    }
}

fn made(call: &Call<'_>, thread: Id) -> Result<Value, ApiError> {
    let channel = call.state.channels.get(&thread).ok_or_else(ApiError::unknown_channel)?;
    Ok(shapes::channel(call.state, channel, call.bot))
}

pub(super) fn on(call: &mut Call<'_>, channel: &str, message: &str) -> Answer {
    let place = call.channel(channel, CREATE_PUBLIC_THREADS)?;
    let (parent, parent_kind) = (place.id, place.kind);
    if !matches!(parent_kind, kind::TEXT | kind::NEWS) {
        return Err(ApiError::new(400, 50024, "Cannot execute action on this channel type"));
    }
    let on = number(message, "message_id")?;
    let found =
        call.state.message(parent, on).filter(|it| it.only_for.is_none()).ok_or_else(ApiError::unknown_message)?;
    if found.thread.is_some() {
        return Err(ApiError::new(400, 160_004, "A thread has already been created for this message"));
    }
    let (name, auto_archive_min) = (name(call)?, minutes(call)?);
    let kind = if parent_kind == kind::NEWS { kind::NEWS_THREAD } else { kind::PUBLIC_THREAD };
    let new =
        NewThread { parent, kind, owner: call.bot, name: &name, on: Some(on), auto_archive_min, tags: Vec::new() };
    let id = threads::open(call.state, call.now_ms, new);
    Ok((201, made(call, id)?))
}

pub(super) fn create(call: &mut Call<'_>, channel: &str) -> Answer {
    let place = call.channel(channel, 0)?;
    let (parent, parent_kind) = (place.id, place.kind);
    let (name, auto_archive_min) = (name(call)?, minutes(call)?);
    if parent_kind == kind::FORUM {
        return post_in_forum(call, channel, parent, &name, auto_archive_min);
    }
    if !matches!(parent_kind, kind::TEXT | kind::NEWS) {
        return Err(ApiError::new(400, 50024, "Cannot execute action on this channel type"));
    }
    // Without a type it is private, as the vendor's documents say.
    let kind = call.request.body["type"].as_u64().unwrap_or(12);
    let (kind, wanted) = match kind {
        10 => (kind::NEWS_THREAD, CREATE_PUBLIC_THREADS),
        11 => (kind::PUBLIC_THREAD, CREATE_PUBLIC_THREADS),
        12 => (kind::PRIVATE_THREAD, CREATE_PRIVATE_THREADS),
        _ => return Err(ApiError::form("type", "BASE_TYPE_CHOICES", "Value must be one of {10, 11, 12}.")),
    };
    call.channel(channel, wanted)?;
    let new = NewThread { parent, kind, owner: call.bot, name: &name, on: None, auto_archive_min, tags: Vec::new() };
    let id = threads::open(call.state, call.now_ms, new);
    Ok((201, made(call, id)?))
}

/// The first message has the id of the thread.
fn post_in_forum(call: &mut Call<'_>, channel: &str, parent: Id, name: &str, auto_archive_min: u64) -> Answer {
    call.channel(channel, SEND_MESSAGES)?;
    let given = call.request.body["message"].clone();
    if !given.is_object() {
        return Err(ApiError::form("message", "BASE_TYPE_REQUIRED", "This field is required"));
    }
    let id = call.state.ids.next(call.now_ms);
    let mut message = body::draft(call, parent, &given)?;
    // Files were stored under the forum; they belong to the post.
    message.attachments = body::attachments(call, id, &given, &call.request.files.clone())?;
    message.id = id;
    let tags = call.request.body["applied_tags"].as_array().cloned().unwrap_or_default();
    let tags = tags.iter().filter_map(snowflake::read).collect();
    let mut new =
        NewThread { parent, kind: kind::PUBLIC_THREAD, owner: call.bot, name, on: None, auto_archive_min, tags };
    threads::open_as(call.state, call.now_ms, &mut new, id);
    posting::post(call.state, call.now_ms, id, message);
    let mut value = made(call, id)?;
    value["message"] = shown(call, id, id)?.1;
    Ok((201, value))
}

pub(super) fn members(call: &mut Call<'_>, method: &str, channel: &str, rest: &[&str]) -> Answer {
    let place = call.channel(channel, 0)?;
    let id = place.id;
    let Some(thread) = place.thread.as_ref() else {
        return Err(ApiError::new(400, 50024, "Cannot execute action on this channel type"));
    };
    let shape = |user: &Id, at: &u64| shapes::thread_member(id, *user, *at);
    let user = match rest {
        [] if method == "GET" => {
            return Ok((200, thread.members.iter().map(|(user, at)| shape(user, at)).collect()));
        }
        ["@me"] => call.bot,
        [user] => number(user, "user_id")?,
        _ => return Err(ApiError::not_found()),
    };
    match method {
        "GET" => {
            let at = thread.members.get(&user).ok_or_else(|| ApiError::new(404, 10007, "Unknown Member"))?;
            return Ok((200, shape(&user, at)));
        }
        "PUT" => threads::join(call.state, call.now_ms, id, user),
        "DELETE" => {
            if user != call.bot {
                call.channel(channel, MANAGE_THREADS)?;
            }
            threads::leave(call.state, call.now_ms, id, user);
        }
        _ => return Err(ApiError::not_found()),
    }
    Ok((204, json!(null)))
}
