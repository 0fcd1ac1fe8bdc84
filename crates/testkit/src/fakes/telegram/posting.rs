//! A message is put into a chat, and the bots of the chat are told.

use serde_json::{Map, Value, json};

use super::shapes;
use super::state::{Chat, ChatKey, ChatKind, MAX_MESSAGES, State, Stored};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    User(i64),
    Bot(i64),
    /// A post in the name of the chat: channels, and administrators that stay anonymous.
    Chat,
}

#[derive(Debug, Default)]
pub(super) struct Post {
    /// The topic; `None` is General, or no topic at all.
    pub(super) thread: Option<i64>,
    pub(super) reply_to: Option<i64>,
    /// Text, media and so on.
    pub(super) content: Map<String, Value>,
}

/// Stores a message and returns its id. The chat must be there.
pub(super) fn post(state: &mut State, key: ChatKey, date_s: u64, author: Author, post: Post) -> Option<i64> {
    let is_private = state.chat(key)?.kind == ChatKind::Private;
    let id = if is_private {
        let bot = state.bots.get_mut(&key.bot)?;
        bot.last_private_id += 1;
        bot.last_private_id
    } else {
        let chat = state.chats.get_mut(&key)?;
        chat.last_id += 1;
        chat.last_id
    };
    let chat = state.chat(key)?;
    let mut json = Map::new();
    json.insert("message_id".into(), id.into());
    match author {
        Author::User(user) | Author::Bot(user) if chat.kind != ChatKind::Channel => {
            json.insert("from".into(), shapes::user_by_id(state, user));
        }
        _ => {
            json.insert("sender_chat".into(), shapes::chat(state, chat));
        }
    }
    json.insert("chat".into(), shapes::chat(state, chat));
    json.insert("date".into(), date_s.into());
    let mut reply_to = post.reply_to;
    if let Some(topic) = post.thread.filter(|topic| chat.topics.contains_key(topic)) {
        json.insert("message_thread_id".into(), topic.into());
        json.insert("is_topic_message".into(), true.into());
        // Without another one, a message in a topic replies to the message that created it.
        reply_to = reply_to.or_else(|| (id != topic).then_some(topic));
    } else if let Some(anchor) = anchor(chat, reply_to) {
        json.insert("message_thread_id".into(), anchor.into());
    }
    json.extend(post.content);
    let by_bot = if let Author::Bot(bot) = author { Some(bot) } else { None };
    let stored = Stored { json, reply_to, reactions: std::collections::BTreeMap::new(), deleted: false, by_bot };
    let messages = &mut state.chats.get_mut(&key)?.messages;
    messages.insert(id, stored);
    if messages.len() > MAX_MESSAGES {
        messages.pop_first();
    }
    Some(id)
}

/// Replies in a supergroup are threads of their first message, which are no topics.
fn anchor(chat: &Chat, reply_to: Option<i64>) -> Option<i64> {
    let replied = chat.message(reply_to?).filter(|_| chat.kind == ChatKind::Supergroup)?;
    replied.json.get("message_thread_id").and_then(Value::as_i64).or(reply_to)
}

/// The service message of a new topic has the id of the topic.
pub(super) fn open_topic(
    state: &mut State,
    key: ChatKey,
    date_s: u64,
    author: Author,
    name: &str,
    color: i64,
) -> Option<i64> {
    let mut content = Map::new();
    content.insert("forum_topic_created".into(), json!({"name": name, "icon_color": color}));
    let id = post(state, key, date_s, author, Post { content, ..Post::default() })?;
    let chat = state.chats.get_mut(&key)?;
    chat.topics.insert(id, super::state::Topic { name: name.to_owned(), icon_color: color, closed: false });
    let stored = chat.messages.get_mut(&id)?;
    stored.json.insert("message_thread_id".into(), id.into());
    stored.json.insert("is_topic_message".into(), true.into());
    Some(id)
}

/// Queues an update about a message for the bots of the chat that may see it. Bots do not see messages of bots.
pub(super) fn announce(state: &mut State, key: ChatKey, id: i64, edited: bool) {
    let Some(shown) = shapes::message(state, key, id) else { return };
    let is_channel = state.chat(key).is_some_and(|chat| chat.kind == ChatKind::Channel);
    let kind = match (is_channel, edited) {
        (true, false) => "channel_post",
        (true, true) => "edited_channel_post",
        (false, false) => "message",
        (false, true) => "edited_message",
    };
    for bot in state.bots_in(key) {
        if may_see(state, key, bot, id, &shown) {
            emit(state, bot, kind, shown.clone());
        }
    }
}

pub(super) fn emit(state: &mut State, bot: i64, kind: &str, body: Value) -> Option<i64> {
    state.bots.get_mut(&bot)?.queue.push(kind, body)
}

/// Privacy mode: commands, mentions, replies to the bot and service messages; all for administrators and in channels.
fn may_see(state: &State, key: ChatKey, bot: i64, id: i64, shown: &Value) -> bool {
    let (Some(chat), Some(known)) = (state.chat(key), state.bots.get(&bot)) else { return false };
    let stored = chat.messages.get(&id);
    if stored.is_some_and(|it| it.by_bot.is_some()) {
        return false;
    }
    if known.reads_all || !chat.kind.is_group() || chat.is_admin(bot) {
        return true;
    }
    let text = shown["text"].as_str().or(shown["caption"].as_str());
    let is_media = ["photo", "document", "voice", "video", "audio", "sticker", "location", "animation"]
        .iter()
        .any(|name| shown.get(name).is_some());
    let Some(text) = text else { return !is_media };
    let username = state.users.get(&bot).and_then(|user| user.username.clone()).unwrap_or_default();
    let replied = stored.and_then(|it| it.reply_to).and_then(|id| chat.messages.get(&id));
    text.starts_with('/')
        || text.to_lowercase().contains(&format!("@{}", username.to_lowercase()))
        || replied.is_some_and(|it| it.by_bot == Some(bot))
}
