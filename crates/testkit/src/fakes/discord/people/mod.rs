//! What users do: each act changes the guilds and channels and causes the dispatches that the real server would send.
//!
//! Ids are numbers here. In results they are texts, as the API writes them.

mod guilds;
mod interact;
mod messages;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::snowflake::Id;
use super::state::State;
pub use guilds::{NewBot, NewChannel, NewGuild, NewMember, NewRole, NewUser};
pub use interact::Interact;
pub use messages::{NewFile, Say};

/// Why an act is not possible. A mistake of the test, not of the bot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ActError(pub String);

impl ActError {
    fn missing(what: &str, id: Id) -> Self {
        Self(format!("{what} {id} does not exist"))
    }
}

type Done = Result<Value, ActError>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    AddBot(NewBot),
    AddUser(NewUser),
    AddGuild(NewGuild),
    AddChannel(NewChannel),
    /// Fields as in the API: name, topic, `permission_overwrites`, archived, locked.
    ChangeChannel {
        channel: Id,
        #[serde(flatten)]
        fields: serde_json::Map<String, Value>,
    },
    DeleteChannel {
        channel: Id,
    },
    /// A new role, or a change of one that is there.
    PutRole {
        guild: Id,
        #[serde(flatten)]
        role: NewRole,
    },
    DeleteRole {
        guild: Id,
        role: Id,
    },
    /// A user comes into a guild, or a bot is invited.
    Join {
        guild: Id,
        #[serde(flatten)]
        member: NewMember,
    },
    ChangeMember {
        guild: Id,
        #[serde(flatten)]
        member: NewMember,
    },
    Leave {
        guild: Id,
        user: Id,
    },
    /// The user accepts direct messages or does not.
    CloseDm {
        user: Id,
        closed: bool,
    },
    Say(Say),
    Edit {
        channel: Id,
        message: Id,
        text: String,
    },
    Delete {
        channel: Id,
        message: Id,
    },
    React {
        channel: Id,
        message: Id,
        from: Id,
        emoji: String,
        #[serde(default)]
        remove: bool,
    },
    Type {
        channel: Id,
        from: Id,
    },
    /// On a message, or without one.
    OpenThread {
        channel: Id,
        from: Id,
        name: String,
        #[serde(default)]
        message: Option<Id>,
        #[serde(default)]
        private: bool,
    },
    /// A post of a forum: a thread whose first message has its id.
    PostInForum {
        channel: Id,
        from: Id,
        name: String,
        text: String,
        #[serde(default)]
        tags: Vec<Id>,
    },
    JoinThread {
        thread: Id,
        user: Id,
    },
    LeaveThread {
        thread: Id,
        user: Id,
    },
    DeleteThread {
        thread: Id,
    },
    /// Of a bot; without proof. `None` sends interactions over the socket.
    SetEndpoint {
        bot: Id,
        url: Option<String>,
    },
    Interact(Interact),
}

pub(super) fn act(state: &mut State, now_ms: u64, act: Act) -> Done {
    match act {
        Act::AddBot(bot) => Ok(guilds::add_bot(state, bot)),
        Act::AddUser(user) => Ok(guilds::add_user(state, user)),
        Act::AddGuild(guild) => guilds::add_guild(state, now_ms, guild),
        Act::AddChannel(channel) => guilds::add_channel(state, now_ms, channel),
        Act::ChangeChannel { channel, fields } => guilds::change_channel(state, now_ms, channel, fields),
        Act::DeleteChannel { channel } => guilds::delete_channel(state, channel),
        Act::PutRole { guild, role } => guilds::put_role(state, guild, role),
        Act::DeleteRole { guild, role } => guilds::delete_role(state, guild, role),
        Act::Join { guild, member } => guilds::join(state, now_ms, guild, member),
        Act::ChangeMember { guild, member } => guilds::change_member(state, guild, member),
        Act::Leave { guild, user } => guilds::leave(state, guild, user),
        Act::CloseDm { user, closed } => {
            state.users.get_mut(&user).ok_or_else(|| ActError::missing("user", user))?.closed_dm = closed;
            Ok(Value::Null)
        }
        Act::Say(say) => messages::say(state, now_ms, say),
        Act::Edit { channel, message, text } => messages::edit(state, now_ms, channel, message, &text),
        Act::Delete { channel, message } => messages::delete(state, channel, message),
        Act::React { channel, message, from, emoji, remove } => {
            messages::react(state, channel, message, from, &emoji, !remove)
        }
        Act::Type { channel, from } => messages::typing(state, now_ms, channel, from),
        Act::OpenThread { channel, from, name, message, private } => {
            messages::open_thread(state, now_ms, channel, from, &name, message, private)
        }
        Act::PostInForum { channel, from, name, text, tags } => {
            messages::post_in_forum(state, now_ms, channel, from, &name, text, tags)
        }
        Act::JoinThread { thread, user } => messages::thread_member(state, now_ms, thread, user, true),
        Act::LeaveThread { thread, user } => messages::thread_member(state, now_ms, thread, user, false),
        Act::DeleteThread { thread } => messages::delete_thread(state, thread),
        Act::SetEndpoint { bot, url } => {
            state.bots.get_mut(&bot).ok_or_else(|| ActError::missing("bot", bot))?.endpoint = url;
            Ok(Value::Null)
        }
        Act::Interact(interact) => interact::begin(state, now_ms, interact),
    }
}
