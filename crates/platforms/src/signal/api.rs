//! The HTTP daemon of `signal-cli`: JSON-RPC, and its errors.

use std::time::Duration;

use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, Outcall, OutcallError};
use frontdesk_core::port::platform::{Acted, Bot, Pace};
use frontdesk_wire::{ActionResult, Code};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::shared::unanswered;

/// A list of groups with all their members.
const ANSWER_MAX_BYTES: usize = 8 << 20;
/// Sending waits for Signal's servers.
const RPC_TIME: Duration = Duration::from_secs(20);

/// Of `signal-cli`: a wrong parameter, a failed connection to Signal, a changed safety number, a rate limit, a captcha.
const USER_ERROR: i64 = -1;
const IO_ERROR: i64 = -3;
const UNTRUSTED_KEY: i64 = -4;
const RATE_LIMIT: i64 = -5;
const CAPTCHA_REJECTED: i64 = -6;
/// Of JSON-RPC: the request itself was wrong, so nothing was done.
const INVALID: std::ops::RangeInclusive<i64> = -32_700..=-32_600;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RpcError {
    Refused {
        code: i64,
        message: String,
        retry_after_s: Option<u64>,
    },
    /// No answer, or one that cannot be read. It may have been done if `may_be_done`.
    NoAnswer {
        may_be_done: bool,
        why: String,
    },
}

impl RpcError {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused { code: UNTRUSTED_KEY, message, .. } => format!(
                "the safety number of the recipient has changed ({message}); check it and run `signal-cli trust`"
            ),
            Self::Refused { code: CAPTCHA_REJECTED, message, .. } => {
                format!("Signal wants a captcha ({message}); see `signal-cli submitRateLimitChallenge`")
            }
            Self::Refused { code, message, .. } => format!("signal-cli refused it: {message} ({code})"),
            Self::NoAnswer { why, .. } => format!("signal-cli did not answer: {why}"),
        }
    }
}

impl From<RpcError> for Acted {
    fn from(error: RpcError) -> Self {
        let text = error.text();
        match error {
            RpcError::Refused { code: RATE_LIMIT, retry_after_s, .. } => {
                let retry_after_ms = retry_after_s.map(|seconds| seconds.saturating_mul(1_000));
                let pace = Pace { retry_after_ms, ..Pace::default() };
                Self { result: ActionResult::refused(Code::RateLimited, text), pace, receipt_id: None }
            }
            // The connection broke while it was sent: some recipients may have it.
            RpcError::Refused { code: IO_ERROR, .. } => unanswered::result(true, text).into(),
            RpcError::Refused { code, .. } => {
                let code = match code {
                    UNTRUSTED_KEY => Code::Forbidden,
                    USER_ERROR => Code::BadRequest,
                    code if INVALID.contains(&code) => Code::BadRequest,
                    _ => Code::PlatformFailed,
                };
                ActionResult::refused(code, text).into()
            }
            RpcError::NoAnswer { may_be_done, .. } => unanswered::result(may_be_done, text).into(),
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Value,
}

/// The daemon, as one account.
pub(super) struct Daemon<'a> {
    pub(super) outcall: &'a dyn Outcall,
    /// Given by the operator, who may name a private address.
    url: &'a str,
    pub(super) account: &'a str,
}

impl<'a> Daemon<'a> {
    /// `None`: the bot has no settings.
    pub(super) fn of(outcall: &'a dyn Outcall, bot: &'a Bot) -> Option<Self> {
        Some(Self { outcall, url: bot.setting("url")?.trim_end_matches('/'), account: bot.setting("account")? })
    }

    pub(super) fn call_of<'u>(&'u self, url: &'u str, body: Body<'u>) -> Call<'u> {
        let method = if matches!(body, Body::Empty) { HttpMethod::Get } else { HttpMethod::Post };
        Call {
            method,
            url,
            body,
            trusted: Some(self.url),
            time: Some(RPC_TIME),
            max_bytes: ANSWER_MAX_BYTES,
            ..Call::default()
        }
    }

    pub(super) fn rpc_url(&self) -> String {
        format!("{}/api/v1/rpc", self.url)
    }

    pub(super) fn events_url(&self) -> String {
        format!("{}/api/v1/events?account={}", self.url, self.account.replace('+', "%2B"))
    }

    /// The request of a method, as this account.
    pub(super) fn request(&self, method: &str, mut params: Value) -> Value {
        params["account"] = self.account.into();
        json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params })
    }

    pub(super) async fn rpc<T: DeserializeOwned>(&self, method: &str, params: Value) -> Result<T, RpcError> {
        self.post(&self.request(method, params).to_string()).await
    }

    /// A method that no account is needed for.
    pub(super) async fn rpc_of_none<T: DeserializeOwned>(&self, method: &str) -> Result<T, RpcError> {
        self.post(&json!({ "jsonrpc": "2.0", "id": method, "method": method }).to_string()).await
    }

    async fn post<T: DeserializeOwned>(&self, request: &str) -> Result<T, RpcError> {
        let url = self.rpc_url();
        let answer = self.outcall.call(self.call_of(&url, Body::Json(request))).await;
        read(&answer.map_err(|error| no_answer(&error))?)
    }
}

pub(super) fn no_answer(error: &OutcallError) -> RpcError {
    RpcError::NoAnswer { may_be_done: error.may_have_been_sent(), why: error.to_string() }
}

pub(super) fn read<T: DeserializeOwned>(answer: &HttpAnswer) -> Result<T, RpcError> {
    let envelope = serde_json::from_slice::<Envelope>(&answer.body);
    let Some(envelope) = envelope.ok().filter(|it| it.result.is_some() || it.error.is_some()) else {
        let why = unanswered::without_body(answer.status);
        return Err(RpcError::NoAnswer { may_be_done: unanswered::may_be_done(answer.status), why });
    };
    if let Some(Failure { code, message, data }) = envelope.error {
        let retry_after_s = retry_after_s(&data);
        let code = if retry_after_s.is_some() { RATE_LIMIT } else { code };
        return Err(RpcError::Refused { code, message, retry_after_s });
    }
    let why = |error| RpcError::NoAnswer { may_be_done: true, why: format!("the response could not be read: {error}") };
    serde_json::from_value(envelope.result.unwrap_or_default()).map_err(why)
}

/// The longest pause that a recipient requires.
fn retry_after_s(data: &Value) -> Option<u64> {
    let results = data.pointer("/response/results")?.as_array()?;
    results.iter().filter_map(|it| it["retryAfterSeconds"].as_u64()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> HttpAnswer {
        HttpAnswer { status, body: body.as_bytes().to_vec(), ..HttpAnswer::default() }
    }

    #[test]
    fn refusals_differ_from_unknown_outcomes() {
        let acted = |status, body: &str| Acted::from(read::<Value>(&answer(status, body)).unwrap_err());
        let error =
            |code: i64| format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":"m","data":null}},"id":"x"}}"#);
        for (code, expected, ambiguous) in [
            (-1, Code::BadRequest, false),
            (-2, Code::PlatformFailed, false),
            (-3, Code::Unknown, true),
            (-4, Code::Forbidden, false),
            (-5, Code::RateLimited, false),
            (-32_602, Code::BadRequest, false),
        ] {
            let acted = acted(200, &error(code));
            assert_eq!((acted.result.code, acted.result.ambiguous), (Some(expected), ambiguous), "{code}");
        }
        for (status, body) in [(502, "<html>"), (200, ""), (200, "{}")] {
            let acted = acted(status, body);
            assert_eq!((acted.result.code, acted.result.ambiguous), (Some(Code::Unknown), true), "{body}");
        }
        assert_eq!(acted(403, "<html>").result.code, Some(Code::Unavailable));
        let limited = r#"{"error":{"code":-5,"message":"m","data":{"response":{"timestamp":1,
            "results":[{"type":"RATE_LIMIT_FAILURE","retryAfterSeconds":40},{"type":"SUCCESS"}]}}}}"#;
        assert_eq!(acted(200, limited).pace.retry_after_ms, Some(40_000));
    }
}
