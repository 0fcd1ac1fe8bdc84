//! Why a call of the API has no result.

use frontdesk_core::port::outcall::{HttpAnswer, OutcallError};
use frontdesk_core::port::platform::{Acted, Pace};
use frontdesk_wire::{ActionResult, Code};
use serde_json::Value;

use super::refusals::{NO_MESSAGE, OF_APP, OF_RATE, OF_TOKEN, UNKNOWN_OUTCOME, code_of, remedy};
use super::value::{list_of, text_of};
use crate::shared::unanswered;

/// If Feishu limits us and does not say for how long.
const LIMITED_S: u64 = 2;
const TEXT_MAX_CHARS: usize = 160;
const SCOPES_MAX: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiError {
    /// Feishu refused it, and nothing was changed.
    Refused {
        code: i64,
        text: String,
        /// Permissions of which one would be enough.
        scopes: Vec<String>,
    },
    Limited {
        retry_after_ms: u64,
    },
    /// The message or topic belongs to another chat. Feishu was not asked to do anything.
    Elsewhere,
    /// Feishu was asked where a message or topic is, and knows none of that id.
    Absent,
    /// No answer, or one that says nothing. It may have been done if `may_be_done`.
    NoAnswer {
        may_be_done: bool,
        text: String,
    },
}

impl ApiError {
    /// An answer that says neither that it was done nor that it was refused.
    pub(super) fn unusable(may_be_done: bool, why: &str) -> Self {
        Self::NoAnswer { may_be_done, text: format!("Feishu gave no usable answer: {why}") }
    }

    pub(super) fn is(&self, codes: &[i64]) -> bool {
        match self {
            Self::Refused { code, .. } => codes.contains(code),
            Self::Absent => codes.contains(&NO_MESSAGE),
            _ => false,
        }
    }

    /// The app, its secret or its token is not valid (any more).
    pub(super) fn is_of_app(&self) -> bool {
        self.is(&OF_TOKEN) || self.is(&OF_APP)
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused { code, text, scopes } => {
                let remedy = match (remedy(*code), scopes.is_empty()) {
                    ("", true) => String::new(),
                    ("", false) => format!("; one of these permissions is needed: {}", scopes.join(", ")),
                    (remedy, true) => format!("; {remedy}"),
                    (remedy, false) => format!("; {remedy}; one of these is needed: {}", scopes.join(", ")),
                };
                format!("Feishu refused it: {text} ({code}){remedy}")
            }
            Self::Limited { retry_after_ms } => {
                format!("Feishu limits the rate; it asks to wait {} s", retry_after_ms.div_ceil(1_000))
            }
            Self::Elsewhere => "the message or topic is not in this chat".to_owned(),
            Self::Absent => "Feishu knows no message or topic of this id, or does not show it to the bot".to_owned(),
            Self::NoAnswer { text, .. } => text.clone(),
        }
    }

    /// For a read: whatever its result, nothing was sent.
    pub(super) fn of_question(self) -> Self {
        match self {
            Self::NoAnswer { text, .. } => Self::NoAnswer { may_be_done: false, text },
            other => other,
        }
    }
}

impl From<ApiError> for Acted {
    fn from(error: ApiError) -> Self {
        let text = error.text();
        match error {
            ApiError::Limited { retry_after_ms } => {
                let pace = Pace { retry_after_ms: Some(retry_after_ms), ..Pace::default() };
                Self { result: ActionResult::refused(Code::RateLimited, text), pace, receipt_id: None }
            }
            ApiError::Refused { code, .. } => ActionResult::refused(code_of(code), text).into(),
            ApiError::Elsewhere | ApiError::Absent => ActionResult::refused(Code::NotFound, text).into(),
            ApiError::NoAnswer { may_be_done, .. } => unanswered::result(may_be_done, text).into(),
        }
    }
}

pub(super) fn no_answer(error: &OutcallError) -> ApiError {
    ApiError::NoAnswer { may_be_done: error.may_have_been_sent(), text: format!("Feishu did not answer: {error}") }
}

/// The whole answer, if it says that it was done.
pub(super) fn read(answer: &HttpAnswer) -> Result<Value, ApiError> {
    let may_be_done = unanswered::may_be_done(answer.status);
    let value = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    let Some(code) = value["code"].as_i64() else {
        if answer.status == 429 {
            return Err(limited(answer));
        }
        return Err(ApiError::unusable(may_be_done, &unanswered::without_body(answer.status)));
    };
    if code == 0 && answer.status < 400 {
        return Ok(value);
    }
    if answer.status == 429 || OF_RATE.contains(&code) {
        return Err(limited(answer));
    }
    let plain = |text: &str| -> String { text.chars().filter(|c| !c.is_control()).take(TEXT_MAX_CHARS).collect() };
    if answer.status >= 500 || code == 0 || code == UNKNOWN_OUTCOME {
        let may_be_done = may_be_done || code == UNKNOWN_OUTCOME;
        let why = format!("status {}, code {code}: {}", answer.status, plain(text_of(&value, "msg")));
        return Err(ApiError::unusable(may_be_done, &why));
    }
    let violations = list_of(&value["error"], "permission_violations").iter();
    let scopes =
        violations.map(|it| plain(text_of(it, "subject"))).filter(|it| !it.is_empty()).take(SCOPES_MAX).collect();
    Err(ApiError::Refused { code, text: plain(text_of(&value, "msg")), scopes })
}

fn limited(answer: &HttpAnswer) -> ApiError {
    let header_value = ["x-ogw-ratelimit-reset", "retry-after"].iter().find_map(|name| answer.header(name));
    let seconds = header_value.and_then(|seconds| seconds.trim().parse::<u64>().ok()).unwrap_or(LIMITED_S);
    ApiError::Limited { retry_after_ms: seconds.max(1).saturating_mul(1_000) }
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
        for (status, body, code, expected) in [
            (400, r#"{"code":230002,"msg":"Bot/User can NOT be out of the chat."}"#, Code::Forbidden, "add it"),
            (400, r#"{"code":230013,"msg":"x"}"#, Code::Forbidden, "availability"),
            (400, r#"{"code":231003,"msg":"x"}"#, Code::NotFound, "no such message"),
            (400, r#"{"code":230025,"msg":"x"}"#, Code::TooLarge, "too long"),
            (400, r#"{"code":99991663,"msg":"x"}"#, Code::Unauthorized, "bot add"),
            (200, r#"{"code":10014,"msg":"app secret invalid"}"#, Code::Unauthorized, "app_secret"),
            (400, r#"{"code":230001,"msg":"odd"}"#, Code::BadRequest, "odd (230001)"),
        ] {
            let acted = acted(status, body);
            assert_eq!((acted.result.code, acted.result.ambiguous), (Some(code), false), "{body}");
            assert!(acted.result.error.as_ref().unwrap().contains(expected), "{:?}", acted.result.error);
        }
        for (status, body) in [
            (400, r#"{"code":230049,"msg":"x"}"#),
            (502, "<html>"),
            (200, ""),
            (500, r#"{"code":2,"msg":"x"}"#),
            (500, "{}"),
            (200, "[]"),
        ] {
            let acted = acted(status, body);
            assert_eq!((acted.result.code, acted.result.ambiguous), (Some(Code::Unknown), true), "{status} {body}");
            let text = acted.result.error.unwrap();
            assert!(text.contains("no usable answer") && !text.contains("did not answer"), "{text}");
        }
        let acted = acted(403, "<html>");
        assert_eq!((acted.result.code, acted.result.ambiguous), (Some(Code::Unavailable), false));
    }

    #[test]
    fn a_missing_permission_is_named_with_what_to_do() {
        let body = r#"{"code":99991672,"msg":"Access denied","error":{"permission_violations":[
            {"type":"action_scope_required","subject":"im:message.reactions:write_only"}]}}"#;
        let text = acted(400, body).result.error.unwrap();
        assert!(text.contains("im:message.reactions:write_only") && text.contains("publish a version"), "{text}");
    }

    #[test]
    fn a_limit_is_obeyed_for_as_long_as_feishu_says() {
        let mut answer = HttpAnswer {
            body: br#"{"code":99991400,"msg":"request trigger frequency limit"}"#.to_vec(),
            ..HttpAnswer::of(400)
        };
        assert_eq!(read(&answer).unwrap_err(), ApiError::Limited { retry_after_ms: 2_000 });
        answer.headers.push(("x-ogw-ratelimit-reset".into(), "17".into()));
        assert_eq!(read(&answer).unwrap_err(), ApiError::Limited { retry_after_ms: 17_000 });
        assert_eq!(acted(429, "<html>").pace.retry_after_ms, Some(2_000));
        assert_eq!(acted(200, r#"{"code":230020,"msg":"x"}"#).result.code, Some(Code::RateLimited));
    }
}
