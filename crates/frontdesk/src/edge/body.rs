//! JSON bodies: content type, size limit, and errors that say what is wrong.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use frontdesk_wire::Code;
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::App;
use super::body_memory::{BodyMemoryFull, BodyReservation};
use super::error::{Form, Refusal};

/// Larger than any valid body; media have their own route and limit.
const JSON_MAX_BYTES: usize = 2 << 20;
/// Limit for bodies that are read before authentication.
const UNAUTHENTICATED_MAX_BYTES: usize = 4 << 10;
/// Time limit for a complete body.
const BODY_TIME: Duration = Duration::from_secs(30);

pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &App) -> Result<Self, Refusal> {
        let plain = Form::of(request.uri().path()) == Form::Plain;
        let shape = |refusal: Refusal| if plain { refusal.plain() } else { refusal };
        if !is_json(request.headers()) {
            let text = "the request body must be JSON, with Content-Type: application/json";
            return Err(shape(Refusal::new(Code::UnsupportedMediaType, text)));
        }
        let max = if request.uri().path() == "/chat/login" { UNAUTHENTICATED_MAX_BYTES } else { JSON_MAX_BYTES };
        let bytes = whole(request, max).await.map_err(shape)?;
        let parsed = serde_json::from_slice(&bytes);
        parsed
            .map(Self)
            .map_err(|error| shape(Refusal::new(Code::BadRequest, format!("invalid request body: {error}"))))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// Reads the whole body, or returns `too_large` as soon as that is known.
pub(crate) async fn whole(request: Request, max_bytes: usize) -> Result<Bytes, Refusal> {
    let held = request.extensions().get::<BodyReservation>().cloned();
    limited(request.into_body(), max_bytes, held).await
}

pub(crate) fn too_large(max_bytes: usize) -> Refusal {
    Refusal::new(Code::TooLarge, format!("the request body is larger than {max_bytes} bytes"))
}

async fn limited(body: Body, max_bytes: usize, held: Option<BodyReservation>) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large(max_bytes));
    }
    let mut pieces = body.into_data_stream();
    let reading = async {
        let mut taken = Vec::new();
        while let Some(piece) = pieces.next().await {
            let piece =
                piece.map_err(|_| Refusal::new(Code::BadRequest, "the request body was incomplete or stalled"))?;
            if taken.len() + piece.len() > max_bytes {
                return Err(too_large(max_bytes));
            }
            if let Some(held) = &held {
                let refused = |full: BodyMemoryFull| Refusal::new(Code::Unavailable, full.to_string());
                held.grow(taken.len() + piece.len()).await.map_err(refused)?;
            }
            taken.extend_from_slice(&piece);
        }
        Ok(Bytes::from(taken))
    };
    let late =
        || Refusal::new(Code::BadRequest, format!("the request body did not arrive within {} s", BODY_TIME.as_secs()));
    timeout(BODY_TIME, reading).await.unwrap_or_else(|_| Err(late()))
}
