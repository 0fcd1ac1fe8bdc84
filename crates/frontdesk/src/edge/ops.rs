//! Routes for operators and monitoring: health, readiness, metrics, API description.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use frontdesk_core::meters::Levels;
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::Code;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::App;
use super::error::Refusal;
use super::flow::holding;

const OPENAPI: &str = include_str!("openapi.json");

/// Result of the last check, reused for a moment because each check writes to the store.
#[derive(Default)]
pub struct Readiness {
    last: Arc<tokio::sync::Mutex<Option<Check>>>,
}

type Check = (Instant, Result<(), StoreError>);

const READINESS_TIME: Duration = Duration::from_secs(1);

impl Readiness {
    pub(crate) async fn check(&self, app: &App) -> Result<(), StoreError> {
        let mut last = self.last.clone().lock_owned().await;
        if let Some((at, said)) = &*last
            && at.elapsed() < READINESS_TIME
        {
            return said.clone();
        }
        let desk = app.desk.clone();
        // In a task, so that the result is stored even if the client disconnects. Otherwise each such request would write.
        let checking = app.sessions.spawn(async move {
            let said = desk.upkeep().health().await;
            *last = Some((Instant::now(), said.clone()));
            said
        });
        checking.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
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

/// Public responses, and a bound for the memory that unread ones take.
pub struct PublicAnswers {
    /// The API description. Built once and shared, because it is large.
    openapi: OnceLock<Bytes>,
    /// Permits for metrics responses.
    room: Arc<Semaphore>,
    last_metrics: Mutex<Bytes>,
}

/// Metrics responses that may be in transit at the same time.
const METRICS_MAX: usize = 64;

impl Default for PublicAnswers {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(METRICS_MAX));
        Self { openapi: OnceLock::new(), room, last_metrics: Mutex::default() }
    }
}

impl PublicAnswers {
    /// The metrics, and a permit to hold until they are sent. Above the limit, clients share the last text.
    fn metrics(
        &self,
        encode: impl FnOnce() -> Result<Bytes, Refusal>,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Refusal> {
        let last = || self.last_metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(held) = self.room.clone().try_acquire_owned() else { return Ok((last().clone(), None)) };
        let text = encode()?;
        last().clone_from(&text);
        Ok((text, Some(held)))
    }
}

pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, Refusal> {
    let (text, held) = app.public_answers.metrics(|| encoded(&app))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(holding(([(header::CONTENT_TYPE, kind)], text).into_response(), held))
}

fn encoded(app: &App) -> Result<Bytes, Refusal> {
    app.desk.meters().set_levels(Levels {
        sockets_open: app.desk.delivery().sockets().open_sockets(),
        desks_live: app.desk.lease().live().len(),
        directory_unreadable: app.desk.directory().read(|view| view.unreadable().len()),
    });
    let mut text = String::new();
    let encoded = prometheus_client::encoding::text::encode(&mut text, &app.metrics);
    encoded.map_err(|_| Refusal::new(Code::Internal, "encoding the metrics failed"))?;
    Ok(text.into())
}

/// The `{names}` in a path.
fn parameters_of(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    names.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })).collect()
}

pub(crate) async fn openapi(State(app): State<App>) -> Response {
    let page = app.public_answers.openapi.get_or_init(|| description(&app).to_string().into()).clone();
    ([(header::CONTENT_TYPE, "application/json")], page).into_response()
}

fn description(app: &App) -> Value {
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
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_that_are_not_read_are_bounded() {
        let answers = PublicAnswers::default();
        let answer = |text: &'static str| answers.metrics(|| Ok(text.into())).ok().unwrap();
        let mut unread: Vec<_> = (0..METRICS_MAX).map(|_| answer("old")).collect();
        assert_eq!(answer("new").0, "old", "there is no room for another text");
        unread.pop();
        assert_eq!(answer("new").0, "new");
    }
}
