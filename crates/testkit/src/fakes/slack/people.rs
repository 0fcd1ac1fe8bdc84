//! What users do.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::state::{App, Channel, File, ResponseUrl, State, Team, User};

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    SetApp(App),
    /// A workspace. With `installed` the app has its token.
    AddTeam {
        id: String,
        token: String,
        bot_user: String,
        #[serde(default)]
        installed: bool,
    },
    AddUser {
        id: String,
        team: String,
        name: String,
        #[serde(default)]
        display_name: String,
        #[serde(default)]
        guest: bool,
    },
    AddChannel {
        id: String,
        team: String,
        name: String,
        /// channel, group, im or mpim
        kind: String,
        members: Vec<String>,
    },
    Say {
        channel: String,
        from: String,
        #[serde(default)]
        text: String,
        #[serde(default)]
        thread_ts: Option<String>,
        #[serde(default)]
        files: Vec<NewFile>,
        /// Further fields of the message.
        #[serde(default)]
        more: Value,
    },
    Edit {
        channel: String,
        from: String,
        ts: String,
        text: String,
    },
    Command {
        channel: String,
        from: String,
        command: String,
        #[serde(default)]
        text: String,
    },
    /// A button or an option of a menu of a message, by its value.
    Press {
        channel: String,
        from: String,
        ts: String,
        value: String,
    },
    /// Any event, as the Events API wraps it.
    Event {
        team: String,
        event: Value,
    },
    /// Any interaction.
    Interaction {
        payload: Value,
    },
    /// Slack tells all sockets that it ends them: warning, `refresh_requested` or `link_disabled`.
    Disconnect {
        reason: String,
    },
    /// A person agrees to an installation; returns the code that the browser brings back.
    Agree {
        team: String,
    },
    Uninstall {
        team: String,
    },
}

#[derive(Debug, Clone, Deserialize)]
pub struct NewFile {
    pub name: String,
    pub mime: String,
    #[serde(default)]
    pub content: String,
    /// Instead of a text: bytes in hexadecimal.
    #[serde(default)]
    pub content_hex: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ActError(String);

fn missing(what: &str) -> ActError {
    ActError(format!("{what} does not exist"))
}

pub(super) fn act(state: &mut State, now_ms: u64, act: Act) -> Result<Value, ActError> {
    match act {
        Act::SetApp(app) => state.app = app,
        Act::AddTeam { id, token, bot_user, installed } => {
            let bot_id = format!("B{}", bot_user.trim_start_matches('U'));
            let name = format!("Workspace {id}");
            state.teams.insert(id.clone(), Team { id, name, token, bot_user, bot_id, is_installed: installed });
        }
        Act::AddUser { id, team, name, display_name, guest } => {
            state.users.insert(id, User { team, name, display_name, is_guest: guest });
        }
        Act::AddChannel { id, team, name, kind, members } => {
            state.channels.insert(id, Channel { team, name, kind, members });
        }
        Act::Say { channel, from, text, thread_ts, files, more } => {
            return say(state, now_ms, &channel, &from, &text, thread_ts, files, &more);
        }
        Act::Edit { channel, from, ts, text } => return edit(state, now_ms, &channel, &from, &ts, &text),
        Act::Command { channel, from, command, text } => return give(state, &channel, &from, &command, &text),
        Act::Press { channel, from, ts, value } => return press(state, now_ms, &channel, &from, &ts, &value),
        Act::Event { team, event } => return queue_event(state, now_ms, &team, event),
        Act::Interaction { payload } => {
            return Ok(json!({ "id": state.tell("interactive", payload) }));
        }
        Act::Disconnect { reason } => {
            let frame = json!({ "type": "disconnect", "reason": reason, "debug_info": { "host": "fake" } });
            state.sockets.values_mut().for_each(|queue| queue.push_back(frame.clone()));
        }
        Act::Agree { team } => {
            let code = format!("code-{}", state.number());
            state.codes.insert(code.clone(), team);
            return Ok(json!({ "code": code }));
        }
        Act::Uninstall { team } => {
            queue_event(state, now_ms, &team, json!({ "type": "app_uninstalled" }))?;
            state.teams.get_mut(&team).ok_or_else(|| missing(&team))?.is_installed = false;
        }
    }
    Ok(Value::Null)
}

/// As the Events API wraps an event.
fn queue_event(state: &mut State, now_ms: u64, team: &str, event: Value) -> Result<Value, ActError> {
    let team = state.teams.get(team).ok_or_else(|| missing(team))?.clone();
    let event_id = format!("Ev{:08}", state.number());
    let payload = json!({
        "token": "deprecated", "team_id": team.id, "api_app_id": state.app.id, "event": event, "type": "event_callback",
        "event_id": event_id, "event_time": now_ms / 1_000, "is_ext_shared_channel": false,
        "authorizations": [{ "enterprise_id": null, "team_id": team.id, "user_id": team.bot_user, "is_bot": true,
            "is_enterprise_install": false }],
        "event_context": "4-x",
    });
    Ok(json!({ "id": state.tell("events_api", payload), "event_id": event_id }))
}

fn place(state: &State, channel: &str, from: &str) -> Result<(Channel, Team), ActError> {
    let found = state.channels.get(channel).ok_or_else(|| missing(channel))?.clone();
    if !state.users.contains_key(from) {
        return Err(missing(from));
    }
    let team = state.teams.get(&found.team).ok_or_else(|| missing(&found.team))?.clone();
    Ok((found, team))
}

#[allow(clippy::too_many_arguments, reason = "the fields of one act")]
fn say(
    state: &mut State,
    now_ms: u64,
    channel: &str,
    from: &str,
    text: &str,
    thread_ts: Option<String>,
    files: Vec<NewFile>,
    more: &Value,
) -> Result<Value, ActError> {
    let (found, team) = place(state, channel, from)?;
    let ts = state.ts(now_ms);
    let mut message = json!({
        "type": "message", "user": from, "text": text, "ts": ts, "team": state.users[from].team, "channel": channel,
        "event_ts": ts, "channel_type": found.kind, "client_msg_id": format!("m{}", state.number()),
    });
    if let Some(thread) = thread_ts {
        let author = state.message(channel, &thread).map(|root| root["user"].clone());
        message["parent_user_id"] = author.unwrap_or_default();
        message["thread_ts"] = thread.into();
    }
    if !files.is_empty() {
        message["subtype"] = "file_share".into();
        let mut objects = Vec::new();
        for file in files {
            let id = format!("F{:08}", state.number());
            let bytes = match file.content_hex.as_str() {
                "" => Bytes::from(file.content),
                digits => hex::decode(digits).map_err(|error| ActError(format!("content_hex: {error}")))?.into(),
            };
            let made = File {
                team: team.id.clone(),
                name: file.name,
                mime: file.mime,
                length: bytes.len(),
                bytes,
                is_complete: true,
                shares: vec![(channel.to_owned(), ts.clone())],
            };
            state.files.insert(id.clone(), made);
            objects.push(state.file_object(&id, "{origin}"));
        }
        message["files"] = objects.into();
    }
    if let (Value::Object(fields), Value::Object(more)) = (&mut message, more) {
        fields.extend(more.clone());
    }
    state.post(channel, message.clone());
    if found.members.contains(&team.bot_user) {
        queue_event(state, now_ms, &team.id, message.clone())?;
        if text.contains(&format!("<@{}>", team.bot_user)) && found.kind != "im" {
            let mut mention = message.clone();
            mention["type"] = "app_mention".into();
            mention.as_object_mut().map(|fields| fields.remove("channel_type"));
            queue_event(state, now_ms, &team.id, mention)?; // both come, as at the real one
        }
    }
    Ok(message)
}

fn edit(state: &mut State, now_ms: u64, channel: &str, from: &str, ts: &str, text: &str) -> Result<Value, ActError> {
    let (found, team) = place(state, channel, from)?;
    let edited = state.ts(now_ms);
    let message = state.message(channel, ts).ok_or_else(|| missing(ts))?;
    let before = message.clone();
    message["text"] = text.into();
    message["edited"] = json!({ "user": from, "ts": edited });
    let mut after = message.clone();
    after.as_object_mut().map(|fields| fields.remove("channel"));
    let event = json!({
        "type": "message", "subtype": "message_changed", "hidden": true, "channel": channel, "channel_type": found.kind,
        "message": after, "previous_message": before, "ts": edited, "event_ts": edited,
    });
    queue_event(state, now_ms, &team.id, event)
}

/// An address for answers.
fn response_url(state: &mut State, channel: &str, user: &str, message: Option<&str>) -> String {
    let id = format!("r{}", state.number());
    let (channel, user) = (channel.to_owned(), user.to_owned());
    let made = ResponseUrl { channel, user, message: message.map(str::to_owned), uses: 0 };
    state.response_urls.insert(id.clone(), made);
    // The server puts its own origin before it.
    format!("{{origin}}/response/{id}")
}

fn give(state: &mut State, channel: &str, from: &str, command: &str, text: &str) -> Result<Value, ActError> {
    let (found, team) = place(state, channel, from)?;
    let name = match found.kind.as_str() {
        "im" => "directmessage".to_owned(),
        "group" => "privategroup".to_owned(),
        _ => found.name,
    };
    let trigger = format!("{}.1.x", state.number());
    let payload = json!({
        "token": "deprecated", "team_id": team.id, "team_domain": "fake", "channel_id": channel, "channel_name": name,
        "user_id": from, "user_name": state.users[from].name.to_lowercase(), "command": command, "text": text,
        "api_app_id": state.app.id, "is_enterprise_install": "false", "trigger_id": trigger,
        "response_url": response_url(state, channel, from, None),
    });
    Ok(json!({ "id": state.tell("slash_commands", payload) }))
}

fn press(state: &mut State, now_ms: u64, channel: &str, from: &str, ts: &str, value: &str) -> Result<Value, ActError> {
    let (found, team) = place(state, channel, from)?;
    let message = state.message(channel, ts).ok_or_else(|| missing(ts))?.clone();
    let blocks = message["blocks"].as_array().cloned().unwrap_or_default();
    let elements = blocks.iter().flat_map(|block| block["elements"].as_array().cloned().unwrap_or_default());
    let mut action = None;
    for element in elements {
        if element["value"] == value {
            action = Some(json!({ "action_id": element["action_id"], "block_id": "b", "text": element["text"],
                "value": value, "type": "button" }));
        }
        let options = element["options"].as_array().cloned().unwrap_or_default();
        if let Some(option) = options.iter().find(|option| option["value"] == value) {
            action = Some(json!({ "action_id": element["action_id"], "block_id": "b", "type": "static_select",
                "selected_option": option }));
        }
    }
    let mut action = action.ok_or_else(|| missing(value))?;
    action["action_ts"] = state.ts(now_ms).into();
    let mut container = json!({ "type": "message", "message_ts": ts, "channel_id": channel, "is_ephemeral": false });
    if let Some(thread) = message.get("thread_ts") {
        container["thread_ts"] = thread.clone();
    }
    let name = if found.kind == "im" { "directmessage".to_owned() } else { found.name };
    let payload = json!({
        "type": "block_actions", "team": { "id": team.id, "domain": "fake" }, "api_app_id": state.app.id,
        "user": { "id": from, "username": state.users[from].name.to_lowercase(), "team_id": team.id },
        "channel": { "id": channel, "name": name }, "container": container, "message": message,
        "trigger_id": "1.2.x", "actions": [action], "response_url": response_url(state, channel, from, Some(ts)),
    });
    Ok(json!({ "id": state.tell("interactive", payload) }))
}

/// What is posted to a response URL. `Err`: the status that is answered.
pub(super) fn respond(state: &mut State, now_ms: u64, id: &str, body: &Value) -> Result<(), u16> {
    let url = state.response_urls.get_mut(id).ok_or(404_u16)?;
    url.uses += 1;
    if url.uses > 5 {
        return Err(404);
    }
    let url = url.clone();
    state.responses.push(json!({ "channel": url.channel, "user": url.user, "body": body }));
    match (&url.message, body["replace_original"].as_bool()) {
        (Some(ts), Some(true)) => {
            if let Some(message) = state.message(&url.channel, ts) {
                for name in ["text", "blocks"] {
                    message[name] = body[name].clone();
                }
            }
        }
        _ if body["response_type"] == "in_channel" => {
            let ts = state.ts(now_ms);
            let message = json!({ "type": "message", "subtype": "bot_message", "text": body["text"], "ts": ts });
            state.post(&url.channel, message);
        }
        _ => {}
    }
    Ok(())
}
