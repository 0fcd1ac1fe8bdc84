//! From a frame to what the server stores, as the gateway's own adapter reads it.

use frontdesk_core::intake::{HANDLE_MAX_BYTES, Intake, REMOTE_MEDIA_MAX, RemoteFile, Verified};
use frontdesk_core::port::platform::Bot;
use frontdesk_wire::event::ReplyTo;
use frontdesk_wire::{MessageEvent, Secret, Source, UserId};
use serde_json::Value;

use super::PLATFORM;
use super::frame::{Frame, MESSAGE, OLD_MESSAGE};
use super::media::Handle;

/// `None`: not a message of a member.
pub fn intake_of(frame: &Frame, bot: &Bot) -> Option<Intake> {
    let body = &frame.body;
    if ![MESSAGE, OLD_MESSAGE].contains(&frame.cmd.as_str()) || !body.is_object() {
        return None; // a member entered the chat, or pressed a button that this server has not made
    }
    if !text(&body["aibotid"]).is_empty() && Some(text(&body["aibotid"])) != bot.setting("bot_id") {
        tracing::debug!(bot = bot.id.as_str(), "a message to another robot was skipped");
        return None;
    }
    let person = text(&body["from"]["userid"]);
    let chat_id = Some(text(&body["chatid"])).filter(|id| !id.is_empty()).unwrap_or(person);
    let message_id = Some(text(&body["msgid"])).filter(|id| !id.is_empty()).unwrap_or(&frame.req_id);
    if chat_id.is_empty() || message_id.is_empty() {
        tracing::warn!(bot = bot.id.as_str(), "a message of WeCom without a chat or an id was skipped");
        return None;
    }
    let is_group = text(&body["chattype"]).eq_ignore_ascii_case("group");
    let (said, quoted) = (said(body), quoted(&body["quote"]));
    let said = if is_group { without_mention(&said) } else { said.as_str() };
    let Files { files, unusable } = files(body);
    let has_context = quoted.is_some() && (!said.is_empty() || !files.is_empty());
    let shown = if said.is_empty() && files.is_empty() { quoted.as_deref().unwrap_or_default() } else { said };
    let is_empty = shown.is_empty() && files.is_empty();
    let shown = match (is_empty, unusable) {
        (true, 0) => unreadable(body)?,
        (_, 0) => shown.to_owned(),
        (true, _) => String::new(),
        (false, _) => {
            format!("{shown}\n[Parts of this message that can only be seen in WeCom: {unusable}]").trim().to_owned()
        }
    };
    let source = Source {
        platform: PLATFORM.into(),
        chat_id: chat_id.into(),
        chat_type: if is_group { "group" } else { "dm" }.into(),
        user_id: Some(person).filter(|id| !id.is_empty()).map(UserId::from),
        user_name: Some(person.to_owned()).filter(|id| !id.is_empty()),
        message_id: Some(message_id.into()),
        ..Source::default()
    };
    let event = MessageEvent {
        text: shown,
        message_type: kind(body, &files).into(),
        source,
        message_id: Some(message_id.into()),
        // The quoted message has no id.
        reply_to_message_id: has_context.then(|| format!("quote:{message_id}").into()),
        reply_to: quoted.filter(|_| has_context).map(|text| ReplyTo { text: Some(text), ..ReplyTo::default() }),
        ..MessageEvent::default()
    };
    let proof = Verified::by("a socket that this server opened with its secret");
    let mut intake = Intake::new(proof, bot.tenant_source(), bot.id.clone(), event);
    // In a group, a robot gets only what mentions it.
    (intake.addressed, intake.author_sees) = (is_group, true);
    intake.remote_media = files;
    if is_empty && unusable > 0 {
        intake.refused =
            Some("the file cannot be fetched: WeCom gave no address of it, or one that is too long".into());
    }
    Some(intake)
}

/// The text for content that has none here. `None`: it is no message of a member.
fn unreadable(body: &Value) -> Option<String> {
    let kind: String = type_of(body).chars().take(32).collect();
    let is_silent = ["", "text", "mixed", "event"].contains(&kind.as_str());
    (!is_silent).then(|| format!("[A message of the kind {kind:?}, which can only be seen in WeCom]"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default().trim()
}

fn items(body: &Value) -> impl Iterator<Item = &Value> {
    body["mixed"]["msg_item"].as_array().into_iter().flatten()
}

fn type_of(value: &Value) -> String {
    text(&value["msgtype"]).to_lowercase()
}

fn said(body: &Value) -> String {
    let parts: Vec<&str> = match type_of(body).as_str() {
        "mixed" => {
            items(body).filter(|item| type_of(item) == "text").map(|item| text(&item["text"]["content"])).collect()
        }
        kind => {
            let voice = if kind == "voice" { text(&body["voice"]["content"]) } else { "" };
            let title = if kind == "appmsg" { text(&body["appmsg"]["title"]) } else { "" };
            vec![text(&body["text"]["content"]), voice, title]
        }
    };
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// A command behind the name of the robot is a command.
fn without_mention(said: &str) -> &str {
    match said.strip_prefix('@') {
        Some(rest) if !rest.starts_with(char::is_whitespace) && !rest.is_empty() => {
            rest.find(char::is_whitespace).map_or("", |end| rest[end..].trim())
        }
        _ => said,
    }
}

fn quoted(quote: &Value) -> Option<String> {
    let said = match type_of(quote).as_str() {
        "text" => text(&quote["text"]["content"]),
        "voice" => text(&quote["voice"]["content"]),
        _ => "",
    };
    Some(said.to_owned()).filter(|said| !said.is_empty())
}

struct Files {
    files: Vec<RemoteFile>,
    /// Parts of the message that cannot be fetched or shown.
    unusable: usize,
}

fn files(body: &Value) -> Files {
    const IMAGE: &str = "image/jpeg";
    const FILE: &str = "application/octet-stream";
    let mut found: Vec<(&Value, &str)> = Vec::new();
    let mut others = 0;
    match type_of(body).as_str() {
        "mixed" => {
            found.extend(items(body).filter(|item| type_of(item) == "image").map(|item| (&item["image"], IMAGE)));
            others = items(body).filter(|item| !["", "text", "image"].contains(&type_of(item).as_str())).count();
        }
        kind => {
            if kind == "image" || body["image"].is_object() {
                found.push((&body["image"], IMAGE));
            }
            match kind {
                "file" => found.push((&body["file"], FILE)),
                "video" => found.push((&body["video"], "video/mp4")),
                "appmsg" if body["appmsg"]["file"].is_object() => found.push((&body["appmsg"]["file"], FILE)),
                "appmsg" if body["appmsg"]["image"].is_object() => found.push((&body["appmsg"]["image"], IMAGE)),
                _ => {}
            }
        }
    }
    let total = found.len() + others;
    let usable = found.into_iter().filter_map(|(file, mime)| remote(file, mime));
    let mut files: Vec<_> = usable.take(REMOTE_MEDIA_MAX).collect();
    let unusable = total - files.len();
    // A quoted file is not part of the message.
    let quote = &body["quote"];
    let quoted = match type_of(quote).as_str() {
        "image" => remote(&quote["image"], IMAGE),
        "file" => remote(&quote["file"], FILE),
        _ => None,
    };
    files.extend(quoted.filter(|_| files.len() < REMOTE_MEDIA_MAX));
    Files { files, unusable }
}

fn remote(file: &Value, mime: &str) -> Option<RemoteFile> {
    let url = text(&file["url"]);
    let filename = [&file["filename"], &file["name"]].into_iter().map(text).find(|name| !name.is_empty());
    let handle = Handle { url: url.to_owned(), aeskey: text(&file["aeskey"]).to_owned() };
    let handle = serde_json::to_string(&handle).ok().filter(|it| !url.is_empty() && it.len() <= HANDLE_MAX_BYTES)?;
    let filename = filename.map(str::to_owned);
    Some(RemoteFile { handle: Secret::new(handle), mime: mime.to_owned(), filename, size: None })
}

/// A message with files is of their kind, also if there is a text with them.
fn kind(body: &Value, files: &[RemoteFile]) -> &'static str {
    let has = |start: &str| files.iter().any(|file| file.mime.starts_with(start));
    match type_of(body).as_str() {
        _ if has("application/") => "document",
        _ if has("image/") => "photo",
        "voice" => "voice",
        "video" if has("video/") => "video",
        _ => "text",
    }
}
