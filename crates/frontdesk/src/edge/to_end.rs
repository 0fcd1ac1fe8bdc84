//! Runs requests that change something to completion, even if the client disconnects.

use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use frontdesk_wire::Code;
use tokio::time::timeout;

use super::App;
use super::error::Refusal;

/// An exchange waits for its reply only while the client is connected, and protects its own writes.
fn waits_for_its_client(path: &str) -> bool {
    path.starts_with("/v1/agents/") && path.ends_with("/exchange")
}

/// Limit for the bodies of requests in progress, in KiB: a request that continues after a disconnect keeps its body.
pub(super) const IN_HAND_KIB: usize = 1 << 20;
/// How long a request waits for others to finish.
const WAIT_TIME: Duration = Duration::from_secs(5);
/// Weight of a request whose length is unknown or whose body is streamed to disk.
const UNKNOWN_KIB: u64 = 64;

/// Memory that a request may hold, in KiB.
fn weight(request: &Request) -> u32 {
    let length = request.body().size_hint().exact().filter(|_| !request.uri().path().ends_with("/media"));
    let kib = length.map_or(UNKNOWN_KIB, |bytes| bytes / 1024 + 1);
    u32::try_from(kib.min(8 << 10)).unwrap_or(1)
}

/// Hyper drops a handler when its client disconnects, which would leave a change half done. Handlers of methods that
/// change something therefore run in a task that the server waits for at shutdown.
pub(super) async fn run_to_end(app: &App, request: Request, next: Next) -> Response {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if is_safe || waits_for_its_client(request.uri().path()) {
        return next.run(request).await;
    }
    let Ok(Ok(held)) = timeout(WAIT_TIME, app.in_hand.clone().acquire_many_owned(weight(&request))).await else {
        let text = "too many requests in progress; nothing was stored, try again";
        return Refusal::new(Code::Unavailable, text).into_response();
    };
    let work = async move {
        let response = next.run(request).await;
        drop(held);
        response
    };
    match app.sessions.spawn(work).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, "request handler panicked");
            // The outer layer converts it to the format of the path.
            let text = "internal error while processing this request; it may be partly done, see the server log";
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}
