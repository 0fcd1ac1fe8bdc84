//! Calls of the Web API. Tokens go into a header, never into a URL.

use std::time::Duration;

use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, Outcall, OutcallError};
use frontdesk_core::port::platform::{Acted, Pace};
use frontdesk_wire::{ActionResult, Code, Secret};
use serde_json::Value;

use crate::shared::unanswered;

pub(super) const BASE_URL: &str = "https://slack.com/api";
/// The longest answers are pages of members, and messages with their blocks.
const ANSWER_MAX_BYTES: usize = 2 << 20;
/// If Slack limits us and does not say for how long.
const LIMITED_S: u64 = 5;
const ERROR_MAX_CHARS: usize = 120;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiError {
    /// Slack refused it, and did nothing. `error` is its name for the reason.
    Refused {
        error: String,
        needed: Option<String>,
    },
    Limited {
        retry_after_ms: u64,
    },
    /// No answer, or one that cannot be read. It may have been done if `may_be_done`.
    NoAnswer {
        may_be_done: bool,
        why: String,
    },
}

impl ApiError {
    pub(super) fn is(&self, names: &[&str]) -> bool {
        matches!(self, Self::Refused { error, .. } if names.contains(&error.as_str()))
    }

    /// The token is not valid (any more).
    pub(super) fn is_of_token(&self) -> bool {
        self.is(&["invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive", "no_permission"])
    }

    /// The bot is not there, as far as Slack says.
    pub(super) fn is_absent(&self) -> bool {
        self.is(&["channel_not_found", "not_in_channel", "is_archived", "method_not_supported_for_channel_type"])
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused { error, needed } => {
                let remedy = match (remedy(error), needed) {
                    (_, Some(scope)) => format!(
                        "; the app needs the scope {scope}: add it under OAuth & Permissions, and install the app again"
                    ),
                    ("", None) => String::new(),
                    (remedy, None) => format!("; {remedy}"),
                };
                format!("Slack refused it: {error}{remedy}")
            }
            Self::Limited { retry_after_ms } => {
                format!("Slack limits the rate; it asks to wait {} s", retry_after_ms.div_ceil(1_000))
            }
            Self::NoAnswer { why, .. } => format!("Slack did not answer: {why}"),
        }
    }

    /// For a read: whatever its result, nothing was sent.
    pub(super) fn of_question(self) -> Self {
        match self {
            Self::NoAnswer { why, .. } => Self::NoAnswer { may_be_done: false, why },
            other => other,
        }
    }
}

/// What the operator or the people in the chat can do about it.
fn remedy(error: &str) -> &'static str {
    match error {
        "not_in_channel" => "invite the app to the channel with /invite",
        "channel_not_found" => "there is no such channel, or the app is not in it; invite it with /invite",
        "is_archived" => "the channel is archived",
        "invalid_auth" | "not_authed" | "token_revoked" | "token_expired" | "account_inactive" => {
            "the token is not valid any more: install the app again, and repeat `bot add` with the new token"
        }
        "missing_scope" => "a scope is missing: add it under OAuth & Permissions, and install the app again",
        "restricted_action" | "restricted_action_read_only_channel" | "restricted_action_thread_only_channel" => {
            "the settings of the workspace or channel do not allow it"
        }
        "cant_update_message" | "cant_delete_message" => "only messages of the app itself can be changed",
        "edit_window_closed" => "the settings of the workspace do not allow edits after some time",
        _ => "",
    }
}

impl From<ApiError> for Acted {
    fn from(error: ApiError) -> Self {
        let text = error.text();
        match &error {
            ApiError::Limited { retry_after_ms } => {
                let pace = Pace { retry_after_ms: Some(*retry_after_ms), ..Pace::default() };
                Self { result: ActionResult::refused(Code::RateLimited, text), pace, receipt_id: None }
            }
            ApiError::Refused { error: name, .. } => {
                let code = match name.as_str() {
                    _ if error.is_of_token() => Code::Unauthorized,
                    "channel_not_found" | "message_not_found" | "thread_not_found" | "user_not_found" => Code::NotFound,
                    "msg_too_long" | "msg_blocks_too_long" | "file_too_large" => Code::TooLarge,
                    "not_in_channel"
                    | "is_archived"
                    | "missing_scope"
                    | "cant_update_message"
                    | "cant_delete_message"
                    | "edit_window_closed"
                    | "access_denied"
                    | "ekm_access_denied" => Code::Forbidden,
                    name if name.starts_with("restricted_action") => Code::Forbidden,
                    _ => Code::BadRequest,
                };
                ActionResult::refused(code, text).into()
            }
            ApiError::NoAnswer { may_be_done, .. } => unanswered::result(*may_be_done, text).into(),
        }
    }
}

/// The Web API with one token.
#[derive(Clone, Copy)]
pub(super) struct Api<'a> {
    pub(super) outcall: &'a dyn Outcall,
    /// Given by the operator, who may name a private address.
    pub(super) own_base: Option<&'a str>,
    pub(super) token: &'a Secret,
}

impl Api<'_> {
    fn base(&self) -> &str {
        self.own_base.unwrap_or(BASE_URL).trim_end_matches('/')
    }

    /// With a JSON body: what changes something.
    pub(super) async fn post(&self, method: &str, body: &Value) -> Result<Value, ApiError> {
        let json = body.to_string();
        self.call(method, Body::Json(&json), None).await.map(|(value, _)| value)
    }

    /// With a form: what asks. Many of these methods read no JSON.
    pub(super) async fn ask(&self, method: &str, fields: &[(&str, &str)]) -> Result<Value, ApiError> {
        self.call(method, Body::Form(fields), None).await.map(|(value, _)| value).map_err(ApiError::of_question)
    }

    /// The same, with the headers of the answer.
    pub(super) async fn ask_whole(
        &self,
        method: &str,
        fields: &[(&str, &str)],
    ) -> Result<(Value, Vec<(String, String)>), ApiError> {
        self.call(method, Body::Form(fields), None).await.map_err(ApiError::of_question)
    }

    async fn call(
        &self,
        method: &str,
        body: Body<'_>,
        time: Option<Duration>,
    ) -> Result<(Value, Vec<(String, String)>), ApiError> {
        let url = format!("{}/{method}", self.base());
        let call = Call {
            method: HttpMethod::Post,
            url: &url,
            bearer: Some(self.token).filter(|token| !token.expose().is_empty()),
            body,
            trusted: self.own_base,
            time,
            max_bytes: ANSWER_MAX_BYTES,
            ..Call::default()
        };
        let answer = self.outcall.call(call).await.map_err(|error| no_answer(&error))?;
        let value = read(&answer)?;
        Ok((value, answer.headers))
    }
}

pub(super) fn no_answer(error: &OutcallError) -> ApiError {
    ApiError::NoAnswer { may_be_done: error.may_have_been_sent(), why: error.to_string() }
}

fn read(answer: &HttpAnswer) -> Result<Value, ApiError> {
    if answer.status == 429 {
        let retry_after_s = answer.header("retry-after").and_then(|seconds| seconds.trim().parse::<u64>().ok());
        return Err(ApiError::Limited {
            retry_after_ms: retry_after_s.unwrap_or(LIMITED_S).max(1).saturating_mul(1_000),
        });
    }
    let Ok(value) = serde_json::from_slice::<Value>(&answer.body) else {
        let why = unanswered::without_body(answer.status);
        return Err(ApiError::NoAnswer { may_be_done: unanswered::may_be_done(answer.status), why });
    };
    if value["ok"].as_bool() == Some(true) {
        return Ok(value);
    }
    let plain = |text: &str| -> String { text.chars().filter(|c| !c.is_control()).take(ERROR_MAX_CHARS).collect() };
    match value["error"].as_str() {
        Some("ratelimited" | "rate_limited") => Err(ApiError::Limited { retry_after_ms: LIMITED_S * 1_000 }),
        // "Some aspect of the operation might have succeeded", as the documents say.
        Some(error @ ("fatal_error" | "internal_error" | "service_unavailable" | "request_timeout")) => {
            Err(ApiError::NoAnswer { may_be_done: true, why: error.to_owned() })
        }
        Some(error) => {
            let needed = value["needed"].as_str().filter(|scopes| !scopes.is_empty()).map(plain);
            Err(ApiError::Refused { error: plain(error), needed })
        }
        None => Err(ApiError::NoAnswer {
            may_be_done: unanswered::may_be_done(answer.status),
            why: format!("status {} without a known answer", answer.status),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acted(status: u16, body: &str) -> Acted {
        let answer = HttpAnswer { body: body.as_bytes().to_vec(), ..HttpAnswer::of(status) };
        Acted::from(read(&answer).unwrap_err())
    }

    #[test]
    fn refusals_differ_from_unknown_outcomes() {
        for (body, code) in [
            (r#"{"ok":false,"error":"channel_not_found"}"#, Code::NotFound),
            (r#"{"ok":false,"error":"not_in_channel"}"#, Code::Forbidden),
            (r#"{"ok":false,"error":"msg_too_long"}"#, Code::TooLarge),
            (r#"{"ok":false,"error":"token_revoked"}"#, Code::Unauthorized),
            (r#"{"ok":false,"error":"restricted_action_thread_only_channel"}"#, Code::Forbidden),
            (r#"{"ok":false,"error":"invalid_blocks"}"#, Code::BadRequest),
        ] {
            let acted = acted(200, body);
            assert_eq!((acted.result.code, acted.result.ambiguous), (Some(code), false), "{body}");
        }
        for (status, body) in
            [(502, "<html>"), (200, ""), (200, r#"{"ok":false,"error":"fatal_error"}"#), (500, "{}"), (200, "[]")]
        {
            let acted = acted(status, body);
            assert_eq!((acted.result.code, acted.result.ambiguous), (Some(Code::Unknown), true), "{status} {body}");
        }
        let acted = acted(403, "<html>");
        assert_eq!((acted.result.code, acted.result.ambiguous), (Some(Code::Unavailable), false));
    }

    #[test]
    fn a_missing_scope_is_named_with_what_to_do() {
        let acted = acted(200, r#"{"ok":false,"error":"missing_scope","needed":"reactions:write","provided":"x"}"#);
        let text = acted.result.error.unwrap();
        assert!(text.contains("reactions:write") && text.contains("install the app again"), "{text}");
    }

    #[test]
    fn a_limit_is_obeyed_for_as_long_as_slack_says() {
        let mut answer = HttpAnswer::of(429);
        answer.headers.push(("retry-after".into(), "17".into()));
        assert_eq!(read(&answer).unwrap_err(), ApiError::Limited { retry_after_ms: 17_000 });
        let acted = acted(200, r#"{"ok":false,"error":"ratelimited"}"#);
        assert_eq!((acted.pace.retry_after_ms, acted.result.code), (Some(5_000), Some(Code::RateLimited)));
    }
}
