//! Who may do what: roles, overwrites and threads, in the order in which the API applies them.

use super::snowflake::Id;
use super::state::{Channel, State, kind};

pub(super) const ADD_REACTIONS: u64 = 1 << 6;
pub(super) const ADMINISTRATOR: u64 = 1 << 3;
pub(super) const MANAGE_CHANNELS: u64 = 1 << 4;
pub(super) const VIEW_CHANNEL: u64 = 1 << 10;
pub(super) const SEND_MESSAGES: u64 = 1 << 11;
pub(super) const MANAGE_MESSAGES: u64 = 1 << 13;
pub(super) const EMBED_LINKS: u64 = 1 << 14;
pub(super) const ATTACH_FILES: u64 = 1 << 15;
pub(super) const READ_HISTORY: u64 = 1 << 16;
pub(super) const MENTION_EVERYONE: u64 = 1 << 17;
pub(super) const USE_COMMANDS: u64 = 1 << 31;
pub(super) const MANAGE_THREADS: u64 = 1 << 34;
pub(super) const CREATE_PUBLIC_THREADS: u64 = 1 << 35;
pub(super) const CREATE_PRIVATE_THREADS: u64 = 1 << 36;
pub(super) const SEND_IN_THREADS: u64 = 1 << 38;

/// Of the role @everyone, where a test names none.
pub(super) const OF_EVERYONE: u64 = ADD_REACTIONS
    | VIEW_CHANNEL
    | SEND_MESSAGES
    | EMBED_LINKS
    | ATTACH_FILES
    | READ_HISTORY
    | MENTION_EVERYONE
    | USE_COMMANDS
    | CREATE_PUBLIC_THREADS
    | CREATE_PRIVATE_THREADS
    | SEND_IN_THREADS;

/// In the guild as a whole.
pub(super) fn in_guild(state: &State, guild: Id, user: Id) -> u64 {
    let Some(guild) = state.guilds.get(&guild) else { return 0 };
    let Some(member) = guild.members.get(&user) else { return 0 };
    if guild.owner == user {
        return u64::MAX;
    }
    let everyone = guild.roles.get(&guild.id).map_or(0, |role| role.permissions);
    let of_roles = member.roles.iter().filter_map(|role| guild.roles.get(role));
    let all = of_roles.fold(everyone, |all, role| all | role.permissions);
    if all & ADMINISTRATOR != 0 { u64::MAX } else { all }
}

/// In a channel; a thread has those of its parent.
pub(super) fn in_channel(state: &State, channel: &Channel, user: Id) -> u64 {
    let Some(guild) = channel.guild else {
        return if channel.recipients.contains(&user) { u64::MAX } else { 0 };
    };
    if channel.thread.is_some() {
        let parent = channel.parent.and_then(|parent| state.channels.get(&parent));
        return parent.map_or(0, |parent| in_channel(state, parent, user));
    }
    let base = in_guild(state, guild, user);
    if base == u64::MAX || base == 0 {
        return base;
    }
    let member = state.guilds.get(&guild).and_then(|guild| guild.members.get(&user));
    let Some(member) = member else { return 0 };
    let find = |id: Id| channel.overwrites.iter().find(move |overwrite| overwrite.id == id);
    let mut all = base;
    if let Some(everyone) = find(guild) {
        all = (all & !everyone.deny) | everyone.allow;
    }
    let of_roles = || channel.overwrites.iter().filter(|it| !it.is_member && member.roles.contains(&it.id));
    all &= !of_roles().fold(0, |all, it| all | it.deny);
    all |= of_roles().fold(0, |all, it| all | it.allow);
    if let Some(own) = find(user).filter(|it| it.is_member) {
        all = (all & !own.deny) | own.allow;
    }
    // Without the view of a channel nothing else counts.
    if all & VIEW_CHANNEL == 0 { 0 } else { all }
}

pub(super) fn may(state: &State, channel: &Channel, user: Id, wanted: u64) -> bool {
    in_channel(state, channel, user) & wanted == wanted
}

/// Private threads are seen by their members and by those who manage threads.
pub(super) fn sees(state: &State, channel: &Channel, user: Id) -> bool {
    if !may(state, channel, user, VIEW_CHANNEL) {
        return false;
    }
    let Some(thread) = channel.thread.as_ref().filter(|_| channel.kind == kind::PRIVATE_THREAD) else { return true };
    thread.members.contains_key(&user) || may(state, channel, user, MANAGE_THREADS)
}
