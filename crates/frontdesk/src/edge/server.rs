//! Accepting connections: how many there may be, how slowly they may come and go, and a graceful end.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use frontdesk_core::meters::{Meters, Why};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::App;
use super::flow::{TimedBody, TimedStream};

/// A head that takes longer is an attack or a dead peer.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// What is in hand gets this long to finish when the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(8);
/// Pause after a failed accept (out of file descriptors): trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A peer that is turned away has this long to take the reason.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 10\r\n\
    connection: close\r\ncontent-length: 63\r\n\r\ntoo many connections are open; close some, or try again in 10 s";

/// How many connections may be open. 0 is no limit.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub total: usize,
    /// From one address. Loopback is exempt: behind a proxy on this machine everybody comes from there.
    pub per_peer: usize,
}

#[derive(Default)]
struct Open {
    total: usize,
    by_peer: HashMap<IpAddr, usize>,
}

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Total,
    Peer,
}

/// The connections that are open, counted.
#[derive(Clone)]
struct Counter {
    limits: ConnectionLimits,
    open: Arc<Mutex<Open>>,
}

/// A place among them. An upgraded socket holds it for as long as it is open, though its HTTP connection has ended.
#[derive(Clone)]
pub(crate) struct Place {
    _counted: Arc<Counted>,
}

/// One of them; dropped, it is closed.
struct Counted {
    counter: Counter,
    peer: IpAddr,
}

impl Counter {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why there is no room, or a place.
    fn admit(&self, peer: IpAddr) -> Result<Counted, Limit> {
        let mut open = self.open();
        if self.limits.total > 0 && open.total >= self.limits.total {
            return Err(Limit::Total);
        }
        let of_peer = open.by_peer.entry(peer).or_default();
        if self.limits.per_peer > 0 && *of_peer >= self.limits.per_peer && !peer.is_loopback() {
            return Err(Limit::Peer);
        }
        *of_peer += 1;
        open.total += 1;
        Ok(Counted { counter: self.clone(), peer })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.counter.open();
        open.total -= 1;
        if let Some(of_peer) = open.by_peer.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                open.by_peer.remove(&self.peer);
            }
        }
    }
}

/// Serves until the app's `stop`; returns when the connections have ended or their time is up.
pub async fn serve(listener: TcpListener, app: App, limits: ConnectionLimits) {
    let (sessions, stop, desk) = (app.sessions.clone(), app.stop.clone(), app.desk.clone());
    let router = super::router(app);
    let connections = TaskTracker::new();
    let counter = Counter { limits, open: Arc::default() };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match counter.admit(peer.ip()) {
            Ok(counted) => {
                let (router, stop) = (router.clone(), stop.clone());
                let place = Place { _counted: Arc::new(counted) };
                connections.spawn(serve_one(stream, peer, place, router, stop));
            }
            Err(limit) => {
                note_refused(desk.meters(), limit, peer.ip());
                connections.spawn(turn_away(stream));
            }
        }
    }
    drop(listener);
    connections.close();
    sessions.close();
    let drained = async { tokio::join!(connections.wait(), sessions.wait()) };
    if tokio::time::timeout(DRAIN_TIME, drained).await.is_err() {
        tracing::warn!("some connections were still open at the shutdown deadline; accepted messages are stored");
    }
}

async fn serve_one(stream: TcpStream, peer: SocketAddr, place: Place, router: Router, stop: CancellationToken) {
    let _ = stream.set_nodelay(true); // only a hint
    let service = router.map_request(move |request: http::Request<hyper::body::Incoming>| {
        let mut request = request.map(|body| axum::body::Body::new(TimedBody::new(body)));
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(place.clone());
        super::agents::take_capability(&mut request);
        request
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(TimedStream::new(stream)), TowerToHyperService::new(service))
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
        tracing::debug!(%error, "connection ended with an error");
    }
}

/// The first refusal of each power of two is logged: a flood must not fill the log.
fn note_refused(meters: &Meters, limit: Limit, peer: IpAddr) {
    let (why, setting) = match limit {
        Limit::Total => ("total", "server.connections_max"),
        Limit::Peer => ("peer", "server.connections_per_peer"),
    };
    let count = meters.connections_refused.get_or_create(&Why { why }).inc() + 1;
    if count.is_power_of_two() {
        tracing::warn!(%peer, setting, count, "connection refused: too many open connections");
    }
}

async fn turn_away(mut stream: TcpStream) {
    let told = async {
        stream.write_all(REFUSAL).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(REFUSAL_TIME, told).await; // it may be gone already
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_all_and_by_peer() {
        let counter = Counter { limits: ConnectionLimits { total: 4, per_peer: 2 }, open: Arc::default() };
        let peer = |last: u8| IpAddr::from([192, 0, 2, last]);
        let held: Vec<_> = [1, 1, 2].map(|last| counter.admit(peer(last)).ok().unwrap()).into();
        assert_eq!(counter.admit(peer(1)).err(), Some(Limit::Peer));
        let local = counter.admit(IpAddr::from([127, 0, 0, 1])).ok().unwrap();
        assert_eq!(counter.admit(peer(3)).err(), Some(Limit::Total));
        drop((held, local));
        assert!(counter.open().by_peer.is_empty() && counter.open().total == 0);
    }

    #[test]
    fn the_refusal_is_a_whole_answer() {
        let text = std::str::from_utf8(REFUSAL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
