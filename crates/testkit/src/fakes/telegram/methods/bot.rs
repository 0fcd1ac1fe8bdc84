//! The bot itself: who it is, its commands, and answers to buttons.

use serde_json::{Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::shapes;
use super::Call;

const MAX_COMMANDS: usize = 100;

pub(super) fn get_me(call: &Call<'_>) -> Value {
    call.state.bots.get(&call.bot).map_or(Value::Null, |bot| shapes::me(call.state, bot))
}

/// Lists are kept by scope and language.
fn list_key(call: &Call<'_>) -> Result<(String, String), ApiError> {
    let scope = call.params.json("scope")?.unwrap_or_else(|| json!({"type": "default"}));
    Ok((scope.to_string(), call.params.text("language_code").unwrap_or_default()))
}

pub(super) fn set_commands(call: &mut Call<'_>) -> Answer {
    let list = call.params.json("commands")?.ok_or_else(|| ApiError::bad("parameter \"commands\" is required"))?;
    let items = list.as_array().ok_or_else(|| ApiError::bad("can't parse commands: expected an Array"))?;
    if items.len() > MAX_COMMANDS {
        return Err(ApiError::bad("BOT_COMMANDS_TOO_MUCH"));
    }
    for item in items {
        let name = item["command"].as_str().unwrap_or_default();
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !(1..=32).contains(&name.len()) || !name.chars().all(is_name) {
            return Err(ApiError::bad("BOT_COMMAND_INVALID"));
        }
        let description = item["description"].as_str().unwrap_or_default();
        if !(1..=256).contains(&description.chars().count()) {
            return Err(ApiError::bad("BOT_COMMAND_DESCRIPTION_INVALID"));
        }
    }
    let key = list_key(call)?;
    if let Some(bot) = call.state.bots.get_mut(&call.bot) {
        bot.commands.insert(key, list);
    }
    Ok(true.into())
}

pub(super) fn get_commands(call: &Call<'_>) -> Answer {
    let key = list_key(call)?;
    let known = call.state.bots.get(&call.bot).and_then(|bot| bot.commands.get(&key));
    Ok(known.cloned().unwrap_or_else(|| json!([])))
}

pub(super) fn delete_commands(call: &mut Call<'_>) -> Answer {
    let key = list_key(call)?;
    if let Some(bot) = call.state.bots.get_mut(&call.bot) {
        bot.commands.remove(&key);
    }
    Ok(true.into())
}

pub(super) fn answer_callback(call: &mut Call<'_>) -> Answer {
    let id = call.params.text("callback_query_id").unwrap_or_default();
    let text = call.params.text("text");
    if text.as_ref().is_some_and(|text| text.chars().count() > 200) {
        return Err(ApiError::bad("MESSAGE_TOO_LONG"));
    }
    let answer = json!({"text": text, "show_alert": call.params.is_true("show_alert"), "url": call.params.text("url")});
    let bot = call.bot;
    match call.state.callbacks.get_mut(&id).filter(|callback| callback.bot == bot && callback.answer.is_none()) {
        Some(callback) => callback.answer = Some(answer),
        None => {
            return Err(ApiError::bad("query is too old and response timeout expired or query ID is invalid"));
        }
    }
    Ok(true.into())
}
