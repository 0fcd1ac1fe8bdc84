//! Guilds, their members and roles; the bot itself and its application.

use serde_json::{Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::snowflake;
use super::super::{permissions, shapes, signing};
use super::{Call, number};

pub(super) fn run(call: &mut Call<'_>, method: &str, guild: &str, rest: &[&str]) -> Answer {
    let id = call.guild(guild)?;
    let state = &*call.state;
    let found = state.guilds.get(&id).ok_or_else(ApiError::unknown_guild)?;
    match (method, rest) {
        ("GET", []) => {
            let mut shown = shapes::guild(state, id).ok_or_else(ApiError::unknown_guild)?;
            if call.request.query("with_counts") == Some("true") {
                shown["approximate_member_count"] = json!(found.members.len());
                shown["approximate_presence_count"] = json!(found.members.len());
            }
            Ok((200, shown))
        }
        ("GET", ["channels"]) => {
            let of_guild = state.channels.values().filter(|it| it.guild == Some(id) && it.thread.is_none());
            Ok((200, of_guild.map(|channel| shapes::channel(state, channel, call.bot)).collect()))
        }
        ("GET", ["roles"]) => Ok((200, found.roles.values().map(shapes::role).collect())),
        ("GET", ["members"]) => {
            let limit = call.request.query("limit").and_then(|text| text.parse().ok()).unwrap_or(1);
            let after = call.request.query("after").and_then(|text| text.parse().ok()).unwrap_or(0);
            let users = found.members.keys().filter(|user| **user > after).take(limit);
            Ok((200, users.filter_map(|user| shapes::member(state, id, *user)).collect()))
        }
        ("GET", ["members", user]) => {
            let user = if *user == "@me" { call.bot } else { number(user, "user_id")? };
            if !state.users.contains_key(&user) {
                return Err(ApiError::new(404, 10013, "Unknown User"));
            }
            let unknown = || ApiError::new(404, 10007, "Unknown Member");
            shapes::member(state, id, user).map(|member| (200, member)).ok_or_else(unknown)
        }
        ("GET", ["threads", "active"]) => {
            let seen = |it: &&super::super::state::Channel| permissions::sees(state, it, call.bot);
            let active = state.threads_of(id).filter(|(_, thread)| !thread.archived);
            let found: Vec<_> = active.filter(|(channel, _)| seen(channel)).collect();
            let threads: Vec<Value> =
                found.iter().map(|(channel, _)| shapes::channel(state, channel, call.bot)).collect();
            let own = found.iter().filter_map(|(channel, thread)| {
                Some(shapes::thread_member(channel.id, call.bot, *thread.members.get(&call.bot)?))
            });
            let members: Vec<Value> = own.collect();
            Ok((200, json!({"threads": threads, "members": members, "has_more": false})))
        }
        _ => Err(ApiError::not_found()),
    }
}

pub(super) fn users(call: &mut Call<'_>, method: &str, rest: &[&str]) -> Answer {
    match (method, rest) {
        ("GET", ["@me"]) => {
            let mut me = shapes::user_of(call.state, call.bot);
            for (name, value) in [
                ("mfa_enabled", json!(true)),
                ("locale", json!("en-US")),
                ("verified", json!(true)),
                ("email", json!(null)),
            ] {
                me[name] = value;
            }
            Ok((200, me))
        }
        ("GET", ["@me", "guilds"]) => {
            let own = call.state.guilds.values().filter(|guild| guild.members.contains_key(&call.bot));
            let shown = own.map(|guild| {
                let permissions = permissions::in_guild(call.state, guild.id, call.bot);
                json!({"id": guild.id.to_string(), "name": guild.name, "icon": null, "banner": null,
                    "owner": guild.owner == call.bot, "permissions": (permissions >> 1).to_string(), "features": []})
            });
            Ok((200, shown.collect()))
        }
        ("POST", ["@me", "channels"]) => {
            let user = snowflake::read(&call.request.body["recipient_id"]);
            let user = user.filter(|user| call.state.users.contains_key(user) && *user != call.bot);
            let user = user.ok_or_else(|| ApiError::new(400, 50033, "Invalid Recipient(s)"))?;
            let id = call.state.dm_of(call.now_ms, call.bot, user);
            let channel = call.state.channels.get(&id).ok_or_else(ApiError::unknown_channel)?;
            Ok((200, shapes::channel(call.state, channel, call.bot)))
        }
        ("GET", [user]) => {
            let user = number(user, "user_id")?;
            let known = call.state.users.get(&user).ok_or_else(|| ApiError::new(404, 10013, "Unknown User"))?;
            Ok((200, shapes::user(known)))
        }
        _ => Err(ApiError::not_found()),
    }
}

pub(super) fn application(call: &Call<'_>) -> Answer {
    let bot = call.state.bots.get(&call.bot).ok_or_else(ApiError::unauthorized)?;
    let user = shapes::user_of(call.state, call.bot);
    let own = call.state.guilds.values().filter(|guild| guild.members.contains_key(&call.bot)).count();
    let flags = shapes::application_flags(call.state, call.bot);
    let owner = json!({"id": "1", "username": "owner", "discriminator": "0", "global_name": null, "avatar": null,
        "public_flags": 0, "flags": 0, "primary_guild": null});
    Ok((
        200,
        json!({"id": call.bot.to_string(), "name": user["username"], "icon": null, "description": "",
        "type": null, "bot": user, "summary": "", "verify_key": signing::public_key(call.bot), "flags": flags,
        "flags_new": flags.to_string(), "redirect_uris": [], "bot_public": true, "bot_require_code_grant": false,
        "interactions_endpoint_url": bot.endpoint, "role_connections_verification_url": null, "owner": owner,
        "approximate_guild_count": own, "approximate_user_install_count": 0,
        "approximate_user_authorization_count": 0, "explicit_content_filter": 0, "team": null, "hook": true,
        "eligible_oauth2_scopes": ["bot", "applications.commands"], "is_monetized": false,
        "integration_types_config": {}}),
    ))
}

/// The server proves an endpoint before it lets a change of it through to here.
pub(super) fn own_application(call: &mut Call<'_>, method: &str) -> Answer {
    if method == "PATCH"
        && let Some(url) = call.request.body.get("interactions_endpoint_url")
        && let Some(bot) = call.state.bots.get_mut(&call.bot)
    {
        bot.endpoint = url.as_str().filter(|url| !url.is_empty()).map(str::to_owned);
    }
    match method {
        "GET" | "PATCH" => application(call),
        _ => Err(ApiError::not_found()),
    }
}
