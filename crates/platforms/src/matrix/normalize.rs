//! From an event of a room to an `Intake`. No I/O: the caller passes what it needs.

use frontdesk_core::intake::{Intake, RemoteFile, Verified};
use frontdesk_wire::event::{PromptResponse, ReplyTo, media_message_type};
use frontdesk_wire::{MessageEvent, MessageId, Secret, Source};
use serde_json::Value;

use super::PLATFORM;
use super::account::Account;
use super::content::{chosen_option, option_of_key};
use super::event::{Relation, RoomEvent, relation, without_quote};
use super::room::Room;

/// Commands of the server itself that can be written with `!`: many clients keep `/` for themselves.
const OWN_COMMANDS: [&str; 4] = ["link", "unlink", "whoami", "stop"];
/// Text of a message that is replied to.
const QUOTE_MAX_CHARS: usize = 2_000;

pub(super) const ENCRYPTED: &str = "the room is encrypted, and this server cannot read encrypted messages; use a room \
                                    without encryption";
const ENCRYPTED_FILE: &str = "the file is encrypted, and this server cannot read encrypted files; send it without \
                              encryption";

/// Programs that stream an answer edit a message dozens of times. The gateway's own adapter leaves edits out as well.
const EDIT: &str = "it edits an earlier message, and on Matrix agents are given the first version only; send it as a new \
                    message";
const UNRESOLVED: &str = "it refers to another message, which the homeserver did not return, so it cannot be interpreted; \
                          send it again";

/// What is known beside the event.
pub(super) struct Known<'a> {
    pub(super) account: &'a Account<'a>,
    pub(super) room_id: &'a str,
    pub(super) room: &'a Room,
    /// The event that `RoomEvent::needs` names, if the homeserver has it.
    pub(super) related: Option<&'a RoomEvent>,
}

/// A reaction whose message is not known: recorded, so that it is not lost silently.
pub(super) fn unresolved(known: &Known<'_>, event: &RoomEvent, proof: Verified) -> Intake {
    let source = source(known, event, None);
    let message_id = Some(event.event_id.clone());
    let message = MessageEvent {
        source,
        message_id: message_id.map(MessageId::from),
        message_type: "text".into(),
        ..MessageEvent::default()
    };
    let account = known.account;
    let mut intake = Intake::new(proof, account.bot.tenant_source(), account.bot.id.clone(), message);
    intake.refused = Some(UNRESOLVED.into());
    intake
}

/// `None`: it is nothing for an agent.
pub(super) fn normalize(known: &Known<'_>, event: &RoomEvent, proof: Verified) -> Option<Intake> {
    if event.sender == known.account.user_id || event.state_key.is_some() {
        return None;
    }
    let mut made = match event.kind.as_str() {
        "m.room.message" if event.text("msgtype") != Some("m.notice") => message(known, event)?,
        "m.sticker" => message(known, event)?,
        "m.reaction" => reaction(known, event)?,
        "m.room.encrypted" => Made { refusal: Some(ENCRYPTED.into()), ..Made::default() },
        _ => return None,
    };
    let thread = made.thread.take();
    let source = source(known, event, thread);
    let is_dm = source.is_direct();
    let tenant_source = known.account.bot.tenant_source();
    let mut message = MessageEvent { source, ..made.event };
    message.message_id.get_or_insert_with(|| event.event_id.as_str().into());
    if message.message_type.is_empty() {
        message.message_type = "text".into();
    }
    let mut intake = Intake::new(proof, tenant_source, known.account.bot.id.clone(), message);
    intake.addressed = made.is_addressed || is_dm;
    intake.remote_media = made.file.into_iter().collect();
    intake.refused = made.refusal;
    Some(intake)
}

#[derive(Default)]
struct Made {
    event: MessageEvent,
    thread: Option<String>,
    is_addressed: bool,
    file: Option<RemoteFile>,
    refusal: Option<String>,
}

fn source(known: &Known<'_>, event: &RoomEvent, thread_id: Option<String>) -> Source {
    let me = known.account.user_id;
    let name = known.room.name_of(&event.sender).map(str::to_owned);
    let localpart = || event.sender.trim_start_matches('@').split(':').next().map(str::to_owned);
    let mut source = Source {
        platform: PLATFORM.into(),
        chat_id: known.room_id.into(),
        chat_type: known.room.chat_type().into(),
        chat_name: known.room.shown_name(me),
        chat_topic: known.room.topic.clone(),
        user_id: Some(event.sender.as_str().into()),
        user_name: name.or_else(localpart),
        parent_chat_id: thread_id.as_ref().map(|_| known.room_id.into()),
        thread_id,
        is_bot: event.is_automated(),
        ..Source::default()
    };
    source.set_scope(known.room.scope.clone());
    source
}

fn message(known: &Known<'_>, event: &RoomEvent) -> Option<Made> {
    let Relation { thread, reply_to, is_edit } = event.relation();
    if is_edit {
        return Some(Made { refusal: Some(EDIT.into()), ..Made::default() });
    }
    let mut made = said(known, &event.kind, &event.content)?;
    made.thread = thread.map(str::to_owned);
    if let Some(reply_to) = reply_to {
        reply(known, reply_to, &mut made);
    }
    Some(made)
}

/// Text, command or file of a message.
fn said(known: &Known<'_>, kind: &str, content: &Value) -> Option<Made> {
    let mut made = Made::default();
    let body = content["body"].as_str().unwrap_or_default();
    let is_reply = relation(content).reply_to.is_some();
    let msgtype = if kind == "m.sticker" { "m.sticker" } else { content["msgtype"].as_str()? };
    match msgtype {
        "m.notice" => return None,
        "m.image" | "m.file" | "m.audio" | "m.video" | "m.sticker" => {
            let filename = content["filename"].as_str().filter(|name| !name.is_empty());
            // With a file name the body is the caption; without it the body is the file name.
            let caption = if filename.is_some_and(|name| name != body) { body } else { "" };
            made.event.text = String::from(if msgtype == "m.sticker" { body } else { caption });
            match content["url"].as_str() {
                Some(uri) => made.file = Some(file(content, msgtype, uri, filename.unwrap_or(body))),
                None if content["file"].is_object() => made.refusal = Some(ENCRYPTED_FILE.into()),
                None => return None,
            }
            let mime = made.file.as_ref().map_or("", |file| file.mime.as_str());
            made.event.message_type = match msgtype {
                "m.sticker" => "sticker",
                "m.audio" if content.get("org.matrix.msc3245.voice").is_some() => "voice",
                "m.image" => "photo",
                "m.video" => "video",
                "m.audio" => {
                    if media_message_type(mime) == "voice" {
                        "voice"
                    } else {
                        "audio"
                    }
                }
                _ => "document",
            }
            .into();
        }
        "m.location" => {
            let place = content["geo_uri"].as_str().unwrap_or_default();
            made.event.text = if body.contains(place) { body.to_owned() } else { format!("{body} {place}") };
            made.event.message_type = "location".into();
        }
        _ => made.event.text = String::from(if is_reply { without_quote(body) } else { body }),
    }
    made.is_addressed = is_mentioned(known.account, content);
    made.event.text = spoken(known, std::mem::take(&mut made.event.text), made.is_addressed);
    if made.event.text.starts_with('/') && made.event.message_type.is_empty() {
        made.event.message_type = "command".into();
        made.is_addressed = true;
    }
    let is_empty = made.event.text.trim().is_empty() && made.file.is_none() && made.refusal.is_none();
    (!is_empty || made.is_addressed).then_some(made)
}

fn file(content: &Value, msgtype: &str, uri: &str, filename: &str) -> RemoteFile {
    let info = &content["info"];
    // The type is optional, but agents distinguish pictures from documents by it.
    let usual = match msgtype {
        "m.image" | "m.sticker" => "image/png",
        "m.audio" => "audio/mpeg",
        "m.video" => "video/mp4",
        _ => "application/octet-stream",
    };
    RemoteFile {
        handle: Secret::new(uri),
        mime: info["mimetype"].as_str().filter(|mime| !mime.is_empty()).unwrap_or(usual).to_owned(),
        filename: Some(filename.to_owned()).filter(|name| !name.is_empty()),
        size: info["size"].as_u64(),
    }
}

fn is_mentioned(account: &Account<'_>, content: &Value) -> bool {
    let me = account.user_id;
    match content.get("m.mentions") {
        Some(mentions) => {
            mentions["user_ids"].as_array().is_some_and(|ids| ids.iter().any(|id| id.as_str() == Some(me)))
        }
        // Older clients do not list whom they mention.
        None => ["body", "formatted_body"].iter().any(|name| names(content[*name].as_str().unwrap_or_default(), me)),
    }
}

/// Whether the id is in the text, and not as a part of a longer one.
fn names(text: &str, user_id: &str) -> bool {
    let after = |at: usize| text[at + user_id.len()..].chars().next();
    let ends = |at: usize| after(at).is_none_or(|c| !c.is_ascii_alphanumeric() && c != '-');
    text.match_indices(user_id).any(|(at, _)| ends(at))
}

/// The text without a mention of the bot before it, so that a command after it is a command.
fn spoken(known: &Known<'_>, text: String, is_mentioned: bool) -> String {
    let me = known.account.user_id;
    let mut rest = text.as_str();
    if is_mentioned {
        let at_name = format!("@{}", known.account.localpart());
        let name = known.room.name_of(me).unwrap_or_default();
        let found = [me, name, &at_name].into_iter().filter(|it| !it.is_empty()).find_map(|name| {
            let after = text.trim_start().strip_prefix(name)?;
            after.chars().next().is_none_or(|c| c == ':' || c == ',' || c.is_whitespace()).then_some(after)
        });
        if let Some(after) = found {
            rest = after.trim_start_matches([':', ',']).trim_start();
        }
    }
    let command = rest.strip_prefix('!').filter(|it| {
        let word = it.split_whitespace().next().unwrap_or_default();
        it.starts_with(word) && OWN_COMMANDS.contains(&word)
    });
    match command {
        Some(command) => format!("/{command}"),
        None => rest.to_owned(),
    }
}

fn reply(known: &Known<'_>, reply_to: &str, made: &mut Made) {
    made.event.reply_to_message_id = Some(reply_to.into());
    let Some(original) = known.related.filter(|it| it.event_id == reply_to) else { return };
    let is_own = original.sender == known.account.user_id;
    made.is_addressed |= is_own;
    let text = original.text("body").map(without_quote).filter(|text| !text.is_empty());
    made.event.reply_to = Some(ReplyTo {
        text: text.map(|text| text.chars().take(QUOTE_MAX_CHARS).collect()),
        author: Some(known.room.name_of(&original.sender).unwrap_or(&original.sender).to_owned()),
        is_own: Some(is_own),
    });
}

/// A reaction to a prompt of the bot is an answer to it. Other reactions are nothing for agents.
fn reaction(known: &Known<'_>, event: &RoomEvent) -> Option<Made> {
    let relates = &event.content["m.relates_to"];
    let prompt = known.related.filter(|it| {
        it.sender == known.account.user_id && Some(it.event_id.as_str()) == relates["event_id"].as_str()
    })?;
    let (prompt_id, option) = chosen_option(&prompt.content, option_of_key(relates["key"].as_str()?)?)?;
    let answer = PromptResponse {
        prompt_id,
        option_id: option.id.clone(),
        label: Some(option.label),
        prompt_message_id: Some(prompt.event_id.as_str().into()),
    };
    let message = MessageEvent {
        text: format!("/{}", option.id),
        message_type: "command".into(),
        prompt_response: Some(answer),
        ..MessageEvent::default()
    };
    let thread = prompt.relation().thread.map(str::to_owned);
    Some(Made { event: message, thread, is_addressed: true, ..Made::default() })
}
