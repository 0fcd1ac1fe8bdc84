//! From an event to what the server stores: a message, a change, or nothing.

use frontdesk_core::intake::{Intake, REMOTE_MEDIA_MAX, RemoteFile, Verified};
use frontdesk_core::port::platform::{Bot, Change};
use frontdesk_wire::event::ReplyTo;
use frontdesk_wire::{MessageEvent, MessageId, Secret, Source, UserId};
use serde_json::Value;

use super::PLATFORM;
use super::account::{is_id, is_ts};
use super::rich::{list_of, text_of, whole_text};
use super::text::{is_mention, with_slash, without_mention};

/// Where an event happened, and who the bot is there.
pub(super) struct Scene<'a> {
    pub(super) bot: &'a Bot,
    pub(super) team: &'a str,
    /// The app of the bot, as the request names it.
    pub(super) app_id: &'a str,
    pub(super) me: &'a Me,
}

/// Who the bot is in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Me {
    /// Its user id.
    pub(super) user: String,
    /// Its bot id. Empty: not known.
    pub(super) bot: String,
    pub(super) team: String,
}

/// What an event means.
#[derive(Default)]
pub(super) struct Meaning {
    pub(super) intake: Option<Box<Intake>>,
    pub(super) changes: Vec<Change>,
    /// The workspace has removed the app.
    pub(super) is_uninstalled: bool,
}

impl Meaning {
    fn change(change: Change) -> Self {
        Self { changes: vec![change], ..Self::default() }
    }
}

/// The workspace in which the app is installed that got the event. In a channel of several workspaces the author may belong
/// to another one.
pub(super) fn team_of(payload: &Value) -> &str {
    let installed = list_of(payload, "authorizations").first().map_or("", |it| text_of(it, "team_id"));
    let named = [installed, text_of(payload, "team_id"), text_of(&payload["event"], "team_id")];
    let of_event = text_of(&payload["event"], "team");
    named.into_iter().chain([of_event]).find(|id| is_id(id)).unwrap_or_default()
}

pub(super) fn meaning_of(scene: &Scene<'_>, proof: Verified, event: &Value) -> Meaning {
    let channel = || {
        let nested = text_of(&event["channel"], "id");
        let named = [text_of(event, "channel"), nested, text_of(event, "channel_id")];
        named.into_iter().find(|id| is_id(id)).map(str::to_owned)
    };
    match text_of(event, "type") {
        "message" | "app_mention" => {
            Meaning { intake: message(scene, proof, event).map(Box::new), ..Meaning::default() }
        }
        "member_joined_channel" | "member_left_channel" => match (channel(), text_of(event, "user")) {
            (Some(chat_id), user) if is_id(user) => {
                Meaning::change(Change::Member { chat_id: chat_id.into(), user_id: user.into() })
            }
            _ => Meaning::default(),
        },
        "channel_id_changed" => {
            let (from, to) = (text_of(event, "old_channel_id"), text_of(event, "new_channel_id"));
            match is_id(from) && is_id(to) {
                true => Meaning::change(Change::ChatMoved { from: from.into(), to: to.into() }),
                false => Meaning::default(),
            }
        }
        "channel_archive" | "channel_unarchive" | "channel_deleted" | "channel_rename" | "channel_shared"
        | "channel_unshared" | "channel_left" | "group_archive" | "group_unarchive" | "group_deleted"
        | "group_rename" | "group_left" => {
            channel().map_or_else(Meaning::default, |id| Meaning::change(Change::Chat(id.into())))
        }
        "user_change" => match text_of(&event["user"], "id") {
            user if is_id(user) => Meaning::change(Change::Person(user.into())),
            _ => Meaning::default(),
        },
        "app_uninstalled" => Meaning { is_uninstalled: true, ..Meaning::default() },
        "tokens_revoked" => {
            Meaning { is_uninstalled: !list_of(&event["tokens"], "bot").is_empty(), ..Meaning::default() }
        }
        _ => Meaning::default(),
    }
}

/// Kinds of messages that users write. Others are notices of Slack: a user joined, a topic was set.
const WRITTEN: [&str; 6] = ["", "file_share", "thread_broadcast", "me_message", "bot_message", "bot_add_share"];

fn message(scene: &Scene<'_>, proof: Verified, event: &Value) -> Option<Intake> {
    let channel = text_of(event, "channel");
    if text_of(event, "subtype") != "message_changed" {
        return written(scene, proof, event, channel, text_of(event, "channel_type"), false);
    }
    let (now, before) = (&event["message"], &event["previous_message"]);
    // Slack reports an added link preview as an edit, although the author changed nothing.
    if now["edited"].is_null() || text_of(now, "text") == text_of(before, "text") {
        return None;
    }
    written(scene, proof, now, channel, text_of(event, "channel_type"), true)
}

fn written(
    scene: &Scene<'_>,
    proof: Verified,
    message: &Value,
    channel: &str,
    channel_type: &str,
    is_edit: bool,
) -> Option<Intake> {
    let of = |name| text_of(message, name);
    if !WRITTEN.contains(&of("subtype")) || is_own(scene, message) {
        return None;
    }
    let (ts, me) = (of("ts"), scene.me.user.as_str());
    let mut said = with_slash(of("text"));
    let is_command = said.starts_with('/');
    let is_mentioned = is_mention(&said, me) || of("type") == "app_mention";
    said = whole_text(&said, message);
    if is_mentioned {
        said = without_mention(&said, me);
    }
    let files = Files::of(scene.team, list_of(message, "files"));
    if !files.notes.is_empty() {
        let notes = files.notes.join("\n");
        said = [said.trim(), &notes].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    }
    let thread = Some(of("thread_ts")).filter(|thread| is_ts(thread) && *thread != ts).map(str::to_owned);
    let is_own_thread = Some(of("parent_user_id")).filter(|id| thread.is_some() && !id.is_empty()).map(|id| id == me);
    let mut source = source(scene, channel, channel_type, of("user"));
    source.thread_id.clone_from(&thread);
    source.is_bot = !of("bot_id").is_empty() || of("subtype") == "bot_message";
    source.message_is_edit = is_edit;
    source.message_id = Some(ts.into());
    if source.is_bot && source.user_id.is_none() {
        // A workflow, or an app of old times: it has no user.
        source.user_id = Some(of("bot_id")).filter(|id| !id.is_empty()).map(UserId::from);
        source.user_name = Some(of("username").to_owned()).filter(|name| !name.is_empty());
    }
    let event = MessageEvent {
        text: said,
        message_type: if is_command { "command" } else { files.kind() }.into(),
        source,
        message_id: Some(ts.into()),
        reply_to_message_id: thread.map(MessageId::from),
        reply_to: is_own_thread.map(|is_own| ReplyTo { is_own: Some(is_own), ..ReplyTo::default() }),
        ..MessageEvent::default()
    };
    let mut intake = intake(scene, proof, event);
    intake.addressed = is_mentioned || is_command || is_own_thread == Some(true);
    intake.remote_media = files.files;
    if is_edit {
        intake.edit_id = Some(text_of(&message["edited"], "ts").to_owned()).filter(|id| !id.is_empty());
    }
    if !is_ts(ts) || !is_id(channel) {
        intake.refused = Some("the message has no id, or no channel".to_owned());
        let hash = hex::encode(frontdesk_core::short_hash(&[channel, ts]));
        intake.event.message_id = Some(format!("odd-{hash}").into());
        intake.event.source.chat_id = "unknown".into();
    }
    Some(intake)
}

/// Of this bot, in whatever way Slack reports it.
fn is_own(scene: &Scene<'_>, message: &Value) -> bool {
    let is = |name: &str, own: &str| !own.is_empty() && text_of(message, name) == own;
    let has_bot = !text_of(message, "bot_id").is_empty();
    is("user", &scene.me.user) || is("bot_id", &scene.me.bot) || (has_bot && is("app_id", scene.app_id))
}

/// Chats between people are direct ones, also those of several people.
pub(super) fn chat_type(channel: &str, channel_type: &str) -> &'static str {
    match channel_type {
        "im" | "mpim" => "dm",
        "" if channel.starts_with('D') => "dm",
        _ => "group",
    }
}

pub(super) fn source(scene: &Scene<'_>, channel: &str, channel_type: &str, user: &str) -> Source {
    let is_one_to_one = channel_type == "im" || (channel_type.is_empty() && channel.starts_with('D'));
    let mut source = Source {
        platform: PLATFORM.into(),
        chat_id: channel.into(),
        chat_type: chat_type(channel, channel_type).into(),
        chat_name: Some(channel.to_owned()),
        user_id: Some(user).filter(|user| !user.is_empty()).map(UserId::from),
        one_to_one_verified: is_one_to_one.then_some(true),
        ..Source::default()
    };
    source.set_scope(Some(scene.team.to_owned()).filter(|team| !team.is_empty()));
    source
}

pub(super) fn intake(scene: &Scene<'_>, proof: Verified, event: MessageEvent) -> Intake {
    let mut intake = Intake::new(proof, scene.bot.tenant_source(), scene.bot.id.clone(), event);
    // Ids of messages are times: in a channel of several workspaces they are the same in each.
    scene.team.clone_into(&mut intake.mark);
    intake
}

/// The files of a message.
#[derive(Default)]
struct Files {
    files: Vec<RemoteFile>,
    /// About those that cannot be fetched.
    notes: Vec<String>,
}

impl Files {
    fn of(team: &str, all: &[Value]) -> Self {
        let mut found = Self::default();
        for file in all {
            let of = |name| text_of(file, name);
            let name = Some(of("name")).filter(|name| !name.is_empty()).map(str::to_owned);
            let shown = name.clone().unwrap_or_else(|| "without a name".to_owned());
            match of("mode") {
                "tombstone" | "hidden_by_limit" => found.notes.push(format!("[File {shown} is not there any more]")),
                "external" => found.notes.push(format!("[File {shown}: {}]", of("external_url"))),
                _ if !is_id(of("id")) => found.notes.push(format!("[File {shown} cannot be fetched]")),
                _ if found.files.len() == REMOTE_MEDIA_MAX => {
                    found.notes.push(format!("[File {shown} was left out: a message has at most {REMOTE_MEDIA_MAX}]"));
                }
                _ => found.files.push(RemoteFile {
                    handle: Secret::new(format!("{team}/{}", of("id"))),
                    mime: mime(file),
                    filename: name,
                    size: file["size"].as_u64(),
                }),
            }
        }
        found.notes.truncate(REMOTE_MEDIA_MAX);
        found
    }

    /// Audio is taken for something that was said: people send recordings, and gateways transcribe only those.
    fn kind(&self) -> &'static str {
        let any = |kind: &str| self.files.iter().any(|file| file.mime.starts_with(kind));
        match () {
            () if any("image/") => "photo",
            () if any("video/") => "video",
            () if any("audio/") => "voice",
            () if !self.files.is_empty() => "document",
            () => "text",
        }
    }
}

/// Recordings made in Slack are audio, although it calls some of them videos.
fn mime(file: &Value) -> String {
    let mime_type = text_of(file, "mimetype");
    let is_recording = text_of(file, "subtype") == "slack_audio" || text_of(file, "name").starts_with("audio_message");
    match mime_type {
        mime if mime.starts_with("video/") && is_recording => "audio/mp4".to_owned(),
        mime if mime.contains('/') => mime.to_owned(),
        _ => "application/octet-stream".to_owned(),
    }
}
