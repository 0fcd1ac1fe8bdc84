//! What a request or an envelope of the socket brings, before anything of it is stored.

use std::sync::Arc;

use frontdesk_core::DeskError;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::outcall::{Body, Call, HttpMethod, Outcall};
use frontdesk_core::port::platform::{Afterwards, Bot, Change, DoorAnswer, Gap, ReceivedRequest, Reply};
use serde_json::{Value, json};

use super::account::is_of_vendor;
use super::text::MESSAGE_MAX;
use crate::shared::refusal as shared;

const NOT_LINKED: &str = "No agent gets this: you are not linked to one here. Whoever runs this bot can give you a code; \
                          send it with !link in a direct message to the bot.";
const RESPONSE_MAX_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Received {
    pub(super) intakes: Vec<Intake>,
    pub(super) changes: Vec<Change>,
    pub(super) gaps: Vec<Gap>,
    pub(super) answer: Answering,
    pub(super) afterwards: Option<Afterwards>,
}

/// What Slack gets in return.
#[derive(Default)]
pub(super) enum Answering {
    #[default]
    Nothing,
    Fixed(Value),
    /// For the person who gave a command: why no agent gets it, if none does.
    ToCommand,
}

impl Received {
    pub(super) fn answer(answer: Value) -> Self {
        Self { answer: Answering::Fixed(answer), ..Self::default() }
    }

    pub(super) fn into_request(self) -> ReceivedRequest {
        let empty = || Reply::text(200, "");
        let is_command = matches!(self.answer, Answering::ToCommand);
        let answer = match self.answer {
            Answering::Nothing => DoorAnswer::Fixed(empty()),
            Answering::Fixed(value) => DoorAnswer::Fixed(Reply::json(200, &value)),
            Answering::ToCommand => DoorAnswer::FromReceipts(Box::new(move |receipts| {
                to_command(receipts.first()).map_or_else(empty, |value| Reply::json(200, &value))
            })),
        };
        let mut request = ReceivedRequest::events(self.intakes, answer);
        request.changes = self.changes;
        request.gaps = self.gaps;
        request.afterwards = self.afterwards;
        if is_command {
            // Slack does not send a command again.
            request.if_not_stored = Some(Box::new(|error: &DeskError| Reply::json(200, &not_stored(error))));
        }
        request
    }
}

/// The text for a person whose command or press no agent gets. `None`: one gets it.
pub(super) fn refusal(receipt: Option<&Receipt>) -> Option<String> {
    shared::refusal(receipt, NOT_LINKED)
}

pub(super) fn to_command(receipt: Option<&Receipt>) -> Option<Value> {
    refusal(receipt).map(|text| only_for_them(&text))
}

pub(super) fn not_stored(error: &DeskError) -> Value {
    only_for_them(&shared::not_stored(error))
}

/// A message that only the acting user sees.
pub(super) fn only_for_them(text: &str) -> Value {
    let text: String = text.chars().take(MESSAGE_MAX).collect();
    let text = if text.trim().is_empty() { "Nothing was done.".to_owned() } else { super::text::escaped(&text) };
    json!({ "response_type": "ephemeral", "replace_original": false, "text": text })
}

/// The address for the answer to a command or a press. It permits writing there, so it is a credential.
#[derive(Clone)]
pub(super) struct ResponseUrl {
    url: frontdesk_wire::Secret,
    own_base: Option<String>,
}

impl ResponseUrl {
    /// `None`: it is not of Slack.
    pub(super) fn of(bot: &Bot, url: &str) -> Option<Self> {
        let own_base = bot.setting("base_url").map(str::to_owned);
        is_of_vendor(bot, url).then(|| Self { url: frontdesk_wire::Secret::new(url), own_base })
    }

    pub(super) async fn post(&self, outcall: &dyn Outcall, body: &Value) -> Result<(), super::api::ApiError> {
        use super::api::{ApiError, no_answer};
        let json = body.to_string();
        let call = Call {
            method: HttpMethod::Post,
            url: self.url.expose(),
            body: Body::Json(&json),
            trusted: self.own_base.as_deref(),
            max_bytes: RESPONSE_MAX_BYTES,
            cut: true,
            ..Call::default()
        };
        let answer = outcall.call(call).await.map_err(|error| no_answer(&error))?;
        match answer.status {
            200..300 => Ok(()),
            429 => Err(ApiError::Limited { retry_after_ms: 5_000 }),
            404 | 410 | 403 => Err(ApiError::Refused { error: "expired_url".into(), needed: None }),
            status @ 400..500 => Err(ApiError::Refused { error: format!("status {status}"), needed: None }),
            status => Err(ApiError::NoAnswer { may_be_done: true, why: format!("status {status}") }),
        }
    }

    /// For what is done after an answer: a failure is only logged.
    pub(super) async fn post_or_log(self, outcall: Arc<dyn Outcall>, body: Value) {
        if let Err(error) = self.post(&*outcall, &body).await {
            tracing::debug!(error = error.text(), "answering a command or a button of Slack failed");
        }
    }
}
