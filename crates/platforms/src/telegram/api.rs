//! Calls of the Bot API. The token is part of every URL, so no error repeats one.

use std::time::Duration;

use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, Outcall, OutcallError, Part};
use frontdesk_core::port::platform::{Acted, Bot, Pace};
use frontdesk_wire::{ActionResult, Code, Secret};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::update::User;
use crate::shared::unanswered;

pub(super) const BASE_URL: &str = "https://api.telegram.org";
/// A page of 100 updates with the longest texts.
const ANSWER_MAX_BYTES: usize = 8 << 20;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiError {
    /// The Bot API refused it, and did nothing.
    Refused { code: i64, description: String, retry_after_s: Option<u64>, migrate_to: Option<i64> },
    /// No answer, or one that cannot be read. It may have been done if `may_be_done`.
    NoAnswer { may_be_done: bool, why: String },
    /// The answer is longer than what is read.
    TooLarge,
}

impl ApiError {
    /// Whether the description contains one of these. The Bot API has no other names for its reasons.
    pub(super) fn says(&self, parts: &[&str]) -> bool {
        match self {
            Self::Refused { description, .. } => {
                let description = description.to_ascii_lowercase();
                parts.iter().any(|part| description.contains(part))
            }
            Self::NoAnswer { .. } | Self::TooLarge => false,
        }
    }

    pub(super) fn code(&self) -> Option<i64> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::NoAnswer { .. } | Self::TooLarge => None,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused { code, description, .. } => format!("Telegram refused it: {description} ({code})"),
            Self::NoAnswer { why, .. } => format!("Telegram did not answer: {why}"),
            Self::TooLarge => format!("Telegram's answer is over {ANSWER_MAX_BYTES} bytes"),
        }
    }
}

impl From<ApiError> for Acted {
    fn from(error: ApiError) -> Self {
        let text = error.text();
        match &error {
            ApiError::Refused { retry_after_s: Some(seconds), .. } => {
                let pace = Pace { retry_after_ms: Some(seconds.saturating_mul(1_000)), ..Pace::default() };
                Self { result: ActionResult::refused(Code::RateLimited, text), pace, receipt_id: None }
            }
            ApiError::Refused { code, .. } => {
                let code = match code {
                    400 if error.says(&["not found"]) => Code::NotFound,
                    400 if error.says(&["too long", "too big", "too large"]) => Code::TooLarge,
                    413 => Code::TooLarge,
                    400 => Code::BadRequest,
                    403 => Code::Forbidden,
                    429 => Code::RateLimited,
                    _ => Code::PlatformFailed,
                };
                ActionResult::refused(code, text).into()
            }
            ApiError::NoAnswer { may_be_done, .. } => unanswered::result(*may_be_done, text).into(),
            ApiError::TooLarge => unanswered::result(true, text).into(),
        }
    }
}

/// The envelope of every answer.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    ok: bool,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    error_code: Option<i64>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    retry_after: Option<u64>,
    #[serde(default)]
    migrate_to_chat_id: Option<i64>,
}

/// The Bot API as one bot.
pub(super) struct Api<'a> {
    outcall: &'a dyn Outcall,
    /// Given by the operator, who may name a private address.
    own_base: Option<&'a str>,
    token: &'a Secret,
}

impl<'a> Api<'a> {
    /// `None`: the bot has no token.
    pub(super) fn of(outcall: &'a dyn Outcall, bot: &'a Bot) -> Option<Self> {
        Some(Self { outcall, own_base: bot.setting("base_url"), token: bot.secret("token")? })
    }

    fn base(&self) -> &str {
        self.own_base.unwrap_or(BASE_URL).trim_end_matches('/')
    }

    pub(super) async fn call<T: DeserializeOwned>(&self, method: &str, parameters: &Value) -> Result<T, ApiError> {
        self.call_for(method, parameters, None).await
    }

    /// With a limit of its own, for long polls.
    pub(super) async fn call_for<T: DeserializeOwned>(
        &self,
        method: &str,
        parameters: &Value,
        time: Option<Duration>,
    ) -> Result<T, ApiError> {
        let json = parameters.to_string();
        self.post(method, Body::Json(&json), time).await
    }

    /// With a file in one of the fields.
    pub(super) async fn upload<T: DeserializeOwned>(&self, method: &str, parts: Vec<Part<'_>>) -> Result<T, ApiError> {
        self.post(method, Body::Multipart(parts), Some(Duration::from_secs(30))).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        method: &str,
        body: Body<'_>,
        time: Option<Duration>,
    ) -> Result<T, ApiError> {
        let url = format!("{}/bot{}/{method}", self.base(), self.token.expose());
        let call = Call {
            method: HttpMethod::Post,
            url: &url,
            body,
            trusted: self.own_base,
            time,
            max_bytes: ANSWER_MAX_BYTES,
            ..Call::default()
        };
        let answer = self.outcall.call(call).await.map_err(|error| self.no_answer(&error))?;
        read(&answer).map_err(|error| match error {
            ApiError::Refused { code, description, retry_after_s, migrate_to } => {
                let description = self.redacted(&description);
                ApiError::Refused { code, description, retry_after_s, migrate_to }
            }
            other => other,
        })
    }

    pub(super) fn redacted(&self, text: &str) -> String {
        text.replace(self.token.expose(), "***")
    }

    /// The URL of a file, and what it may be fetched with.
    pub(super) fn file_call<'u>(&'u self, url: &'u str, max_bytes: usize) -> Call<'u> {
        Call { url, trusted: self.own_base, max_bytes, ..Call::default() }
    }

    pub(super) fn file_url(&self, path: &str) -> String {
        format!("{}/file/bot{}/{path}", self.base(), self.token.expose())
    }

    pub(super) fn no_answer(&self, error: &OutcallError) -> ApiError {
        if matches!(error, OutcallError::TooLarge(_)) {
            return ApiError::TooLarge;
        }
        let why = self.redacted(&error.to_string());
        ApiError::NoAnswer { may_be_done: error.may_have_been_sent(), why }
    }

    pub(super) async fn me(&self) -> Result<User, ApiError> {
        self.call("getMe", &Value::Object(serde_json::Map::new())).await
    }
}

fn read<T: DeserializeOwned>(answer: &HttpAnswer) -> Result<T, ApiError> {
    let unreadable = |why: String| ApiError::NoAnswer { may_be_done: true, why };
    let Ok(envelope) = serde_json::from_slice::<Envelope>(&answer.body) else {
        let why = unanswered::without_body(answer.status);
        return Err(ApiError::NoAnswer { may_be_done: unanswered::may_be_done(answer.status), why });
    };
    if envelope.ok {
        return serde_json::from_value(envelope.result)
            .map_err(|error| unreadable(format!("the response could not be read: {error}")));
    }
    let code = envelope.error_code.unwrap_or(i64::from(answer.status));
    if code >= 500 {
        return Err(unreadable(format!("{} ({code})", envelope.description)));
    }
    let Parameters { retry_after, migrate_to_chat_id } = envelope.parameters;
    let description = envelope.description;
    Err(ApiError::Refused { code, description, retry_after_s: retry_after, migrate_to: migrate_to_chat_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> HttpAnswer {
        HttpAnswer { status, body: body.as_bytes().to_vec(), ..HttpAnswer::default() }
    }

    #[test]
    fn refusals_differ_from_unknown_outcomes() {
        let refused =
            read::<Value>(&answer(400, r#"{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}"#));
        let acted = Acted::from(refused.unwrap_err());
        assert_eq!((acted.result.code, acted.result.ambiguous), (Some(Code::NotFound), false));
        for (status, body) in
            [(502, "<html>bad gateway"), (500, r#"{"ok":false,"error_code":500,"description":"Internal"}"#), (200, "")]
        {
            let acted = Acted::from(read::<Value>(&answer(status, body)).unwrap_err());
            assert_eq!((acted.result.code, acted.result.ambiguous), (Some(Code::Unknown), true), "{body}");
        }
        let slow = r#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":7}}"#;
        let acted = Acted::from(read::<Value>(&answer(429, slow)).unwrap_err());
        assert_eq!((acted.pace.retry_after_ms, acted.result.code), (Some(7_000), Some(Code::RateLimited)));
    }
}
