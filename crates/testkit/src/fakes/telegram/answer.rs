//! Answers to calls: the envelope of the Bot API, or a fault on the way.

use serde_json::{Value, json};

/// A refusal as the Bot API words it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub code: u16,
    pub description: String,
    pub retry_after_s: Option<u64>,
    pub migrate_to_chat_id: Option<i64>,
}

pub(super) type Answer = Result<Value, ApiError>;

impl ApiError {
    pub(super) fn new(code: u16, description: impl Into<String>) -> Self {
        Self { code, description: description.into(), retry_after_s: None, migrate_to_chat_id: None }
    }

    pub(super) fn bad(what: impl AsRef<str>) -> Self {
        Self::new(400, format!("Bad Request: {}", what.as_ref()))
    }

    pub(super) fn forbidden(what: impl AsRef<str>) -> Self {
        Self::new(403, format!("Forbidden: {}", what.as_ref()))
    }

    pub(super) fn conflict(what: impl AsRef<str>) -> Self {
        Self::new(409, format!("Conflict: {}", what.as_ref()))
    }

    pub(super) fn too_many(retry_after_s: u64) -> Self {
        let text = format!("Too Many Requests: retry after {retry_after_s}");
        Self { retry_after_s: Some(retry_after_s), ..Self::new(429, text) }
    }

    fn body(&self) -> Value {
        let mut body = json!({"ok": false, "error_code": self.code, "description": self.description});
        if let Some(seconds) = self.retry_after_s {
            body["parameters"]["retry_after"] = seconds.into();
        }
        if let Some(chat) = self.migrate_to_chat_id {
            body["parameters"]["migrate_to_chat_id"] = chat.into();
        }
        body
    }
}

/// How an answer reaches the caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Transport {
    #[default]
    Whole,
    /// This page instead of JSON, as a proxy before the server answers.
    Html(String),
    /// The connection is closed without an answer.
    Dropped,
    /// The body is JSON that ends in the middle.
    Cut,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub status: u16,
    pub body: Value,
    pub transport: Transport,
    /// The socket layer waits that long before it answers. The call has had its effect before.
    pub delay_ms: u64,
}

impl Response {
    pub(super) fn of(answer: Answer) -> Self {
        let (status, body) = match answer {
            Ok(result) => (200, json!({"ok": true, "result": result})),
            Err(error) => (error.code, error.body()),
        };
        Self { status, body, transport: Transport::Whole, delay_ms: 0 }
    }

    pub fn is_ok(&self) -> bool {
        self.status == 200
    }

    pub fn result(&self) -> &Value {
        &self.body["result"]
    }

    pub fn description(&self) -> &str {
        self.body["description"].as_str().unwrap_or_default()
    }
}
