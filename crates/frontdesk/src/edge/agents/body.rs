//! Bodies of the agents plane: raw bytes first, for those who sign them, then JSON. No content type is
//! asked for, because some clients cannot send one.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use frontdesk_wire::agents::{Class, Fault};
use serde::de::DeserializeOwned;

use super::Refused;
use crate::edge::App;

/// A message of 1 MiB, escaped.
const BODY_MAX_BYTES: usize = 4 << 20;

pub(crate) struct Raw(pub(crate) Bytes);

impl FromRequest<App> for Raw {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &App) -> Result<Self, Refused> {
        let body = crate::edge::body::limited(request.into_body(), BODY_MAX_BYTES).await;
        body.map(Self).map_err(|refusal| {
            let class = match refusal.code {
                frontdesk_wire::Code::TooLarge => Class::TooLargeError,
                _ => Class::ValidationError,
            };
            Fault::new(class, refusal.text).into()
        })
    }
}

impl Raw {
    /// An empty body is an empty object.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let bytes: &[u8] = if self.0.is_empty() { b"{}" } else { &self.0 };
        serde_json::from_slice(bytes).map_err(|error| Fault::invalid(format!("the body does not fit: {error}")))
    }
}

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refused> {
        Ok(Self(Raw::from_request(request, app).await?.json()?))
    }
}
