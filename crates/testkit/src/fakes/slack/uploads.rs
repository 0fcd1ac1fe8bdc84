//! Files that bots send: an address is asked for, the bytes go there, and then the file is shown.

use bytes::Bytes;
use serde_json::{Value, json};

use super::api::{channel_object, text};
use super::state::{File, State, Team};

pub(super) fn begin(state: &mut State, origin: &str, team: &Team, params: &Value) -> Result<Value, &'static str> {
    let name = text(params, "filename");
    let length = match &params["length"] {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64().and_then(|length| usize::try_from(length).ok()),
    };
    let length: usize = length.filter(|length| *length > 0 && !name.is_empty()).ok_or("invalid_arguments")?;
    let (id, ticket) = (format!("F{:08}", state.number()), format!("u{}", state.number()));
    let mime = match name.rsplit('.').next() {
        Some("png") => "image/png",
        Some("pdf") => "application/pdf",
        Some("txt") => "text/plain",
        _ => "application/octet-stream",
    };
    let file = File { team: team.id.clone(), name: name.to_owned(), mime: mime.into(), length, ..File::default() };
    state.files.insert(id.clone(), file);
    state.uploads.insert(ticket.clone(), id.clone());
    Ok(json!({ "upload_url": format!("{origin}/upload/v1/{ticket}"), "file_id": id }))
}

/// The bytes of an upload. `Err`: the status that is answered.
pub(super) fn take(state: &mut State, ticket: &str, bytes: Bytes) -> Result<usize, u16> {
    let id = state.uploads.get(ticket).ok_or(404_u16)?;
    let file = state.files.get_mut(id).ok_or(404_u16)?;
    if bytes.len() != file.length {
        return Err(400);
    }
    file.bytes = bytes;
    Ok(file.length)
}

pub(super) fn complete(
    state: &mut State,
    now_ms: u64,
    origin: &str,
    team: &Team,
    params: &Value,
    files: &Value,
) -> Result<Value, &'static str> {
    let channel = text(params, "channel_id").to_owned();
    if !channel.is_empty() && channel_object(state, team, &channel)?["is_member"] != true {
        return Err("not_in_channel");
    }
    let ids: Vec<String> =
        files.as_array().into_iter().flatten().filter_map(|file| file["id"].as_str().map(str::to_owned)).collect();
    let is_there = |id: &String| state.files.get(id).is_some_and(|file| file.team == team.id && !file.bytes.is_empty());
    if ids.is_empty() || !ids.iter().all(is_there) {
        return Err("file_not_found");
    }
    let ts = state.ts(now_ms);
    for id in &ids {
        if let Some(file) = state.files.get_mut(id) {
            file.is_complete = true;
            file.shares.push((channel.clone(), ts.clone()));
        }
    }
    let objects: Vec<Value> = ids.iter().map(|id| state.file_object(id, origin)).collect();
    if !channel.is_empty() {
        let mut message = json!({
            "type": "message", "user": team.bot_user, "bot_id": team.bot_id, "app_id": state.app.id, "ts": ts,
            "text": text(params, "initial_comment"), "files": objects,
        });
        if !text(params, "thread_ts").is_empty() {
            message["thread_ts"] = params["thread_ts"].clone();
        }
        state.post(&channel, message);
    }
    // Slack shares a moment later, so the answer does not tell where.
    let bare: Vec<Value> = ids.iter().map(|id| json!({ "id": id, "title": state.files[id].name })).collect();
    Ok(json!({ "files": bare }))
}
