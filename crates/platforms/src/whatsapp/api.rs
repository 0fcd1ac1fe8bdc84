//! Calls of the Graph API as one phone number.

use std::time::Duration;

use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, Outcall, OutcallError, Part};
use frontdesk_core::port::platform::{Acted, Bot, Pace};
use frontdesk_wire::{ActionResult, Code, Secret};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::WINDOW_CLOSED;
use super::text::reason;
use crate::shared::unanswered;

pub(super) const BASE_URL: &str = "https://graph.facebook.com";
pub(super) const VERSION: &str = "v23.0";
const ANSWER_MAX_BYTES: usize = 1 << 20;
const CALL_TIME: Duration = Duration::from_secs(20);
const UPLOAD_TIME: Duration = Duration::from_secs(24);
/// Longer reasons are cut.
const REASON_MAX_CHARS: usize = 500;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiError {
    /// Meta refused it, and did nothing.
    Refused { status: u16, code: i64, message: String },
    /// No answer, or one that cannot be read. It may have been done if `may_be_done`.
    NoAnswer { may_be_done: bool, why: String },
}

/// Too many messages to one person; other chats continue.
const PAIR_RATE: i64 = 131_056;
/// Placeholder that the caller replaces by the name of the chat's bucket.
pub(super) const OF_CHAT: &str = "of the chat";

impl ApiError {
    pub(super) fn code(&self) -> Option<i64> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::NoAnswer { .. } => None,
        }
    }

    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::NoAnswer { .. } => None,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused { status, code, message } => {
                format!("WhatsApp refused it: {} (status {status}, error {code})", reason(*code, message))
            }
            Self::NoAnswer { why, .. } => format!("WhatsApp did not answer: {why}"),
        }
    }

    /// How long Meta requires a pause. It does not say; these are the times of its documentation.
    fn retry_after_ms(&self) -> Option<u64> {
        match self.code()? {
            130_429 => Some(1_000),
            PAIR_RATE => Some(6_000),
            4 | 80_007 | 131_048 => Some(60_000),
            _ if self.status() == Some(429) => Some(1_000),
            _ => None,
        }
    }
}

impl From<ApiError> for Acted {
    fn from(error: ApiError) -> Self {
        let text = error.text();
        if let Some(wait_ms) = error.retry_after_ms() {
            let bucket = (error.code() == Some(PAIR_RATE)).then(|| OF_CHAT.to_owned());
            let pace = Pace { retry_after_ms: Some(wait_ms), bucket, ..Pace::default() };
            return Self { result: ActionResult::refused(Code::RateLimited, text), pace, receipt_id: None };
        }
        match error {
            ApiError::Refused { status, code, .. } => {
                let code = match (status, code) {
                    (_, WINDOW_CLOSED | 131_030 | 131_031 | 368 | 10) => Code::Forbidden,
                    (_, 131_026) => Code::NotFound,
                    (_, 100 | 131_008 | 131_009 | 131_051) => Code::BadRequest,
                    (_, 131_052 | 131_053) | (413, _) => Code::TooLarge,
                    _ => Code::PlatformFailed,
                };
                ActionResult::refused(code, text).into()
            }
            ApiError::NoAnswer { may_be_done, .. } => unanswered::result(may_be_done, text).into(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope {
    error: Problem,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    code: i64,
    message: String,
    error_data: ProblemData,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProblemData {
    details: String,
}

/// The answer to a message.
#[derive(Deserialize)]
pub(super) struct Sent {
    messages: Vec<SentMessage>,
}

#[derive(Deserialize)]
struct SentMessage {
    id: String,
}

pub(super) struct Api<'a> {
    outcall: &'a dyn Outcall,
    /// Given by the operator, who may name a private address.
    own_base: Option<&'a str>,
    pub(super) phone_number_id: &'a str,
    access_token: &'a Secret,
}

impl<'a> Api<'a> {
    /// `None`: the bot is not complete.
    pub(super) fn of(outcall: &'a dyn Outcall, bot: &'a Bot) -> Option<Self> {
        let (phone_number_id, access_token) = (bot.setting("phone_number_id")?, bot.secret("access_token")?);
        Some(Self { outcall, own_base: bot.setting("base_url"), phone_number_id, access_token })
    }

    pub(super) fn own_base(&self) -> Option<&'a str> {
        self.own_base
    }

    pub(super) fn token(&self) -> &'a Secret {
        self.access_token
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{VERSION}/{path}", self.own_base.unwrap_or(BASE_URL).trim_end_matches('/'))
    }

    /// The id of the message.
    pub(super) async fn send(&self, body: &Value) -> Result<String, ApiError> {
        let json = body.to_string();
        let sent: Sent = self.post("messages", Body::Json(&json), CALL_TIME).await?;
        let lost = || ApiError::NoAnswer { may_be_done: true, why: "the answer names no message".into() };
        sent.messages.into_iter().next().map(|message| message.id).ok_or_else(lost)
    }

    /// A body that makes no message.
    pub(super) async fn post_status(&self, body: &Value) -> Result<(), ApiError> {
        let json = body.to_string();
        self.post::<Value>("messages", Body::Json(&json), CALL_TIME).await.map(drop)
    }

    pub(super) async fn upload<T: DeserializeOwned>(&self, parts: Vec<Part<'_>>) -> Result<T, ApiError> {
        self.post("media", Body::Multipart(parts), UPLOAD_TIME).await
    }

    async fn post<T: DeserializeOwned>(&self, what: &str, body: Body<'_>, time: Duration) -> Result<T, ApiError> {
        let url = self.url(&format!("{}/{what}", self.phone_number_id));
        self.call(Call { method: HttpMethod::Post, url: &url, body, time: Some(time), ..Call::default() }).await
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        let url = self.url(path);
        self.call(Call { url: &url, time: Some(CALL_TIME), ..Call::default() }).await
    }

    async fn call<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, ApiError> {
        let call =
            Call { bearer: Some(self.access_token), trusted: self.own_base, max_bytes: ANSWER_MAX_BYTES, ..call };
        let answer = self.outcall.call(call).await.map_err(|error| self.no_answer(&error))?;
        read(&answer).map_err(|error| match error {
            ApiError::Refused { status, code, message } => {
                let message = self.redacted(&message).chars().take(REASON_MAX_CHARS).collect();
                ApiError::Refused { status, code, message }
            }
            other @ ApiError::NoAnswer { .. } => other,
        })
    }

    fn redacted(&self, text: &str) -> String {
        text.replace(self.access_token.expose(), "***")
    }

    pub(super) fn no_answer(&self, error: &OutcallError) -> ApiError {
        ApiError::NoAnswer { may_be_done: error.may_have_been_sent(), why: self.redacted(&error.to_string()) }
    }
}

fn read<T: DeserializeOwned>(answer: &HttpAnswer) -> Result<T, ApiError> {
    let status = answer.status;
    let unknown_outcome = |why: String| ApiError::NoAnswer { may_be_done: true, why };
    match status {
        200..300 => serde_json::from_slice(&answer.body).map_err(|_| unknown_outcome(unanswered::without_body(status))),
        400..500 => {
            // A proxy that refuses has passed nothing on.
            let problem = serde_json::from_slice::<Envelope>(&answer.body).unwrap_or_default().error;
            let text = [problem.error_data.details, problem.message].into_iter().find(|text| !text.is_empty());
            let message = text.unwrap_or_else(|| "no reason given".into());
            Err(ApiError::Refused { status, code: problem.code, message })
        }
        _ => Err(unknown_outcome(format!("status {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acted(status: u16, body: &str) -> Acted {
        let answer = HttpAnswer { status, body: body.as_bytes().to_vec(), ..HttpAnswer::default() };
        read::<Sent>(&answer).err().unwrap().into()
    }

    fn error(code: i64) -> String {
        format!(r#"{{"error":{{"message":"m","type":"OAuthException","code":{code},"fbtrace_id":"x"}}}}"#)
    }

    #[test]
    fn refusals_differ_from_unknown_outcomes() {
        for (status, number, code) in [
            (400, WINDOW_CLOSED, Code::Forbidden),
            (400, 131_030, Code::Forbidden),
            (400, 131_026, Code::NotFound),
            (400, 100, Code::BadRequest),
            (401, 190, Code::PlatformFailed),
            (403, 10, Code::Forbidden),
        ] {
            let result = acted(status, &error(number)).result;
            assert_eq!((result.code, result.ambiguous), (Some(code), false), "{number}");
        }
        for (status, body) in [(500, error(131_000)), (503, error(2)), (502, "<html>".into()), (200, "{}".into())] {
            let result = acted(status, &body).result;
            assert_eq!((result.code, result.ambiguous), (Some(Code::Unknown), true), "{status} {body}");
        }
        let text = acted(400, &error(WINDOW_CLOSED)).result.error.unwrap();
        assert!(text.contains("24 hours") && text.contains("template"), "{text}");
    }

    #[test]
    fn rates_are_obeyed() {
        for (status, number, wait_ms) in
            [(400, PAIR_RATE, 6_000), (429, 130_429, 1_000), (400, 80_007, 60_000), (429, 0, 1_000)]
        {
            let acted = acted(status, &error(number));
            assert_eq!((acted.pace.retry_after_ms, acted.result.code), (Some(wait_ms), Some(Code::RateLimited)));
        }
    }
}
