//! Calls that have no result.

use frontdesk_core::port::platform::{Acted, Pace};
use frontdesk_wire::{ActionResult, Code};

use crate::shared::unanswered;
use crate::wecom::errors::{TOKEN, code_of, error_text, retry_after_ms};

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiError {
    /// `WeCom` refused it, and did nothing.
    Refused { code: i64, message: String },
    /// A server on the way refused it, such as a proxy, and passed nothing on.
    Status(u16),
    /// No answer, or one that cannot be read. It may have been done if `may_be_done`.
    NoAnswer { may_be_done: bool, why: String },
}

impl ApiError {
    pub(super) fn code(&self) -> Option<i64> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Status(_) | Self::NoAnswer { .. } => None,
        }
    }

    pub(super) fn is_of_token(&self) -> bool {
        self.code().is_some_and(|code| TOKEN.contains(&code))
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused { code, message } => format!("WeCom refused it: {}", error_text(*code, message)),
            Self::Status(status) => format!("WeCom answered with status {status}"),
            Self::NoAnswer { why, .. } => format!("WeCom did not answer: {why}"),
        }
    }

    /// It came before anything could be done.
    pub(super) fn undone(self) -> Self {
        match self {
            Self::NoAnswer { why, .. } => Self::NoAnswer { may_be_done: false, why },
            other => other,
        }
    }
}

impl From<ApiError> for Acted {
    fn from(error: ApiError) -> Self {
        let text = error.text();
        let result = match &error {
            ApiError::Refused { code, .. } => ActionResult::refused(code_of(*code), text),
            ApiError::Status(_) => ActionResult::refused(Code::PlatformFailed, text),
            ApiError::NoAnswer { may_be_done, .. } => unanswered::result(*may_be_done, text),
        };
        let retry_after_ms = error.code().and_then(retry_after_ms);
        Self { pace: Pace { retry_after_ms, ..Pace::default() }, ..result.into() }
    }
}
