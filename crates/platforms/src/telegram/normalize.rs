//! From an update to what the server stores: an event, a change, or nothing.

use frontdesk_core::intake::{Intake, RemoteFile, Verified};
use frontdesk_core::port::platform::{Bot, Change};
use frontdesk_wire::event::{PromptResponse, ReplyTo};
use frontdesk_wire::{ChatId, MessageEvent, Secret, Source};

use super::text::{is_addressed, without_mentions};
use super::update::{CallbackQuery, File, Message, Sticker, Update, User};
use super::{GENERAL_TOPIC, PLATFORM};

/// What an update means.
#[derive(Default)]
pub(super) struct Meaning {
    pub(super) intake: Option<Box<Intake>>,
    pub(super) changes: Vec<Change>,
    /// A button was pressed: its query is to be answered.
    pub(super) pressed: Option<Pressed>,
    /// Messages of one album have the same one.
    pub(super) album: Option<String>,
}

pub(super) struct Pressed {
    pub(super) query_id: String,
    /// Chat and message of the prompt.
    pub(super) prompt: Option<(i64, i64)>,
}

impl Meaning {
    fn changed(change: Change) -> Self {
        Self { changes: vec![change], ..Self::default() }
    }

    fn event(intake: Intake) -> Self {
        Self { intake: Some(Box::new(intake)), ..Self::default() }
    }
}

pub(super) fn meaning_of(update: Update, me: &User, bot: &Bot) -> Meaning {
    if let Some(query) = update.callback_query {
        return press(*query, me, bot);
    }
    if let Some(change) = update.my_chat_member.or(update.chat_member) {
        return Meaning::changed(Change::Chat(change.chat.id.to_string()));
    }
    let edited = update.edited_message.or(update.edited_channel_post);
    let is_edit = edited.is_some();
    match edited.or(update.message).or(update.channel_post) {
        Some(message) => said(*message, is_edit, me, bot),
        None => Meaning::default(),
    }
}

fn said(message: Message, is_edit: bool, me: &User, bot: &Bot) -> Meaning {
    let chat = message.chat.id.to_string();
    if let Some(to) = message.migrate_to_chat_id {
        return Meaning::changed(Change::ChatMoved { from: chat, to: to.to_string() });
    }
    if !message.new_chat_members.is_empty() || message.left_chat_member.is_some() {
        return Meaning::changed(Change::Chat(chat));
    }
    if message.from.as_ref().is_some_and(|from| from.id == me.id) {
        return Meaning::default(); // our own
    }
    let Some(content) = Content::of(&message) else { return Meaning::default() }; // a service message
    let (text, entities) = match &message.text {
        Some(text) => (text.as_str(), &message.entities),
        None => (message.caption.as_deref().unwrap_or_default(), &message.caption_entities),
    };
    let replied = replied(&message);
    let is_own = replied.and_then(|to| to.from.as_ref()).map(|from| from.id == me.id);
    let for_us = is_addressed(text, entities, me);
    let cleaned = if text.is_empty() { content.text } else { without_mentions(text, me) };
    let is_command = for_us.is_command || (text.starts_with('/') && message.chat.kind == "private");
    let event = MessageEvent {
        text: cleaned,
        message_type: if is_command { "command".into() } else { content.kind.into() },
        source: source(&message, message.from.as_ref(), is_edit),
        message_id: Some(message.message_id.to_string()),
        reply_to_message_id: replied.map(|to| to.message_id.to_string()),
        reply_to: replied.map(|to| ReplyTo {
            text: quoted(&message, to),
            author: to.from.as_ref().map(User::full_name),
            is_own,
        }),
        ..MessageEvent::default()
    };
    let mut intake = intake(bot, event);
    intake.addressed = for_us.is_mention || is_command || is_own == Some(true);
    intake.remote_media = content.file.into_iter().collect();
    Meaning { album: message.media_group_id, ..Meaning::event(intake) }
}

fn intake(bot: &Bot, event: MessageEvent) -> Intake {
    Intake::new(Verified::by("bot token or webhook secret"), bot.whose(), bot.id.clone(), event)
}

/// An update that could not be read. It is recorded, and the ones after it are taken.
pub(super) fn unreadable(bot: &Bot, update_id: i64, why: &str) -> Intake {
    let source = Source { platform: PLATFORM.into(), chat_id: "unknown".into(), ..Source::default() };
    let message_id = Some(format!("update-{update_id}"));
    let mut intake = intake(bot, MessageEvent { source, message_id, ..MessageEvent::default() });
    intake.refused = Some(format!("the update could not be read: {why}"));
    intake
}

/// Only our own buttons become events. The sender of the event is the person who pressed.
fn press(query: CallbackQuery, me: &User, bot: &Bot) -> Meaning {
    let prompt = query.message.as_ref().map(|message| (message.chat.id, message.message_id));
    let pressed = Some(Pressed { query_id: query.id.clone(), prompt });
    let of_prompt = |data: &str| {
        let (prompt_id, option_id) = data.strip_prefix("hp1:")?.rsplit_once(':')?;
        Some((prompt_id.to_owned(), option_id.to_owned()))
    };
    let ours = query.message.filter(|message| message.from.as_ref().is_some_and(|from| from.id == me.id));
    let (Some(message), Some((prompt_id, option_id))) = (ours, query.data.as_deref().and_then(of_prompt)) else {
        return Meaning { pressed, ..Meaning::default() };
    };
    let buttons = message.reply_markup.iter().flat_map(|keyboard| keyboard.inline_keyboard.iter().flatten());
    let label = buttons.into_iter().find(|button| button.callback_data == query.data).map(|button| button.text.clone());
    let event = MessageEvent {
        text: format!("/{option_id}"),
        message_type: "command".into(),
        source: source(&message, Some(&query.from), false),
        // A person answers a prompt once, however often they press.
        message_id: Some(format!("press-{}-{}", message.message_id, query.from.id)),
        reply_to_message_id: Some(message.message_id.to_string()),
        prompt_response: Some(PromptResponse {
            prompt_id,
            option_id,
            label,
            prompt_message_id: Some(message.message_id.to_string()),
        }),
        ..MessageEvent::default()
    };
    let mut intake = intake(bot, event);
    intake.addressed = true;
    Meaning { pressed, ..Meaning::event(intake) }
}

fn source(message: &Message, author: Option<&User>, is_edit: bool) -> Source {
    let chat = &message.chat;
    let chat_type = chat.type_name();
    let of_chat = || (chat_type != "group").then(|| chat.id.to_string());
    Source {
        platform: PLATFORM.into(),
        chat_id: ChatId::from(chat.id.to_string()),
        chat_type: chat_type.into(),
        chat_name: chat.name(),
        // A post in a channel has no author: the channel itself speaks.
        user_id: author.map(|author| author.id.to_string()).or_else(of_chat),
        user_name: author.map(User::full_name).or_else(|| of_chat().and_then(|_| chat.name())),
        thread_id: thread_of(message),
        is_bot: author.is_some_and(|author| author.is_bot),
        message_is_edit: is_edit,
        message_id: Some(message.message_id.to_string()),
        ..Source::default()
    }
}

/// The topic. In other chats the same field of the Bot API is the message that is replied to, which is no topic.
fn thread_of(message: &Message) -> Option<String> {
    let in_forum = message.chat.type_name() == "group" && message.chat.is_forum;
    match message.message_thread_id {
        Some(thread) if in_forum || message.is_topic_message => Some(thread.to_string()),
        None if in_forum => Some(GENERAL_TOPIC.into()),
        _ => None,
    }
}

/// The message that this one replies to. A message in a topic names the message that opened the topic: that is no reply.
fn replied(message: &Message) -> Option<&Message> {
    message.reply_to_message.as_deref().filter(|to| to.forum_topic_created.is_none())
}

/// What was selected for the reply, else the whole message.
fn quoted(message: &Message, to: &Message) -> Option<String> {
    let selected = message.quote.as_ref().map(|quote| quote.text.clone()).filter(|text| !text.is_empty());
    selected.or_else(|| to.text.clone().or_else(|| to.caption.clone()))
}

/// What a message is, besides its text.
struct Content {
    kind: &'static str,
    /// Where the message has no text of its own.
    text: String,
    file: Option<RemoteFile>,
}

impl Content {
    /// `None`: nothing that anybody said.
    fn of(message: &Message) -> Option<Self> {
        let with = |kind, file: &File, mime: &str| {
            Some(Self { kind, text: String::new(), file: remote(file, file.mime_type.as_deref().unwrap_or(mime)) })
        };
        if let Some(largest) = message.photo.last() {
            return with("photo", largest, "image/jpeg");
        }
        if let Some(voice) = &message.voice {
            return with("voice", voice, "audio/ogg");
        }
        if let Some(audio) = &message.audio {
            return with("audio", audio, "audio/mpeg");
        }
        if let Some(video) = message.video.as_ref().or(message.video_note.as_ref()).or(message.animation.as_ref()) {
            return with("video", video, "video/mp4");
        }
        if let Some(document) = &message.document {
            return with("document", document, "application/octet-stream");
        }
        if let Some(sticker) = &message.sticker {
            return Some(Self::of_sticker(sticker));
        }
        if message.location.is_some() {
            return Some(Self { kind: "location", text: place(message), file: None });
        }
        message.text.as_ref().map(|_| Self { kind: "text", text: String::new(), file: None })
    }

    fn of_sticker(sticker: &Sticker) -> Self {
        let mime = match (sticker.is_animated, sticker.is_video) {
            (true, _) => "application/x-tgsticker",
            (_, true) => "video/webm",
            _ => "image/webp",
        };
        let file = File { file_id: sticker.file_id.clone(), file_size: sticker.file_size, ..File::default() };
        let of_set = sticker.set_name.as_ref().map(|name| format!(" from the set {name}")).unwrap_or_default();
        let text = format!("[Sticker {}{of_set}]", sticker.emoji.as_deref().unwrap_or("without an emoji"));
        Self { kind: "sticker", text, file: remote(&file, mime) }
    }
}

fn remote(file: &File, mime: &str) -> Option<RemoteFile> {
    (!file.file_id.is_empty()).then(|| RemoteFile {
        handle: Secret::new(file.file_id.clone()),
        mime: mime.into(),
        filename: file.file_name.clone(),
        size: file.file_size,
    })
}

fn place(message: &Message) -> String {
    let Some(location) = &message.location else { return String::new() };
    let mut lines = vec!["[The user shared a location.]".to_owned()];
    if let Some(venue) = &message.venue {
        lines.push(format!("Venue: {}", venue.title));
        lines.push(format!("Address: {}", venue.address));
    }
    lines.push(format!("latitude: {}", location.latitude));
    lines.push(format!("longitude: {}", location.longitude));
    lines.join("\n")
}

/// The messages of an album become one event: the first one's, with all files and the text of whichever has one.
pub(super) fn merge(into: &mut Intake, next: Intake) {
    if into.event.text.is_empty() {
        into.event.text = next.event.text;
    } else if !next.event.text.is_empty() {
        into.event.text = format!("{}\n{}", into.event.text, next.event.text);
    }
    into.addressed |= next.addressed;
    into.remote_media.extend(next.remote_media);
}
