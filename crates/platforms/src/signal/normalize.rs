//! From an event of the stream to what the server stores.

use frontdesk_core::intake::{HANDLE_MAX_BYTES, Intake, REMOTE_MEDIA_MAX, RemoteFile, Verified};
use frontdesk_core::port::platform::Bot;
use frontdesk_core::sha256_hex;
use frontdesk_wire::event::ReplyTo;
use frontdesk_wire::{MessageEvent, Secret, Source};

use super::PLATFORM;
use super::envelope::{Attachment, DataMessage, Envelope, Exception, Mention, Quote, Received};
use super::ids::{GROUP_PREFIX, MessageRef};
use super::media::Handle;

/// The placeholder of a mentioned user in a text.
const MENTIONED: char = '\u{FFFC}';

/// Who the bot is.
pub(super) struct Me<'a> {
    pub(super) number: &'a str,
    /// Not known if Signal did not say.
    pub(super) aci: Option<&'a str>,
}

impl Me<'_> {
    fn is(&self, number: Option<&str>, aci: Option<&str>) -> bool {
        number == Some(self.number) || (aci.is_some() && aci == self.aci)
    }
}

/// One event of the stream, as text. `None`: it contains no message.
pub(super) fn intake_of(text: &str, me: &Me<'_>, bot: &Bot) -> Option<Intake> {
    let received: Received = match serde_json::from_str(text) {
        Ok(received) => received,
        Err(error) => return Some(unreadable(bot, text, &format!("the event could not be read: {error}"))),
    };
    if !received.account.is_empty() && received.account != me.number {
        return None; // a daemon of several accounts
    }
    if let Some(Exception { message, kind }) = received.exception {
        let why = message.or(kind).unwrap_or_else(|| "signal-cli gives no reason".into());
        return Some(unreadable(bot, text, &format!("the message could not be decrypted: {why}")));
    }
    said(received.envelope?, me, bot)
}

fn said(envelope: Envelope, me: &Me<'_>, bot: &Bot) -> Option<Intake> {
    let Envelope { source, source_number, source_uuid, source_name, timestamp, data_message, edit_message } = envelope;
    let given = |it: Option<String>| it.filter(|text| !text.is_empty());
    let (source, source_number, source_uuid) = (given(source), given(source_number), given(source_uuid));
    if me.is(source_number.as_deref(), source_uuid.as_deref()) {
        return None; // our own, from another device
    }
    let (message, edited) = match (data_message, edit_message) {
        (Some(message), _) => (message, None),
        (None, Some(edit)) => (edit.data_message, Some(edit.target_sent_timestamp)),
        (None, None) => return None, // a receipt, a typing indicator, a message of ours from another device
    };
    let sent_ms = if message.timestamp == 0 { timestamp } else { message.timestamp };
    // A number can be given to another person; the account id cannot. Old messages have a number alone.
    let author = source_uuid.clone().or_else(|| source_number.clone()).or(source)?;
    let group = message.group_info.as_ref().and_then(|group| given(group.group_id.clone()));
    let (chat_id, chat_type) = match &group {
        Some(id) => (format!("{GROUP_PREFIX}{id}"), "group"),
        None => (author.clone(), "dm"),
    };
    let text = with_mentions(message.message.as_deref().unwrap_or_default(), &message.mentions, me);
    let files = files(&message.attachments, &chat_id);
    let sticker = message.sticker.as_ref().map(|it| match it.emoji.as_deref().unwrap_or_default() {
        "" => "[Sticker]".to_owned(), // as most versions of the daemon report it
        emoji => format!("[Sticker {emoji}]"),
    });
    let text = if text.trim().is_empty() { sticker.unwrap_or(text) } else { text };
    let is_mentioned = message.mentions.iter().any(|it| me.is(it.number.as_deref(), it.uuid.as_deref()));
    if text.trim().is_empty() && files.is_empty() && !is_mentioned {
        return None; // a reaction, a changed profile key, an update of the group
    }
    let name = source_name.filter(|name| !name.is_empty());
    let is_own_quote = message.quote.as_ref().map(|it| me.is(it.author_number.as_deref(), it.author_uuid.as_deref()));
    let message_id = MessageRef { sent_ms: edited.unwrap_or(sent_ms), author: Some(author.clone()) };
    let event = MessageEvent {
        text,
        message_type: message_type(&message).into(),
        source: Source {
            platform: PLATFORM.into(),
            chat_id: chat_id.into(),
            chat_type: chat_type.into(),
            chat_name: match &message.group_info {
                Some(info) if group.is_some() => info.group_name.clone(),
                _ => name.clone(),
            },
            user_name: Some(name.unwrap_or_else(|| author.clone())),
            user_id_alt: source_number.filter(|number| *number != author),
            chat_id_alt: group,
            user_id: Some(author.into()),
            message_is_edit: edited.is_some(),
            ..Source::default()
        },
        message_id: Some(message_id.to_string().into()),
        reply_to_message_id: message
            .quote
            .as_ref()
            .filter(|it| it.id > 0)
            .map(|it| quoted_id(it, me).to_string().into()),
        reply_to: message.quote.as_ref().map(|it| ReplyTo {
            text: it.text.clone(),
            author: quoted_author(it),
            is_own: is_own_quote,
        }),
        ..MessageEvent::default()
    };
    let mut intake =
        Intake::new(Verified::by("the stream of the operator's daemon"), bot.tenant_source(), bot.id.clone(), event);
    intake.addressed = is_mentioned || is_own_quote == Some(true);
    intake.author_sees = true;
    intake.remote_media = files;
    intake.edit_id = edited.map(|_| sent_ms.to_string());
    Some(intake)
}

/// Recorded with its reason. It has no id of its own: the same bytes are the same event.
fn unreadable(bot: &Bot, text: &str, why: &str) -> Intake {
    let source = Source { platform: PLATFORM.into(), chat_id: "unknown".into(), ..Source::default() };
    let message_id = Some(format!("event-{}", &sha256_hex(text)[..32]).into());
    let event = MessageEvent { source, message_id, ..MessageEvent::default() };
    let mut intake =
        Intake::new(Verified::by("the stream of the operator's daemon"), bot.tenant_source(), bot.id.clone(), event);
    intake.refused = Some(why.to_owned());
    intake
}

fn message_type(message: &DataMessage) -> &'static str {
    let is = |kind: &str| {
        message.attachments.iter().any(|it| it.content_type.as_deref().unwrap_or_default().starts_with(kind))
    };
    match () {
        () if message.attachments.is_empty() && message.sticker.is_some() => "sticker",
        () if message.attachments.is_empty() => "text",
        () if is("audio/") => "voice",
        () if is("image/") => "photo",
        () if is("video/") => "video",
        () => "document",
    }
}

fn files(attachments: &[Attachment], chat_id: &str) -> Vec<RemoteFile> {
    let file = |it: &Attachment| {
        let handle = Handle { id: it.id.clone()?, chat_id: chat_id.to_owned() };
        Some(RemoteFile {
            handle: Secret::new(serde_json::to_string(&handle).ok()?),
            mime: it.content_type.clone().unwrap_or_else(|| "application/octet-stream".into()),
            filename: it.filename.clone(),
            size: it.size,
        })
    };
    // No attachment of the daemon has such a long id.
    let fits = |it: &RemoteFile| it.handle.expose().len() <= HANDLE_MAX_BYTES;
    attachments.iter().filter_map(file).filter(fits).take(REMOTE_MEDIA_MAX).collect()
}

fn quoted_id(quote: &Quote, me: &Me<'_>) -> MessageRef {
    let is_own = me.is(quote.author_number.as_deref(), quote.author_uuid.as_deref());
    MessageRef { sent_ms: quote.id, author: quoted_author(quote).filter(|_| !is_own) }
}

fn quoted_author(quote: &Quote) -> Option<String> {
    quote.author_uuid.clone().or_else(|| quote.author_number.clone())
}

/// Mentions of others by number or id; those of the bot are left out.
fn with_mentions(text: &str, mentions: &[Mention], me: &Me<'_>) -> String {
    if mentions.is_empty() || !text.contains(MENTIONED) {
        return text.to_owned();
    }
    let mut units: Vec<u16> = text.encode_utf16().collect();
    let mut sorted: Vec<&Mention> = mentions.iter().collect();
    sorted.sort_by_key(|it| std::cmp::Reverse(it.start));
    for it in sorted {
        let end = it.start.saturating_add(it.length.max(1));
        if end > units.len() {
            continue;
        }
        let name = it.number.as_deref().or(it.uuid.as_deref()).unwrap_or("user");
        let shown = if me.is(it.number.as_deref(), it.uuid.as_deref()) { String::new() } else { format!("@{name}") };
        units.splice(it.start..end, shown.encode_utf16());
    }
    String::from_utf16_lossy(&units).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ANN: &str = "0b6d7c9e-1111-4222-8333-444455556666";
    const ME: Me<'static> = Me { number: "+15550001", aci: Some("9f9f9f9f-0000-4000-8000-000000000001") };

    fn bot() -> Bot {
        Bot::new("b", Some("home".into()), [].into(), [].into())
    }

    fn envelope(message: &Value) -> String {
        json!({ "envelope": { "source": "+15550002", "sourceNumber": "+15550002", "sourceUuid": ANN, "sourceName": "Ann",
                "timestamp": 1_700_000_000_001_u64, "dataMessage": message }, "account": "+15550001" }).to_string()
    }

    fn take(text: &str) -> Option<Intake> {
        intake_of(text, &ME, &bot())
    }

    #[test]
    fn a_direct_message_is_of_the_account_and_not_of_the_number() {
        let intake = take(&envelope(&json!({ "timestamp": 1_700_000_000_001_u64, "message": "hi" }))).unwrap();
        let source = &intake.event.source;
        assert_eq!((source.chat_id.as_str(), source.chat_type.as_str()), (ANN, "dm"));
        assert_eq!((source.user_id.as_deref(), source.user_id_alt.as_deref()), (Some(ANN), Some("+15550002")));
        assert_eq!(intake.event.message_id.as_deref(), Some(&*format!("1700000000001:{ANN}")));
        assert_eq!((intake.event.text.as_str(), intake.event.message_type.as_str()), ("hi", "text"));
        assert!(!intake.addressed);
    }

    #[test]
    fn a_group_message_is_addressed_by_a_mention_or_a_reply() {
        let group = json!({ "groupId": "R3JvdXA=", "groupName": "Ops" });
        let mention = json!([{ "name": "Bot", "number": "+15550001", "start": 0, "length": 1 },
                             { "name": "Ben", "uuid": "ben", "start": 6, "length": 1 }]);
        let text = "\u{FFFC} ask \u{FFFC} 😀";
        let intake = take(&envelope(&json!({ "message": text, "mentions": mention, "groupInfo": group }))).unwrap();
        assert_eq!((intake.event.text.as_str(), intake.addressed), ("ask @ben 😀", true));
        let source = &intake.event.source;
        assert_eq!((source.chat_id.as_str(), source.chat_type.as_str()), ("group:R3JvdXA=", "group"));
        assert_eq!((source.chat_name.as_deref(), source.chat_id_alt.as_deref()), (Some("Ops"), Some("R3JvdXA=")));
        let quote =
            json!({ "id": 1_600_000_000_000_u64, "authorNumber": "+15550001", "authorUuid": ME.aci, "text": "before" });
        let intake = take(&envelope(&json!({ "message": "yes", "quote": quote, "groupInfo": group }))).unwrap();
        assert!(intake.addressed);
        assert_eq!(intake.event.reply_to_message_id.as_deref(), Some("1600000000000"));
        assert_eq!(intake.event.reply_to.unwrap().is_own, Some(true));
        let alone = json!([{ "name": "Bot", "number": "+15550001", "start": 0, "length": 1 }]);
        let intake = take(&envelope(&json!({ "message": "\u{FFFC}", "mentions": alone, "groupInfo": group }))).unwrap();
        assert_eq!((intake.event.text.as_str(), intake.addressed), ("", true), "somebody calls the bot");
    }

    #[test]
    fn files_are_left_at_the_daemon() {
        let files =
            json!([{ "contentType": "audio/aac", "filename": "v.aac", "id": "x1.aac", "size": 7 }, { "size": 3 }]);
        let intake = take(&envelope(&json!({ "attachments": files }))).unwrap();
        assert_eq!(intake.event.message_type, "voice");
        let [file] = intake.remote_media.as_slice() else { panic!("one has no id") };
        assert_eq!((file.mime.as_str(), file.filename.as_deref(), file.size), ("audio/aac", Some("v.aac"), Some(7)));
    }

    #[test]
    fn an_edit_names_the_message_that_it_changes() {
        let text = json!({ "envelope": { "sourceNumber": "+15550002", "sourceUuid": ANN, "timestamp": 9,
            "editMessage": { "targetSentTimestamp": 5, "dataMessage": { "timestamp": 9, "message": "better" } } } });
        let intake = take(&text.to_string()).unwrap();
        assert_eq!(intake.event.message_id.as_deref(), Some(&*format!("5:{ANN}")));
        assert!(intake.event.source.message_is_edit);
        assert_eq!(intake.edit_id.as_deref(), Some("9"));
    }

    #[test]
    fn what_nobody_said_is_skipped_and_what_cannot_be_read_is_recorded() {
        for nothing in [
            json!({ "envelope": { "sourceUuid": ANN, "receiptMessage": { "when": 1 } } }),
            json!({ "envelope": { "sourceUuid": ANN, "typingMessage": { "action": "STARTED" } } }),
            json!({ "envelope": { "sourceNumber": "+15550001", "syncMessage": { "sentMessage": { "message": "x" } } } }),
            json!({ "envelope": { "sourceNumber": "+15550001", "dataMessage": { "message": "mine" } } }),
            json!({ "envelope": { "sourceUuid": ANN, "dataMessage": { "reaction": { "emoji": "👍" } } } }),
            json!({ "envelope": { "sourceUuid": ANN, "dataMessage": { "message": "x" } }, "account": "+15559999" }),
        ] {
            assert!(take(&nothing.to_string()).is_none(), "{nothing}");
        }
        let failed =
            json!({ "exception": { "message": "no session", "type": "ProtocolException" }, "account": "+15550001" });
        let refused = take(&failed.to_string()).unwrap().refused.unwrap();
        assert_eq!(refused, "the message could not be decrypted: no session");
        let first = take("{\"envelope\": 3}").unwrap();
        assert!(first.refused.as_ref().unwrap().contains("could not be read"), "{:?}", first.refused);
        assert_eq!(
            first.event.message_id,
            take("{\"envelope\": 3}").unwrap().event.message_id,
            "a repetition is known"
        );
    }
}
