//! From an event to what the server stores.

use frontdesk_core::intake::{Intake, REMOTE_MEDIA_MAX, RemoteFile, Verified};
use frontdesk_core::port::platform::{Bot, Change};
use frontdesk_wire::event::ReplyTo;
use frontdesk_wire::{MessageEvent, MessageId, Secret, Source, UserId};
use serde_json::Value;

use super::PLATFORM;
use super::account::is_id;
use super::content::Content;
use super::files::FileRef;
use super::mentions::Me;
use super::value::{first, list_of, text_of};

/// More members that came or went at once are reported as a change of the whole chat.
const MEMBERS_MAX: usize = 50;

/// The ids of a person.
#[allow(clippy::struct_field_names)] // as the vendor calls them
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Person<'a> {
    pub(super) open_id: &'a str,
    pub(super) user_id: &'a str,
    pub(super) union_id: &'a str,
}

impl<'a> Person<'a> {
    pub(super) fn of(ids: &'a Value) -> Self {
        let of = |name| Some(text_of(ids, name)).filter(|id| is_id(id)).unwrap_or_default();
        Self { open_id: of("open_id"), user_id: of("user_id"), union_id: of("union_id") }
    }

    /// The id of an organization names another person in another one. `theirs` and `home` are the organizations of the person
    /// and of the app, where the event has them.
    pub(super) fn within(mut self, theirs: &str, home: &str) -> Self {
        if !theirs.is_empty() && !home.is_empty() && theirs != home {
            self.user_id = "";
        }
        self
    }

    /// The id of the organization is the same for every app; Feishu returns it only with a permission.
    pub(super) fn id(&self) -> &'a str {
        first([self.user_id, self.open_id])
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &'a str> {
        [self.user_id, self.open_id, self.union_id].into_iter().filter(|id| !id.is_empty())
    }
}

/// A message as an event reports it.
pub(super) struct Said<'a> {
    pub(super) message: &'a Value,
    pub(super) chat_id: &'a str,
    pub(super) message_id: &'a str,
    pub(super) sender: Person<'a>,
    pub(super) is_bot: bool,
    pub(super) is_direct: bool,
    /// The message that it answers.
    pub(super) parent: Option<&'a str>,
    pub(super) thread: Option<&'a str>,
}

impl<'a> Said<'a> {
    /// `home` is the organization of the app.
    pub(super) fn of(event: &'a Value, home: &str) -> Self {
        let (message, sender) = (&event["message"], &event["sender"]);
        let of = |name| text_of(message, name);
        let known = |id: &'a str| Some(id).filter(|id| is_id(id));
        Self {
            message,
            chat_id: of("chat_id"),
            message_id: of("message_id"),
            sender: Person::of(&sender["sender_id"]).within(text_of(sender, "tenant_key"), home),
            is_bot: matches!(text_of(sender, "sender_type"), "bot" | "app"),
            is_direct: matches!(of("chat_type"), "p2p" | ""),
            parent: known(first([of("parent_id"), of("upper_message_id"), of("root_id")])),
            thread: known(first([of("thread_id"), of("root_id")])),
        }
    }

    /// Whether the id of the bot is needed to know if the bot is meant.
    pub(super) fn has_mentions(&self) -> bool {
        !list_of(self.message, "mentions").is_empty()
    }
}

/// What Feishu says about a chat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chat {
    pub(super) name: String,
    /// group or forum; empty: it does not say.
    pub(super) kind: &'static str,
    pub(super) is_direct: bool,
}

/// The message that another one answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) text: Option<String>,
    pub(super) is_own: bool,
    pub(super) chat_id: String,
}

/// What is known beside the event. What Feishu did not return in time is not there.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) me: Me,
    pub(super) chat: Option<Chat>,
    pub(super) user_name: Option<String>,
    pub(super) parent: Option<Parent>,
}

pub(super) fn message(bot: &Bot, proof: Verified, said: &Said<'_>, facts: &Facts) -> Option<Intake> {
    let of = |name| text_of(said.message, name);
    let is_own = !facts.me.open_id.is_empty() && said.sender.open_id == facts.me.open_id;
    if is_own {
        return None;
    }
    let content = Content::of(of("message_type"), of("content"), list_of(said.message, "mentions"), &facts.me)?;
    let mut text = content.text;
    let mut kind = content.kind;
    if kind == "text" {
        text = content.mentions.without_self(&text);
        if text.starts_with('/') {
            kind = "command";
        }
        // Only the bot was named, and nothing was said.
        if text.is_empty() && content.files.is_empty() {
            return None;
        }
    }
    if kind != "command"
        && let Some(hint) = content.mentions.hint()
    {
        text = if text.is_empty() { hint } else { format!("{hint}\n\n{text}") };
    }
    let mut source = source(said.chat_id, said.is_direct, facts.chat.as_ref(), &said.sender);
    source.user_name.clone_from(&facts.user_name);
    source.thread_id = said.thread.map(str::to_owned);
    source.is_bot = said.is_bot;
    source.message_id = Some(said.message_id.into());
    let parent = facts.parent.as_ref();
    let reply_to = parent.map(|it| ReplyTo { text: it.text.clone(), is_own: Some(it.is_own), ..ReplyTo::default() });
    let event = MessageEvent {
        text,
        message_type: kind.into(),
        source,
        message_id: Some(said.message_id.into()),
        reply_to_message_id: said.parent.map(MessageId::from),
        reply_to,
        ..MessageEvent::default()
    };
    let mut intake = Intake::new(proof, bot.tenant_source(), bot.id.clone(), event);
    let is_answer = parent.is_some_and(|parent| parent.is_own);
    intake.addressed = content.mentions.has_self() || content.mentions.has_all() || kind == "command" || is_answer;
    add_files(&mut intake, said.message_id, content.files);
    if !is_id(said.message_id) || !is_id(said.chat_id) || said.sender.id().is_empty() {
        intake.refused = Some("the message has no id, no chat or no author".to_owned());
        let odd = hex::encode(frontdesk_core::short_hash(&[said.chat_id, said.message_id]));
        intake.event.message_id = Some(format!("odd-{odd}").into());
        intake.event.source.chat_id = "unknown".into();
    }
    Some(intake)
}

fn add_files(intake: &mut Intake, message_id: &str, files: Vec<FileRef>) {
    let left_out = files.len().saturating_sub(REMOTE_MEDIA_MAX);
    for file in files.into_iter().take(REMOTE_MEDIA_MAX) {
        let resource = if file.kind == "image" { "image" } else { "file" };
        let name: String = file.name.iter().flat_map(|name| name.chars().take(200)).collect();
        intake.remote_media.push(RemoteFile {
            handle: Secret::new(format!("{message_id}/{}/{resource}/{name}", file.key)),
            mime: file.mime().to_owned(),
            filename: Some(name).filter(|name| !name.is_empty()),
            size: None,
        });
    }
    if left_out > 0 {
        let note = format!("\n[{left_out} files were left out: a message has at most {REMOTE_MEDIA_MAX}]");
        intake.event.text.push_str(&note);
    }
}

pub(super) fn source(chat_id: &str, is_direct: bool, chat: Option<&Chat>, person: &Person<'_>) -> Source {
    let kind = chat.map_or("", |chat| chat.kind);
    let chat_type = match (kind, is_direct) {
        ("", true) => "dm",
        ("", false) => "group",
        (kind, _) => kind,
    };
    let name = chat.map(|chat| chat.name.as_str()).filter(|name| !name.is_empty()).unwrap_or(chat_id);
    let some = |id: &str| Some(id.to_owned()).filter(|id| !id.is_empty());
    Source {
        platform: PLATFORM.into(),
        chat_id: chat_id.into(),
        chat_type: chat_type.into(),
        chat_name: some(name),
        user_id: some(person.id()).map(UserId::from),
        user_id_alt: some(person.union_id),
        one_to_one_verified: (chat_type == "dm").then_some(true),
        ..Source::default()
    }
}

/// Cached facts that an event invalidates.
pub(super) fn changes(kind: &str, event: &Value, home: &str) -> Vec<Change> {
    let chat_id = text_of(event, "chat_id");
    match kind {
        "im.chat.updated_v1"
        | "im.chat.disbanded_v1"
        | "im.chat.member.bot.added_v1"
        | "im.chat.member.bot.deleted_v1"
            if is_id(chat_id) =>
        {
            vec![Change::Chat(chat_id.into())]
        }
        "im.chat.member.user.added_v1" | "im.chat.member.user.deleted_v1" | "im.chat.member.user.withdrawn_v1"
            if is_id(chat_id) =>
        {
            let users = list_of(event, "users");
            if users.len() > MEMBERS_MAX {
                return vec![Change::Chat(chat_id.into())];
            }
            let people =
                users.iter().map(|user| Person::of(&user["user_id"]).within(text_of(user, "tenant_key"), home));
            let ids = people.map(|person| person.id()).filter(|id| !id.is_empty());
            ids.map(|id| Change::Member { chat_id: chat_id.into(), user_id: id.into() }).collect()
        }
        "contact.user.updated_v3" | "contact.user.deleted_v3" => {
            let person = Person::of(&event["object"]).id();
            if person.is_empty() { Vec::new() } else { vec![Change::Person(person.into())] }
        }
        _ => Vec::new(),
    }
}
