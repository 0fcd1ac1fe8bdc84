//! From the fields of a request to what the server stores: a message, or the outcome of an earlier one.

use frontdesk_core::intake::{Intake, REMOTE_MEDIA_MAX, RemoteFile, Verified};
use frontdesk_core::port::platform::{Bot, LateReceipt};
use frontdesk_core::port::store::Outcome;
use frontdesk_wire::event::media_message_type;
use frontdesk_wire::{MessageEvent, Secret, Source};

use super::text::Keyword;
use super::{PLATFORM, SERVICE_PREFIX};
use crate::shared::form::first;
use crate::shared::undelivered;

/// The fields of one request, which are verified.
pub(super) struct Fields(pub(super) Vec<(String, String)>);

impl Fields {
    /// Without spaces around it; empty is the same as absent.
    fn get(&self, name: &str) -> Option<&str> {
        first(&self.0, name).map(str::trim).filter(|value| !value.is_empty())
    }

    fn any(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    pub(super) fn account(&self) -> Option<&str> {
        self.get("AccountSid")
    }
}

/// A message of a user.
pub(super) struct Said {
    pub(super) intake: Intake,
    pub(super) from: String,
    pub(super) keyword: Option<Keyword>,
}

/// `Ok(None)`: nothing was said. `Err`: what is missing.
pub(super) fn said(fields: &Fields, bot: &Bot) -> Result<Option<Said>, &'static str> {
    let sid = fields.any(&["MessageSid", "SmsMessageSid", "SmsSid"]).ok_or("the request has no MessageSid")?;
    let from = fields.get("From").ok_or("the request has no From")?;
    let text = fields.get("Body").unwrap_or_default();
    let files = files(fields);
    let own = bot.setting("from");
    if Some(from) == own || (text.is_empty() && files.is_empty()) {
        return Ok(None);
    }
    let keyword = Keyword::of(text, fields.get("OptOutType"));
    let source = Source {
        platform: PLATFORM.into(),
        chat_id: from.into(),
        chat_type: "dm".into(),
        chat_name: Some(from.to_owned()),
        user_id: Some(from.into()),
        user_name: Some(from.to_owned()),
        message_id: Some(sid.into()),
        ..Source::default()
    };
    let event = MessageEvent {
        text: text.to_owned(),
        message_type: files.first().map_or("text", |file| media_message_type(&file.mime)).into(),
        source,
        message_id: Some(sid.into()),
        ..MessageEvent::default()
    };
    let proof = Verified::by("X-Twilio-Signature over the URL and the form");
    let mut intake = Intake::new(proof, bot.tenant_source(), bot.id.clone(), event);
    intake.remote_media = files;
    let elsewhere = elsewhere(from, fields.get("To"), own);
    let keyword = keyword.filter(|_| elsewhere.is_none()); // it is about another number
    intake.refused = elsewhere.or_else(|| obeyed(keyword));
    Ok(Some(Said { intake, from: from.to_owned(), keyword }))
}

/// Why it is not for this bot.
fn elsewhere(from: &str, to: Option<&str>, own: Option<&str>) -> Option<String> {
    if from.contains(':') {
        return Some(format!("{from:?} is not a phone number: it is a sender of another channel of Twilio"));
    }
    let (to, own) = (to?, own.filter(|own| !own.starts_with(SERVICE_PREFIX))?);
    (to != own).then(|| format!("it was sent to {to}, and the number of this bot is {own}; add a bot for that number"))
}

/// Why no agent gets a word that Twilio has obeyed.
fn obeyed(keyword: Option<Keyword>) -> Option<String> {
    match keyword {
        Some(Keyword::Stop) => Some(
            "the person opted out; Twilio has answered, and takes no message to them until they send START".to_owned(),
        ),
        Some(Keyword::Help) => Some("Twilio answers this word itself".to_owned()),
        Some(Keyword::Start) | None => None,
    }
}

fn files(fields: &Fields) -> Vec<RemoteFile> {
    let count = fields.get("NumMedia").and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    let file = |at: usize| {
        let url = fields.get(&format!("MediaUrl{at}"))?;
        let mime = fields.get(&format!("MediaContentType{at}")).unwrap_or("application/octet-stream");
        Some(RemoteFile { handle: Secret::new(url), mime: mime.to_owned(), filename: None, size: None })
    };
    (0..count.min(REMOTE_MEDIA_MAX)).filter_map(file).collect()
}

/// The outcome of a message that was sent earlier. `Ok(None)`: it is still on its way.
pub(super) fn status(fields: &Fields, key: Option<&str>) -> Result<Option<LateReceipt>, &'static str> {
    let sid = fields.any(&["MessageSid", "SmsSid"]).ok_or("the request has no MessageSid")?;
    let status = fields.any(&["MessageStatus", "SmsStatus"]).ok_or("the request has no MessageStatus")?;
    let outcome = match status {
        "delivered" | "read" => Outcome::Delivered,
        "undelivered" | "failed" | "canceled" => Outcome::Rejected,
        _ => return Ok(None), // accepted, queued, sending, sent
    };
    let note = match (outcome, fields.get("ErrorCode")) {
        (Outcome::Rejected, Some(code)) => format!("{status}: {} (Twilio error {code})", reason(code)),
        _ => status.to_owned(),
    };
    let event = fields.get("To").filter(|_| outcome == Outcome::Rejected);
    let event = event.map(|to| undelivered::event(PLATFORM, "Twilio", to, sid, &note));
    Ok(Some(LateReceipt { vendor_id: sid.to_owned(), key: key.map(str::to_owned), outcome, note, event }))
}

/// Twilio's reasons, for the reader of a journal.
fn reason(code: &str) -> &'static str {
    match code {
        "21610" => "the person has opted out",
        "30003" => "the phone is switched off or not reachable",
        "30004" => "the person or their carrier blocks messages of this number",
        "30005" => "the number does not exist or is not in service",
        "30006" => "the number is a landline, or its carrier takes no messages",
        "30007" => "the carrier filtered it",
        "30034" => "the number of the bot is not registered for A2P messages in the USA",
        _ => "see the list of error codes in Twilio's documentation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn bot(from: &str) -> Bot {
        Bot::new("b", Some("home".into()), [("from".to_owned(), from.to_owned())].into(), [].into())
    }

    const SID: (&str, &str) = ("MessageSid", "SM1");
    const ANN: (&str, &str) = ("From", "+15550001111");
    const OWN: &str = "+15559990000";

    fn of(pairs: &[(&str, &str)]) -> Option<Said> {
        said(&fields(&[&[SID, ANN], pairs].concat()), &bot(OWN)).unwrap()
    }

    #[test]
    fn a_text_is_a_direct_message_of_its_number() {
        let Said { intake, from, keyword } = of(&[("Body", " hello \n"), ("To", OWN), ("NumMedia", "0")]).unwrap();
        assert_eq!((from.as_str(), keyword), ("+15550001111", None));
        let source = &intake.event.source;
        assert_eq!((source.platform.as_str(), source.chat_type.as_str()), ("sms", "dm"));
        assert_eq!((source.chat_id.as_str(), source.user_id.as_deref()), ("+15550001111", Some("+15550001111")));
        assert_eq!(
            (source.chat_name.as_deref(), source.user_name.as_deref()),
            (Some("+15550001111"), Some("+15550001111"))
        );
        let event = &intake.event;
        assert_eq!((event.text.as_str(), event.message_type.as_str()), ("hello", "text"));
        assert_eq!((event.message_id.as_deref(), &intake.refused), (Some("SM1"), &None));
    }

    #[test]
    fn files_are_left_where_they_are() {
        let said = of(&[
            ("NumMedia", "3"),
            ("MediaUrl0", "https://api.twilio.com/a"),
            ("MediaContentType0", "image/jpeg"),
            ("MediaUrl1", "https://api.twilio.com/b"),
            ("MediaContentType1", "text/x-vcard"),
        ]);
        let intake = said.unwrap().intake;
        assert_eq!((intake.event.message_type.as_str(), intake.event.text.as_str()), ("photo", ""));
        let mimes: Vec<&str> = intake.remote_media.iter().map(|file| file.mime.as_str()).collect();
        assert_eq!(mimes, ["image/jpeg", "text/x-vcard"]);
        let many = of(&[("NumMedia", "99999999999999"), ("MediaUrl0", "https://api.twilio.com/a")]);
        assert_eq!(many.unwrap().intake.remote_media.len(), 1, "what is not there is not counted");
        let voice = of(&[("NumMedia", "1"), ("MediaUrl0", "u"), ("MediaContentType0", "audio/amr")]).unwrap();
        assert_eq!(voice.intake.event.message_type, "voice");
    }

    #[test]
    fn what_is_not_for_an_agent_is_recorded_with_its_reason() {
        let refused = |pairs: &[(&str, &str)]| of(pairs).unwrap().intake.refused;
        assert!(refused(&[("Body", "STOP")]).unwrap().contains("START"));
        assert!(refused(&[("Body", "Help")]).unwrap().contains("Twilio answers"));
        assert!(refused(&[("Body", "arrêt"), ("OptOutType", "STOP")]).unwrap().contains("opted out"));
        assert_eq!(refused(&[("Body", "yes")]), None);
        assert!(refused(&[("Body", "x"), ("To", "+15551230000")]).unwrap().contains("+15551230000"));
        let other = said(&fields(&[SID, ("From", "whatsapp:+1555"), ("Body", "x")]), &bot(OWN)).unwrap().unwrap();
        assert!(other.intake.refused.unwrap().contains("another channel"));
        let service = fields(&[SID, ANN, ("Body", "x"), ("To", "+15551230000")]);
        assert_eq!(said(&service, &bot("MG1")).unwrap().unwrap().intake.refused, None, "a service has many numbers");
    }

    #[test]
    fn nothing_and_our_own_is_skipped_and_rubbish_is_named() {
        assert!(of(&[("Body", "  ")]).is_none());
        assert!(said(&fields(&[SID, ("From", OWN), ("Body", "x")]), &bot(OWN)).unwrap().is_none());
        assert_eq!(said(&fields(&[ANN]), &bot(OWN)).err(), Some("the request has no MessageSid"));
        assert_eq!(said(&fields(&[SID]), &bot(OWN)).err(), Some("the request has no From"));
    }

    #[test]
    fn only_final_statuses_are_reported() {
        let of = |pairs: &[(&str, &str)]| status(&fields(pairs), Some("1.2.0"));
        for under_way in ["accepted", "queued", "sending", "sent", "whatever"] {
            assert_eq!(of(&[SID, ("MessageStatus", under_way)]), Ok(None), "{under_way}");
        }
        let delivered = of(&[SID, ("MessageStatus", "delivered"), ("To", "+1555")]).unwrap().unwrap();
        assert_eq!(
            (delivered.outcome, delivered.event, delivered.key),
            (Outcome::Delivered, None, Some("1.2.0".into()))
        );
        let failed = of(&[SID, ("MessageStatus", "undelivered"), ("ErrorCode", "30003"), ("To", "+1555")]);
        let failed = failed.unwrap().unwrap();
        assert_eq!(failed.outcome, Outcome::Rejected);
        assert!(failed.note.contains("switched off") && failed.note.contains("30003"), "{}", failed.note);
        let event = failed.event.unwrap();
        assert!(event.text.contains("SM1") && event.text.contains("30003"), "{}", event.text);
        assert_eq!((event.source.chat_id.as_str(), event.reply_to_message_id.as_deref()), ("+1555", Some("SM1")));
        assert_eq!(of(&[SID]), Err("the request has no MessageStatus"));
        assert_eq!(of(&[("MessageStatus", "sent")]), Err("the request has no MessageSid"));
    }
}
