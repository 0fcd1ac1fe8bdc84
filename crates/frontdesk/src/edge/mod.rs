//! HTTP and WebSocket edge. It translates requests and responses; decisions are made in core.

mod admin;
pub(crate) mod agents;
mod answers;
mod auth;
mod body;
mod body_memory;
mod chat;
pub(crate) mod cron;
mod doors;
mod error;
pub(crate) mod flow;
mod manage;
mod media;
mod ops;
pub(crate) mod page;
mod relay;
pub(crate) mod scheduler_webhook;
pub(crate) mod server;
mod to_end;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use frontdesk_core::Desk;
use frontdesk_platforms::chat::BuiltInChat;
use frontdesk_wire::agents::{Class, Fault};
use frontdesk_wire::{Code, Secret};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use answers::Answers;
pub(crate) use body_memory::BodyMemory;
pub use flow::Budgets;
pub(crate) use ops::{PublicAnswers, Readiness};
pub(crate) use server::ConnectionSlot;
pub use server::{ConnectionLimits, listen, serve};

use crate::drain::Drain;
use crate::identity::{AgentJwt, Verifier};

/// What handlers need. One pointer: each request clones it several times.
#[derive(Clone)]
pub struct App(Arc<AppParts>);

impl App {
    pub fn new(parts: AppParts) -> Self {
        Self(Arc::new(parts))
    }
}

impl std::ops::Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}

pub struct AppParts {
    pub desk: Arc<Desk>,
    pub chat: Arc<BuiltInChat>,
    pub admin_token: Secret,
    /// Verifies JWTs about agents, if configured.
    pub agent_jwt: Option<AgentJwt>,
    /// Verifies the bearer tokens of provision, enroll and cron.
    pub identities: Verifier,
    pub pages: page::Pages,
    /// KiB of responses that are not read yet, per tenant.
    pub answers: Answers,
    /// Answers of agents to questions, which come at any time: a budget of their own, which other responses cannot use
    /// up.
    pub replies: Budgets,
    /// Uploads in progress, per tenant.
    pub uploads: Budgets,
    pub readiness: Readiness,
    pub public_answers: PublicAnswers,
    /// Memory of requests in progress.
    pub(crate) body_memory: BodyMemory,
    /// Requests that platforms refused.
    pub doors_refused: AtomicU64,
    pub scheduler_webhook: scheduler_webhook::SchedulerWebhook,
    pub limits: agents::Limits,
    pub metrics: prometheus_client::registry::Registry,
    pub public_url: String,
    /// Tasks of relay sessions; the server waits for them at shutdown.
    pub sessions: TaskTracker,
    pub stop: CancellationToken,
    pub drain: Drain,
}

/// The routes, and what is around every handler.
#[derive(Clone)]
struct Edge {
    app: App,
    routes: Router,
}

fn routes(app: App) -> Router {
    let relay = Router::new()
        .route("/relay", get(relay::upgrade))
        .route("/relay/provision", post(manage::provision))
        .route("/relay/enroll", post(manage::enroll))
        .route("/relay/policy", post(manage::policy))
        .route("/relay/media", post(media::put_by_gateway))
        .route("/relay/media/{id}", get(media::get_by_gateway))
        .route("/manage/link", post(manage::link))
        .route("/manage/scope", post(manage::scope))
        .route("/manage/scope/release", post(manage::release))
        .route("/manage/principal", post(manage::principal))
        .route("/manage/dm-default", post(manage::dm_default))
        .route("/manage/why", get(manage::why))
        .route("/manage/deprovision", post(manage::deprovision));
    let cron = Router::new()
        .route("/api/agent-cron/provision", post(cron::provision))
        .route("/api/agent-cron/cancel", post(cron::cancel))
        .route("/api/agent-cron/list", get(cron::list))
        .route("/api/agent-cron/history", get(cron::history))
        .route("/api/agent-cron/relay", post(cron::relay))
        .route("/.well-known/jwks.json", get(cron::jwks));
    let chat = Router::new()
        .route("/chat", get(page::open))
        .route("/chat/login", post(page::login))
        .route("/chat/{asset}", get(page::asset))
        .route("/chat/v1/me", get(chat::me))
        .route("/chat/v1/chats", get(chat::chats))
        .route("/chat/v1/dispatches", get(chat::dispatches))
        .route("/chat/v1/chats/{chat_id}", put(chat::set))
        .route("/chat/v1/chats/{chat_id}/messages", get(chat::history).post(chat::post))
        .route("/chat/v1/chats/{chat_id}/stream", get(chat::stream))
        .route("/chat/v1/chats/{chat_id}/messages/{message_id}/press", post(chat::press))
        .route("/chat/v1/media", post(media::put_by_chat))
        .route("/chat/v1/media/{id}", get(media::get_by_chat));
    let ops = Router::new()
        .route("/", get(page::root))
        .route("/healthz", get(ops::healthz))
        .route("/readyz", get(ops::readyz))
        .route("/metrics", get(ops::metrics))
        .route("/openapi.json", get(ops::openapi))
        .route("/docs", get(page::docs))
        .route("/docs/{asset}", get(page::asset));
    relay
        .merge(cron)
        .merge(agents::router())
        .merge(chat)
        .merge(doors::router(app.desk.platforms()))
        .merge(ops)
        .nest("/admin/v1", admin::router())
        .fallback(unknown_path)
        .with_state(app)
}

async fn unknown_path(request: Request) -> Response {
    refused(error::Form::of(request.uri().path()), Code::NotFound, Class::NotFoundError, "no such path")
}

/// A refusal before any handler, in the form of the routes that it stands for.
fn refused(form: error::Form, code: Code, class: Class, text: &str) -> Response {
    match form {
        error::Form::Classed => agents::Refused(Fault::new(class, text)).into_response(),
        error::Form::Plain => error::Refusal::new(code, text).plain().into_response(),
        error::Form::Problem => error::Refusal::new(code, text).into_response(),
    }
}

/// Health and metrics: they need no authentication.
const OPEN_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

impl Edge {
    fn new(app: App) -> Self {
        Self { routes: routes(app.clone()), app }
    }

    /// Not a layer of the router, which would cost each request a copy of its route and two allocations.
    async fn answer(self, request: Request) -> Response {
        let Self { app, routes } = self;
        let form = error::Form::of(request.uri().path());
        let response = if is_misplaced_socket(&request) {
            (StatusCode::BAD_REQUEST, "WebSocket upgrades are accepted at /relay only").into_response()
        } else if !app.desk.directory().is_current() && !OPEN_PATHS.contains(&request.uri().path()) {
            // Tokens may have been revoked at another server. No caller is authenticated until that is known.
            let text = "this server has not reached its database for some seconds; try again later";
            refused(form, Code::Unavailable, Class::UnavailableError, text)
        } else {
            to_end::run_to_end(&app, request, routes).await
        };
        count_refusal(&app, response, form).await
    }
}

/// The contract requires 400 for a WebSocket upgrade at any path other than `/relay`.
fn is_misplaced_socket(request: &Request) -> bool {
    let asked = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    asked.eq_ignore_ascii_case("websocket") && request.uri().path() != "/relay"
}

async fn count_refusal(app: &App, response: Response, form: error::Form) -> Response {
    let refused = response.extensions().get::<error::RefusedWith>().map(|refused| refused.0);
    let why = match refused {
        Some(why) => why,
        None if response.status().is_client_error() => "bad_request",
        None if response.status().is_server_error() => "internal",
        None => return response,
    };
    app.desk.meters().request_refused(why);
    match refused {
        Some(_) => response,
        None => error::in_form(response, form).await, // a refusal by axum itself: an invalid query, a wrong method
    }
}
