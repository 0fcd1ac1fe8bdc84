//! Runs requests that change something to completion, even if the client disconnects.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::Service as _;

use super::App;

/// An exchange waits for its reply only while the client is connected, and protects its own writes.
fn waits_for_its_client(method: &Method, path: &str) -> bool {
    method == Method::POST && path.starts_with("/v1/agents/") && path.ends_with("/exchange")
}

/// Hyper drops a handler when its client disconnects, which would leave a change half done. Handlers of methods that
/// change something therefore continue in a task of their own, and the server waits for it at shutdown.
pub(super) async fn run_to_end(app: &App, mut request: Request, mut routes: Router) -> Response {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if is_safe && request.body().is_end_stream() {
        return answered(routes.call(request).await);
    }
    let held = app.body_memory.reservation();
    request.extensions_mut().insert(held.clone());
    if waits_for_its_client(request.method(), request.uri().path()) {
        drop(held); // the handler releases the memory once its question is delivered
        return answered(routes.call(request).await);
    }
    let work = async move {
        let response = AssertUnwindSafe(routes.call(request)).catch_unwind().await;
        drop(held);
        if let Ok(response) = response {
            return answered(response);
        }
        tracing::error!("request handler panicked"); // the panic itself is in the log already
        // The caller converts it to the format of the path.
        let text = "internal error while processing this request; it may be partly done, see the server log";
        (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
    };
    DetachOnDrop::new(&app.sessions, app.desk.meters().requests_abandoned(), work).await
}

fn answered(response: Result<Response, Infallible>) -> Response {
    response.unwrap_or_else(|never| match never {})
}

/// Work that is polled by its caller, and continues as a task if the caller drops it.
///
/// Using a task from the start would cost each request several wakes, because body and response pass between two tasks.
struct DetachOnDrop {
    work: Option<Pin<Box<dyn Future<Output = Response> + Send>>>,
    /// Makes the server wait for the work from the start, not only once it is a task.
    token: TaskTrackerToken,
    runtime: Handle,
    abandoned: Counter,
}

impl DetachOnDrop {
    fn new(tracker: &TaskTracker, abandoned: Counter, work: impl Future<Output = Response> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), token: tracker.token(), runtime: Handle::current(), abandoned }
    }
}

impl Future for DetachOnDrop {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.abandoned.inc();
            self.token.task_tracker().spawn_on(work, &self.runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_that_is_dropped_goes_on_and_is_waited_for() {
        let (tracker, abandoned) = (TaskTracker::new(), Counter::default());
        let (go_on, resumed) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let mut work = Box::pin(DetachOnDrop::new(&tracker, abandoned.clone(), async move {
            let _ = resumed.await;
            let _ = done.send(());
            StatusCode::OK.into_response()
        }));
        assert!(work.as_mut().now_or_never().is_none(), "it waits");
        tracker.close();
        assert!(tracker.wait().now_or_never().is_none(), "the server waits for it");
        assert_eq!(abandoned.get(), 0);
        drop(work);
        assert_eq!(abandoned.get(), 1);
        assert!(tracker.wait().now_or_never().is_none(), "still");
        go_on.send(()).unwrap();
        tracker.wait().await;
        is_done.await.unwrap();
    }

    #[tokio::test]
    async fn work_that_ended_leaves_no_task() {
        let (tracker, abandoned) = (TaskTracker::new(), Counter::default());
        let response = DetachOnDrop::new(&tracker, abandoned.clone(), async { StatusCode::OK.into_response() }).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(tracker.is_empty());
        assert_eq!(abandoned.get(), 0);
    }
}
