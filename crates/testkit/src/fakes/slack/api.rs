//! The Web API.

use serde_json::{Map, Value, json};

use super::faults::Fault;
use super::state::{State, Team};
use super::uploads;

/// What a call gets in return.
#[derive(Debug, Clone, PartialEq)]
pub enum Answered {
    Json(Value),
    /// 429, with the seconds to wait.
    Limited(u64),
    /// 502 with a page.
    BadGateway,
    /// No answer at all.
    Dropped,
}

/// Characters of one message.
const TEXT_MAX: usize = 40_000;
const BLOCKS_MAX: usize = 50;

pub(super) fn call(
    state: &mut State,
    now_ms: u64,
    origin: &str,
    token: &str,
    method: &str,
    params: &Value,
) -> Answered {
    let fault = state.faults.take(method);
    let team = state.team_of_token(token).cloned();
    let team_id = team.as_ref().map(|team| team.id.clone()).unwrap_or_default();
    match &fault {
        Some(Fault::RetryAfter { seconds }) => return Answered::Limited(*seconds),
        Some(Fault::BadGateway) => return Answered::BadGateway,
        Some(Fault::DropBefore) => return Answered::Dropped,
        Some(Fault::Error { error }) => {
            state.record(method, &team_id, params, error);
            return Answered::Json(json!({ "ok": false, "error": error }));
        }
        Some(Fault::DropAfter) | None => {}
    }
    let outcome = match (method, &team) {
        ("oauth.v2.access", _) => access(state, params),
        ("apps.connections.open", _) => open_socket(state, origin, token),
        ("api.test", _) => Ok(json!({})),
        (_, None) if token.is_empty() => Err("not_authed"),
        (_, None) => Err("invalid_auth"),
        (_, Some(team)) => by_bot(state, now_ms, origin, team, method, params),
    };
    let (error, answer) = match outcome {
        Ok(mut value) => {
            value["ok"] = true.into();
            ("", value)
        }
        Err(error) => (error, json!({ "ok": false, "error": error })),
    };
    state.record(method, &team_id, params, error);
    match fault {
        Some(Fault::DropAfter) => Answered::Dropped,
        _ => Answered::Json(answer),
    }
}

pub(super) fn text<'a>(params: &'a Value, name: &str) -> &'a str {
    params[name].as_str().unwrap_or_default()
}

/// Lists and objects come as JSON, or as a text with it in a form.
fn structured(params: &Value, name: &str) -> Option<Value> {
    match &params[name] {
        Value::Null => None,
        Value::String(text) => serde_json::from_str(text).ok(),
        value => Some(value.clone()),
    }
}

fn by_bot(
    state: &mut State,
    now_ms: u64,
    origin: &str,
    team: &Team,
    method: &str,
    params: &Value,
) -> Result<Value, &'static str> {
    match method {
        "auth.test" => Ok(json!({
            "url": format!("{origin}/"), "team": team.name, "user": "desk", "team_id": team.id,
            "user_id": team.bot_user, "bot_id": team.bot_id, "is_enterprise_install": false,
        })),
        "users.info" => user(state, text(params, "user")),
        "conversations.info" => Ok(json!({ "channel": channel_object(state, team, text(params, "channel"))? })),
        "conversations.members" => members(state, team, params),
        "conversations.replies" | "conversations.history" => history(state, team, params),
        "chat.postMessage" => post(state, now_ms, team, params),
        "chat.update" => update(state, now_ms, team, params),
        "chat.delete" => {
            let (channel, ts) = (text(params, "channel").to_owned(), text(params, "ts").to_owned());
            own(state, team, &channel, &ts, "cant_delete_message")?["deleted"] = true.into();
            Ok(json!({ "channel": channel, "ts": ts }))
        }
        "reactions.add" | "reactions.remove" => react(state, team, method == "reactions.add", params),
        "assistant.threads.setStatus" => {
            let (channel, thread) = (text(params, "channel_id").to_owned(), text(params, "thread_ts").to_owned());
            channel_object(state, team, &channel)?;
            if thread.is_empty() {
                return Err("invalid_thread_ts");
            }
            state.statuses.insert((channel, thread), text(params, "status").to_owned());
            Ok(json!({}))
        }
        "files.getUploadURLExternal" => uploads::begin(state, origin, team, params),
        "files.completeUploadExternal" => {
            let files = structured(params, "files").unwrap_or_default();
            uploads::complete(state, now_ms, origin, team, params, &files)
        }
        "files.info" => match state.files.get(text(params, "file")).filter(|file| file.team == team.id) {
            Some(_) => Ok(json!({ "file": state.file_object(text(params, "file"), origin) })),
            None => Err("file_not_found"),
        },
        _ => Err("unknown_method"),
    }
}

fn access(state: &mut State, params: &Value) -> Result<Value, &'static str> {
    let app = &state.app;
    if text(params, "client_id") != app.client_id || text(params, "client_secret") != app.client_secret {
        return Err("bad_client_secret");
    }
    let team = state.codes.remove(text(params, "code")).ok_or("invalid_code")?;
    let app_id = state.app.id.clone();
    let team = state.teams.get_mut(&team).ok_or("invalid_code")?;
    team.is_installed = true;
    Ok(json!({
        "access_token": team.token, "token_type": "bot", "scope": "chat:write", "bot_user_id": team.bot_user,
        "app_id": app_id, "team": { "id": team.id, "name": team.name }, "enterprise": null,
        "is_enterprise_install": false, "authed_user": { "id": "U1" },
    }))
}

fn open_socket(state: &mut State, origin: &str, token: &str) -> Result<Value, &'static str> {
    match token {
        token if token == state.app.app_token && !token.is_empty() => {}
        token if token.starts_with("xoxb-") => return Err("not_allowed_token_type"),
        _ => return Err("invalid_auth"),
    }
    let ticket = state.ticket();
    Ok(json!({ "url": format!("{}/link/?ticket={ticket}&app_id={}", origin.replacen("http", "ws", 1), state.app.id) }))
}

fn user(state: &State, id: &str) -> Result<Value, &'static str> {
    let user = state.users.get(id).ok_or("user_not_found")?;
    let profile = json!({ "display_name": user.display_name, "real_name": user.name, "team": user.team });
    Ok(json!({ "user": {
        "id": id, "team_id": user.team, "name": user.name.to_lowercase(), "real_name": user.name, "profile": profile,
        "deleted": false, "is_bot": false, "is_restricted": user.is_guest, "is_ultra_restricted": false,
    } }))
}

/// The bot sees public channels, and those that it is in.
pub(super) fn channel_object(state: &State, team: &Team, id: &str) -> Result<Value, &'static str> {
    let channel = state.channels.get(id).filter(|channel| channel.team == team.id).ok_or("channel_not_found")?;
    let is_member = channel.members.contains(&team.bot_user);
    if !is_member && channel.kind != "channel" {
        return Err("channel_not_found");
    }
    let is = |kind: &str| channel.kind == kind;
    let mut object = json!({
        "id": id, "name": channel.name, "is_channel": is("channel"), "is_group": is("group"), "is_im": is("im"),
        "is_mpim": is("mpim"), "is_private": !is("channel"), "is_member": is_member, "is_archived": false,
        "context_team_id": team.id, "num_members": channel.members.len(),
    });
    if is("im") {
        let other = channel.members.iter().find(|member| **member != team.bot_user);
        object["user"] = other.cloned().into();
        object.as_object_mut().map(|object| object.remove("name"));
    }
    Ok(object)
}

fn members(state: &State, team: &Team, params: &Value) -> Result<Value, &'static str> {
    let id = text(params, "channel");
    channel_object(state, team, id)?;
    let members = &state.channels[id].members;
    let from: usize = text(params, "cursor").parse().unwrap_or(0);
    let limit = number(params, "limit").unwrap_or(100).clamp(1, 999);
    let page: Vec<&String> = members.iter().skip(from).take(limit).collect();
    let next = if from + limit < members.len() { (from + limit).to_string() } else { String::new() };
    Ok(json!({ "members": page, "response_metadata": { "next_cursor": next } }))
}

fn number(params: &Value, name: &str) -> Option<usize> {
    match &params[name] {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64().and_then(|number| usize::try_from(number).ok()),
    }
}

fn history(state: &State, team: &Team, params: &Value) -> Result<Value, &'static str> {
    let (channel, ts) = (text(params, "channel"), text(params, "ts"));
    channel_object(state, team, channel)?;
    let is_of = |message: &&Value| ts.is_empty() || message["ts"] == ts || message["thread_ts"] == ts;
    let messages = state.messages(channel);
    let found: Vec<&Value> = messages.iter().filter(is_of).take(number(params, "limit").unwrap_or(100)).collect();
    if found.is_empty() && !ts.is_empty() {
        return Err("thread_not_found");
    }
    Ok(json!({ "messages": found, "has_more": false }))
}

/// What a message shows. A text or blocks must be there.
fn content(params: &Value) -> Result<Map<String, Value>, &'static str> {
    let mut shown = Map::new();
    let blocks = match params.get("blocks").filter(|blocks| !blocks.is_null()) {
        None => None,
        Some(_) => Some(structured(params, "blocks").filter(Value::is_array).ok_or("invalid_blocks_format")?),
    };
    let said = text(params, "text");
    if said.is_empty() && blocks.as_ref().is_none_or(|blocks| blocks.as_array().is_none_or(Vec::is_empty)) {
        return Err("no_text");
    }
    if said.chars().count() > TEXT_MAX {
        return Err("msg_too_long");
    }
    if let Some(blocks) = blocks {
        check_blocks(blocks.as_array().map_or(&[], Vec::as_slice))?;
        shown.insert("blocks".into(), blocks);
    }
    shown.insert("text".into(), said.into());
    Ok(shown)
}

/// Limits that the documents name.
fn check_blocks(blocks: &[Value]) -> Result<(), &'static str> {
    let length = |value: &Value| value.as_str().map_or(0, |text| text.chars().count());
    let is_fine = |block: &Value| match block["type"].as_str() {
        Some("section") => (1..=3_000).contains(&length(&block["text"]["text"])),
        Some("markdown") => (1..=12_000).contains(&length(&block["text"])),
        Some("context") => block["elements"].as_array().is_some_and(|elements| (1..=10).contains(&elements.len())),
        Some("actions") => block["elements"].as_array().is_some_and(|elements| {
            let ids: Vec<&str> = elements.iter().filter_map(|element| element["action_id"].as_str()).collect();
            let mut unique = ids.clone();
            unique.sort_unstable();
            unique.dedup();
            (1..=25).contains(&elements.len())
                && ids.len() == elements.len()
                && unique.len() == ids.len()
                && ids.iter().all(|id| id.len() <= 255)
                && elements.iter().all(is_element)
        }),
        _ => false,
    };
    if blocks.len() <= BLOCKS_MAX && blocks.iter().all(is_fine) { Ok(()) } else { Err("invalid_blocks") }
}

fn is_element(element: &Value) -> bool {
    let label = |value: &Value| {
        let length = value["text"].as_str().map_or(0, |text| text.chars().count());
        value["type"] == "plain_text" && (1..=75).contains(&length)
    };
    match element["type"].as_str() {
        Some("button") => {
            let is_style = element.get("style").is_none_or(|style| style == "primary" || style == "danger");
            label(&element["text"]) && is_style && element["value"].as_str().is_none_or(|value| value.len() <= 2_000)
        }
        Some("static_select") => element["options"].as_array().is_some_and(|options| {
            (1..=100).contains(&options.len())
                && options.iter().all(|option| label(&option["text"]) && option["value"].as_str().is_some())
        }),
        _ => false,
    }
}

fn post(state: &mut State, now_ms: u64, team: &Team, params: &Value) -> Result<Value, &'static str> {
    let channel = text(params, "channel").to_owned();
    let object = channel_object(state, team, &channel)?;
    if object["is_member"] != true {
        return Err("not_in_channel");
    }
    let mut message = content(params)?;
    let ts = state.ts(now_ms);
    for (name, value) in [("type", "message"), ("user", &team.bot_user), ("bot_id", &team.bot_id), ("ts", &ts)] {
        message.insert(name.into(), value.into());
    }
    message.insert("app_id".into(), state.app.id.as_str().into());
    let thread = text(params, "thread_ts");
    if !thread.is_empty() {
        message.insert("thread_ts".into(), thread.into());
        state.statuses.remove(&(channel.clone(), thread.to_owned())); // what the app says clears it
    }
    let message = Value::Object(message);
    state.post(&channel, message.clone());
    Ok(json!({ "channel": channel, "ts": ts, "message": message }))
}

fn own<'a>(
    state: &'a mut State,
    team: &Team,
    channel: &str,
    ts: &str,
    refusal: &'static str,
) -> Result<&'a mut Value, &'static str> {
    channel_object(state, team, channel)?;
    let message = state.message(channel, ts).ok_or("message_not_found")?;
    if message["user"] == team.bot_user { Ok(message) } else { Err(refusal) }
}

fn update(state: &mut State, now_ms: u64, team: &Team, params: &Value) -> Result<Value, &'static str> {
    let (channel, ts) = (text(params, "channel").to_owned(), text(params, "ts").to_owned());
    let shown = content(params)?;
    let message = own(state, team, &channel, &ts, "cant_update_message")?;
    for (name, value) in shown {
        message[name] = value;
    }
    message["edited"] = json!({ "user": team.bot_user, "ts": format!("{}.000000", now_ms / 1_000) });
    let (said, message) = (message["text"].clone(), message.clone());
    Ok(json!({ "channel": channel, "ts": ts, "text": said, "message": message }))
}

fn react(state: &mut State, team: &Team, adds: bool, params: &Value) -> Result<Value, &'static str> {
    let (channel, ts, name) = (text(params, "channel"), text(params, "timestamp"), text(params, "name"));
    channel_object(state, team, channel)?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_+-".contains(&b)) {
        return Err("invalid_name");
    }
    let message = state.message(channel, ts).ok_or("message_not_found")?;
    let mut names: Vec<Value> = message["reactions"].as_array().cloned().unwrap_or_default();
    let at = names.iter().position(|known| known == name);
    match (adds, at) {
        (true, Some(_)) => return Err("already_reacted"),
        (true, None) => names.push(name.into()),
        (false, Some(at)) => drop(names.remove(at)),
        (false, None) => return Err("no_reaction"),
    }
    message["reactions"] = names.into();
    Ok(json!({}))
}
