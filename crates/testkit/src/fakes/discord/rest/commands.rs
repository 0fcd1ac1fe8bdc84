//! Commands of an application, global and of a guild.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::snowflake::{self, Id};
use super::{Call, number};

const MAX_COMMANDS: usize = 100;
const DAY_MS: u64 = 86_400_000;

pub(super) fn run(call: &mut Call<'_>, method: &str, application: &str, rest: &[&str]) -> Answer {
    if number(application, "application_id")? != call.bot {
        return Err(ApiError::new(403, 20012, "You are not authorized to perform this action on this application"));
    }
    let (guild, rest) = match rest {
        ["commands", rest @ ..] => (0, rest),
        ["guilds", guild, "commands", rest @ ..] => (call.guild(guild).map_err(|_| ApiError::missing_access())?, rest),
        _ => return Err(ApiError::not_found()),
    };
    match (method, rest) {
        ("GET", []) => Ok((200, Value::Array(of(call, guild).clone()))),
        ("PUT", []) => overwrite(call, guild),
        ("POST", []) => create(call, guild),
        (_, [command]) => one(call, method, guild, number(command, "command_id")?),
        _ => Err(ApiError::not_found()),
    }
}

fn of<'a>(call: &'a mut Call<'_>, guild: Id) -> &'a mut Vec<Value> {
    call.state.commands.entry((call.bot, guild)).or_default()
}

fn check(command: &Value, path: &str) -> Result<(), ApiError> {
    let at = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    let kind = command["type"].as_u64().unwrap_or(1);
    let name = command["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Err(ApiError::form(&at("name"), "BASE_TYPE_REQUIRED", "This field is required"));
    }
    let is_valid = |it: char| it.is_alphanumeric() || matches!(it, '-' | '_' | '\'');
    let length = name.chars().count();
    let is_named = kind != 1 || (name.chars().all(is_valid) && name.to_lowercase() == name);
    if length > 32 || !is_named {
        let text = "Command name is invalid";
        return Err(ApiError::form(&at("name"), "APPLICATION_COMMAND_INVALID_NAME", text));
    }
    let described = command["description"].as_str().map_or(0, |text| text.chars().count());
    if kind == 1 && described == 0 {
        return Err(ApiError::form(&at("description"), "BASE_TYPE_REQUIRED", "This field is required"));
    }
    if described > 100 {
        return Err(ApiError::form(&at("description"), "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length."));
    }
    if command["options"].as_array().is_some_and(|list| list.len() > 25) {
        return Err(ApiError::form(&at("options"), "BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length."));
    }
    Ok(())
}

/// As the API shows it; one that has the same name and type keeps its id.
fn stored(call: &mut Call<'_>, guild: Id, given: &Value) -> (Value, bool) {
    let kind = given["type"].as_u64().unwrap_or(1);
    let known = of(call, guild).iter().find(|it| it["name"] == given["name"] && it["type"] == kind).cloned();
    let id = known.as_ref().map_or_else(|| call.state.ids.next(call.now_ms).to_string(), |it| text_of(&it["id"]));
    let version = call.state.ids.next(call.now_ms).to_string();
    let mut made = json!({"id": id, "application_id": call.bot.to_string(), "version": version,
        "default_member_permissions": null, "type": kind, "name": given["name"], "name_localizations": null,
        "description": given["description"].as_str().unwrap_or_default(), "description_localizations": null,
        "nsfw": false, "integration_types": [0]});
    if guild == 0 {
        made["dm_permission"] = json!(true);
        made["contexts"] = json!(null);
    } else {
        made["guild_id"] = snowflake::text(guild);
    }
    let is_given = |(name, value): &(&String, &Value)| *name != "id" && !value.is_null();
    for (name, value) in given.as_object().into_iter().flatten().filter(is_given) {
        made[name] = value.clone();
    }
    made["type"] = json!(kind);
    (made, known.is_none())
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Takes from what may be created in a day.
fn take_creates(call: &mut Call<'_>, guild: Id, count: usize) -> Result<(), ApiError> {
    let (limits, now_ms) = (call.state.limits.clone(), call.now_ms);
    let Some(bot) = call.state.bots.get_mut(&call.bot) else { return Err(ApiError::unauthorized()) };
    let made = bot.creates_ms.entry(guild).or_default();
    while made.front().is_some_and(|at| at + DAY_MS <= now_ms) {
        made.pop_front();
    }
    if limits.enabled && made.len() + count > limits.command_creates_a_day {
        let most = limits.command_creates_a_day;
        let text = format!("Max number of daily application command creates has been reached ({most})");
        return Err(ApiError::new(400, 30034, text));
    }
    made.extend((0..count).map(|_| now_ms));
    Ok(())
}

fn create(call: &mut Call<'_>, guild: Id) -> Answer {
    let given = call.request.body.clone();
    check(&given, "")?;
    let (made, is_new) = stored(call, guild, &given);
    if is_new {
        if of(call, guild).len() >= MAX_COMMANDS {
            return Err(ApiError::new(400, 30032, "Maximum number of application commands reached (100)."));
        }
        take_creates(call, guild, 1)?;
    }
    let all = of(call, guild);
    all.retain(|it| it["id"] != made["id"]);
    all.push(made.clone());
    Ok((if is_new { 201 } else { 200 }, made))
}

fn overwrite(call: &mut Call<'_>, guild: Id) -> Answer {
    let given = call.request.body.as_array().cloned().unwrap_or_default();
    if given.len() > MAX_COMMANDS {
        return Err(ApiError::new(400, 30032, "Maximum number of application commands reached (100)."));
    }
    let (mut all, mut creates, mut names) = (Vec::new(), 0, BTreeSet::new());
    for (at, command) in given.iter().enumerate() {
        check(command, &at.to_string())?;
        let kind = command["type"].as_u64().unwrap_or(1);
        if !names.insert((text_of(&command["name"]), kind)) {
            let text = "Application command names must be unique";
            return Err(ApiError::form(&at.to_string(), "APPLICATION_COMMANDS_DUPLICATE_NAME", text));
        }
        let (made, is_new) = stored(call, guild, command);
        creates += usize::from(is_new);
        all.push(made);
    }
    take_creates(call, guild, creates)?;
    of(call, guild).clone_from(&all);
    Ok((200, Value::Array(all)))
}

fn one(call: &mut Call<'_>, method: &str, guild: Id, command: Id) -> Answer {
    let given = call.request.body.clone();
    let all = of(call, guild);
    let unknown = || ApiError::new(404, 10063, "Unknown application command");
    let at = all.iter().position(|it| snowflake::read(&it["id"]) == Some(command)).ok_or_else(unknown)?;
    match method {
        "GET" => Ok((200, all[at].clone())),
        "DELETE" => {
            all.remove(at);
            Ok((204, Value::Null))
        }
        "PATCH" => {
            for (name, value) in given.as_object().into_iter().flatten().filter(|(name, _)| *name != "id") {
                all[at][name] = value.clone();
            }
            Ok((200, all[at].clone()))
        }
        _ => Err(ApiError::not_found()),
    }
}
