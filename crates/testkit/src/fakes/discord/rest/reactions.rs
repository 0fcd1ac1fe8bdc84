//! Reactions of the bot and of others.

use serde_json::Value;

use super::super::answer::{Answer, ApiError};
use super::super::permissions::{ADD_REACTIONS, MANAGE_MESSAGES, READ_HISTORY};
use super::super::{posting, shapes};
use super::{Call, number};

const MAX_KINDS: usize = 20;

pub(super) fn run(call: &mut Call<'_>, method: &str, channel: &str, message: &str, rest: &[&str]) -> Answer {
    let place = call.channel(channel, READ_HISTORY)?.id;
    let id = number(message, "message_id")?;
    let found =
        call.state.message(place, id).filter(|it| it.only_for.is_none()).ok_or_else(ApiError::unknown_message)?;
    let Some(emoji) = rest.first().copied() else { return Err(ApiError::not_found()) };
    let (kinds, is_there) = (found.reactions.len(), found.reactions.iter().any(|it| it.emoji == emoji));
    match (method, &rest[1..]) {
        ("PUT", ["@me"]) => {
            if !is_emoji(emoji) {
                return Err(ApiError::new(400, 10014, "Unknown Emoji"));
            }
            if !is_there {
                call.channel(channel, ADD_REACTIONS)?;
                if kinds >= MAX_KINDS {
                    return Err(ApiError::new(400, 30010, "Maximum number of reactions reached (20)"));
                }
            }
            posting::react(call.state, place, id, call.bot, emoji, true);
        }
        ("DELETE", ["@me"]) => {
            posting::react(call.state, place, id, call.bot, emoji, false);
        }
        ("DELETE", [user]) => {
            call.channel(channel, MANAGE_MESSAGES)?;
            let user = number(user, "user_id")?;
            posting::react(call.state, place, id, user, emoji, false);
        }
        ("GET", []) => {
            let reaction = found.reactions.iter().find(|it| it.emoji == emoji);
            let users = reaction.iter().flat_map(|it| it.users.iter());
            return Ok((200, users.map(|user| shapes::user_of(call.state, *user)).collect()));
        }
        _ => return Err(ApiError::not_found()),
    }
    Ok((204, Value::Null))
}

/// Close to what the vendor accepts: no letters, unless it is an emoji of a guild.
fn is_emoji(text: &str) -> bool {
    match text.split_once(':') {
        Some((name, id)) => !name.is_empty() && id.parse::<u64>().is_ok(),
        None => !text.is_empty() && !text.chars().any(|it| it.is_alphabetic() || it.is_whitespace()),
    }
}
