//! Reactions: only emoji of the platform's fixed list.

use serde_json::Value;

use super::super::answer::{Answer, ApiError};
use super::Call;

const EMOJI: &str = "❤ 👍 👎 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤‍🔥 🌚 🌭 💯 🤣 ⚡ 🍌 🏆 💔 🤨 😐 🍓 🍾 💋 🖕 😈 😴 \
    😭 🤓 👻 👨‍💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾 🤷‍♂ 🤷 🤷‍♀ 😡";

pub(in super::super) fn is_known(emoji: &str) -> bool {
    // Clients may add the variation selector that asks for a coloured picture.
    let plain = emoji.replace('\u{fe0f}', "");
    EMOJI.split_whitespace().any(|known| known == plain)
}

pub(super) fn set(call: &mut Call<'_>) -> Answer {
    let key = call.chat_key()?;
    let id = call.params.int("message_id").ok_or_else(|| ApiError::bad("message identifier is not specified"))?;
    let given = call.params.json("reaction")?.unwrap_or_else(|| Value::Array(Vec::new()));
    let list = given.as_array().ok_or_else(|| ApiError::bad("can't parse reaction types JSON object"))?;
    if list.len() > 1 {
        return Err(ApiError::bad("REACTIONS_TOO_MANY"));
    }
    for reaction in list {
        let emoji = reaction["emoji"].as_str().unwrap_or_default();
        if reaction["type"] != "emoji" || !is_known(emoji) {
            return Err(ApiError::bad("REACTION_INVALID"));
        }
    }
    let bot = call.bot;
    let message = call.state.chats.get_mut(&key).and_then(|chat| chat.messages.get_mut(&id));
    let message = message.filter(|it| !it.deleted).ok_or_else(|| ApiError::bad("message to react not found"))?;
    message.reactions.insert(bot, given);
    Ok(true.into())
}
