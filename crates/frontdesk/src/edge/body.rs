//! JSON bodies: the right content type, bounded, and an error that says what is wrong with them.

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use frontdesk_wire::Code;
use serde::de::DeserializeOwned;

use super::App;
use super::error::{Form, Refusal};

/// Larger than any honest body of ours; media have their own door and limit.
const JSON_MAX_BYTES: usize = 2 << 20;

pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &App) -> Result<Self, Refusal> {
        let plain = Form::of(request.uri().path()) == Form::Plain;
        let shape = |refusal: Refusal| if plain { refusal.plain() } else { refusal };
        if !is_json(request.headers()) {
            let text = "the body must be JSON, with Content-Type: application/json";
            return Err(shape(Refusal::new(Code::UnsupportedMediaType, text)));
        }
        let bytes = limited(request.into_body(), JSON_MAX_BYTES).await.map_err(shape)?;
        let parsed = serde_json::from_slice(&bytes);
        parsed
            .map(Self)
            .map_err(|error| shape(Refusal::new(Code::BadRequest, format!("the body does not fit: {error}"))))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// The whole body, or `too_large` as soon as it is.
pub(crate) async fn limited(body: Body, max_bytes: usize) -> Result<axum::body::Bytes, Refusal> {
    to_bytes(body, max_bytes).await.map_err(|error| {
        let over = std::error::Error::source(&error).is_some_and(|cause| cause.to_string().contains("length limit"));
        match over {
            true => Refusal::new(Code::TooLarge, format!("the body is over {max_bytes} bytes")),
            false => Refusal::new(Code::BadRequest, "the body broke off"),
        }
    })
}
