//! Messages of the socket as events.

use frontdesk_core::intake::{Intake, REMOTE_MEDIA_MAX, RemoteFile, Verified};
use frontdesk_core::port::platform::Bot;
use frontdesk_wire::event::ReplyTo;
use frontdesk_wire::{MessageEvent, Secret, Source};
use serde::Deserialize;
use serde_json::Value;

use super::PLATFORM;
use super::guilds::{Channel, Guild, User};

/// Kinds of messages that somebody wrote: a text and a reply. The first message of a thread is shown there once more by
/// another kind, which is left out like the notices of Discord itself.
const WRITTEN: [u8; 2] = [0, 19];
const IS_VOICE: u64 = 1 << 13;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) channel_id: String,
    pub(super) guild_id: Option<String>,
    #[serde(rename = "type")]
    kind: u8,
    author: User,
    member: Option<Nick>,
    webhook_id: Option<String>,
    content: String,
    mentions: Vec<User>,
    mention_roles: Vec<String>,
    attachments: Vec<Attachment>,
    embeds: Vec<Embed>,
    sticker_items: Vec<Sticker>,
    #[serde(rename = "message_reference")]
    reference: Option<Reference>,
    #[serde(rename = "referenced_message")]
    referenced: Option<Box<Message>>,
    edited_timestamp: Option<String>,
    flags: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Nick {
    nick: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Attachment {
    id: String,
    filename: String,
    content_type: Option<String>,
    size: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Embed {
    title: Option<String>,
    description: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Sticker {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Reference {
    message_id: Option<String>,
    /// 1 is a forwarded message, which is no reply.
    #[serde(rename = "type")]
    kind: u8,
}

/// Where a message was written.
pub(super) struct Place<'a> {
    pub(super) bot: &'a Bot,
    pub(super) me: &'a str,
    pub(super) channel: &'a Channel,
    /// The channel of a thread.
    pub(super) parent: Option<&'a Channel>,
    pub(super) guild: Option<&'a Guild>,
}

pub(super) fn read(data: &Value) -> Result<Message, String> {
    let message = Message::deserialize(data).map_err(|error| error.to_string())?;
    match message.id.is_empty() || message.channel_id.is_empty() {
        true => Err("it has no id".to_owned()),
        false => Ok(message),
    }
}

impl Message {
    /// An update without a time of change is a preview that Discord has added.
    pub(super) fn is_real_edit(&self) -> bool {
        self.edited_timestamp.is_some()
    }
}

/// `None`: nobody wrote it, or the bot itself.
pub(super) fn normalize(place: &Place<'_>, message: &Message, is_edit: bool) -> Option<Intake> {
    if !WRITTEN.contains(&message.kind) || message.author.id == place.me || message.author.id.is_empty() {
        return None;
    }
    let is_bot = message.author.bot || message.webhook_id.is_some();
    let replied = message.referenced.as_deref().filter(|_| message.is_reply());
    let is_own = replied.map(|to| to.author.id == place.me);
    let is_mention = message.mentions.iter().any(|user| user.id == place.me) && is_named(&message.content, place.me);
    let own_roles = place.guild.map_or(&[][..], |guild| &guild.own_roles);
    let is_role = message.mention_roles.iter().any(|role| own_roles.contains(role));
    let text = text_of(message, place.me);
    let event = MessageEvent {
        message_type: kind_of(message, &text).into(),
        text,
        source: source(place, message, is_bot, is_edit),
        message_id: Some(message.id.clone()),
        reply_to_message_id: message.reply_id().map(str::to_owned),
        reply_to: replied.map(|to| ReplyTo {
            text: Some(text_of(to, place.me)).filter(|text| !text.is_empty()),
            author: Some(to.author.shown().to_owned()),
            is_own,
        }),
        ..MessageEvent::default()
    };
    let bot = place.bot;
    let mut intake = Intake::new(Verified::by("the socket of the bot's token"), bot.whose(), bot.id.clone(), event);
    // Bots answer each other with a ping without meaning it.
    let is_answer = is_own == Some(true) && !is_bot;
    intake.addressed = is_mention || is_role || is_answer || place.channel.is_direct();
    let files = message.attachments.iter().filter(|it| !it.id.is_empty()).take(REMOTE_MEDIA_MAX);
    intake.remote_media = files.map(|file| message.remote(file)).collect();
    if is_edit {
        intake.mark = message.edited_timestamp.clone().unwrap_or_default();
    }
    Some(intake)
}

impl Message {
    fn is_reply(&self) -> bool {
        self.reference.as_ref().is_some_and(|it| it.kind == 0)
    }

    fn reply_id(&self) -> Option<&str> {
        self.reference.as_ref().filter(|it| it.kind == 0)?.message_id.as_deref()
    }

    /// URLs of files expire after a day, so the message is asked for again when the file is needed.
    fn remote(&self, file: &Attachment) -> RemoteFile {
        let mime = file.content_type.as_deref().unwrap_or("application/octet-stream");
        RemoteFile {
            handle: Secret::new(format!("{}/{}/{}", self.channel_id, self.id, file.id)),
            mime: mime.split(';').next().unwrap_or_default().trim().to_owned(),
            filename: Some(file.filename.clone()).filter(|name| !name.is_empty()),
            size: Some(file.size),
        }
    }
}

fn kind_of(message: &Message, text: &str) -> &'static str {
    if message.flags & IS_VOICE != 0 {
        return "voice";
    }
    let Some(file) = message.attachments.first() else {
        return if text.starts_with('/') { "command" } else { "text" };
    };
    match file.content_type.as_deref().unwrap_or_default() {
        mime if mime.starts_with("image/") => "photo",
        mime if mime.starts_with("video/") => "video",
        mime if mime.starts_with("audio/") => "audio",
        _ => "document",
    }
}

fn is_named(content: &str, me: &str) -> bool {
    content.contains(&format!("<@{me}>")) || content.contains(&format!("<@!{me}>"))
}

/// Without the mentions of the bot. Embeds and stickers are told where there is no text.
fn text_of(message: &Message, me: &str) -> String {
    let text = message.content.replace(&format!("<@{me}>"), "").replace(&format!("<@!{me}>"), "");
    let text = text.trim();
    if !text.is_empty() || !message.attachments.is_empty() {
        return text.to_owned();
    }
    let embeds = message.embeds.iter().flat_map(|it| [it.title.as_deref(), it.description.as_deref()]).flatten();
    let stickers = message.sticker_items.iter().map(|sticker| format!("[Sticker {}]", sticker.name));
    let told: Vec<String> = embeds.filter(|text| !text.is_empty()).map(str::to_owned).chain(stickers).collect();
    told.join("\n")
}

fn source(place: &Place<'_>, message: &Message, is_bot: bool, is_edit: bool) -> Source {
    let channel = place.channel;
    let nick = message.member.as_ref().and_then(|member| member.nick.as_deref()).filter(|nick| !nick.is_empty());
    let mut source = Source {
        platform: PLATFORM.into(),
        chat_id: channel.id.as_str().into(),
        chat_type: channel.type_name().into(),
        chat_name: chat_name(place, message),
        chat_topic: topic(place),
        user_id: Some(message.author.id.clone()),
        user_name: Some(nick.unwrap_or_else(|| message.author.shown()).to_owned()),
        thread_id: channel.is_thread().then(|| channel.id.clone()),
        parent_chat_id: channel.parent().map(str::to_owned),
        is_bot,
        message_is_edit: is_edit,
        message_id: Some(message.id.clone()),
        ..Source::default()
    };
    source.set_scope(message.guild_id.clone().or_else(|| channel.guild_id.clone()));
    source
}

/// A post of a forum has the topic of the forum.
fn topic(place: &Place<'_>) -> Option<String> {
    let forum = place.parent.filter(|parent| parent.is_forum());
    let own = [Some(place.channel), forum].into_iter().flatten().filter_map(|channel| channel.topic.clone());
    own.into_iter().find(|topic| !topic.is_empty())
}

/// As people see it: guild, channel, thread.
fn chat_name(place: &Place<'_>, message: &Message) -> Option<String> {
    let channel = place.channel;
    if channel.is_direct() {
        return Some(message.author.username.clone());
    }
    let name = channel.name.clone()?;
    let name = match (channel.is_thread(), place.parent.and_then(|parent| parent.name.as_deref())) {
        (true, Some(parent)) if place.parent.is_some_and(Channel::is_forum) => format!("{parent} / {name}"),
        (true, Some(parent)) => format!("#{parent} / {name}"),
        (true, None) => name,
        (false, _) => format!("#{name}"),
    };
    Some(match place.guild.map(|guild| guild.name.as_str()).filter(|guild| !guild.is_empty()) {
        Some(guild) => format!("{guild} / {name}"),
        None => name,
    })
}
