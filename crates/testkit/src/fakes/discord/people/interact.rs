//! Commands, buttons, menus and forms of users.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::interactions::{self, New};
use super::super::shapes;
use super::super::snowflake::{self, Id};
use super::super::state::State;
use super::{ActError, Done};

/// `kind` says which fields count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interact {
    /// ping, command, autocomplete, button, select or modal.
    pub kind: String,
    pub bot: Id,
    pub from: Id,
    pub channel: Option<Id>,
    /// Of a command.
    pub name: String,
    /// Of a command, as in the API; autocomplete: one of them has `focused`.
    pub options: Vec<Value>,
    /// The message with the button or menu.
    pub message: Option<Id>,
    pub custom_id: String,
    /// What was chosen in a menu.
    pub values: Vec<String>,
    /// Of a modal: custom ids and what was typed.
    pub fields: Vec<(String, String)>,
    pub bad_signature: bool,
}

pub(super) fn begin(state: &mut State, now_ms: u64, act: Interact) -> Done {
    if !state.bots.contains_key(&act.bot) {
        return Err(ActError::missing("bot", act.bot));
    }
    let channel = match act.channel {
        Some(channel) => channel,
        None => state.dm_of(now_ms, act.bot, act.from),
    };
    let place = state.channels.get(&channel).ok_or_else(|| ActError::missing("channel", channel))?;
    let guild = place.guild;
    let (kind, data, name) = match act.kind.as_str() {
        "ping" => (1, Value::Null, None),
        "command" | "autocomplete" => {
            let command = command(state, act.bot, guild, &act.name)?;
            let mut data = json!({"id": command["id"], "name": act.name, "type": command["type"]});
            if !act.options.is_empty() {
                data["options"] = json!(act.options);
            }
            let resolved = resolved(state, guild, &act.options);
            if resolved.as_object().is_some_and(|it| !it.is_empty()) {
                data["resolved"] = resolved;
            }
            if command.get("guild_id").is_some() {
                data["guild_id"] = command["guild_id"].clone();
            }
            (if act.kind == "command" { 2 } else { 4 }, data, Some(act.name.clone()))
        }
        "button" | "select" => (3, component(state, channel, &act)?, None),
        "modal" => (5, modal(&act), None),
        other => return Err(ActError(format!("{other} is not a kind of interaction"))),
    };
    let on = act.message.filter(|_| matches!(kind, 3 | 5));
    let new = New { bot: act.bot, kind, user: act.from, channel, on, data, name, bad_signature: act.bad_signature };
    Ok(interactions::begin(state, now_ms, new))
}

/// That of the guild is found before the global one.
fn command(state: &State, bot: Id, guild: Option<Id>, name: &str) -> Result<Value, ActError> {
    let places = guild.into_iter().chain([0]);
    let mut all = places.filter_map(|place| state.commands.get(&(bot, place))).flatten();
    let found = all.find(|command| command["name"] == name).cloned();
    found.ok_or_else(|| ActError(format!("command {name} is not registered")))
}

fn component(state: &State, channel: Id, act: &Interact) -> Done {
    let id = act.message.ok_or_else(|| ActError("message must be named".into()))?;
    let message = state.message(channel, id).ok_or_else(|| ActError::missing("message", id))?;
    let found = message.components.iter().find_map(|row| find(row, &act.custom_id));
    let found = found.ok_or_else(|| ActError(format!("message {id} has no component {}", act.custom_id)))?;
    if found["disabled"] == true {
        return Err(ActError(format!("component {} is disabled", act.custom_id)));
    }
    let mut data = json!({"component_type": found["type"], "custom_id": act.custom_id, "id": found["id"]});
    if act.kind == "select" {
        data["values"] = json!(act.values);
    }
    Ok(data)
}

fn find<'a>(item: &'a Value, custom_id: &str) -> Option<&'a Value> {
    if item["custom_id"] == custom_id {
        return Some(item);
    }
    let inner = item["components"].as_array().into_iter().flatten().chain(item.get("accessory"));
    inner.into_iter().find_map(|item| find(item, custom_id))
}

fn modal(act: &Interact) -> Value {
    let rows = act.fields.iter().enumerate().map(|(at, (name, value))| {
        let input = json!({"type": 4, "id": at * 2 + 2, "custom_id": name, "value": value});
        json!({"type": 1, "id": at * 2 + 1, "components": [input]})
    });
    json!({"custom_id": act.custom_id, "components": rows.collect::<Vec<_>>()})
}

/// The users, channels and roles that options name.
fn resolved(state: &State, guild: Option<Id>, options: &[Value]) -> Value {
    let mut found = json!({});
    for option in options {
        let Some(id) = snowflake::read(&option["value"]) else { continue };
        let name = id.to_string();
        match option["type"].as_u64() {
            Some(6) => {
                found["users"][&name] = shapes::user_of(state, id);
                if let Some(member) = guild.and_then(|guild| shapes::partial_member(state, guild, id)) {
                    found["members"][&name] = member;
                    found["members"][&name]["permissions"] = json!("0");
                }
            }
            Some(7) => {
                if let Some(channel) = state.channels.get(&id) {
                    found["channels"][&name] = shapes::channel(state, channel, 0);
                    found["channels"][&name]["permissions"] = json!("0");
                }
            }
            Some(8) => {
                let role = guild.and_then(|guild| state.guilds.get(&guild)?.roles.get(&id));
                if let Some(role) = role {
                    found["roles"][&name] = shapes::role(role);
                }
            }
            _ => {}
        }
    }
    found
}
