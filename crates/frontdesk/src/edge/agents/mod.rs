//! The agents plane: `/v1` by bearer, `/k/{token}/v1` by capability URL, `/mcp` for tools. Errors are
//! `{"error":{"class","message",...}}`; adapters switch on the class.

mod body;
mod mcp;
mod shelf;
mod stream;
mod who;
mod words;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use frontdesk_wire::agents::{Class, Fault};

use super::App;
use super::error::RefusedWith;

pub(crate) use mcp::Tools;
pub(crate) use who::Limits;
pub(crate) use who::take_capability;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/health", get(words::health))
        .route("/v1/agents", get(words::list))
        .route("/v1/agents/{id}", get(words::show).put(words::put).delete(words::delete))
        .route("/v1/agents/{id}/status", get(words::status))
        .route("/v1/agents/{id}/deliver", post(words::deliver))
        .route("/v1/agents/{id}/wake", post(words::wake))
        .route("/v1/agents/{id}/exchange", post(words::exchange))
        .route("/v1/agents/{id}/replies", post(words::reply))
        .route("/v1/agents/{id}/inbox", get(words::inbox))
        .route("/v1/agents/{id}/inbox/stream", get(stream::open))
        .route("/v1/notify", post(words::notify))
        .route("/v1/skills/{name}", get(shelf::load).put(shelf::store).delete(shelf::delete))
        .route("/v1/skills/{name}/metadata", get(shelf::metadata))
        .route("/v1/skills/{name}/versions", get(shelf::versions))
        .route("/v1/skills/{name}/status", post(shelf::restatus))
        .route("/v1/skill-store/query", post(shelf::query_skills))
        .route("/v1/skill-store/version", get(shelf::store_version))
        .route("/v1/skill-store/manifest", get(shelf::skills_manifest))
        .route("/v1/data", post(shelf::write))
        .route("/v1/data/{id}", get(shelf::get))
        .route("/v1/data-store/query", post(shelf::query_data))
        .route("/v1/data-store/manifest", get(shelf::data_manifest))
        .route("/mcp", get(mcp::serve).post(mcp::serve).delete(mcp::serve))
}

/// A fault on its way out.
pub(crate) struct Refused(pub(crate) Fault);

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let class = self.0.class;
        let status = http::StatusCode::from_u16(class.status()).unwrap_or_default();
        let mut response = (status, axum::Json(&self.0)).into_response();
        if class == Class::RateLimitedError {
            response.headers_mut().insert(http::header::RETRY_AFTER, 1.into());
        }
        response.extensions_mut().insert(RefusedWith(class.name()));
        response
    }
}

type Answer<T> = Result<axum::Json<T>, Refused>;
