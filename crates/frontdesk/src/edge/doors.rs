//! The routes of the platforms: raw bytes to the platform, what it verified to the inbound plane, then the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, on};
use frontdesk_core::inbound::{DoorResponse, TakenRequest};
use frontdesk_core::port::platform::{Door, Method, Platform, Platforms, RawRequest, Reply};
use frontdesk_wire::Code;

use super::App;
use super::body::whole;
use super::body_memory::BodyReservation;
use super::error::{Refusal, RefusedWith};
use super::media::show;

pub(super) fn router(platforms: &Platforms) -> Router<App> {
    let mut router = Router::new();
    for platform in platforms.all() {
        for door in platform.doors() {
            let method = match door.method {
                Method::Get => MethodFilter::GET,
                Method::Post => MethodFilter::POST,
                Method::Put => MethodFilter::PUT,
            };
            let (platform, door) = (platform.clone(), *door);
            let handler = move |State(app): State<App>, parameters: RawPathParams, request: Request| {
                take(app, platform.clone(), door, parameters, request)
            };
            router = router.route(door.path, on(method, handler));
        }
    }
    router
}

async fn take(
    app: App,
    platform: Arc<dyn Platform>,
    door: Door,
    parameters: RawPathParams,
    request: Request,
) -> Response {
    let of_app = app.clone();
    let work = async move {
        match try_take(&of_app, &*platform, door, &parameters, request).await {
            Ok(DoorResponse::Reply(reply)) => respond(reply),
            Ok(DoorResponse::File(item, body)) => show(item, body),
            Err(refusal) => refusal.into_response(),
        }
    };
    if door.method != Method::Get {
        return work.await; // runs to its end already, like every changing request
    }
    // A GET of a vendor may change something too: an installation that is finished by a redirect.
    app.sessions.spawn(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, door = door.path, "request handler panicked");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    })
}

/// Signatures are over the bytes that a vendor sent, and no vendor compresses them.
fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(header::CONTENT_ENCODING).iter().all(is_plain) {
        return Ok(());
    }
    let why = "compressed bodies are not read here: send the body without Content-Encoding";
    Err(Refusal::new(Code::UnsupportedMediaType, why))
}

async fn try_take(
    app: &App,
    platform: &dyn Platform,
    door: Door,
    parameters: &RawPathParams,
    request: Request,
) -> Result<DoorResponse, Refusal> {
    let parameters: BTreeMap<String, String> =
        parameters.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let name = &platform.descriptor().platform;
    let bots = app.desk.directory().bots();
    check_encoding(request.headers())?;
    let mut raw = RawRequest {
        door: door.path,
        query: request.uri().query().unwrap_or_default().to_owned(),
        headers: texts_of(request.headers()),
        now_ms: app.desk.env().now_ms(),
        ..RawRequest::default()
    };
    let bot = match parameters.get("bot") {
        None => {
            raw.parameters = parameters;
            platform.bot_of(&bots.all(name), &raw).cloned()
        }
        Some(id) => {
            let is_unreadable = app.desk.directory().read(|view| view.unreadable().has("bot", &[name, id]));
            let absent = || match is_unreadable {
                true => {
                    Refusal::new(Code::Unavailable, format!("this server cannot read the record of {name} bot {id:?}"))
                }
                false => Refusal::new(Code::NotFound, format!("no {name} bot {id:?} was added")),
            };
            let found = bots.added(name, &id.into()).ok_or_else(absent)?;
            raw.parameters = parameters;
            Some(found)
        }
    };
    // Without a bot it is refused anyway.
    if let Some(bot) = &bot {
        if let Some(reservation) = request.extensions().get::<BodyReservation>() {
            reservation.send_to(name, &bot.id);
        }
        raw.body = whole(request, door.max_bytes).await?;
    }
    let request = raw;
    let received = match platform.receive(bot.as_deref(), &request).await {
        Ok(received) => received,
        Err(reply) => {
            note_refusal(app, name, &door, &reply);
            return Ok(DoorResponse::Reply(reply));
        }
    };
    let taken = app.desk.inbound().take_request(platform, &bot.unwrap_or_default(), received).await;
    let TakenRequest { response, afterwards } = taken?;
    if let Some(afterwards) = afterwards {
        app.sessions.spawn(afterwards);
    }
    Ok(response?)
}

/// Unauthenticated clients can cause refusals at any rate, so not each is logged; the metric counts all.
fn note_refusal(app: &App, platform: &str, door: &Door, reply: &Reply) {
    let count = app.doors_refused.fetch_add(1, Ordering::Relaxed) + 1;
    if count.is_power_of_two() {
        let (status, why) = (reply.status, &reply.body);
        tracing::warn!(platform, door = door.path, status, why, count, "a platform request was refused");
    }
}

fn texts_of(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    headers.iter().filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?))).collect()
}

/// A refusal in plain text is converted to the form of all refusals; any other is sent as the platform made it.
fn respond(reply: Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let code = match status {
        StatusCode::BAD_REQUEST => Code::BadRequest,
        StatusCode::UNAUTHORIZED => Code::Unauthorized,
        StatusCode::FORBIDDEN => Code::Forbidden,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::GONE => Code::Gone,
        StatusCode::CONFLICT => Code::Conflict,
        StatusCode::PAYLOAD_TOO_LARGE => Code::TooLarge,
        StatusCode::TOO_MANY_REQUESTS => Code::RateLimited,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        _ => Code::Internal,
    };
    let is_refusal = status.is_client_error() || status.is_server_error();
    if is_refusal && reply.content_type.starts_with("text/plain") {
        let mut response = Refusal::new(code, reply.body).into_response();
        *response.status_mut() = status;
        return response;
    }
    let kind = HeaderValue::from_static(reply.content_type);
    let mut response = (status, [(header::CONTENT_TYPE, kind)], Body::from(reply.body)).into_response();
    for (name, value) in reply.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().append(HeaderName::from_static(name), value);
        }
    }
    if is_refusal {
        response.extensions_mut().insert(RefusedWith(code.name()));
    }
    response
}
