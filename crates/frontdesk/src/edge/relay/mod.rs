//! The relay route: authenticates the gateway, then runs a session.

mod session;

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use frontdesk_core::directory::Unproven;
use frontdesk_wire::{Close, Code, token};
use tokio::time::timeout;

use super::{App, ConnectionSlot, auth, error};
use session::Begin;

/// Keeps an idle socket small; the buffer grows while large frames are read.
const READ_BUFFER_BYTES: usize = 1024;

/// Message limit for peers that are not authenticated.
const UNAUTHENTICATED_MAX_BYTES: usize = 4096;

/// Time limit for the peer's close frame.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// The subprotocol that is accepted.
const PROTOCOL: &str = "frontdesk.relay";
/// The one that carries the upgrade token, of clients whose WebSocket cannot set headers.
const TOKEN_PROTOCOL: &str = "bearer.";

/// The upgrade token: in `Authorization`, or without that header among the subprotocols.
fn upgrade_token(headers: &HeaderMap) -> Option<&str> {
    if headers.contains_key(header::AUTHORIZATION) {
        return auth::bearer(headers);
    }
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|value| value.to_str().ok());
    offered.flat_map(|value| value.split(',')).find_map(|protocol| protocol.trim().strip_prefix(TOKEN_PROTOCOL))
}

/// Refusals are sent as a close code on the open socket, because clients retry forever on HTTP 401.
pub(crate) async fn upgrade(
    State(app): State<App>,
    Extension(slot): Extension<ConnectionSlot>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    if app.drain.is_leaving() {
        // A load balancer that has not noticed yet can try another server.
        let text = "this server is stopping; connect again to reach another one";
        return error::Refusal::new(Code::Unavailable, text).into_response();
    }
    let upgrade = upgrade.protocols([PROTOCOL]).read_buffer_size(READ_BUFFER_BYTES).write_buffer_size(0);
    match auth::gateway(&app, upgrade_token(&headers)) {
        Ok(caller) => {
            let max = app.desk.rules().frame_max_bytes * 4; // one message may contain several frames
            let upgrade = upgrade.max_message_size(max).max_frame_size(max);
            let sessions = app.sessions.clone();
            let begin = Box::new(Begin { app, caller, slot });
            upgrade.on_upgrade(move |socket| sessions.track_future(session::run(begin, socket)))
        }
        Err(unproven) => {
            let close = match unproven {
                Unproven::Expired => Close::Expired,
                Unproven::Unauthorized => Close::Unauthorized,
                Unproven::Unavailable => Close::TryLater,
            };
            app.desk.meters().socket_refused(close.reason());
            log_refused(&app, &headers, close);
            let upgrade = upgrade.max_message_size(UNAUTHENTICATED_MAX_BYTES).max_frame_size(UNAUTHENTICATED_MAX_BYTES);
            upgrade.on_upgrade(move |socket| async move {
                refuse(socket, close).await;
                drop(slot);
            })
        }
    }
}

/// Logs why a gateway was refused, once per minute and gateway, because it may retry forever.
fn log_refused(app: &App, headers: &HeaderMap, close: Close) {
    let claimed = upgrade_token(headers).and_then(token::claim).map(|claimed| claimed.gateway_id);
    let known = claimed.as_ref().and_then(|id| app.desk.directory().read(|view| view.gateway(id).cloned()));
    if !app.desk.delivery().sockets().may_log_refused_dial(known.as_ref().map(|it| &it.id), app.desk.env().steady_ms())
    {
        return;
    }
    let why = match (&claimed, &known, close) {
        (None, ..) if upgrade_token(headers).is_some() => "the upgrade token is malformed",
        (None, ..) => "no upgrade token was sent",
        (Some(_), None, _) => "the gateway is unknown",
        (.., Close::Expired) => "the token has expired",
        (.., Close::TryLater) => "this server cannot check for revocations, because the store does not answer",
        (_, Some(gateway), _) if gateway.revoked_ms.is_some() => "the gateway was revoked",
        (_, Some(_), _) => "the token is not signed with the gateway's secret",
    };
    let gateway: String = claimed.unwrap_or_default().chars().take(128).collect();
    tracing::warn!(gateway, why, "relay connection refused");
}

/// Waits for the peer's close frame: closing while the peer sends could lose the reason.
async fn refuse(mut socket: WebSocket, close: Close) {
    let polite = async {
        socket.send(close_message(close)).await?;
        while let Some(Ok(_)) = socket.recv().await {}
        Ok::<_, axum::Error>(())
    };
    let _ = timeout(CLOSE_TIME, polite).await; // the peer may already be gone
}

fn close_message(close: Close) -> Message {
    Message::Close(Some(CloseFrame { code: close.code(), reason: close.reason().into() }))
}
