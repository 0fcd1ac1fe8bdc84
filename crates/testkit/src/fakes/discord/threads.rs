//! Threads and posts of forums, by users or bots.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::gateway::{Audience, dispatch};
use super::snowflake::Id;
use super::state::{Channel, Message, State, Thread, kind};
use super::{posting, shapes};

pub(super) struct NewThread<'a> {
    pub(super) parent: Id,
    pub(super) kind: u8,
    pub(super) owner: Id,
    pub(super) name: &'a str,
    /// The message that it is opened on. The thread has its id.
    pub(super) on: Option<Id>,
    pub(super) auto_archive_min: u64,
    pub(super) tags: Vec<Id>,
}

const HAS_THREAD: u64 = 1 << 5;

/// Opens it, with the messages that tell of it.
pub(super) fn open(state: &mut State, now_ms: u64, mut new: NewThread<'_>) -> Id {
    let id = new.on.unwrap_or_else(|| state.ids.next(now_ms));
    open_as(state, now_ms, &mut new, id);
    if let Some(on) = new.on {
        posting::update(state, now_ms, new.parent, on, false, |message| {
            message.thread = Some(id);
            message.flags |= HAS_THREAD;
        });
        let starter = Message { author: new.owner, kind: 21, reference: Some((new.parent, on)), ..Message::default() };
        posting::post(state, now_ms, id, starter);
    } else if new.kind != kind::PRIVATE_THREAD {
        let content = new.name.to_owned();
        let notice = Message { author: new.owner, kind: 18, content, reference: Some((id, 0)), ..Message::default() };
        posting::post(state, now_ms, new.parent, notice);
    }
    id
}

/// The channel alone, under this id.
pub(super) fn open_as(state: &mut State, now_ms: u64, new: &mut NewThread<'_>, id: Id) {
    let parent = state.channels.get(&new.parent);
    let (guild, in_forum) = (parent.and_then(|it| it.guild), parent.is_some_and(|it| it.kind == kind::FORUM));
    let mut channel = Channel::new(id, new.kind, guild, new.name);
    channel.parent = Some(new.parent);
    channel.thread = Some(Thread {
        owner: new.owner,
        archived: false,
        locked: false,
        auto_archive_min: new.auto_archive_min,
        changed_ms: now_ms,
        members: BTreeMap::from([(new.owner, now_ms)]),
        sent: 0,
        tags: std::mem::take(&mut new.tags),
    });
    state.channels.insert(id, channel);
    if in_forum && let Some(forum) = state.channels.get_mut(&new.parent) {
        forum.last_message = Some(id);
    }
    created(state, Audience::Channel(id), id, true);
}

fn created(state: &mut State, audience: Audience, id: Id, is_new: bool) {
    dispatch(state, audience, "THREAD_CREATE", |state, viewer| {
        let mut shown = shapes::channel(state, state.channels.get(&id)?, viewer.bot);
        if is_new {
            shown["newly_created"] = json!(true);
        }
        Some(shown)
    });
}

pub(super) fn updated(state: &mut State, now_ms: u64, id: Id) {
    if let Some(thread) = state.channels.get_mut(&id).and_then(|channel| channel.thread.as_mut()) {
        thread.changed_ms = now_ms;
    }
    dispatch(state, Audience::Channel(id), "THREAD_UPDATE", |state, viewer| {
        Some(shapes::channel(state, state.channels.get(&id)?, viewer.bot))
    });
}

pub(super) fn delete(state: &mut State, id: Id) -> bool {
    let Some(channel) = state.channels.get(&id) else { return false };
    let data = json!({"id": id.to_string(), "guild_id": channel.guild.map(|it| it.to_string()),
        "parent_id": channel.parent.map(|it| it.to_string()), "type": channel.kind});
    dispatch(state, Audience::Channel(id), "THREAD_DELETE", |_, _| Some(data.clone()));
    let on = channel_parent(state, id);
    state.channels.remove(&id);
    if let Some(message) = on.and_then(|parent| state.message_mut(parent, id)) {
        message.thread = None;
        message.flags &= !HAS_THREAD;
    }
    true
}

fn channel_parent(state: &State, id: Id) -> Option<Id> {
    state.channels.get(&id).and_then(|channel| channel.parent)
}

/// A bot that was not there before is also told of the thread.
pub(super) fn join(state: &mut State, now_ms: u64, id: Id, user: Id) {
    let Some(channel) = state.channels.get_mut(&id) else { return };
    let Some(thread) = channel.thread.as_mut() else { return };
    if thread.members.contains_key(&user) {
        return;
    }
    thread.members.insert(user, now_ms);
    let guild = channel.guild;
    if state.bots.contains_key(&user) {
        created(state, Audience::Bot(user, guild), id, false);
    }
    members_changed(state, now_ms, id, &[user], &[]);
}

pub(super) fn leave(state: &mut State, now_ms: u64, id: Id, user: Id) {
    let thread = state.channels.get_mut(&id).and_then(|channel| channel.thread.as_mut());
    if thread.is_some_and(|thread| thread.members.remove(&user).is_some()) {
        members_changed(state, now_ms, id, &[], &[user]);
    }
}

fn members_changed(state: &mut State, now_ms: u64, id: Id, added: &[Id], removed: &[Id]) {
    let Some(channel) = state.channels.get(&id) else { return };
    let (guild, count) = (channel.guild, channel.thread.as_ref().map_or(0, |thread| thread.members.len()));
    dispatch(state, Audience::Channel(id), "THREAD_MEMBERS_UPDATE", |state, viewer| {
        let concerns = added.contains(&viewer.bot) || removed.contains(&viewer.bot);
        if viewer.intents & super::intents::GUILD_MEMBERS == 0 && !concerns {
            return None;
        }
        let mut data = json!({"id": id.to_string(), "guild_id": guild.map(|it| it.to_string()),
            "member_count": count.min(50)});
        if !added.is_empty() {
            let shown = added.iter().map(|user| {
                let mut member = shapes::thread_member(id, *user, now_ms);
                member["member"] = guild.and_then(|guild| shapes::member(state, guild, *user)).unwrap_or_default();
                member["presence"] = Value::Null;
                member
            });
            data["added_members"] = shown.collect();
        }
        if !removed.is_empty() {
            data["removed_member_ids"] = super::snowflake::texts(removed.iter().copied());
        }
        Some(data)
    });
}

/// The threads of some channels, for a bot that sees them from now on.
pub(super) fn list_sync(state: &mut State, guild: Id, bot: Id, parents: &[Id]) {
    dispatch(state, Audience::Bot(bot, Some(guild)), "THREAD_LIST_SYNC", |state, viewer| {
        let of_parents = state.threads_of(guild).filter(|(channel, thread)| {
            let is_there = channel.parent.is_some_and(|parent| parents.contains(&parent));
            is_there && !thread.archived && super::permissions::sees(state, channel, viewer.bot)
        });
        let found: Vec<_> = of_parents.collect();
        let shown: Vec<Value> = found.iter().map(|(channel, _)| shapes::channel(state, channel, viewer.bot)).collect();
        let own = found.iter().filter_map(|(channel, thread)| {
            Some(shapes::thread_member(channel.id, viewer.bot, *thread.members.get(&viewer.bot)?))
        });
        Some(json!({"guild_id": guild.to_string(), "channel_ids": super::snowflake::texts(parents.iter().copied()),
            "threads": shown, "members": own.collect::<Vec<_>>()}))
    });
}
