//! Bots, users, guilds, channels, roles and members.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::gateway::{Audience, dispatch};
use super::super::snowflake::Id;
use super::super::state::{Bot, Channel, Guild, Member, Role, State, User, kind};
use super::super::{channels, intents, permissions, shapes, signing};
use super::{ActError, Done};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewBot {
    /// Of the application and of its user.
    pub id: Id,
    pub token: String,
    pub username: String,
    /// Privileged intents that the portal denies: `message_content`, `members`, `presences`.
    pub denied: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewUser {
    pub id: Id,
    pub username: String,
    pub global_name: Option<String>,
    /// A bot that is not one of ours.
    pub bot: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewRole {
    pub id: Id,
    pub name: Option<String>,
    pub permissions: Option<u64>,
    pub color: u32,
    pub mentionable: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewMember {
    pub user: Id,
    pub nick: Option<String>,
    pub roles: Vec<Id>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewChannel {
    pub id: Id,
    pub guild: Id,
    pub name: String,
    /// text, news, forum or category.
    pub kind: String,
    pub topic: Option<String>,
    pub parent: Option<Id>,
    /// As in the API.
    pub permission_overwrites: Value,
    /// Names of a forum's tags.
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewGuild {
    pub id: Id,
    pub name: String,
    pub owner: Id,
    pub roles: Vec<NewRole>,
    pub members: Vec<NewMember>,
    pub channels: Vec<NewChannel>,
}

pub(super) fn add_bot(state: &mut State, new: NewBot) -> Value {
    let denied = new.denied.iter().fold(0, |all, name| {
        all | match name.as_str() {
            "message_content" => intents::MESSAGE_CONTENT,
            "members" => intents::GUILD_MEMBERS,
            "presences" => intents::GUILD_PRESENCES,
            _ => 0,
        }
    });
    let user = User { id: new.id, username: new.username, bot: true, ..User::default() };
    state.users.insert(new.id, user);
    let bot = Bot {
        id: new.id,
        token: new.token,
        privileged: intents::PRIVILEGED & !denied,
        endpoint: None,
        creates_ms: BTreeMap::new(),
        nonces: VecDeque::new(),
    };
    state.bots.insert(new.id, bot);
    json!({"id": new.id.to_string(), "public_key": signing::public_key(new.id)})
}

pub(super) fn add_user(state: &mut State, new: NewUser) -> Value {
    let user =
        User { id: new.id, username: new.username, global_name: new.global_name, bot: new.bot, closed_dm: false };
    let shown = shapes::user(&user);
    state.users.insert(new.id, user);
    shown
}

fn role(new: NewRole, position: usize) -> Role {
    Role {
        id: new.id,
        name: new.name.unwrap_or_else(|| "new role".into()),
        permissions: new.permissions.unwrap_or(0),
        position: i64::try_from(position).unwrap_or(0),
        color: new.color,
        mentionable: new.mentionable,
        of_bot: None,
    }
}

/// Each bot gets a role of its own, as when it is invited.
fn seat(state: &mut State, now_ms: u64, guild: Id, new: &NewMember) -> Result<(), ActError> {
    let user = state.users.get(&new.user).ok_or_else(|| ActError::missing("user", new.user))?;
    let own = user.bot.then(|| (state.ids.next(now_ms), user.username.clone()));
    let guild = state.guilds.get_mut(&guild).ok_or_else(|| ActError::missing("guild", guild))?;
    let mut roles: std::collections::BTreeSet<Id> = new.roles.iter().copied().collect();
    if let Some((id, name)) = own {
        let named = NewRole { id, name: Some(name), ..NewRole::default() };
        let managed = Role { of_bot: Some(new.user), ..role(named, guild.roles.len()) };
        guild.roles.insert(id, managed);
        roles.insert(id);
    }
    guild.members.insert(new.user, Member { nick: new.nick.clone(), roles, joined_ms: now_ms });
    Ok(())
}

pub(super) fn add_guild(state: &mut State, now_ms: u64, new: NewGuild) -> Done {
    let everyone = NewRole {
        id: new.id,
        name: Some("@everyone".into()),
        permissions: Some(permissions::OF_EVERYONE),
        ..NewRole::default()
    };
    let mut roles = BTreeMap::from([(new.id, role(everyone, 0))]);
    for (at, given) in new.roles.into_iter().enumerate() {
        roles.insert(given.id, role(given, at + 1));
    }
    let guild = Guild { id: new.id, name: new.name, owner: new.owner, roles, members: BTreeMap::new() };
    state.guilds.insert(new.id, guild);
    for member in &new.members {
        seat(state, now_ms, new.id, member)?;
    }
    for channel in new.channels {
        insert_channel(state, now_ms, NewChannel { guild: new.id, ..channel })?;
    }
    for bot in state.bots_of(new.id) {
        guild_created(state, new.id, bot);
    }
    shapes::guild(state, new.id).ok_or_else(|| ActError::missing("guild", new.id))
}

fn guild_created(state: &mut State, guild: Id, bot: Id) {
    dispatch(state, Audience::Bot(bot, Some(guild)), "GUILD_CREATE", |state, viewer| {
        shapes::guild_create(state, guild, viewer.bot, viewer.intents)
    });
}

fn insert_channel(state: &mut State, now_ms: u64, new: NewChannel) -> Result<Id, ActError> {
    let kind = match new.kind.as_str() {
        "" | "text" => kind::TEXT,
        "news" => kind::NEWS,
        "forum" => kind::FORUM,
        "category" => kind::CATEGORY,
        other => return Err(ActError(format!("{other} is not a kind of channel"))),
    };
    let position = state.channels.values().filter(|it| it.guild == Some(new.guild)).count();
    let mut channel = Channel::new(new.id, kind, Some(new.guild), new.name);
    channel.topic = new.topic;
    channel.parent = new.parent;
    channel.position = i64::try_from(position).unwrap_or(0);
    channel.overwrites = channels::read_overwrites(&new.permission_overwrites);
    channel.tags = new.tags.into_iter().map(|name| (state.ids.next(now_ms), name)).collect();
    state.channels.insert(new.id, channel);
    Ok(new.id)
}

pub(super) fn add_channel(state: &mut State, now_ms: u64, new: NewChannel) -> Done {
    let id = insert_channel(state, now_ms, new)?;
    channels::announce(state, id, "CHANNEL_CREATE");
    shown(state, id)
}

pub(super) fn shown(state: &State, id: Id) -> Done {
    let channel = state.channels.get(&id).ok_or_else(|| ActError::missing("channel", id))?;
    Ok(shapes::channel(state, channel, 0))
}

pub(super) fn change_channel(state: &mut State, now_ms: u64, id: Id, fields: Map<String, Value>) -> Done {
    channels::change(state, now_ms, id, &Value::Object(fields));
    shown(state, id)
}

pub(super) fn delete_channel(state: &mut State, id: Id) -> Done {
    let value = shown(state, id)?;
    channels::delete(state, id);
    Ok(value)
}

/// Who sees which channel of a guild before a change of roles.
fn seen(state: &State, guild: Id) -> Vec<(Id, Vec<Id>)> {
    let of_guild = state.channels.values().filter(|it| it.guild == Some(guild) && it.thread.is_none());
    of_guild.map(|channel| (channel.id, channels::seen_by(state, channel.id))).collect()
}

pub(super) fn put_role(state: &mut State, guild: Id, new: NewRole) -> Done {
    let before = seen(state, guild);
    let found = state.guilds.get_mut(&guild).ok_or_else(|| ActError::missing("guild", guild))?;
    let count = found.roles.len();
    let is_new = !found.roles.contains_key(&new.id);
    let id = new.id;
    let kept = found.roles.entry(id).or_insert_with(|| role(new.clone(), count));
    kept.name = new.name.unwrap_or_else(|| kept.name.clone());
    kept.permissions = new.permissions.unwrap_or(kept.permissions);
    let value = json!({"guild_id": guild.to_string(), "role": shapes::role(kept)});
    let event = if is_new { "GUILD_ROLE_CREATE" } else { "GUILD_ROLE_UPDATE" };
    dispatch(state, Audience::Guild(guild), event, |_, _| Some(value.clone()));
    channels::sync_threads(state, &before);
    Ok(value)
}

pub(super) fn delete_role(state: &mut State, guild: Id, role: Id) -> Done {
    let found = state.guilds.get_mut(&guild).ok_or_else(|| ActError::missing("guild", guild))?;
    found.roles.remove(&role).ok_or_else(|| ActError::missing("role", role))?;
    for member in found.members.values_mut() {
        member.roles.remove(&role);
    }
    let value = json!({"guild_id": guild.to_string(), "role_id": role.to_string()});
    dispatch(state, Audience::Guild(guild), "GUILD_ROLE_DELETE", |_, _| Some(value.clone()));
    Ok(value)
}

fn member_told(state: &mut State, guild: Id, user: Id, event: &str) -> Done {
    let unknown = || ActError::missing("member", user);
    let mut value = shapes::member(state, guild, user).ok_or_else(unknown)?;
    value["guild_id"] = json!(guild.to_string());
    dispatch(state, Audience::Guild(guild), event, |_, _| Some(value.clone()));
    Ok(value)
}

pub(super) fn join(state: &mut State, now_ms: u64, guild: Id, member: NewMember) -> Done {
    seat(state, now_ms, guild, &member)?;
    if state.bots.contains_key(&member.user) {
        guild_created(state, guild, member.user);
    }
    member_told(state, guild, member.user, "GUILD_MEMBER_ADD")
}

/// Roles that belong to bots stay.
pub(super) fn change_member(state: &mut State, guild: Id, new: NewMember) -> Done {
    let before = seen(state, guild);
    let found = state.guilds.get_mut(&guild).ok_or_else(|| ActError::missing("guild", guild))?;
    let managed: Vec<Id> = found.roles.values().filter(|role| role.of_bot.is_some()).map(|role| role.id).collect();
    let member = found.members.get_mut(&new.user).ok_or_else(|| ActError::missing("member", new.user))?;
    member.nick = new.nick;
    member.roles.retain(|role| managed.contains(role));
    member.roles.extend(new.roles);
    let done = member_told(state, guild, new.user, "GUILD_MEMBER_UPDATE");
    channels::sync_threads(state, &before);
    done
}

pub(super) fn leave(state: &mut State, guild: Id, user: Id) -> Done {
    let found = state.guilds.get_mut(&guild).ok_or_else(|| ActError::missing("guild", guild))?;
    found.members.remove(&user).ok_or_else(|| ActError::missing("member", user))?;
    let value = json!({"guild_id": guild.to_string(), "user": shapes::user_of(state, user)});
    dispatch(state, Audience::Guild(guild), "GUILD_MEMBER_REMOVE", |_, _| Some(value.clone()));
    if state.bots.contains_key(&user) {
        let gone = json!({"id": guild.to_string()});
        dispatch(state, Audience::Bot(user, Some(guild)), "GUILD_DELETE", |_, _| Some(gone.clone()));
    }
    Ok(value)
}
