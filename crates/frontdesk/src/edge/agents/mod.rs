//! The agents API: `/v1` with a bearer token, `/k/{token}/v1` with a capability URL, `/mcp` for tools. Errors are
//! `{"error":{"class","message",...}}`; clients decide by the class.

mod auth;
mod body;
mod limits;
mod mcp;
mod messages;
mod settings;
mod stores;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use frontdesk_wire::agents::{Class, Fault};
use serde::Serialize;

use self::auth::Api;
use super::App;
use super::error::RefusedWith;

pub(crate) use auth::take_capability;
pub(crate) use limits::Limits;
pub(crate) use settings::{Settings, SkillSettings};

pub(super) fn router() -> Router<App> {
    // Only this route needs the MCP server, so it is not part of the app.
    let tools = Arc::new(mcp::Tools::default());
    let mcp = move |State(app): State<App>, request: Request| mcp::serve(tools.clone(), app, request);
    Router::new()
        .route("/v1/health", get(messages::health))
        .route("/v1/agents", get(messages::list))
        .route("/v1/agents/{id}", get(messages::show).put(messages::put).delete(messages::delete))
        .route("/v1/agents/{id}/status", get(messages::status))
        .route("/v1/agents/{id}/deliver", post(messages::deliver))
        .route("/v1/agents/{id}/wake", post(messages::wake))
        .route("/v1/agents/{id}/exchange", post(messages::exchange))
        .route("/v1/agents/{id}/replies", post(messages::reply))
        .route("/v1/agents/{id}/inbox", get(messages::inbox))
        .route("/v1/agents/{id}/inbox/stream", get(stream::open))
        .route("/v1/notify", post(messages::notify))
        .route("/v1/skills/{name}", get(stores::load).put(stores::store).delete(stores::delete))
        .route("/v1/skills/{name}/metadata", get(stores::metadata))
        .route("/v1/skills/{name}/versions", get(stores::versions))
        .route("/v1/skills/{name}/status", post(stores::restatus))
        .route("/v1/skill-store/query", post(stores::query_skills))
        .route("/v1/skill-store/version", get(stores::store_version))
        .route("/v1/skill-store/manifest", get(stores::skills_manifest))
        .route("/v1/data", post(stores::write))
        .route("/v1/data/{id}", get(stores::get))
        .route("/v1/data-store/query", post(stores::query_data))
        .route("/v1/data-store/manifest", get(stores::data_manifest))
        .route("/mcp", get(mcp.clone()).post(mcp.clone()).delete(mcp))
}

/// A fault as a response.
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

/// Makes an answer that may be large, once there is budget for it. `kib`: what nearly all answers of its kind need.
async fn answer<T: Serialize>(
    app: &App,
    who: &Api,
    kib: usize,
    made: impl Future<Output = Result<T, Fault>>,
) -> Result<Response, Refused> {
    Ok(app.answers.answer(&who.tenant, kib, made).await?)
}

type Answer<T> = Result<axum::Json<T>, Refused>;
