//! What users do: each act changes the chats and queues the updates that the real server would send.

mod chats;
mod messages;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::state::{ChatKey, State};

/// Why an act is not possible. A mistake of the test, not of the bot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ActError(pub String);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewBot {
    pub id: i64,
    pub token: String,
    pub username: String,
    pub first_name: String,
    /// Privacy mode is on: only commands, mentions and replies of groups reach the bot.
    pub privacy: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewUser {
    pub id: i64,
    pub first_name: String,
    pub last_name: Option<String>,
    pub username: Option<String>,
    pub language_code: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewChat {
    pub id: i64,
    /// group, supergroup or channel.
    pub kind: String,
    pub title: String,
    pub username: Option<String>,
    pub is_forum: bool,
    /// Users and bots, each with its status.
    pub members: Vec<(i64, String)>,
}

/// Where a message goes and who sends it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct At {
    /// The other side of a private chat; the first bot if it is not named.
    pub bot: Option<i64>,
    pub chat: i64,
    /// In the name of the chat, as in channels.
    pub from: Option<i64>,
    /// A topic of a forum; without it General.
    pub topic: Option<i64>,
    pub reply_to: Option<i64>,
    /// A part of the message that is replied to.
    pub quote: Option<String>,
}

impl At {
    pub fn new(chat: i64, from: i64) -> Self {
        Self { chat, from: Some(from), ..Self::default() }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Say {
    #[serde(flatten)]
    pub at: At,
    pub text: String,
    pub parse_mode: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewFile {
    /// photo, document, video, audio, voice, animation or sticker.
    pub kind: String,
    pub content: String,
    /// Instead of `content`, for bytes that are no text.
    pub content_hex: Option<String>,
    pub file_name: Option<String>,
    pub mime: Option<String>,
    /// The size that the server claims, if it is not that of the content.
    pub size: Option<u64>,
    pub caption: Option<String>,
    pub parse_mode: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    AddBot(NewBot),
    AddUser(NewUser),
    AddChat(NewChat),
    Say(Say),
    Media {
        #[serde(flatten)]
        at: At,
        #[serde(flatten)]
        file: NewFile,
    },
    /// One update for each file, with one `media_group_id`.
    Album {
        #[serde(flatten)]
        at: At,
        files: Vec<NewFile>,
    },
    Location {
        #[serde(flatten)]
        at: At,
        latitude: f64,
        longitude: f64,
    },
    /// A user changes the text or the caption of a message.
    Edit {
        #[serde(flatten)]
        at: At,
        message_id: i64,
        text: String,
    },
    /// A user deletes a message. Bots are not told.
    Delete {
        #[serde(flatten)]
        at: At,
        message_id: i64,
    },
    /// A user presses a button of a message, named by its data or its label.
    Press {
        #[serde(flatten)]
        at: At,
        message_id: i64,
        #[serde(default)]
        data: Option<String>,
        #[serde(default)]
        label: Option<String>,
    },
    React {
        #[serde(flatten)]
        at: At,
        message_id: i64,
        /// None takes the reaction back.
        #[serde(default)]
        emoji: Option<String>,
    },
    OpenTopic {
        #[serde(flatten)]
        at: At,
        name: String,
    },
    /// `from` changes the status of a member; of the bot too.
    Member {
        #[serde(flatten)]
        at: At,
        user: i64,
        status: String,
    },
    /// Members with the service message that others see; `from` adds them.
    Join {
        #[serde(flatten)]
        at: At,
        users: Vec<i64>,
    },
    /// A user blocks the bot, or takes that back.
    Block {
        #[serde(flatten)]
        at: At,
        blocked: bool,
    },
    /// A group becomes a supergroup with another id.
    Migrate {
        #[serde(flatten)]
        at: At,
        to: i64,
    },
    /// Any JSON as an update, also what no client can read.
    Raw {
        #[serde(default)]
        bot: Option<i64>,
        update: Value,
    },
}

pub(super) fn act(state: &mut State, now_ms: u64, act: Act) -> Result<Value, ActError> {
    let now_s = now_ms / 1_000;
    match act {
        Act::AddBot(bot) => chats::add_bot(state, bot),
        Act::AddUser(user) => chats::add_user(state, user),
        Act::AddChat(chat) => chats::add_chat(state, chat),
        Act::Say(said) => messages::say(state, now_s, said),
        Act::Media { at, file } => messages::media(state, now_s, &at, file, None),
        Act::Album { at, files } => messages::album(state, now_s, &at, files),
        Act::Location { at, latitude, longitude } => messages::location(state, now_s, &at, latitude, longitude),
        Act::Edit { at, message_id, text } => messages::edit(state, now_s, &at, message_id, &text),
        Act::Delete { at, message_id } => messages::delete(state, &at, message_id),
        Act::Press { at, message_id, data, label } => messages::press(state, &at, message_id, data, label),
        Act::React { at, message_id, emoji } => messages::react(state, now_s, &at, message_id, emoji),
        Act::OpenTopic { at, name } => chats::open(state, now_s, &at, &name),
        Act::Member { at, user, status } => chats::member(state, now_s, &at, user, &status),
        Act::Join { at, users } => chats::join(state, now_s, &at, &users),
        Act::Block { at, blocked } => chats::block(state, now_s, &at, blocked),
        Act::Migrate { at, to } => chats::migrate(state, now_s, &at, to),
        Act::Raw { bot, update } => {
            let bot = bot_or_first(state, bot)?;
            let known = state.bots.get_mut(&bot).ok_or_else(|| ActError(format!("bot {bot} does not exist")))?;
            Ok(known.queue.push_raw(update).into())
        }
    }
}

fn bot_or_first(state: &State, bot: Option<i64>) -> Result<i64, ActError> {
    bot.or_else(|| state.bots.keys().next().copied()).ok_or_else(|| ActError("there is no bot yet".into()))
}

fn chat_key(state: &State, at: &At) -> Result<ChatKey, ActError> {
    let bot = if at.chat > 0 { bot_or_first(state, at.bot)? } else { 0 };
    let key = ChatKey::seen_by(at.chat, bot);
    if state.chat(key).is_none() && at.chat < 0 {
        return Err(ActError(format!("chat {} does not exist: add it first", at.chat)));
    }
    Ok(key)
}

fn missing(id: i64) -> ActError {
    ActError(format!("message {id} does not exist"))
}
