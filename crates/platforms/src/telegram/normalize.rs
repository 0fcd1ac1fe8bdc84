//! From an update to what the server stores: an event, a change, or nothing.

use frontdesk_core::intake::{Intake, RemoteFile, Verified};
use frontdesk_core::port::platform::{Bot, Change};
use frontdesk_wire::event::{PromptResponse, ReplyTo};
use frontdesk_wire::{ChatId, MessageEvent, Secret, Source, UserId};

use super::text::{is_addressed, without_mentions};
use super::update::{CallbackQuery, File, Message, Sticker, Update, User, joined};
use super::{GENERAL_TOPIC, PLATFORM};

/// What an update means.
#[derive(Default)]
pub(super) struct Meaning {
    pub(super) intake: Option<Box<Intake>>,
    pub(super) changes: Vec<Change>,
    /// A button was pressed; its callback query must be answered.
    pub(super) pressed: Option<Pressed>,
    /// Media group id, the same for all messages of an album.
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

    /// Where it was said.
    pub(super) fn chat(&self) -> Option<ChatId> {
        let moved = self.changes.iter().find_map(|change| match change {
            Change::ChatMoved { from, .. } => Some(from.clone()),
            _ => None,
        });
        moved.or_else(|| self.intake.as_ref().map(|intake| intake.event.source.chat_id.clone()))
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
        return Meaning::changed(Change::Chat(change.chat.id.to_string().into()));
    }
    let edited = update.edited_message.or(update.edited_channel_post);
    let is_edit = edited.is_some();
    if edited.as_ref().is_some_and(|message| message.location.is_some()) {
        return Meaning::default(); // a live location that moves is not a new message each time
    }
    match edited.or(update.message).or(update.channel_post) {
        Some(message) => said(*message, is_edit, me, bot),
        None => Meaning::default(),
    }
}

fn said(message: Message, is_edit: bool, me: &User, bot: &Bot) -> Meaning {
    let chat = message.chat.id.to_string();
    if let Some(to) = message.migrate_to_chat_id {
        return Meaning::changed(Change::ChatMoved { from: chat.into(), to: to.to_string().into() });
    }
    if !message.new_chat_members.is_empty() || message.left_chat_member.is_some() {
        return Meaning::changed(Change::Chat(chat.into()));
    }
    if message.from.as_ref().is_some_and(|from| from.id == me.id) {
        return Meaning::default(); // our own
    }
    let Some(mut content) = Content::of(&message) else { return Meaning::default() }; // a service message
    let (text, entities) = match &message.text {
        Some(text) => (text.as_str(), &message.entities),
        None => (message.caption.as_deref().unwrap_or_default(), &message.caption_entities),
    };
    let replied = replied(&message);
    // "What is this?" is about the file of the other message.
    if let ("text", Some(of_other)) = (content.kind, replied.and_then(Content::of)) {
        content.file = of_other.file;
        // A voice note of another author is not transcribed as if this author had spoken.
        if matches!(of_other.kind, "photo" | "video") {
            content.kind = of_other.kind;
        }
    }
    let is_own = replied.and_then(|to| to.from.as_ref()).map(|from| from.id == me.id);
    let for_us = is_addressed(text, entities, me);
    let cleaned = if text.is_empty() { content.text } else { without_mentions(text, me) };
    // In a private chat there is no other bot. Only a text is a command; a caption belongs to its file.
    let is_any_command = message.text.is_some() && (for_us.is_command || for_us.is_command_of_other);
    let is_of_other = is_any_command && for_us.is_command_of_other && message.chat.type_name() != "dm";
    let is_command = is_any_command && !is_of_other;
    let event = MessageEvent {
        text: cleaned,
        message_type: if is_command { "command".into() } else { content.kind.into() },
        source: source(&message, &Author::of(&message), is_edit),
        message_id: Some(message.message_id.to_string().into()),
        reply_to_message_id: replied.map(|to| to.message_id.to_string().into()),
        reply_to: reply_to(&message, is_own),
        ..MessageEvent::default()
    };
    let mut intake = intake(bot, me, event);
    intake.addressed = for_us.is_mention || is_command || is_own == Some(true);
    intake.remote_media = content.file.into_iter().collect();
    // Agents do not look at the name: they would run it as their own command.
    intake.refused = is_of_other.then(|| "the command names another bot".to_owned());
    if let (true, Some(date)) = (is_edit, message.edit_date) {
        intake.mark = format!("{} {date}", intake.mark);
    }
    // An edit is of one message, not of the album.
    Meaning { album: message.media_group_id.filter(|_| !is_edit), ..Meaning::event(intake) }
}

fn intake(bot: &Bot, me: &User, event: MessageEvent) -> Intake {
    let mut intake =
        Intake::new(Verified::by("bot token or webhook secret"), bot.tenant_source(), bot.id.clone(), event);
    // Message ids of a private chat begin anew for another account under the same bot id.
    intake.mark = me.id.to_string();
    intake
}

/// An update that could not be read. It is recorded, and the ones after it are taken.
pub(super) fn unreadable(bot: &Bot, me: &User, update_id: i64, why: &str) -> Intake {
    let source = Source { platform: PLATFORM.into(), chat_id: "unknown".into(), ..Source::default() };
    let message_id = Some(format!("update-{update_id}").into());
    let mut intake = intake(bot, me, MessageEvent { source, message_id, ..MessageEvent::default() });
    intake.refused = Some(format!("the update could not be read: {why}"));
    intake
}

/// Telegram sends presses of our own buttons only; those of a prompt become events. The author is the person who pressed.
fn press(query: CallbackQuery, me: &User, bot: &Bot) -> Meaning {
    let prompt = query.message.as_ref().map(|message| (message.chat.id, message.message_id));
    let pressed = Some(Pressed { query_id: query.id.clone(), prompt });
    let of_prompt = |data: &str| {
        let (prompt_id, option_id) = data.strip_prefix("hp1:")?.rsplit_once(':')?;
        Some((prompt_id.to_owned(), option_id.to_owned()))
    };
    let option = query.data.as_deref().and_then(of_prompt);
    let (Some(message), Some((prompt_id, option_id))) = (query.message, option) else {
        return Meaning { pressed, ..Meaning::default() };
    };
    let buttons = message.reply_markup.iter().flat_map(|keyboard| keyboard.inline_keyboard.iter().flatten());
    let label = buttons.into_iter().find(|button| button.callback_data == query.data).map(|button| button.text.clone());
    let event = MessageEvent {
        text: format!("/{option_id}"),
        message_type: "command".into(),
        source: source(&message, &Author::person(&query.from), false),
        message_id: Some(format!("press-{}", query.id).into()),
        reply_to_message_id: Some(message.message_id.to_string().into()),
        prompt_response: Some(PromptResponse {
            prompt_id,
            option_id,
            label,
            prompt_message_id: Some(message.message_id.to_string().into()),
        }),
        ..MessageEvent::default()
    };
    let mut intake = intake(bot, me, event);
    intake.addressed = true;
    intake.press_of = Some(message.message_id.to_string().into());
    Meaning { pressed, ..Meaning::event(intake) }
}

/// Who speaks.
struct Author {
    id: Option<String>,
    name: Option<String>,
    is_bot: bool,
}

impl Author {
    fn person(user: &User) -> Self {
        Self { id: Some(user.id.to_string()), name: Some(user.full_name()), is_bot: user.is_bot }
    }

    /// Anonymous administrators and channels speak in the name of a chat; the user beside it is the same for all of them.
    fn of(message: &Message) -> Self {
        let chat = message.sender_chat.as_ref().or((message.chat.kind == "channel").then_some(&message.chat));
        match (chat, &message.from) {
            (Some(chat), _) => Self { id: Some(chat.id.to_string()), name: chat.name(), is_bot: false },
            (None, Some(user)) => Self::person(user),
            (None, None) => Self { id: None, name: None, is_bot: false },
        }
    }
}

fn source(message: &Message, author: &Author, is_edit: bool) -> Source {
    let chat = &message.chat;
    Source {
        platform: PLATFORM.into(),
        chat_id: ChatId::from(chat.id.to_string()),
        chat_type: chat.type_name().into(),
        chat_name: chat.name(),
        user_id: author.id.clone().map(UserId::from),
        user_name: author.name.clone(),
        thread_id: thread_of(message),
        is_bot: author.is_bot,
        message_is_edit: is_edit,
        message_id: Some(message.message_id.to_string().into()),
        ..Source::default()
    }
}

/// The topic id. In chats without topics the same field of the Bot API names the message that is replied to.
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

/// What was selected for the reply, else the whole message. A reply to a message of another chat has only the selection.
fn reply_to(message: &Message, is_own: Option<bool>) -> Option<ReplyTo> {
    let replied = replied(message);
    let selected = message.quote.as_ref().map(|quote| quote.text.clone()).filter(|text| !text.is_empty());
    if replied.is_none() && selected.is_none() {
        return None;
    }
    let whole = || replied.and_then(|to| to.text.clone().or_else(|| to.caption.clone()));
    let author = replied.and_then(|to| to.from.as_ref()).map(User::full_name);
    Some(ReplyTo { text: selected.or_else(whole), author, is_own })
}

/// What a message is, besides its text.
struct Content {
    kind: &'static str,
    /// Where the message has no text of its own.
    text: String,
    file: Option<RemoteFile>,
}

impl Content {
    /// `None`: not a message of a user.
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
            let kind = match document.mime_type.as_deref().unwrap_or_default() {
                mime if mime.starts_with("image/") => "photo",
                mime if mime.starts_with("video/") => "video",
                _ => "document",
            };
            return with(kind, document, "application/octet-stream");
        }
        if let Some(sticker) = &message.sticker {
            return Some(Self::of_sticker(sticker));
        }
        if message.location.is_some() {
            return Some(Self { kind: "location", text: place(message), file: None });
        }
        let text = message.text.as_ref().map(|_| String::new()).or_else(|| described(message));
        text.map(|text| Self { kind: "text", text, file: None })
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

/// Content that an agent gets only a description of.
const OTHER_KINDS: &[&str] = &[
    "game",
    "story",
    "checklist",
    "paid_media",
    "rich_message",
    "invoice",
    "giveaway",
    "giveaway_winners",
    "users_shared",
    "chat_shared",
    "web_app_data",
    "successful_payment",
];

fn described(message: &Message) -> Option<String> {
    if let Some(poll) = &message.poll {
        let options: Vec<&str> = poll.options.iter().map(|option| option.text.as_str()).collect();
        return Some(format!("[Poll: {} Options: {}]", poll.question, options.join(", ")));
    }
    if let Some(contact) = &message.contact {
        let name = joined(&contact.first_name, contact.last_name.as_deref());
        return Some(format!("[Contact: {name}, {}]", contact.phone_number));
    }
    if let Some(dice) = &message.dice {
        return Some(format!("[{} shows {}]", dice.emoji, dice.value));
    }
    let kind = OTHER_KINDS.iter().find(|kind| message.rest.contains_key(**kind))?;
    Some(format!("[A {} that can only be seen in Telegram]", kind.replace('_', " ")))
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

/// The messages of an album become one event: the first one's, with all files and every caption once.
pub(super) fn merge(into: &mut Intake, next: Intake) {
    let (text, more) = (&mut into.event.text, next.event.text);
    if text.is_empty() {
        *text = more;
    } else if !more.is_empty() && text.split(CAPTION_BREAK).all(|caption| caption.trim() != more.trim()) {
        text.push_str(CAPTION_BREAK);
        text.push_str(&more);
    }
    into.addressed |= next.addressed;
    into.refused = into.refused.take().or(next.refused);
    into.remote_media.extend(next.remote_media);
}

/// Between the captions of an album, as gateways separate them.
const CAPTION_BREAK: &str = "\n\n";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ANN: i64 = 501;

    /// What a message of Ann in this chat becomes.
    fn of(chat: Value, content: Value) -> Intake {
        let me = User { id: 7, username: Some("desk_bot".into()), ..User::default() };
        let mut message = json!({ "message_id": 1, "chat": chat, "from": { "id": ANN, "first_name": "Ann" } });
        message.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        let update = serde_json::from_value(json!({ "message": message })).unwrap();
        *meaning_of(update, &me, &Bot::bare("bot")).intake.unwrap()
    }

    fn group() -> Value {
        json!({ "id": -1, "type": "supergroup", "title": "Group" })
    }

    fn command(chat: Value, text: &str) -> Intake {
        let length = text.find(' ').unwrap_or(text.len());
        let entities = json!([{ "type": "bot_command", "offset": 0, "length": length }]);
        of(chat, json!({ "text": text, "entities": entities }))
    }

    #[test]
    fn a_command_for_another_bot_is_refused_in_groups_only() {
        let refused = command(group(), "/new@other_bot now");
        assert_eq!(refused.refused.as_deref(), Some("the command names another bot"));
        assert!(!refused.addressed);
        for text in ["/new@desk_bot now", "/new now"] {
            let taken = command(group(), text);
            assert_eq!(taken.refused, None, "{text}");
            assert_eq!((taken.event.text.as_str(), taken.event.message_type.as_str()), ("/new now", "command"));
        }
        let private = command(json!({ "id": ANN, "type": "private" }), "/new@other_bot now");
        assert_eq!((private.refused, private.event.message_type.as_str()), (None, "command"));
    }

    #[test]
    fn a_question_about_a_file_brings_the_file() {
        let photo = json!([{ "file_id": "a", "file_size": 1 }]);
        let other = |content: Value| {
            let mut message = json!({ "message_id": 5, "chat": group(), "from": { "id": 502, "first_name": "Ben" } });
            message.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
            message
        };
        let asked =
            of(group(), json!({ "text": "what is this?", "reply_to_message": other(json!({ "photo": photo })) }));
        let (text, kind) = (asked.event.text.as_str(), asked.event.message_type.as_str());
        assert_eq!((text, kind, asked.remote_media.len()), ("what is this?", "photo", 1));
        assert_eq!(asked.event.reply_to_message_id.as_deref(), Some("5"));
        let voice = json!({ "file_id": "v", "file_size": 1 });
        let asked = of(group(), json!({ "text": "no", "reply_to_message": other(json!({ "voice": voice })) }));
        assert_eq!(
            (asked.event.message_type.as_str(), asked.remote_media.len()),
            ("text", 1),
            "Ann said nothing aloud"
        );
        let own = of(group(), json!({ "voice": voice, "reply_to_message": other(json!({ "photo": photo })) }));
        assert_eq!(
            (own.event.message_type.as_str(), own.remote_media.len()),
            ("voice", 1),
            "a file of its own is meant"
        );
        let plain = of(group(), json!({ "text": "yes", "reply_to_message": other(json!({ "text": "noon?" })) }));
        assert_eq!((plain.event.message_type.as_str(), plain.remote_media.len()), ("text", 0));
    }

    #[test]
    fn an_album_has_every_caption_once() {
        let photo = |caption: Option<&str>| {
            let photo = json!([{ "file_id": "a", "file_size": 1 }]);
            of(group(), json!({ "photo": photo, "media_group_id": "g", "caption": caption }))
        };
        let mut album = photo(None);
        for caption in [Some("Meeting agenda"), None, Some("Meeting"), Some("Meeting agenda ")] {
            merge(&mut album, photo(caption));
        }
        assert_eq!(album.event.text, "Meeting agenda\n\nMeeting");
        assert_eq!(album.remote_media.len(), 5);
    }
}
