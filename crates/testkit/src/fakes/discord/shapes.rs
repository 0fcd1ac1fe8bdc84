//! Objects as the API shows them.

use serde_json::{Value, json};

use super::gateway::Viewer;
use super::snowflake::{self, Id, iso, millis_of, text};
use super::state::{Channel, Message, Role, State, Thread, User, kind};
use super::{files, intents, permissions};

pub(super) fn user(user: &User) -> Value {
    let discriminator = if user.bot { format!("{:04}", user.id % 10_000) } else { "0".to_owned() };
    let mut shown = json!({"id": user.id.to_string(), "username": user.username, "discriminator": discriminator,
        "global_name": user.global_name, "avatar": null, "avatar_decoration_data": null, "collectibles": null,
        "banner": null, "accent_color": null, "public_flags": 0, "flags": 0, "primary_guild": null, "clan": null});
    if user.bot {
        shown["bot"] = json!(true);
    }
    shown
}

/// A user who is not known is shown as one who deleted the account.
pub(super) fn user_of(state: &State, id: Id) -> Value {
    let unknown = || User { id, username: "deleted_user".into(), ..User::default() };
    state.users.get(&id).map_or_else(|| user(&unknown()), user)
}

pub(super) fn application_flags(state: &State, bot: Id) -> u64 {
    let privileged = state.bots.get(&bot).map_or(0, |bot| bot.privileged);
    let pairs = [(intents::GUILD_PRESENCES, 12), (intents::GUILD_MEMBERS, 14), (intents::MESSAGE_CONTENT, 18)];
    pairs.iter().filter(|(intent, _)| privileged & intent != 0).fold(0, |all, (_, bit)| all | 1 << bit)
}

pub(super) fn role(role: &Role) -> Value {
    let mut shown = json!({"id": role.id.to_string(), "name": role.name, "description": null,
        "permissions": role.permissions.to_string(), "position": role.position, "color": role.color,
        "colors": {"primary_color": role.color, "secondary_color": null, "tertiary_color": null},
        "hoist": false, "managed": role.of_bot.is_some(), "mentionable": role.mentionable, "icon": null,
        "unicode_emoji": null, "flags": 0});
    if let Some(bot) = role.of_bot {
        shown["tags"] = json!({"bot_id": bot.to_string()});
    }
    shown
}

pub(super) fn member(state: &State, guild: Id, user: Id) -> Option<Value> {
    let mut shown = partial_member(state, guild, user)?;
    shown["user"] = user_of(state, user);
    Some(shown)
}

/// Without the user, as beside an author.
pub(super) fn partial_member(state: &State, guild: Id, user: Id) -> Option<Value> {
    let member = state.guilds.get(&guild)?.members.get(&user)?;
    Some(json!({"nick": member.nick, "roles": snowflake::texts(member.roles.iter().copied()),
        "joined_at": iso(member.joined_ms), "avatar": null, "banner": null, "communication_disabled_until": null,
        "flags": 0, "pending": false, "premium_since": null, "mute": false, "deaf": false,
        "unusual_dm_activity_until": null}))
}

fn overwrites(channel: &Channel) -> Value {
    let shown = channel.overwrites.iter().map(|it| {
        json!({"id": it.id.to_string(), "type": u8::from(it.is_member), "allow": it.allow.to_string(),
            "deny": it.deny.to_string()})
    });
    shown.collect()
}

pub(super) fn thread_member(channel: Id, user: Id, joined_ms: u64) -> Value {
    json!({"id": channel.to_string(), "user_id": user.to_string(), "join_timestamp": iso(joined_ms), "flags": 0,
        "muted": false, "mute_config": null})
}

fn thread(channel: &Channel, thread: &Thread, viewer: Id) -> Value {
    let count = channel.messages.values().filter(|message| message.id != channel.id).count();
    let mut shown = json!({"id": channel.id.to_string(), "type": channel.kind, "flags": 0, "name": channel.name,
        "guild_id": channel.guild.map(text), "parent_id": channel.parent.map(text),
        "owner_id": thread.owner.to_string(), "last_message_id": channel.last_message.map(text),
        "rate_limit_per_user": 0, "message_count": count, "total_message_sent": thread.sent,
        "member_count": thread.members.len().min(50),
        "thread_metadata": {"archived": thread.archived, "archive_timestamp": iso(thread.changed_ms),
            "auto_archive_duration": thread.auto_archive_min, "locked": thread.locked,
            "create_timestamp": iso(millis_of(channel.id))}});
    if channel.kind == kind::PRIVATE_THREAD {
        shown["thread_metadata"]["invitable"] = json!(true);
    }
    if !thread.tags.is_empty() {
        shown["applied_tags"] = snowflake::texts(thread.tags.iter().copied());
    }
    if let Some(joined_ms) = thread.members.get(&viewer) {
        shown["member"] = thread_member(channel.id, viewer, *joined_ms);
    }
    shown
}

pub(super) fn channel(state: &State, channel: &Channel, viewer: Id) -> Value {
    if let Some(info) = &channel.thread {
        return thread(channel, info, viewer);
    }
    let last_message_id = channel.last_message.map(text);
    if channel.is_dm() {
        let others = channel.recipients.iter().filter(|id| **id != viewer);
        let recipients: Vec<Value> = others.map(|id| user_of(state, *id)).collect();
        return json!({"id": channel.id.to_string(), "type": 1, "flags": 0, "last_message_id": last_message_id,
            "recipients": recipients});
    }
    let mut shown = json!({"id": channel.id.to_string(), "type": channel.kind, "flags": 0, "name": channel.name,
        "guild_id": channel.guild.map(text), "parent_id": channel.parent.map(text), "position": channel.position,
        "topic": channel.topic, "nsfw": false, "rate_limit_per_user": 0, "last_message_id": last_message_id,
        "permission_overwrites": overwrites(channel)});
    if channel.kind == kind::FORUM {
        let tags = channel.tags.iter().map(|(id, name)| {
            json!({"id": id.to_string(), "name": name, "moderated": false, "emoji_id": null, "emoji_name": null})
        });
        shown["available_tags"] = tags.collect();
        shown["default_reaction_emoji"] = json!(null);
        shown["default_sort_order"] = json!(null);
        shown["default_forum_layout"] = json!(0);
    }
    shown
}

pub(super) fn guild(state: &State, id: Id) -> Option<Value> {
    let guild = state.guilds.get(&id)?;
    let roles: Vec<Value> = guild.roles.values().map(role).collect();
    Some(json!({"id": id.to_string(), "name": guild.name, "icon": null, "description": null, "home_header": null,
        "splash": null, "discovery_splash": null, "features": [], "banner": null,
        "owner_id": guild.owner.to_string(), "application_id": null, "region": "deprecated", "afk_channel_id": null,
        "afk_timeout": 300, "system_channel_id": null, "system_channel_flags": 0, "widget_enabled": false,
        "widget_channel_id": null, "verification_level": 0, "roles": roles, "default_message_notifications": 1,
        "mfa_level": 0, "explicit_content_filter": 0, "max_presences": null, "max_members": 500_000,
        "max_stage_video_channel_users": 50, "max_video_channel_users": 25, "vanity_url_code": null,
        "premium_tier": 0, "premium_subscription_count": 0, "preferred_locale": "en-US", "rules_channel_id": null,
        "safety_alerts_channel_id": null, "public_updates_channel_id": null, "premium_progress_bar_enabled": false,
        "nsfw": false, "nsfw_level": 0, "emojis": [], "stickers": [], "incidents_data": null, "hub_type": null}))
}

/// Without the intent for members only the bot itself is in it.
pub(super) fn guild_create(state: &State, id: Id, bot: Id, wanted: u64) -> Option<Value> {
    let mut shown = guild(state, id)?;
    let guild = state.guilds.get(&id)?;
    let of_guild = || state.channels.values().filter(|channel| channel.guild == Some(id));
    let channels = of_guild().filter(|channel| channel.thread.is_none());
    let is_active = |channel: &&Channel| channel.thread.as_ref().is_some_and(|thread| !thread.archived);
    let threads = of_guild().filter(is_active).filter(|channel| permissions::sees(state, channel, bot));
    let all = wanted & intents::GUILD_MEMBERS != 0;
    let members = guild.members.keys().filter(|user| all || **user == bot);
    shown["channels"] = channels.map(|it| channel(state, it, bot)).collect();
    shown["threads"] = threads.map(|it| channel(state, it, bot)).collect();
    shown["members"] = members.filter_map(|user| member(state, id, *user)).collect();
    shown["member_count"] = json!(guild.members.len());
    shown["joined_at"] = json!(iso(guild.members.get(&bot)?.joined_ms));
    shown["large"] = json!(false);
    shown["unavailable"] = json!(false);
    for empty in ["voice_states", "presences", "stage_instances", "guild_scheduled_events", "soundboard_sounds"] {
        shown[empty] = json!([]);
    }
    Some(shown)
}

pub(super) fn emoji(name: &str) -> Value {
    match name.split_once(':') {
        Some((name, id)) => json!({"id": id, "name": name, "animated": false}),
        None => json!({"id": null, "name": name}),
    }
}

/// With an address that is valid for a day from now.
pub(super) fn attachment(state: &State, channel: Id, stored: &Value) -> Value {
    let path = files::path(channel, stored);
    let (from, until) = (state.now_ms / 1_000, state.now_ms / 1_000 + files::VALID_S);
    let mut shown = stored.clone();
    let url = format!("{}/{path}?ex={until:x}&is={from:x}&hm={:064x}&", state.host, state.now_ms);
    shown["proxy_url"] = json!(url);
    shown["url"] = json!(url);
    shown
}

fn reactions(message: &Message, viewer: Id) -> Value {
    let shown = message.reactions.iter().filter(|reaction| !reaction.users.is_empty()).map(|reaction| {
        let count = reaction.users.len();
        json!({"emoji": emoji(&reaction.emoji), "count": count, "count_details": {"normal": count, "burst": 0},
            "burst_colors": [], "me_burst": false, "burst_me": false, "burst_count": 0,
            "me": reaction.users.contains(&viewer)})
    });
    shown.collect()
}

/// As REST shows it, with its content.
pub(super) fn message(state: &State, channel: Id, message: &Message, viewer: Id) -> Value {
    let mut shown = basic(state, channel, message, viewer);
    if let Some((there, id)) = message.reference.filter(|_| matches!(message.kind, 19 | 21)) {
        let found = state.message(there, id);
        shown["referenced_message"] = found.map_or(Value::Null, |found| basic(state, there, found, viewer));
    }
    shown
}

fn basic(state: &State, channel: Id, message: &Message, viewer: Id) -> Value {
    let mentions: Vec<Value> = message.mentions.iter().map(|id| user_of(state, *id)).collect();
    let attachments: Vec<Value> = message.attachments.iter().map(|it| attachment(state, channel, it)).collect();
    let mut shown = json!({"id": message.id.to_string(), "channel_id": channel.to_string(), "type": message.kind,
        "author": user_of(state, message.author), "content": message.content,
        "timestamp": iso(millis_of(message.id)), "edited_timestamp": message.edited_ms.map(iso), "tts": message.tts,
        "mention_everyone": message.mention_everyone, "mentions": mentions,
        "mention_roles": snowflake::texts(message.mention_roles.iter().copied()),
        "attachments": attachments, "embeds": message.embeds, "components": message.components,
        "flags": message.flags, "pinned": false});
    if !message.reactions.is_empty() {
        shown["reactions"] = reactions(message, viewer);
    }
    if !message.stickers.is_empty() {
        shown["sticker_items"] = json!(message.stickers);
    }
    if let Some(nonce) = &message.nonce {
        shown["nonce"] = nonce.clone();
    }
    if let Some((there, id)) = message.reference {
        let guild = state.channels.get(&there).and_then(|channel| channel.guild);
        shown["message_reference"] = json!({"type": u8::from(message.snapshot.is_some()),
            "channel_id": there.to_string()});
        // A message that says that a thread was opened refers to the thread, not to a message.
        if message.kind != 18 {
            shown["message_reference"]["message_id"] = text(id);
        }
        if let Some(guild) = guild {
            shown["message_reference"]["guild_id"] = text(guild);
        }
    }
    if let Some(snapshot) = &message.snapshot {
        shown["message_snapshots"] = json!([{"message": snapshot}]);
    }
    if let Some(info) = message.thread.and_then(|id| state.channels.get(&id)) {
        shown["thread"] = self::channel(state, info, viewer);
    }
    if let Some(interaction) = &message.interaction {
        shown["interaction_metadata"] = interaction.clone();
    }
    if let Some(webhook) = message.webhook {
        shown["webhook_id"] = text(webhook);
    }
    if state.bots.contains_key(&message.author) && (message.webhook.is_some() || !message.components.is_empty()) {
        shown["application_id"] = text(message.author);
    }
    shown
}

/// As a dispatch shows it: with the member of the author, and without content where that is guarded.
pub(super) fn dispatched(state: &State, channel: Id, id: Id, viewer: Viewer) -> Option<Value> {
    let place = state.channels.get(&channel)?;
    let stored = place.messages.get(&id)?;
    if stored.only_for.is_some() {
        return None;
    }
    let mut shown = message(state, channel, stored, viewer.bot);
    shown["channel_type"] = json!(place.kind);
    if let Some(guild) = place.guild {
        shown["guild_id"] = text(guild);
        if let Some(member) = partial_member(state, guild, stored.author).filter(|_| stored.webhook.is_none()) {
            shown["member"] = member;
        }
        for (at, user) in stored.mentions.iter().enumerate() {
            if let Some(member) = partial_member(state, guild, *user) {
                shown["mentions"][at]["member"] = member;
            }
        }
    }
    hide_from(&mut shown, place, stored, viewer);
    Some(shown)
}

/// Content is guarded unless the message is the bot's own, names the bot or is in direct messages.
pub(super) fn hide_from(shown: &mut Value, place: &Channel, stored: &Message, viewer: Viewer) {
    let is_near = place.is_dm() || stored.author == viewer.bot || stored.mentions.contains(&viewer.bot);
    if viewer.intents & intents::MESSAGE_CONTENT == 0 && !is_near {
        intents::hide_content(shown);
    }
}
