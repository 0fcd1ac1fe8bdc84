//! Routes for operators and monitoring: health, readiness, metrics, API description.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::Code;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::App;
use super::error::Refusal;

const OPENAPI: &str = include_str!("openapi.json");

/// Result of the last check, reused for a moment because each check writes to the store.
#[derive(Default)]
pub struct Readiness {
    last: tokio::sync::Mutex<Option<(Instant, Result<(), StoreError>)>>,
}

const READINESS_TIME: Duration = Duration::from_secs(1);

impl Readiness {
    pub(crate) async fn check(&self, app: &App) -> Result<(), StoreError> {
        let mut last = self.last.lock().await;
        if let Some((at, said)) = &*last
            && at.elapsed() < READINESS_TIME
        {
            return said.clone();
        }
        let said = app.desk.upkeep().health().await;
        *last = Some((Instant::now(), said.clone()));
        said
    }
}

pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready means that a message could be accepted, so the check writes to the store.
pub(crate) async fn readyz(State(app): State<App>) -> Response {
    if app.drain.is_leaving() {
        return Refusal::new(Code::Unavailable, "this server is stopping").into_response();
    }
    match app.readiness.check(&app).await {
        Ok(()) => (StatusCode::OK, "ready\n").into_response(),
        Err(error) => Refusal::new(Code::Unavailable, error.to_string()).into_response(),
    }
}

pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let (meters, count) = (app.desk.meters(), |number| i64::try_from(number).unwrap_or(i64::MAX));
    meters.sockets_open.set(count(app.desk.delivery().sockets().open_sockets()));
    meters.desks_live.set(count(app.desk.lease().live().len()));
    meters.directory_unreadable.set(count(app.desk.directory().read(|view| view.unreadable().len())));
    let mut text = String::new();
    if prometheus_client::encoding::text::encode(&mut text, &app.metrics).is_err() {
        return Refusal::new(Code::Internal, "encoding the metrics failed").into_response();
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// The `{names}` in a path.
fn parameters_of(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    names.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })).collect()
}

pub(crate) async fn openapi(State(app): State<App>) -> Json<Value> {
    let mut page: Value = serde_json::from_str(OPENAPI).unwrap_or_default();
    page["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    page["servers"] = json!([{ "url": &*app.public_url }]);
    for platform in app.desk.platforms().all() {
        let label = &platform.descriptor().label;
        for door in platform.doors() {
            page["paths"][door.path][door.method.name()] = json!({
                "tags": ["platforms"],
                "summary": door.summary,
                "description": format!("{label}. Bodies have at most {} bytes.", door.max_bytes),
                "parameters": parameters_of(door.path),
                "responses": { "default": { "description": "As the platform defines it" } },
            });
        }
    }
    Json(page)
}
