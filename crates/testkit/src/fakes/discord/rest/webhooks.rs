//! Answers to interactions: the callback, the original message, follow-ups.

use serde_json::{Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::interactions;
use super::super::posting;
use super::super::snowflake::{Id, text};
use super::{Call, messages, number, shown};

pub(super) fn callback(call: &mut Call<'_>, id: &str, token: &str) -> Answer {
    let id = number(id, "interaction_id")?;
    let unknown = || ApiError::new(404, 10062, "Unknown interaction");
    call.state.interactions.get(id).filter(|it| it.token == token).ok_or_else(unknown)?;
    let given = call.request.body.clone();
    interactions::respond(call, id, &given)?;
    let with_response = call.request.query("with_response").unwrap_or_default();
    if !matches!(with_response, "true" | "True" | "1") {
        return Ok((204, Value::Null));
    }
    let found = call.state.interactions.get(id).ok_or_else(unknown)?;
    let (channel, original, kind, answer) = (found.channel, found.original, found.kind, given["type"].clone());
    let mut value = json!({"interaction": {"id": id.to_string(), "type": kind}});
    if let Some(original) = original {
        let (_, message) = shown(call, channel, original)?;
        let flags = message["flags"].as_u64().unwrap_or(0);
        let about = &mut value["interaction"];
        about["response_message_id"] = text(original);
        about["response_message_loading"] = json!(flags & (1 << 7) != 0);
        about["response_message_ephemeral"] = json!(flags & (1 << 6) != 0);
        if answer == 4 || answer == 7 {
            value["resource"] = json!({"type": answer, "message": message});
        }
    }
    Ok((200, value))
}

pub(super) fn run(call: &mut Call<'_>, method: &str, application: &str, token: &str, rest: &[&str]) -> Answer {
    let application = number(application, "webhook_id")?;
    let id = interactions::by_token(call, application, token)?;
    match (method, rest) {
        ("POST", []) => {
            let (channel, message) = interactions::follow_up(call, id)?;
            shown(call, channel, message)
        }
        (_, ["messages", message]) => one(call, method, id, message),
        _ => Err(ApiError::not_found()),
    }
}

fn one(call: &mut Call<'_>, method: &str, id: Id, message: &str) -> Answer {
    let found = call.state.interactions.get(id).ok_or_else(ApiError::unknown_message)?;
    let channel = found.channel;
    let message = match message {
        "@original" => found.original.ok_or_else(ApiError::unknown_message)?,
        message => {
            let message = number(message, "message_id")?;
            let is_own = found.original == Some(message) || found.follow_ups.contains(&message);
            Some(message).filter(|_| is_own).ok_or_else(ApiError::unknown_message)?
        }
    };
    match method {
        "GET" => shown(call, channel, message),
        "PATCH" => {
            messages::apply_edit(call, channel, message)?;
            shown(call, channel, message)
        }
        "DELETE" => {
            if !posting::delete(call.state, channel, message) {
                return Err(ApiError::unknown_message());
            }
            Ok((204, Value::Null))
        }
        _ => Err(ApiError::not_found()),
    }
}
