//! Accepts connections: limits, timeouts and graceful shutdown.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::bail;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{HeaderValue, Version, header};
use axum::response::Response;
use frontdesk_core::meters::Meters;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::flow::{HEAD_TIME, Phase, Received, TimedBody, TimedStream, Unread, discard};
use super::{App, Edge};

/// A peer that disappeared without closing holds its connection for this time.
const KEEP_ALIVE_MAX_S: u64 = 3600;
/// Time for requests in progress to finish at shutdown.
const DRAIN_TIME: Duration = Duration::from_secs(8);
/// Service managers kill a process that takes too long to stop.
const DRAIN_MAX_S: u64 = 600;
/// The most bytes that a connection holds while the head of a request arrives.
const HEAD_MAX_BYTES: usize = 16 << 10;
/// Pause after a failed accept (out of file descriptors), to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time for a refused peer to read the reason.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 10\r\n\
    connection: close\r\ncontent-length: 63\r\n\r\ntoo many connections are open; close some, or try again in 10 s";

/// `[server]`: limits for connections and their memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub connections_max: usize,
    pub connections_per_peer: usize,
    pub keep_alive_s: u64,
    pub requests_per_tenant_kib: usize,
    pub answers_per_tenant_kib: usize,
    pub drain_s: u64,
}

impl Settings {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.requests_per_tenant_kib < 8192 {
            bail!("server.requests_per_tenant_kib must be at least 8192, the size of two large requests");
        }
        if self.answers_per_tenant_kib < 2048 {
            bail!("server.answers_per_tenant_kib must be at least 2048, the size of one large response");
        }
        if !(1..=KEEP_ALIVE_MAX_S).contains(&self.keep_alive_s) {
            bail!("server.keep_alive_s must be from 1 to {KEEP_ALIVE_MAX_S}");
        }
        if self.drain_s > DRAIN_MAX_S {
            bail!("server.drain_s must be at most {DRAIN_MAX_S}");
        }
        Ok(())
    }

    /// How long other servers have to take over.
    pub(crate) fn drain_time(&self) -> Duration {
        Duration::from_secs(self.drain_s)
    }

    pub(crate) fn limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: self.connections_max,
            per_peer: self.connections_per_peer,
            keep_alive: Duration::from_secs(self.keep_alive_s),
        }
    }
}

/// Limits for open connections. A count of 0: no limit.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub total: usize,
    /// Connections from one address, or from one /64 network of IPv6, which may belong to one user. Loopback is exempt,
    /// because behind a local proxy all clients have that address.
    pub per_peer: usize,
    /// A connection stays open for the next request at least this long, and `HEAD_TIME` more at most.
    pub keep_alive: Duration,
}

#[derive(Default)]
struct Open {
    total: usize,
    by_peer: HashMap<IpAddr, usize>,
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Total,
    Peer,
}

/// Counts open connections.
#[derive(Clone)]
struct Counter {
    limits: ConnectionLimits,
    open: Arc<Mutex<Open>>,
}

/// A counted connection. An upgraded socket holds it while it is open, although its HTTP connection has ended.
#[derive(Clone)]
pub(crate) struct ConnectionSlot {
    _counted: Arc<Counted>,
    pub(crate) received: Received,
}

/// One counted connection; uncounted when dropped.
struct Counted {
    counter: Counter,
    peer: IpAddr,
}

impl Counter {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the connection, or returns the limit that was reached.
    fn admit(&self, peer: IpAddr) -> Result<Counted, Limit> {
        let peer = network_of(peer);
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

/// Whose connections are counted together.
fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
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

/// After a restart all agents connect at the same time. Above this backlog the system drops the first packet of a
/// connection, and the client repeats it after a second or more. `net.core.somaxconn` may lower the limit.
const BACKLOG: u32 = 4096;

/// Like `TcpListener::bind`, whose backlog is only 128.
pub async fn listen(address: &str) -> io::Result<TcpListener> {
    let mut failed = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in lookup_host(address).await? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    #[cfg(unix)]
    socket.set_reuseaddr(true)?; // elsewhere it means that two servers may have one port
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until the app's `stop`; returns when all connections have ended or the drain time has passed.
pub async fn serve(listener: TcpListener, app: App, limits: ConnectionLimits) {
    let (sessions, stop, desk) = (app.sessions.clone(), app.stop.clone(), app.desk.clone());
    let edge = Edge::new(app);
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
                let (edge, stop) = (edge.clone(), stop.clone());
                let slot = ConnectionSlot { _counted: Arc::new(counted), received: Received::default() };
                connections.spawn(serve_one(stream, peer, slot, edge, stop, limits.keep_alive));
            }
            Err(limit) => {
                note_refused(desk.meters(), limit, peer.ip());
                connections.spawn(refuse_connection(stream));
            }
        }
    }
    drop(listener);
    connections.close();
    sessions.close();
    let drained = async {
        connections.wait().await; // one that ends may leave a request to the sessions
        sessions.wait().await;
    };
    if tokio::time::timeout(DRAIN_TIME, drained).await.is_err() {
        tracing::warn!("some connections were still open at the shutdown deadline; accepted messages are stored");
    }
}

async fn serve_one(
    stream: TcpStream,
    peer: SocketAddr,
    slot: ConnectionSlot,
    edge: Edge,
    stop: CancellationToken,
    keep_alive: Duration,
) {
    let _ = stream.set_nodelay(true); // optimization only
    let received = slot.received.clone();
    let answer = move |mut request: Request| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(slot.clone());
        super::agents::take_capability(&mut request);
        edge.clone().answer(request)
    };
    if let Err(error) = serve_http(stream, received, keep_alive, answer, stop).await {
        tracing::debug!(%error, "connection ended with an error");
    }
}

async fn serve_http<S, F>(
    stream: S,
    received: Received,
    keep_alive: Duration,
    answer: impl Fn(Request) -> F,
    stop: CancellationToken,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response>,
{
    let phase = Phase::default();
    let stream = TimedStream::new(stream, phase.clone(), received);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let answering = phase.answering();
        let (request, unread) = timed(request);
        let answer = answer(request);
        async move {
            let response = answer.await;
            let status = response.status();
            if let Some(rest) = unread.and_then(|unread| unread.take())
                && (status.is_client_error() || status.is_server_error())
            {
                discard(Body::new(rest)).await;
            }
            Ok::<_, Infallible>(answering.with(response))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // Counts from the end of a response to the end of the next head. The stream limits the time of the head itself.
        .header_read_timeout(keep_alive + HEAD_TIME)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// With a limit on the time of its body, and what will be left of that.
fn timed(request: http::Request<Incoming>) -> (Request, Option<Unread<Incoming>>) {
    let (head, body) = request.into_parts();
    if body.is_end_stream() {
        return (Request::from_parts(head, Body::empty()), None);
    }
    let expects = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    let waits = head.version == Version::HTTP_11 && head.headers.get(header::EXPECT).is_some_and(expects);
    let (body, unread) = TimedBody::new(body, waits);
    (Request::from_parts(head, Body::new(body)), Some(unread))
}

/// Logs only the refusals 1, 2, 4, 8 and so on, so that a flood does not fill the log.
fn note_refused(meters: &Meters, limit: Limit, peer: IpAddr) {
    let (why, setting) = match limit {
        Limit::Total => ("total", "server.connections_max"),
        Limit::Peer => ("peer", "server.connections_per_peer"),
    };
    let count = meters.connection_refused(why);
    if count.is_power_of_two() {
        tracing::warn!(%peer, setting, count, "connection refused: too many open connections");
    }
}

async fn refuse_connection(mut stream: TcpStream) {
    let refusing = async {
        stream.write_all(REFUSAL).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(REFUSAL_TIME, refusing).await; // the peer may already be gone
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};

    use super::*;

    #[test]
    fn connections_are_counted_in_total_and_per_peer() {
        let counter = Counter {
            limits: ConnectionLimits { total: 4, per_peer: 2, keep_alive: Duration::ZERO },
            open: Arc::default(),
        };
        let peer = |last: u8| IpAddr::from([192, 0, 2, last]);
        let held: Vec<_> = [1, 1, 2].map(|last| counter.admit(peer(last)).ok().unwrap()).into();
        assert_eq!(counter.admit(peer(1)).err(), Some(Limit::Peer));
        let local = counter.admit(IpAddr::from([127, 0, 0, 1])).ok().unwrap();
        assert_eq!(counter.admit(peer(3)).err(), Some(Limit::Total));
        drop((held, local));
        let address = |text: &str| counter.admit(text.parse().unwrap());
        let held = [address("2001:db8::1"), address("2001:db8::2")].map(|it| it.ok().unwrap());
        assert_eq!(address("2001:db8::3:4").err(), Some(Limit::Peer), "of the same network");
        let other = [address("2001:db8:0:1::1"), address("::ffff:192.0.2.7")].map(|it| it.ok().unwrap());
        assert_eq!(other[1].peer, peer(7), "an IPv4 address");
        drop((held, other));
        assert!(counter.open().by_peer.is_empty() && counter.open().total == 0);
    }

    #[tokio::test]
    async fn hundreds_of_connections_may_wait_to_be_accepted() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
        let allowed: usize = allowed.and_then(|text| text.trim().parse().ok()).unwrap_or(128);
        let listener = listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while waiting.len() < allowed.min(400) {
            let connected = tokio::time::timeout(Duration::from_secs(30), TcpStream::connect(address)).await;
            waiting.push(connected.unwrap_or_else(|_| panic!("{} connections wait", waiting.len())).unwrap());
        }
        assert!(listen(&address.to_string()).await.is_err(), "the port is in use");
    }

    type Client = tokio::io::BufReader<tokio::io::DuplexStream>;

    /// A connection of a server whose requests to /slow take 20 s and whose requests to /socket are upgraded.
    fn connect() -> (Client, tokio::task::JoinHandle<hyper::Result<()>>) {
        let (theirs, ours) = tokio::io::duplex(64 << 10);
        let answer = |request: Request| async move {
            match request.uri().path() {
                "/slow" => tokio::time::sleep(Duration::from_secs(20)).await,
                "/socket" => {
                    let upgrade = hyper::upgrade::on(request);
                    tokio::spawn(async move {
                        let mut socket = TokioIo::new(upgrade.await.unwrap());
                        let (mut from, mut to) = tokio::io::split(&mut socket);
                        let _ = tokio::io::copy(&mut from, &mut to).await; // ends with the peer
                    });
                    let upgraded = http::Response::builder().status(101).header("upgrade", "echo");
                    return upgraded.header("connection", "upgrade").body(Body::empty()).unwrap();
                }
                _ => {}
            }
            Response::new(Body::from("done"))
        };
        let keep_alive = Duration::from_secs(75);
        let serving = tokio::spawn(serve_http(ours, Received::default(), keep_alive, answer, CancellationToken::new()));
        (tokio::io::BufReader::new(theirs), serving)
    }

    async fn ask(client: &mut Client, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nhost: desk\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        answer_of(client).await
    }

    async fn answer_of(client: &mut Client) -> String {
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\n") {
            assert!(client.read_line(&mut answer).await.unwrap() > 0, "closed after {answer:?}");
        }
        if answer.contains("content-length: 4") {
            client.read_exact(&mut [0; 4]).await.unwrap();
        }
        answer
    }

    /// How many seconds pass until the server closes the connection.
    async fn seconds_to_close(client: &mut Client) -> u64 {
        let began = tokio::time::Instant::now();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_arrive_ends_the_connection_sooner_than_silence_between_requests() {
        let (mut client, _serving) = connect();
        assert_eq!(seconds_to_close(&mut client).await, 10, "nothing is sent");
        let (mut client, _serving) = connect();
        for piece in ["GET / HT", "TP/1.1\r\n", "host:"] {
            tokio::time::sleep(Duration::from_secs(3)).await;
            client.write_all(piece.as_bytes()).await.unwrap();
        }
        assert_eq!(seconds_to_close(&mut client).await, 1, "progress gives no more time");

        let (mut client, _serving) = connect();
        for path in ["/", "/slow", "/"] {
            assert!(ask(&mut client, path).await.starts_with("HTTP/1.1 200"));
            tokio::time::sleep(Duration::from_secs(70)).await;
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        client.write_all(b"GET / HT").await.unwrap();
        assert_eq!(seconds_to_close(&mut client).await, 10, "a head that has begun");
        let (mut client, _serving) = connect();
        ask(&mut client, "/").await;
        assert_eq!(seconds_to_close(&mut client).await, 85, "no other request");
    }

    #[tokio::test(start_paused = true)]
    async fn the_body_of_a_refused_request_is_no_head() {
        let (mut client, _serving) = connect();
        let mut request = b"POST / HTTP/1.1\r\nhost: desk\r\ncontent-length: 16000\r\n\r\n".to_vec();
        request.resize(request.len() + 16_000, b'x');
        client.write_all(&request).await.unwrap();
        assert!(answer_of(&mut client).await.starts_with("HTTP/1.1 200"), "answered without its body");
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert!(ask(&mut client, "/").await.starts_with("HTTP/1.1 200"));
    }

    /// A body of an answer may be dropped after the next request has begun.
    #[test]
    fn only_the_current_request_ends_its_phase() {
        let phase = Phase::default();
        let (first, second) = (phase.answering(), phase.answering());
        drop(first);
        assert!(phase.is_answering());
        drop(second);
        assert!(!phase.is_answering());
    }

    #[tokio::test(start_paused = true)]
    async fn an_upgraded_connection_may_be_silent() {
        let (mut client, _serving) = connect();
        ask(&mut client, "/").await;
        assert!(ask(&mut client, "/socket").await.starts_with("HTTP/1.1 101"));
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(200)).await;
            client.write_all(b"x").await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), b'x');
        }
    }

    #[test]
    fn the_refusal_is_a_complete_response() {
        let text = std::str::from_utf8(REFUSAL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
