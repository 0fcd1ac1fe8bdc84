//! Accepting connections: a limit on how slowly a head may come, and a graceful end.

use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// A head that takes longer is an attack or a dead peer.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// What is in hand gets this long to finish when the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(8);
/// Pause after a failed accept (out of file descriptors): trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`; returns when the connections have ended or their time is up.
pub async fn serve(listener: TcpListener, router: Router, sessions: TaskTracker, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true); // only a hint
        let router = router.clone();
        let stop = stop.clone();
        connections.spawn(async move {
            let service = router.map_request(move |request: http::Request<hyper::body::Incoming>| {
                let mut request = request.map(axum::body::Body::new);
                request.extensions_mut().insert(ConnectInfo(peer));
                super::agents::take_capability(&mut request);
                request
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .max_buf_size(64 * 1024)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
                .with_upgrades();
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended badly");
            }
        });
    }
    drop(listener);
    connections.close();
    sessions.close();
    let drained = async { tokio::join!(connections.wait(), sessions.wait()) };
    if tokio::time::timeout(DRAIN_TIME, drained).await.is_err() {
        tracing::warn!("some connections did not end in time; nothing accepted is lost");
    }
}
