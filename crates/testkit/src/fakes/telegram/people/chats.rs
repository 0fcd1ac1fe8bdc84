//! Bots, users, chats, members and topics.

use serde_json::{Map, Value, json};

use super::super::posting::{Author, Post, announce, emit, open_topic, post};
use super::super::queue::Queue;
use super::super::shapes;
use super::super::state::{Bot, Chat, ChatKey, ChatKind, State, User};
use super::{ActError, At, NewBot, NewChat, NewUser, chat_key};

const FIRST_UPDATE: i64 = 100_000_001;
const TOPIC_COLOR: i64 = 7_322_096;

pub(super) fn add_bot(state: &mut State, new: NewBot) -> Result<Value, ActError> {
    if new.token.split_once(':').is_none_or(|(id, _)| id != new.id.to_string()) {
        return Err(ActError(format!("the token of bot {} must begin with \"{}:\"", new.id, new.id)));
    }
    let first_name = if new.first_name.is_empty() { new.username.clone() } else { new.first_name };
    let user = User { id: new.id, is_bot: true, first_name, username: Some(new.username), ..User::default() };
    let shown = shapes::user(&user);
    state.users.insert(new.id, user);
    let bot = Bot {
        id: new.id,
        token: new.token,
        reads_all: !new.privacy,
        queue: Queue::new(FIRST_UPDATE),
        webhook: None,
        commands: std::collections::BTreeMap::new(),
        last_private_id: 0,
    };
    state.bots.insert(new.id, bot);
    Ok(shown)
}

pub(super) fn add_user(state: &mut State, new: NewUser) -> Result<Value, ActError> {
    if new.id <= 0 {
        return Err(ActError("the id of a user must be positive".into()));
    }
    let NewUser { id, first_name, last_name, username, language_code } = new;
    let user = User { id, is_bot: false, first_name, last_name, username, language_code };
    let shown = shapes::user(&user);
    state.users.insert(id, user);
    Ok(shown)
}

pub(super) fn add_chat(state: &mut State, new: NewChat) -> Result<Value, ActError> {
    let kind = match new.kind.as_str() {
        "group" => ChatKind::Group,
        "supergroup" => ChatKind::Supergroup,
        "channel" => ChatKind::Channel,
        other => return Err(ActError(format!("{other:?} is not group, supergroup or channel"))),
    };
    if new.id >= 0 {
        return Err(ActError("the id of a group or channel must be negative".into()));
    }
    let mut chat = Chat::new(new.id, kind);
    chat.title = new.title;
    chat.username = new.username;
    chat.is_forum = new.is_forum;
    chat.members = new.members.into_iter().collect();
    let shown = shapes::chat(state, &chat);
    state.chats.insert(ChatKey::shared(new.id), chat);
    Ok(shown)
}

pub(super) fn open(state: &mut State, now_s: u64, at: &At, name: &str) -> Result<Value, ActError> {
    let key = chat_key(state, at)?;
    if !state.chat(key).is_some_and(|chat| chat.is_forum) {
        return Err(ActError(format!("chat {} is not a forum", at.chat)));
    }
    let author = at.from.map_or(Author::Chat, Author::User);
    let id = open_topic(state, key, now_s, author, name, TOPIC_COLOR);
    let id = id.ok_or_else(|| ActError(format!("chat {} does not exist", at.chat)))?;
    announce(state, key, id, false);
    Ok(json!({"message_thread_id": id}))
}

/// Tells the bots of a change: the bot that it is about, and administrators that ask for it.
fn tell(state: &mut State, now_s: u64, key: ChatKey, by: i64, user: i64, status: (&str, &str)) {
    let Some(chat) = state.chat(key).map(|chat| shapes::chat(state, chat)) else { return };
    let (old, new) = status;
    let body = json!({"chat": chat, "from": shapes::user_by_id(state, by), "date": now_s,
        "old_chat_member": shapes::member(state, user, old), "new_chat_member": shapes::member(state, user, new)});
    if state.bots.contains_key(&user) {
        emit(state, user, "my_chat_member", body.clone());
    }
    for bot in state.bots_in(key) {
        if bot != user && key.bot == 0 && state.chat(key).is_some_and(|chat| chat.is_admin(bot)) {
            emit(state, bot, "chat_member", body.clone());
        }
    }
}

pub(super) fn member(state: &mut State, now_s: u64, at: &At, user: i64, status: &str) -> Result<Value, ActError> {
    if !["creator", "administrator", "member", "restricted", "left", "kicked"].contains(&status) {
        return Err(ActError(format!("{status:?} is not a status of a member")));
    }
    let key = chat_key(state, at)?;
    let by = at.from.unwrap_or(user);
    let chat = state.chats.get_mut(&key).ok_or_else(|| ActError(format!("chat {} does not exist", at.chat)))?;
    let old = chat.members.insert(user, status.to_owned()).unwrap_or_else(|| "left".to_owned());
    tell(state, now_s, key, by, user, (&old, status));
    Ok(true.into())
}

pub(super) fn join(state: &mut State, now_s: u64, at: &At, users: &[i64]) -> Result<Value, ActError> {
    let key = chat_key(state, at)?;
    for user in users {
        member(state, now_s, at, *user, "member")?;
    }
    let mut content = Map::new();
    let shown: Vec<Value> = users.iter().map(|user| shapes::user_by_id(state, *user)).collect();
    content.insert("new_chat_members".into(), Value::Array(shown));
    let by = at.from.or(users.first().copied()).unwrap_or_default();
    let id = post(state, key, now_s, Author::User(by), Post { content, ..Post::default() });
    let id = id.ok_or_else(|| ActError(format!("chat {} does not exist", at.chat)))?;
    announce(state, key, id, false);
    shapes::message(state, key, id).ok_or_else(|| super::missing(id))
}

pub(super) fn block(state: &mut State, now_s: u64, at: &At, blocked: bool) -> Result<Value, ActError> {
    let key = chat_key(state, at)?;
    if key.bot == 0 {
        return Err(ActError("only the user of a private chat can block a bot".into()));
    }
    let chat = state.chats.entry(key).or_insert_with(|| Chat::new(at.chat, ChatKind::Private));
    chat.blocked = blocked;
    let status = if blocked { ("member", "kicked") } else { ("kicked", "member") };
    tell(state, now_s, key, key.id, key.bot, status);
    Ok(true.into())
}

/// Both chats get a service message: the old one names the new one, and the other way round.
pub(super) fn migrate(state: &mut State, now_s: u64, at: &At, to: i64) -> Result<Value, ActError> {
    let old = chat_key(state, at)?;
    let chat = state.chats.get(&old).filter(|chat| chat.kind == ChatKind::Group && chat.migrated_to.is_none());
    let chat = chat.ok_or_else(|| ActError(format!("chat {} is not a group that can migrate", at.chat)))?;
    let mut upgraded = Chat::new(to, ChatKind::Supergroup);
    upgraded.title.clone_from(&chat.title);
    upgraded.members.clone_from(&chat.members);
    let new = ChatKey::shared(to);
    state.chats.insert(new, upgraded);
    let author = at.from.map_or(Author::Chat, Author::User);
    for (key, name, value) in [(old, "migrate_to_chat_id", to), (new, "migrate_from_chat_id", at.chat)] {
        let content: Map<String, Value> = [(name.to_owned(), value.into())].into_iter().collect();
        if let Some(id) = post(state, key, now_s, author, Post { content, ..Post::default() }) {
            announce(state, key, id, false);
        }
    }
    if let Some(chat) = state.chats.get_mut(&old) {
        chat.migrated_to = Some(to);
    }
    Ok(true.into())
}
