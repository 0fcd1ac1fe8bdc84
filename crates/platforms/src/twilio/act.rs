//! Actions of agents: messages and files, by the Messages resource.

use frontdesk_core::port::platform::{Acted, ActingAs, Bot};
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code};

use super::api::{Api, ApiError, Message, OPTED_OUT};
use super::text::{MESSAGE_MAX, is_blank, one_message, parts};
use super::{SERVICE_PREFIX, Sms};
use crate::shared::missing_bot;
use crate::shared::text::not_one_message;

/// How long this server itself obeys a STOP. Twilio keeps its own list for good. The limit is there because a START may
/// go to another server.
const OPT_OUT_TTL_MS: u64 = 24 * 3_600 * 1_000;

/// A phone number with its country, or a short code.
pub(super) fn is_number(chat_id: &str) -> bool {
    let digits = chat_id.strip_prefix('+').unwrap_or(chat_id);
    let range = if chat_id.starts_with('+') { 7..=15 } else { 3..=8 };
    range.contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

impl Sms {
    pub(super) async fn act_once(&self, acting_as: ActingAs<'_>, action: &Action) -> Acted {
        self.try_act(acting_as, action).await.unwrap_or_else(Acted::from)
    }

    async fn try_act(&self, acting_as: ActingAs<'_>, action: &Action) -> Result<Acted, ActionResult> {
        match &action.act {
            Act::Send { chat_id, content, .. } => {
                self.check(acting_as.bot, chat_id)?;
                let refused = || not_one_message(is_blank(content), MESSAGE_MAX, "units");
                let body = one_message(content).ok_or_else(refused)?;
                self.send(acting_as, chat_id, Some(&body), None).await
            }
            Act::SendMedia { chat_id, source_url, content, .. } => {
                self.check(acting_as.bot, chat_id)?;
                let url = self.media_url(acting_as.bot, acting_as.tenant, source_url).await?;
                self.send_file(acting_as, chat_id, &url, content.as_deref().unwrap_or_default()).await
            }
            Act::GetChatInfo { chat_id } => {
                let info = ChatInfo { name: chat_id.to_string(), chat_type: "dm".into() };
                Ok(ActionResult { chat_info: Some(info), ..ActionResult::done() }.into())
            }
            _ => Err(ActionResult::refused(Code::UnsupportedOp, "SMS supports only sending texts and files")),
        }
    }

    /// Why nothing can be sent there, as far as that is known without Twilio.
    #[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
    fn check(&self, bot: &Bot, chat_id: &str) -> Result<(), ActionResult> {
        if !is_number(chat_id) {
            let text = format!("{chat_id:?} is not a phone number; write it with its country: +15551234567");
            return Err(ActionResult::refused(Code::BadRequest, text));
        }
        let since = self.opted_out.get(&bot.id, chat_id);
        if since.is_some_and(|since_ms| self.env.steady_ms().saturating_sub(since_ms) < OPT_OUT_TTL_MS) {
            let text = "the person has opted out with STOP, and must send START first; nothing was sent";
            return Err(ActionResult::refused(Code::Forbidden, text));
        }
        Ok(())
    }

    /// The beginning of a long caption goes with the file, the rest follows.
    async fn send_file(
        &self,
        acting_as: ActingAs<'_>,
        chat_id: &str,
        url: &str,
        caption: &str,
    ) -> Result<Acted, ActionResult> {
        let texts: Vec<String> = parts(caption).iter().filter_map(|part| one_message(part)).collect();
        let first = self.send(acting_as, chat_id, texts.first().map(String::as_str), Some(url)).await?;
        if !first.result.success {
            return Ok(first);
        }
        for text in texts.iter().skip(1) {
            // Statuses are asked for with the file only.
            let more = self.send(ActingAs { idempotency_key: None, ..acting_as }, chat_id, Some(text), None).await?;
            if !more.result.success {
                return Ok(partial(first, more));
            }
        }
        Ok(first)
    }

    async fn send(
        &self,
        acting_as: ActingAs<'_>,
        chat_id: &str,
        body: Option<&str>,
        media_url: Option<&str>,
    ) -> Result<Acted, ActionResult> {
        let bot = acting_as.bot;
        let missing = || missing_bot::refused(bot);
        let api = Api::of(&*self.outcall, bot).ok_or_else(missing)?;
        let from = bot.setting("from").ok_or_else(missing)?;
        let callback = self.status_url(bot, acting_as.idempotency_key);
        let sender = if from.starts_with(SERVICE_PREFIX) { "MessagingServiceSid" } else { "From" };
        let mut form = vec![("To", chat_id), (sender, from), ("StatusCallback", &callback)];
        form.extend(body.map(|body| ("Body", body)));
        form.extend(media_url.map(|url| ("MediaUrl", url)));
        let outcome = api.send(&form).await;
        if let Err(error) = &outcome
            && error.code() == Some(OPTED_OUT)
        {
            self.opted_out.put(&bot.id, chat_id, self.env.steady_ms());
        }
        Ok(acted(outcome, acting_as.idempotency_key))
    }
}

fn acted(outcome: Result<Message, ApiError>, key: Option<&str>) -> Acted {
    match outcome {
        Ok(Message { status, error_code, reason, .. }) if matches!(status.as_str(), "failed" | "undelivered") => {
            let why = reason.unwrap_or_else(|| "no reason given".into());
            let code = error_code.map(|code| format!(", error {code}")).unwrap_or_default();
            ActionResult::refused(Code::PlatformFailed, format!("Twilio refused it: {why} ({status}{code})")).into()
        }
        Ok(message) => Acted { receipt_id: Some(message.sid.clone()), ..ActionResult::sent(message.sid).into() },
        Err(error) => {
            let acted = Acted::from(error);
            // The status callback reports the outcome later, by the key, because its id is not known.
            let receipt_id = key.filter(|_| acted.result.ambiguous).map(str::to_owned);
            Acted { receipt_id, ..acted }
        }
    }
}

/// The file was sent: that is reported, and the action is not retried as a whole.
fn partial(first: Acted, failed: Acted) -> Acted {
    let why = failed.result.error.unwrap_or_default();
    let result = ActionResult {
        success: false,
        code: Some(Code::Partial),
        ambiguous: failed.result.ambiguous,
        error: Some(format!("the file went out, then: {why}")),
        ..first.result
    };
    Acted { result: result.worded(), ..first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_country_or_are_short_codes() {
        for good in ["+15550001111", "+491701234567", "12345", "894546"] {
            assert!(is_number(good), "{good}");
        }
        for bad in
            ["", "+", "5550001111", "+1555000111122334", "whatsapp:+15550001111", "+1555 000", "ann", "+1555x001111"]
        {
            assert!(!is_number(bad), "{bad}");
        }
    }
}
