//! The door that `WeCom` calls: a question whether the address is ours, and messages.

use frontdesk_core::port::platform::{Bot, DoorAnswer, RawRequest, ReceivedRequest, Reply};

use super::App;
use super::normalize::{Foreign, intake_of};
use super::xml;
use crate::shared::form::{fields_of, first};
use crate::wecom::crypt::{Forged, Signed, key_of, open, verify};

/// Of the text that `WeCom` wants to see again.
const ECHO_MAX_BYTES: usize = 1_024;

impl App {
    pub(super) fn handle_request(bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let query = fields_of(request.query.as_bytes()).unwrap_or_default();
        if request.body.is_empty() {
            let missing = || Reply::text(400, "echostr is missing: this is the address that WeCom calls for an app");
            let echo = first(&query, "echostr").ok_or_else(missing)?;
            return answer_challenge(bot, &query, echo, request.now_ms);
        }
        let bad = |error: xml::BadXml| Reply::text(400, error.to_string());
        // Only the sealed text in it is signed; no other field is used.
        let envelope = xml::read(&request.body).map_err(bad)?;
        let sealed = envelope.get("Encrypt").ok_or_else(|| {
            Reply::text(400, "the XML has no Encrypt field, or two; choose the safe mode for the callback of the app")
        })?;
        let text = opened(bot, &query, sealed, request.now_ms)?;
        let message = xml::read(&text).map_err(bad)?;
        let intake = intake_of(bot, &message).map_err(|Foreign(why)| Reply::text(403, why))?;
        // Empty: the answer goes out by the API, when there is one.
        Ok(ReceivedRequest::events(intake.into_iter().collect(), DoorAnswer::Fixed(Reply::text(200, ""))))
    }
}

/// `WeCom` asks once whether the address is ours, when it is entered.
fn answer_challenge(bot: &Bot, query: &[(String, String)], echo: &str, now_ms: u64) -> Result<ReceivedRequest, Reply> {
    let text = opened(bot, query, echo, now_ms)?;
    match String::from_utf8(text) {
        // A message is signed in the same way. A client that has intercepted one must not learn its content.
        Ok(text) if text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).starts_with('<') => {
            Err(Reply::text(400, "echostr is a message, and not the text by which WeCom checks the address"))
        }
        Ok(text) if text.len() <= ECHO_MAX_BYTES => Ok(ReceivedRequest::nothing(Reply::text(200, text))),
        _ => Err(Reply::text(400, "echostr is not a short text")),
    }
}

/// What is sealed, if it is signed with the token of the bot.
fn opened(bot: &Bot, query: &[(String, String)], sealed: &str, now_ms: u64) -> Result<Vec<u8>, Reply> {
    let absent = |name: &str| Reply::text(404, format!("this bot has no {name}"));
    let token = bot.secret("token").ok_or_else(|| absent("token"))?;
    let key = bot.secret("aes_key").and_then(|key| key_of(key.expose())).ok_or_else(|| absent("aes_key"))?;
    let corp_id = bot.setting("corp_id").ok_or_else(|| absent("corp_id"))?;
    let refused = |forged: Forged| {
        let status = if forged == Forged::Query { 400 } else { 403 };
        Reply::text(status, forged.to_string())
    };
    let only = |name: &str| {
        let mut found = query.iter().filter(|(known, _)| known == name);
        let value = found.next().map(|(_, value)| value.as_str());
        value.filter(|_| found.next().is_none()).ok_or_else(|| refused(Forged::Query))
    };
    let signed = Signed { signature: only("msg_signature")?, timestamp: only("timestamp")?, nonce: only("nonce")? };
    verify(token.expose(), signed, sealed, now_ms / 1_000).map_err(refused)?;
    open(&key, corp_id, sealed).map_err(refused)
}
