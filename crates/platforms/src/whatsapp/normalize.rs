//! From the body of a webhook to what the server stores: messages, and outcomes of ours.

use frontdesk_core::intake::{Intake, RemoteFile, Verified};
use frontdesk_core::port::platform::{Bot, LateReceipt};
use frontdesk_core::port::store::Outcome;
use frontdesk_wire::event::{PromptResponse, ReplyTo};
use frontdesk_wire::{MessageEvent, MessageId, Secret, Source};
use serde_json::Value;

use super::payload::{Choice, File, Message, Metadata, News, Payload, Report, Trouble};
use super::text::reason;
use super::{LABEL, PLATFORM};
use crate::shared::undelivered;

/// What a webhook means.
#[derive(Default)]
pub(super) struct Meaning {
    pub(super) intakes: Vec<Intake>,
    pub(super) receipts: Vec<LateReceipt>,
    /// Chats for which Meta says that the window is closed.
    pub(super) closed: Vec<String>,
    /// Chats with new messages, with the id of the message.
    pub(super) incoming: Vec<(String, String)>,
    /// Changes that are about another number.
    pub(super) foreign: usize,
}

/// `None`: it is no webhook of a business account.
pub(super) fn meaning_of(payload: Payload, bot: &Bot) -> Option<Meaning> {
    if payload.object != "whatsapp_business_account" {
        return None;
    }
    let own = bot.setting("phone_number_id").unwrap_or_default();
    let mut meaning = Meaning::default();
    for change in payload.entry.into_iter().flat_map(|entry| entry.changes) {
        if change.field != "messages" {
            continue; // a subscription to something else
        }
        let given = change.value.to_string();
        let Ok(messages) = serde_json::from_value::<News>(change.value) else {
            meaning.intakes.push(unreadable(bot, &given, "the change is malformed"));
            continue;
        };
        if messages.metadata.phone_number_id != own {
            meaning.foreign += 1;
            continue;
        }
        read(messages, bot, &mut meaning);
    }
    Some(meaning)
}

fn read(messages: News, bot: &Bot, meaning: &mut Meaning) {
    let News { metadata, contacts, messages, statuses, errors } = messages;
    for Trouble { code, title, error_data, .. } in &errors {
        tracing::warn!(bot = bot.id.as_str(), code, title, details = error_data.details, "WhatsApp reported an error");
    }
    for value in messages {
        let given = value.to_string();
        let message = match serde_json::from_value::<Message>(value) {
            Ok(message) if !message.id.is_empty() && !message.person().is_empty() => message,
            Ok(_) => {
                meaning.intakes.push(unreadable(bot, &given, "it has no id or no sender"));
                continue;
            }
            Err(error) => {
                meaning.intakes.push(unreadable(bot, &given, &error.to_string()));
                continue;
            }
        };
        let person = message.person();
        let contact = contacts.iter().find(|contact| contact.wa_id == person || contact.user_id == person);
        let name = contact.map(|contact| &contact.profile.name);
        let name = name.map(|name| name.trim()).filter(|name| !name.is_empty()).map(str::to_owned);
        let place = (message.person().to_owned(), message.id.clone());
        if let Some(intake) = said(message, name, &metadata, bot) {
            if intake.refused.is_none() {
                meaning.incoming.push(place);
            }
            meaning.intakes.push(intake);
        }
    }
    for value in statuses {
        let Ok(status) = serde_json::from_value::<Report>(value) else {
            tracing::warn!(bot = bot.id.as_str(), "a status of WhatsApp could not be read");
            continue;
        };
        if status.errors.iter().any(|trouble| trouble.code == super::WINDOW_CLOSED) {
            meaning.closed.push(status.person().to_owned());
        }
        meaning.receipts.extend(receipt(status));
    }
}

/// What could not be read is recorded under a name that follows from it: a retry is the same.
fn unreadable(bot: &Bot, given: &str, why: &str) -> Intake {
    let mark = hex::encode(frontdesk_core::short_hash(&[given]));
    let source = Source { platform: PLATFORM.into(), chat_id: "unknown".into(), ..Source::default() };
    let message_id = Some(format!("unreadable-{mark}").into());
    let mut intake = intake(bot, MessageEvent { source, message_id, ..MessageEvent::default() });
    intake.refused = Some(format!("the message could not be read: {why}"));
    intake
}

fn intake(bot: &Bot, event: MessageEvent) -> Intake {
    let proof = Verified::by("X-Hub-Signature-256 over the raw body");
    Intake::new(proof, bot.tenant_source(), bot.id.clone(), event)
}

/// `None`: it is no message of a user.
fn said(message: Message, name: Option<String>, metadata: &Metadata, bot: &Bot) -> Option<Intake> {
    let own = digits(&metadata.display_phone_number);
    if !own.is_empty() && digits(&message.from) == own {
        return None; // our own
    }
    let edit = message.edit.as_ref().filter(|edit| message.kind == "edit" && !edit.original_message_id.is_empty());
    let content = Content::of(edit.map_or(&message, |edit| &edit.message))?;
    // An edit is reported under the id of its message, and has one of its own.
    let (message_id, edit_id) = match edit {
        Some(edit) => (edit.original_message_id.clone(), Some(message.id.clone())),
        None => (message.id.clone(), None),
    };
    let from = message.person().to_owned();
    let is_group = message.group_id.is_some() || message.chat.is_some();
    let context = message.context.unwrap_or_default();
    let replied = context.id.filter(|id| !id.is_empty());
    let quoted = context.from.map(|from| digits(&from)).filter(|from| !from.is_empty());
    let is_own = quoted.filter(|_| !own.is_empty()).map(|from| from == own);
    let source = Source {
        platform: PLATFORM.into(),
        chat_id: from.as_str().into(),
        chat_type: "dm".into(),
        chat_name: Some(name.clone().unwrap_or_else(|| from.clone())),
        user_id: Some(from.into()),
        user_name: name,
        message_id: Some(message_id.as_str().into()),
        message_is_edit: edit_id.is_some(),
        ..Source::default()
    };
    let pressed = content.pressed.map(|(mut response, option)| {
        response.prompt_message_id = replied.as_deref().map(MessageId::from);
        (response, option)
    });
    let event = MessageEvent {
        text: pressed.as_ref().map_or(content.text, |(_, option)| format!("/{option}")),
        message_type: if pressed.is_some() { "command".into() } else { content.kind.into() },
        source,
        message_id: Some(message_id.into()),
        // The text of a quoted message is not included.
        reply_to: replied.as_ref().filter(|_| pressed.is_none()).map(|_| ReplyTo { is_own, ..ReplyTo::default() }),
        reply_to_message_id: replied.map(MessageId::from),
        prompt_response: pressed.map(|(response, _)| response),
        ..MessageEvent::default()
    };
    let mut intake = intake(bot, event);
    intake.edit_id = edit_id;
    intake.addressed = intake.event.prompt_response.is_some() || is_own == Some(true);
    intake.remote_media = content.file.into_iter().collect();
    intake.refused = is_group.then(|| "it was written in a group, and groups of WhatsApp are not supported".to_owned());
    Some(intake)
}

/// The phone number, else the id that a user with a user name has for this business.
fn either<'a>(number: &'a str, user_id: &'a str) -> &'a str {
    if number.is_empty() { user_id } else { number }
}

impl Message {
    fn person(&self) -> &str {
        either(&self.from, &self.from_user_id)
    }
}

impl Report {
    fn person(&self) -> &str {
        either(&self.recipient_id, &self.recipient_user_id)
    }
}

fn digits(number: &str) -> String {
    number.chars().filter(char::is_ascii_digit).collect()
}

/// What a message is.
struct Content {
    kind: &'static str,
    text: String,
    file: Option<RemoteFile>,
    /// A button of a prompt, and the option.
    pressed: Option<(PromptResponse, String)>,
}

impl Content {
    fn text(text: impl Into<String>) -> Self {
        Self { kind: "text", text: text.into(), file: None, pressed: None }
    }

    fn of(message: &Message) -> Option<Self> {
        let file = |kind, file: &Option<File>, mime: &str| {
            let file = file.as_ref()?;
            Some(Self { kind, text: file.caption.clone().unwrap_or_default(), file: remote(file, mime), pressed: None })
        };
        match message.kind.as_str() {
            "text" => Some(Self::text(message.text.as_ref().map_or("", |text| &text.body))),
            "button" => Some(Self::text(message.button.as_ref().map_or("", |button| &button.text))),
            "interactive" => Self::chosen(message),
            "image" => file("photo", &message.image, "image/jpeg"),
            // As gateways have it: whatever was recorded or attached is a voice note.
            "audio" => file("voice", &message.audio, "audio/ogg"),
            "voice" => file("voice", &message.voice, "audio/ogg"),
            "video" => file("video", &message.video, "video/mp4"),
            "sticker" => file("photo", &message.sticker, "image/webp"),
            "document" => {
                let mut content = file("document", &message.document, "application/octet-stream")?;
                let name = message.document.as_ref().and_then(|file| file.filename.as_deref());
                if let (true, Some(name)) = (content.text.is_empty(), name.filter(|name| !name.is_empty())) {
                    content.text = format!("[Document: {name}]");
                }
                Some(content)
            }
            "location" => Some(Self { kind: "location", ..Self::text(place(message)) }),
            "contacts" => Some(Self::text(people(message))),
            "order" if message.order.is_some() => Some(Self::text("[An order, which can only be seen in WhatsApp]")),
            "reaction" | "system" | "ephemeral" | "revoke" => None, // nothing is said
            kind => Some(Self::text(format!("[A message of the kind {kind:?}, which WhatsApp does not pass on]"))),
        }
        .filter(|content| !content.text.is_empty() || content.file.is_some() || content.pressed.is_some())
    }

    fn chosen(message: &Message) -> Option<Self> {
        let interactive = message.interactive.as_ref()?;
        if let Some(form) = &interactive.form {
            let answers = if form.response_json.is_empty() { &form.body } else { &form.response_json };
            return Some(Self::text(format!("[Form: {answers}]")));
        }
        let Choice { id, title } = interactive.button.as_ref().or(interactive.row.as_ref())?;
        let of_prompt = id.strip_prefix("hp1:").and_then(|rest| rest.rsplit_once(':'));
        let pressed = of_prompt.map(|(prompt_id, option_id)| {
            let response = PromptResponse {
                prompt_id: prompt_id.to_owned(),
                option_id: option_id.to_owned(),
                label: Some(title.clone()),
                prompt_message_id: None,
            };
            (response, option_id.to_owned())
        });
        Some(Self { pressed, ..Self::text(title) })
    }
}

fn remote(file: &File, mime: &str) -> Option<RemoteFile> {
    (!file.id.is_empty()).then(|| RemoteFile {
        handle: Secret::new(file.id.clone()),
        mime: file.mime_type.clone().filter(|mime| !mime.is_empty()).unwrap_or_else(|| mime.to_owned()),
        filename: file.filename.clone(),
        size: None,
    })
}

fn place(message: &Message) -> String {
    let Some(location) = &message.location else { return String::new() };
    let mut lines = vec!["[The user shared a location.]".to_owned()];
    lines.extend(location.name.as_ref().map(|name| format!("Venue: {name}")));
    lines.extend(location.address.as_ref().map(|address| format!("Address: {address}")));
    lines.push(format!("latitude: {}", location.latitude));
    lines.push(format!("longitude: {}", location.longitude));
    lines.join("\n")
}

fn people(message: &Message) -> String {
    let one = |contact: &super::payload::SharedContact| {
        let phones: Vec<&str> = contact.phones.iter().map(|phone| phone.phone.as_str()).collect();
        format!("[Contact: {}, {}]", contact.name.formatted_name, phones.join(", "))
    };
    message.contacts.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// `None`: it is still on its way.
fn receipt(status: Report) -> Option<LateReceipt> {
    let outcome = match status.status.as_str() {
        "delivered" | "read" | "played" => Outcome::Delivered,
        "failed" => Outcome::Rejected,
        _ => return None, // sent, deleted, warning
    };
    if status.id.is_empty() {
        return None;
    }
    let note = match (outcome, status.errors.first()) {
        (Outcome::Rejected, Some(Trouble { code, title, message, error_data })) => {
            let text = [&error_data.details, message, title].into_iter().find(|text| !text.is_empty());
            let text = text.map_or("no reason given", String::as_str);
            format!("failed: {} (WhatsApp error {code})", reason(*code, text))
        }
        _ => status.status.clone(),
    };
    let person = Some(status.person()).filter(|id| outcome == Outcome::Rejected && !id.is_empty());
    let event = person.map(|person| undelivered::event(PLATFORM, LABEL, person, &status.id, &note));
    Some(LateReceipt { vendor_id: status.id, key: status.biz_opaque_callback_data, outcome, note, event })
}

/// `None`: it is no object of this form.
pub(super) fn payload_of(body: &[u8]) -> Option<Payload> {
    // A list would be read as an object without names.
    let value: Value = serde_json::from_slice(body).ok().filter(Value::is_object)?;
    serde_json::from_value(value).ok()
}
