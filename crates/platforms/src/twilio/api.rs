//! Calls of Twilio's REST API as one account.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, Outcall, OutcallError};
use frontdesk_core::port::platform::{Acted, Bot, Pace};
use frontdesk_wire::{ActionResult, Code, Secret};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::shared::unanswered;

pub(super) const BASE_URL: &str = "https://api.twilio.com";
const ANSWER_MAX_BYTES: usize = 1 << 20;
const CALL_TIME: Duration = Duration::from_secs(20);
/// Twilio does not always say how long to wait.
const RETRY_AFTER_S: u64 = 1;
/// Tokens that requests may be signed with.
const TOKENS_MAX: usize = 2;
/// Longer reasons are cut.
const REASON_MAX_CHARS: usize = 500;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiError {
    /// Twilio refused it, and did nothing.
    Refused { status: u16, code: Option<i64>, message: String, retry_after_s: Option<u64> },
    /// No answer, or one that cannot be read. It may have been done if `may_be_done`.
    NoAnswer { may_be_done: bool, why: String },
}

impl ApiError {
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::NoAnswer { .. } => None,
        }
    }

    /// Twilio's own number of the reason.
    pub(super) fn code(&self) -> Option<i64> {
        match self {
            Self::Refused { code, .. } => *code,
            Self::NoAnswer { .. } => None,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused { code: Some(code), .. } if *code == OPTED_OUT => {
                format!("the person has opted out with STOP, and must send START first (Twilio error {code})")
            }
            Self::Refused { status, code, message, .. } => {
                let code = code.map(|code| format!(", error {code}")).unwrap_or_default();
                format!("Twilio refused it: {message} (status {status}{code})")
            }
            Self::NoAnswer { why, .. } => format!("Twilio did not answer: {why}"),
        }
    }
}

/// Twilio's errors that are distinguished.
pub(super) const OPTED_OUT: i64 = 21_610;
pub(super) const BAD_CALLBACK: i64 = 21_609;

impl From<ApiError> for Acted {
    fn from(error: ApiError) -> Self {
        let text = error.text();
        match error {
            ApiError::Refused { status: 429, retry_after_s, .. } => {
                let wait_ms = retry_after_s.unwrap_or(RETRY_AFTER_S).saturating_mul(1_000);
                let pace = Pace { retry_after_ms: Some(wait_ms), ..Pace::default() };
                Self { result: ActionResult::refused(Code::RateLimited, text), pace, receipt_id: None }
            }
            ApiError::Refused { status, code, .. } => {
                let code = match (status, code) {
                    (_, Some(OPTED_OUT)) => Code::Forbidden,
                    (_, Some(21_617)) | (413, _) => Code::TooLarge,
                    (_, Some(21_211 | 21_614)) => Code::NotFound,
                    (400, _) => Code::BadRequest,
                    (403, Some(_)) => Code::Forbidden,
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
struct Problem {
    code: Option<i64>,
    message: String,
}

/// A message, as Twilio answers.
#[derive(Deserialize)]
pub(super) struct Message {
    pub(super) sid: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) error_code: Option<i64>,
    #[serde(default, rename = "error_message")]
    pub(super) reason: Option<String>,
}

/// The auth token; while it changes, the new one behind it.
pub(super) fn tokens_of(bot: &Bot) -> impl Iterator<Item = &str> {
    bot.secret("auth_token").map_or("", Secret::expose).split_whitespace().take(TOKENS_MAX)
}

pub(super) struct Api<'a> {
    outcall: &'a dyn Outcall,
    /// Given by the operator, who may name a private address.
    own_base: Option<&'a str>,
    account_sid: &'a str,
    auth_token: &'a str,
}

impl<'a> Api<'a> {
    /// `None`: the bot is not complete.
    pub(super) fn of(outcall: &'a dyn Outcall, bot: &'a Bot) -> Option<Self> {
        let (account_sid, auth_token) = (bot.setting("account_sid")?, tokens_of(bot).next()?);
        Some(Self { outcall, own_base: bot.setting("base_url"), account_sid, auth_token })
    }

    pub(super) fn own_base(&self) -> Option<&'a str> {
        self.own_base
    }

    fn base(&self) -> &str {
        self.own_base.unwrap_or(BASE_URL).trim_end_matches('/')
    }

    /// `path` is below the account: `/Messages.json`.
    fn url(&self, path: &str) -> String {
        format!("{}/2010-04-01/Accounts/{}{path}", self.base(), self.account_sid)
    }

    pub(super) fn authorization(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.account_sid, self.auth_token)))
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.call(HttpMethod::Get, path, Body::Empty).await
    }

    pub(super) async fn send(&self, form: &[(&str, &str)]) -> Result<Message, ApiError> {
        let sent = self.call(HttpMethod::Post, "/Messages.json", Body::Form(form)).await;
        // A callback that Twilio cannot call must not keep the message back.
        match sent {
            Err(error) if error.code() == Some(BAD_CALLBACK) => {
                tracing::warn!("Twilio did not accept the URL for statuses; set public_url to one that it can reach");
                let rest: Vec<(&str, &str)> =
                    form.iter().filter(|(name, _)| *name != "StatusCallback").copied().collect();
                self.call(HttpMethod::Post, "/Messages.json", Body::Form(&rest)).await
            }
            sent => sent,
        }
    }

    async fn call<T: DeserializeOwned>(&self, method: HttpMethod, path: &str, body: Body<'_>) -> Result<T, ApiError> {
        let (url, authorization) = (self.url(path), self.authorization());
        let call = Call {
            method,
            url: &url,
            body,
            headers: &[("authorization", &authorization), ("accept", "application/json")],
            trusted: self.own_base,
            time: Some(CALL_TIME),
            max_bytes: ANSWER_MAX_BYTES,
            ..Call::default()
        };
        let answer = self.outcall.call(call).await.map_err(|error| self.no_answer(&error))?;
        read(&answer).map_err(|error| match error {
            ApiError::Refused { status, code, message, retry_after_s } => {
                let message = self.redacted(&message).chars().take(REASON_MAX_CHARS).collect();
                ApiError::Refused { status, code, message, retry_after_s }
            }
            other @ ApiError::NoAnswer { .. } => other,
        })
    }

    fn redacted(&self, text: &str) -> String {
        text.replace(self.auth_token, "***")
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
            let problem: Problem = serde_json::from_slice(&answer.body).unwrap_or_default();
            let message = if problem.message.is_empty() { "no reason given".into() } else { problem.message };
            let retry_after_s = answer.header("retry-after").and_then(|seconds| seconds.trim().parse().ok());
            Err(ApiError::Refused { status, code: problem.code, message, retry_after_s })
        }
        _ => Err(unknown_outcome(format!("status {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acted(status: u16, body: &str, headers: &[(&str, &str)]) -> Acted {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let answer = HttpAnswer { status, headers, body: body.as_bytes().to_vec() };
        read::<Message>(&answer).err().unwrap().into()
    }

    #[test]
    fn refusals_differ_from_unknown_outcomes() {
        for (status, body, code) in [
            (400, r#"{"code":21610,"message":"Attempt to send to unsubscribed recipient"}"#, Code::Forbidden),
            (400, r#"{"code":21211,"message":"Invalid 'To' Phone Number"}"#, Code::NotFound),
            (400, r#"{"code":21617,"message":"The message body exceeds the 1600 character limit"}"#, Code::TooLarge),
            (400, r#"{"code":21602,"message":"Message body is required"}"#, Code::BadRequest),
            (401, r#"{"code":20003,"message":"Authenticate"}"#, Code::PlatformFailed),
            (403, r#"{"code":20403,"message":"Forbidden"}"#, Code::Forbidden),
            (403, "<html>", Code::PlatformFailed),
        ] {
            let result = acted(status, body, &[]).result;
            assert_eq!((result.code, result.ambiguous), (Some(code), false), "{body}");
        }
        for (status, body) in [(500, "{}"), (502, "<html>"), (201, ""), (201, r#"{"status":"queued"}"#), (302, "")] {
            let result = acted(status, body, &[]).result;
            assert_eq!((result.code, result.ambiguous), (Some(Code::Unknown), true), "{status} {body}");
        }
        let text = acted(400, r#"{"code":21610,"message":"x"}"#, &[]).result.error.unwrap();
        assert!(text.contains("START"), "{text}");
    }

    #[test]
    fn the_pace_is_what_twilio_says() {
        let body = r#"{"code":20429,"message":"Too Many Requests"}"#;
        assert_eq!(acted(429, body, &[("retry-after", "7")]).pace.retry_after_ms, Some(7_000));
        assert_eq!(acted(429, body, &[]).pace.retry_after_ms, Some(1_000));
        assert_eq!(acted(429, body, &[]).result.code, Some(Code::RateLimited));
    }
}
