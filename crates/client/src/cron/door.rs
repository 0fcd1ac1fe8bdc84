//! The agent's endpoint for alarm calls, `POST /api/cron/fire`. It answers before the job runs, so that the server does
//! not wait for it.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use frontdesk_wire::cron::FireBody;
use serde_json::json;

use super::provider::Provider;
use super::verify::FireVerifier;

#[derive(Clone)]
struct Door {
    provider: Arc<Provider>,
    verifier: Arc<FireVerifier>,
}

pub fn router(provider: Arc<Provider>, verifier: Arc<FireVerifier>) -> Router {
    Router::new().route("/api/cron/fire", post(fire)).with_state(Door { provider, verifier })
}

/// 401: not signed by the server. 400: no job. 503: it cannot be claimed, and the server calls again. 202: it runs, here or in
/// another replica.
async fn fire(State(door): State<Door>, headers: HeaderMap, body: Bytes) -> Response {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if let Err(why) = door.verifier.check(token).await {
        tracing::warn!(%why, "refused an alarm call");
        return (StatusCode::UNAUTHORIZED, Json(json!({ "error": "the token is not valid for this agent" })))
            .into_response();
    }
    let asked = serde_json::from_slice::<FireBody>(&body).ok().filter(|asked| !asked.job_id.is_empty());
    let Some(asked) = asked else {
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": "job_id is missing" }))).into_response();
    };
    let answer = json!({ "status": "accepted", "job_id": asked.job_id });
    match door.provider.claim(&asked) {
        Err(error) => {
            tracing::error!(%error, job = asked.job_id.as_str(), "claiming a job failed");
            return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": "the jobs cannot be read or written" })))
                .into_response();
        }
        Ok(None) => {}
        Ok(Some(job)) => {
            tokio::spawn(async move {
                let armed = match door.provider.run(job).await {
                    Ok(false) => door.provider.arm_until_done().await,
                    armed => armed.map(drop),
                };
                if let Err(error) = armed {
                    tracing::error!(%error, job = asked.job_id.as_str(), "arming the next alarm of a job failed");
                }
            });
        }
    }
    (StatusCode::ACCEPTED, Json(answer)).into_response()
}
