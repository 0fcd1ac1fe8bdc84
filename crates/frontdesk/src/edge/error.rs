//! Maps refusals to HTTP. Clients and the log get separate texts.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use frontdesk_core::DeskError;
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::Code;
use frontdesk_wire::agents::{Class, Fault};
use frontdesk_wire::api::Problem;
use frontdesk_wire::code::CODES;

/// A refusal as a response. `plain` is for routes whose contract requires `{"error": "..."}`.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) text: String,
    plain: bool,
    retry_after_s: Option<u32>,
}

impl Refusal {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), plain: false, retry_after_s: None }
    }

    pub(crate) fn plain(mut self) -> Self {
        self.plain = true;
        self
    }

    /// When another attempt makes sense.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(Code::Unauthorized, "a valid bearer token is required")
    }

    fn status(&self) -> StatusCode {
        status_of(self.code)
    }
}

fn status_of(code: Code) -> StatusCode {
    match code {
        Code::BadRequest | Code::UrlRefused | Code::UnsupportedOp => StatusCode::BAD_REQUEST,
        Code::Unauthorized => StatusCode::UNAUTHORIZED,
        Code::Forbidden | Code::EgressDeclined | Code::UnknownIdentity | Code::CapabilityUnavailable => {
            StatusCode::FORBIDDEN
        }
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Gone => StatusCode::GONE,
        Code::Conflict => StatusCode::CONFLICT,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Code::PlatformFailed => StatusCode::BAD_GATEWAY,
        Code::Partial | Code::Unknown | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The code of a refusal that no handler made, such as 405.
fn code_of(status: StatusCode) -> Code {
    let other = if status.is_client_error() { Code::BadRequest } else { Code::Internal };
    let named = CODES.into_iter().find(|code| status_of(*code) == status);
    named.filter(|_| status != StatusCode::INTERNAL_SERVER_ERROR).unwrap_or(other)
}

impl From<DeskError> for Refusal {
    fn from(error: DeskError) -> Self {
        let code = match &error {
            DeskError::BadRequest(_) => Code::BadRequest,
            DeskError::Forbidden(_) => Code::Forbidden,
            DeskError::NotFound(_) => Code::NotFound,
            DeskError::Conflict(_) => Code::Conflict,
            DeskError::TooLarge(_) => Code::TooLarge,
            DeskError::RateLimited(_) => Code::RateLimited,
            DeskError::Elsewhere(_) => Code::PlatformFailed,
            DeskError::Store(error) => return error.clone().into(),
        };
        Self::new(code, error.to_string())
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let code = if error == StoreError::Conflict { Code::Conflict } else { Code::Unavailable };
        Self::new(code, error.refusal())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = if self.plain {
            (status, Json(serde_json::json!({ "error": self.text }))).into_response()
        } else {
            let title = status.canonical_reason().unwrap_or_default().to_owned();
            let code = self.code.name().to_owned();
            let problem = Problem { code, title, status: status.as_u16(), detail: self.text };
            let json = HeaderValue::from_static("application/problem+json");
            (status, [(header::CONTENT_TYPE, json)], Json(problem)).into_response()
        };
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(RefusedWith(self.code.name()));
        response
    }
}

/// Format of a refusal, depending on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `application/problem+json`
    Problem,
    /// `{"error": "..."}`, required by the contract
    Plain,
    /// `{"error": {"class", "message"}}`, for the agents API
    Classed,
}

impl Form {
    pub(crate) fn of(path: &str) -> Self {
        let below = |door: &str| path.strip_prefix(door).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if ["/relay", "/manage", "/api/agent-cron"].into_iter().any(below) {
            return Self::Plain;
        }
        if ["/v1", "/k", "/mcp"].into_iter().any(below) { Self::Classed } else { Self::Problem }
    }
}

/// Converts a plain text refusal to the format of its path. Status and headers are unchanged.
pub(crate) async fn in_form(response: Response, form: Form) -> Response {
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, 4096).await.unwrap_or_default();
    let title = parts.status.canonical_reason().unwrap_or_default().to_owned();
    let detail = match String::from_utf8_lossy(&text).trim() {
        "" => title.clone(),
        words => words.to_owned(),
    };
    let status = parts.status.as_u16();
    let (kind, body) = match form {
        Form::Plain => ("application/json", serde_json::to_vec(&serde_json::json!({ "error": detail }))),
        Form::Classed => ("application/json", serde_json::to_vec(&Fault::new(Class::of_status(status), detail))),
        Form::Problem => {
            let code = code_of(parts.status).name().to_owned();
            ("application/problem+json", serde_json::to_vec(&Problem { code, title, status, detail }))
        }
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Response::from_parts(parts, body.unwrap_or_default().into())
}

/// Attached to a response, so that it is counted where all responses pass.
#[derive(Clone, Copy)]
pub(crate) struct RefusedWith(pub(crate) &'static str);
