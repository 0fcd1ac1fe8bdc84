//! Chats and their members.

use serde_json::{Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::shapes;
use super::Call;

pub(super) fn get(call: &Call<'_>) -> Answer {
    let key = call.chat_key()?;
    Ok(shapes::full_chat(call.state, call.chat_of(key)?))
}

pub(super) fn member(call: &Call<'_>) -> Answer {
    let key = call.chat_key()?;
    let user = call.params.int("user_id").ok_or_else(|| ApiError::bad("invalid user_id specified"))?;
    if !call.state.users.contains_key(&user) {
        return Err(ApiError::bad("user not found"));
    }
    let chat = call.chat_of(key)?;
    let is_here = key.bot != 0 && (user == key.id || user == key.bot);
    let status = if is_here { "member" } else { chat.status_of(user) };
    Ok(shapes::member(call.state, user, status))
}

pub(super) fn count(call: &Call<'_>) -> Answer {
    let key = call.chat_key()?;
    let chat = call.chat_of(key)?;
    let here = chat.members.keys().filter(|user| chat.has(**user)).count();
    Ok(if key.bot == 0 { here.into() } else { 2.into() })
}

pub(super) fn administrators(call: &Call<'_>) -> Answer {
    let key = call.chat_key()?;
    if key.bot != 0 {
        return Err(ApiError::bad("there are no administrators in the private chat"));
    }
    let chat = call.chat_of(key)?;
    let with_bots = call.params.is_true("return_bots");
    let is_shown = |user: &i64| {
        let is_other_bot = *user != call.bot && call.state.bots.contains_key(user);
        chat.is_admin(*user) && (with_bots || !is_other_bot)
    };
    let shown = chat.members.iter().filter(|(user, _)| is_shown(user));
    Ok(Value::Array(shown.map(|(user, status)| shapes::member(call.state, *user, status)).collect()))
}

pub(super) fn leave(call: &mut Call<'_>) -> Answer {
    let key = call.chat_key()?;
    let bot = call.bot;
    match call.state.chats.get_mut(&key).filter(|_| key.bot == 0) {
        Some(chat) => chat.members.insert(bot, "left".into()),
        None => return Err(ApiError::bad("chat member status can't be changed in private chats")),
    };
    Ok(true.into())
}

pub(super) fn profile_photos(call: &Call<'_>) -> Answer {
    let user = call.params.int("user_id").ok_or_else(|| ApiError::bad("invalid user_id specified"))?;
    if !call.state.users.contains_key(&user) {
        return Err(ApiError::bad("user not found"));
    }
    Ok(json!({"total_count": 0, "photos": []}))
}
