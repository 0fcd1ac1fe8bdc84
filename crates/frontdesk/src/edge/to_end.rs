//! A request that changes something runs to its end, whatever its client does.

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::App;

/// An exchange waits for an answer as long as its asker is on the line, and sees to its own writes.
fn waits_for_its_client(path: &str) -> bool {
    path.starts_with("/v1/agents/") && path.ends_with("/exchange")
}

/// Hyper drops a handler when its client disconnects; what it had begun would be left half done. So handlers of
/// changing methods run in a task that is waited for when the desk stops.
pub(super) async fn run_to_end(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if is_safe || waits_for_its_client(request.uri().path()) {
        return next.run(request).await;
    }
    match app.sessions.spawn(next.run(request)).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, "a handler panicked");
            // The layer outside gives it the form of its path.
            let text = "the desk failed while it worked on this request; it may be half done, and the operator's log has the reason";
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}
