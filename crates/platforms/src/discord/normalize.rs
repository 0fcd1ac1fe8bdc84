//! Messages of the socket as events.

use frontdesk_core::intake::{Intake, REMOTE_MEDIA_MAX, RemoteFile, Verified};
use frontdesk_core::port::platform::Bot;
use frontdesk_wire::event::ReplyTo;
use frontdesk_wire::{ChatId, MessageEvent, MessageId, Secret, Source};
use serde::Deserialize;
use serde_json::Value;

use super::PLATFORM;
use super::body::{Body, lenient};
use super::places::{Channel, Guild, User};
use super::snowflake::time_ms;

/// Kinds of messages that users write: a text and a reply. The first message of a thread is shown there once more by
/// another kind, which is left out like the notices of Discord itself.
const WRITTEN: [u8; 2] = [0, REPLY];
const REPLY: u8 = 19;
const IS_VOICE: u64 = 1 << 13;
/// Discord repeats an edited message whenever something else of it changes (a pin, a preview). An edit that is this old
/// was reported before.
const EDIT_IS_NEWS_MS: u64 = 24 * 3_600_000;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) channel_id: String,
    pub(super) guild_id: Option<String>,
    /// Of the channel, as the socket reports it.
    channel_type: Option<u8>,
    #[serde(rename = "type")]
    kind: u8,
    author: User,
    member: Option<Nick>,
    webhook_id: Option<String>,
    mentions: Vec<User>,
    mention_roles: Vec<String>,
    attachments: Vec<Attachment>,
    #[serde(flatten)]
    body: Body,
    #[serde(rename = "message_snapshots", deserialize_with = "lenient")]
    forwarded: Vec<Snapshot>,
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
struct Reference {
    message_id: Option<String>,
    /// 1 is a forwarded message, which is no reply. Announcements that are carried over from another guild, and threads,
    /// refer to a message too, so the kind of the message counts as well.
    #[serde(rename = "type")]
    kind: u8,
}

/// A message that was forwarded, as it was then.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Snapshot {
    message: Forwarded,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Forwarded {
    attachments: Vec<Attachment>,
    #[serde(flatten)]
    body: Body,
}

/// Where a message was written.
pub(super) struct MessageLocation<'a> {
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
    pub(super) fn is_real_edit(&self, now_ms: u64) -> bool {
        let Some(edited) = self.edited_timestamp.as_deref() else { return false };
        time_ms(edited).is_none_or(|edited_ms| edited_ms + EDIT_IS_NEWS_MS > now_ms)
    }

    /// All that is known of its channel if Discord does not report more.
    pub(super) fn unknown_channel(&self) -> Channel {
        let kind = self.channel_type.unwrap_or_else(|| u8::from(self.guild_id.is_none()));
        let (id, guild_id) = (self.channel_id.clone(), self.guild_id.clone());
        Channel { id, kind, guild_id, ..Channel::default() }
    }
}

/// `None`: a notice of Discord, or a message of the bot itself.
pub(super) fn normalize(place: &MessageLocation<'_>, message: &Message, is_edit: bool) -> Option<Intake> {
    if !WRITTEN.contains(&message.kind) || message.author.id == place.me || message.author.id.is_empty() {
        return None;
    }
    let is_bot = message.author.bot || message.webhook_id.is_some();
    let replied = message.referenced.as_deref().filter(|_| message.is_reply());
    let is_own = replied.map(|to| to.author.id == place.me);
    let is_mention =
        message.mentions.iter().any(|user| user.id == place.me) && is_named(&message.body.content, place.me);
    let own_roles = place.guild.map_or(&[][..], |guild| &guild.own_roles);
    let is_role = message.mention_roles.iter().any(|role| own_roles.contains(role));
    let text = message.text(place.me);
    let event = MessageEvent {
        message_type: kind_of(message, replied, &text).into(),
        text,
        source: source(place, message, is_bot, is_edit),
        message_id: Some(message.id.as_str().into()),
        reply_to_message_id: message.reply_id().map(MessageId::from),
        reply_to: replied.map(|to| ReplyTo {
            text: Some(to.text(place.me)).filter(|text| !text.is_empty()),
            author: Some(to.author.shown().to_owned()),
            is_own,
        }),
        ..MessageEvent::default()
    };
    let bot = place.bot;
    let mut intake =
        Intake::new(Verified::by("the socket of the bot's token"), bot.tenant_source(), bot.id.clone(), event);
    // Bots ping each other in answers without meaning it.
    let is_answer = is_own == Some(true) && !is_bot;
    intake.addressed = is_mention || is_role || is_answer || place.channel.is_direct();
    // "What is this?" is about the files of the other message.
    let files = [Some(message), replied].into_iter().flatten().flat_map(Message::remote_files);
    intake.remote_media = files.take(REMOTE_MEDIA_MAX).collect();
    if is_edit {
        intake.edit_id.clone_from(&message.edited_timestamp);
    }
    Some(intake)
}

impl Message {
    fn is_reply(&self) -> bool {
        self.kind == REPLY && self.reference.as_ref().is_some_and(|it| it.kind == 0)
    }

    fn reply_id(&self) -> Option<&str> {
        self.reference.as_ref().filter(|_| self.is_reply())?.message_id.as_deref()
    }

    /// Its own, and those of a message that it forwards.
    fn files(&self) -> impl Iterator<Item = &Attachment> {
        self.attachments.iter().chain(self.forwarded.iter().flat_map(|it| &it.message.attachments))
    }

    /// Without the mentions of the bot.
    fn text(&self, me: &str) -> String {
        // People cannot add embeds: those in their messages are previews.
        let is_person = !self.author.bot && self.webhook_id.is_none();
        let mut parts = self.body.parts(is_person);
        if let Some(own) = parts.first_mut().filter(|_| !self.body.content.is_empty()) {
            let without = own.replace(&format!("<@{me}>"), "").replace(&format!("<@!{me}>"), "");
            without.trim().clone_into(own);
        }
        for Snapshot { message } in &self.forwarded {
            let text = message.body.parts(false).join("\n");
            let text =
                if text.is_empty() { "[Forwarded message]".to_owned() } else { format!("[Forwarded message]\n{text}") };
            parts.push(text);
        }
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }

    fn remote_files(&self) -> impl Iterator<Item = RemoteFile> {
        self.files().filter(|file| !file.id.is_empty()).map(|file| self.remote(file))
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

fn kind_of(message: &Message, replied: Option<&Message>, text: &str) -> &'static str {
    if message.flags & IS_VOICE != 0 {
        return "voice";
    }
    if text.starts_with('/') {
        return "command";
    }
    let of_other = || replied.and_then(|to| to.files().next());
    match (message.files().next(), of_other()) {
        _ if message.body.is_sticker() => "sticker",
        (Some(file), _) => file.kind(),
        // A file of another author is not transcribed as if this author had spoken.
        (None, Some(file)) if file.kind() != "audio" => file.kind(),
        _ => "text",
    }
}

impl Attachment {
    fn kind(&self) -> &'static str {
        match self.content_type.as_deref().unwrap_or_default() {
            mime if mime.starts_with("image/") => "photo",
            mime if mime.starts_with("video/") => "video",
            mime if mime.starts_with("audio/") => "audio",
            _ => "document",
        }
    }
}

fn is_named(content: &str, me: &str) -> bool {
    content.contains(&format!("<@{me}>")) || content.contains(&format!("<@!{me}>"))
}

fn source(place: &MessageLocation<'_>, message: &Message, is_bot: bool, is_edit: bool) -> Source {
    let channel = place.channel;
    let nick = message.member.as_ref().and_then(|member| member.nick.as_deref()).filter(|nick| !nick.is_empty());
    let mut source = Source {
        platform: PLATFORM.into(),
        chat_id: channel.id.as_str().into(),
        chat_type: channel.type_name().into(),
        chat_name: chat_name(channel, place.parent, place.guild, &message.author),
        chat_topic: topic(place),
        user_id: Some(message.author.id.as_str().into()),
        user_name: Some(nick.unwrap_or_else(|| message.author.shown()).to_owned()),
        thread_id: channel.is_thread().then(|| channel.id.clone()),
        parent_chat_id: channel.parent().map(ChatId::from),
        is_bot,
        message_is_edit: is_edit,
        message_id: Some(message.id.as_str().into()),
        ..Source::default()
    };
    source.set_scope(message.guild_id.clone().or_else(|| channel.guild_id.clone()));
    source
}

/// A post of a forum has the topic of the forum.
fn topic(place: &MessageLocation<'_>) -> Option<String> {
    let forum = place.parent.filter(|parent| parent.is_forum());
    let own = [Some(place.channel), forum].into_iter().flatten().filter_map(|channel| channel.topic.clone());
    own.into_iter().find(|topic| !topic.is_empty())
}

/// As people see it: guild, channel, thread. `author` is shown for a direct chat.
pub(super) fn chat_name(
    channel: &Channel,
    parent: Option<&Channel>,
    guild: Option<&Guild>,
    author: &User,
) -> Option<String> {
    if channel.is_direct() {
        return Some(author.username.clone());
    }
    let name = channel.name.clone()?;
    let name = match (channel.is_thread(), parent.and_then(|parent| parent.name.as_deref())) {
        (true, Some(of)) if parent.is_some_and(Channel::is_forum) => format!("{of} / {name}"),
        (true, Some(of)) => format!("#{of} / {name}"),
        (true, None) => name,
        (false, _) => format!("#{name}"),
    };
    Some(match guild.map(|guild| guild.name.as_str()).filter(|guild| !guild.is_empty()) {
        Some(guild) => format!("{guild} / {name}"),
        None => name,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ME: &str = "7";

    fn event(data: Value, is_edit: bool) -> Intake {
        let mut message =
            json!({"id": "9", "channel_id": "5", "guild_id": "3", "author": {"id": "8", "username": "ann"}});
        message.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        let message = read(&message).unwrap();
        let channel = message.unknown_channel();
        let place = MessageLocation { bot: &Bot::bare("b"), me: ME, channel: &channel, parent: None, guild: None };
        normalize(&place, &message, is_edit).unwrap()
    }

    fn text(data: Value) -> String {
        event(data, false).event.text
    }

    #[test]
    fn embeds_of_programs_are_told_and_previews_are_not() {
        let embed = |kind: &str, url: &str| {
            json!({"type": kind, "url": url, "title": "t", "description": "d",
            "author": {"name": "a"}, "fields": [{"name": "n", "value": "v"}], "footer": {"text": "f"}})
        };
        let all = "a\nt\nd\nn: v\nf";
        let bot = json!({"id": "8", "bot": true});
        let said = |content: &str, embeds: Value| text(json!({"content": content, "author": bot, "embeds": embeds}));
        assert_eq!(said("x", json!([embed("rich", "https://e.org/1")])), format!("x\n{all}"));
        assert_eq!(said("", json!([embed("rich", "")])), all);
        assert_eq!(said("see https://e.org/1", json!([embed("rich", "https://e.org/1")])), "see https://e.org/1");
        for kind in ["link", "article", "image", "video", "gifv"] {
            assert_eq!(said("x", json!([embed(kind, "https://e.org/2")])), "x", "{kind}");
        }
        let person = json!({"content": "x https://y.org", "embeds": [embed("rich", "https://e.org/1")]});
        assert_eq!(text(person), "x https://y.org", "people cannot add embeds");
        assert_eq!(
            said("x", json!([{"fields": 3}, 4, embed("rich", "")])),
            format!("x\n{all}"),
            "odd ones are left out"
        );
    }

    #[test]
    fn forwarded_messages_are_told_with_their_files() {
        let snapshot = json!({"content": "hello <@7>", "attachments": [{"id": "2", "content_type": "image/png", "size": 1}],
            "embeds": [{"type": "rich", "title": "t"}]});
        let forward = json!({"content": "", "message_reference": {"type": 1, "message_id": "4", "channel_id": "6"},
            "message_snapshots": [{"message": snapshot}]});
        let intake = event(forward, false);
        assert_eq!(intake.event.text, "[Forwarded message]\nhello <@7>\nt");
        assert_eq!((intake.event.reply_to_message_id, intake.event.message_type.as_str()), (None, "photo"));
        assert_eq!(intake.remote_media[0].handle.expose(), "5/9/2");
        assert!(!intake.addressed, "whoever forwards a message does not address the bot");
        let odd = json!({"content": "x", "message_snapshots": "?", "poll": 3, "sticker_items": null});
        assert_eq!(text(odd), "x");
    }

    #[test]
    fn polls_and_stickers_are_told() {
        let poll = json!({"question": {"text": "Tea?"}, "answers": [{"answer_id": 1, "poll_media": {"text": "yes"}},
            {"answer_id": 2, "poll_media": {"emoji": {"name": "👎"}}}]});
        assert_eq!(text(json!({"content": "", "poll": poll})), "[Poll] Tea?\n1. yes\n2. 👎");
        let sticker = event(json!({"content": "", "sticker_items": [{"name": "wave"}]}), false).event;
        assert_eq!((sticker.text.as_str(), sticker.message_type.as_str()), ("[Sticker wave]", "sticker"));
        let both = event(json!({"content": "hi", "sticker_items": [{"name": "wave"}]}), false).event;
        assert_eq!((both.text.as_str(), both.message_type.as_str()), ("hi\n[Sticker wave]", "text"));
    }

    #[test]
    fn only_replies_are_replies() {
        let reference = json!({"type": 0, "message_id": "4", "channel_id": "5"});
        let referenced = json!({"id": "4", "channel_id": "5", "author": {"id": ME}, "content": "y"});
        let said = |kind: u8, flags: u64| {
            event(
                json!({"content": "x", "type": kind, "flags": flags, "message_reference": reference,
                "referenced_message": referenced}),
                false,
            )
        };
        let reply = said(19, 0);
        assert_eq!(reply.event.reply_to_message_id.as_deref(), Some("4"));
        assert!(reply.addressed && reply.event.reply_to.unwrap().is_own == Some(true));
        let crosspost = said(0, 1 << 1);
        assert_eq!((crosspost.event.reply_to_message_id, crosspost.addressed), (None, false));
        assert!(crosspost.event.reply_to.is_none());
    }

    #[test]
    fn an_edit_is_told_by_its_time() {
        let edited = "2023-11-14T22:13:20.120000+00:00";
        let intake = event(json!({"content": "x", "edited_timestamp": edited}), true);
        assert_eq!((intake.edit_id.as_deref(), intake.mark.as_str()), (Some(edited), ""));
        let is_real = |edited: Value, now_ms| {
            let message = json!({"id": "9", "channel_id": "5", "edited_timestamp": edited});
            read(&message).unwrap().is_real_edit(now_ms)
        };
        assert!(is_real(edited.into(), 1_700_000_000_120) && is_real("2026".into(), 0));
        assert!(!is_real(Value::Null, 0), "a preview was added");
        assert!(
            !is_real(edited.into(), 1_700_000_000_120 + EDIT_IS_NEWS_MS),
            "something else of an old message changed"
        );
    }
}
