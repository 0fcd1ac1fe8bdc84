//! What a call is answered with: errors as the API words them, or a fault of the way to it.

use serde_json::{Value, json};

/// A refusal: status, code and message of the API, with the tree of a form's errors.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    pub status: u16,
    pub code: u64,
    pub message: String,
    pub errors: Option<Value>,
}

/// Status and body.
pub(super) type Answer = Result<(u16, Value), ApiError>;

impl ApiError {
    pub(super) fn new(status: u16, code: u64, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), errors: None }
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, 0, "401: Unauthorized")
    }

    pub(super) fn not_found() -> Self {
        Self::new(404, 0, "404: Not Found")
    }

    pub(super) fn unknown_channel() -> Self {
        Self::new(404, 10003, "Unknown Channel")
    }

    pub(super) fn unknown_guild() -> Self {
        Self::new(404, 10004, "Unknown Guild")
    }

    pub(super) fn unknown_message() -> Self {
        Self::new(404, 10008, "Unknown Message")
    }

    pub(super) fn missing_access() -> Self {
        Self::new(403, 50001, "Missing Access")
    }

    pub(super) fn missing_permissions() -> Self {
        Self::new(403, 50013, "Missing Permissions")
    }

    /// One field of the form is wrong; dots separate the levels.
    pub(super) fn form(path: &str, code: &str, message: &str) -> Self {
        let leaf = json!({"_errors": [{"code": code, "message": message}]});
        let errors = path.rsplit('.').fold(leaf, |inner, name| json!({name: inner}));
        Self { errors: Some(errors), ..Self::new(400, 50035, "Invalid Form Body") }
    }

    pub(super) fn body(&self) -> Value {
        let mut body = json!({"message": self.message, "code": self.code});
        if let Some(errors) = &self.errors {
            body["errors"] = errors.clone();
        }
        body
    }
}

/// What becomes of an answer on its way to the caller.
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
    pub headers: Vec<(String, String)>,
    /// Null where the status is 204.
    pub body: Value,
    pub transport: Transport,
    /// The socket layer waits that long before it answers. The call has had its effect before.
    pub delay_ms: u64,
}

impl Response {
    pub(super) fn of(answer: Answer) -> Self {
        let (status, body) = answer.unwrap_or_else(|error| (error.status, error.body()));
        Self { status, headers: Vec::new(), body, transport: Transport::Whole, delay_ms: 0 }
    }

    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_form_name_the_field_at_its_level() {
        let error = ApiError::form("embeds.0.title", "BASE_TYPE_MAX_LENGTH", "Must be 256 or fewer in length.");
        let leaf = &error.body()["errors"]["embeds"]["0"]["title"]["_errors"][0];
        assert_eq!(leaf["code"], "BASE_TYPE_MAX_LENGTH");
        assert_eq!((error.status, error.code), (400, 50035));
    }
}
