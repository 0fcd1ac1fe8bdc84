//! The transport over a WebSocket: reconnects, keeps waiting for results across a reconnect, acks after the handler has
//! returned, and drops duplicate events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frontdesk_wire::frame::{DeskFrame, GatewayLine};
use frontdesk_wire::lines::Lines;
use frontdesk_wire::{Action, ActionResult, Close, Code, Descriptor, MessageEvent, Secret, token};
use futures_util::stream::FuturesUnordered;
use futures_util::{Sink, SinkExt as _, StreamExt as _};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_websockets::{ClientBuilder, Message};

use crate::transport::{BoxFuture, Handler, Inbound, RelayTransport, TransportError};

const RESULT_TIME: Duration = Duration::from_secs(30);
const HANDSHAKE_TIME: Duration = Duration::from_secs(30);
/// A server that accepts no data for this long counts as gone.
const WRITE_TIME: Duration = Duration::from_secs(30);
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// After this silence a ping is sent; after `SILENCE_MAX` the server counts as gone.
const PING_AFTER: Duration = Duration::from_secs(30);
const SILENCE_MAX: Duration = Duration::from_secs(75);
const IDLE_ACK_TIME: Duration = Duration::from_secs(10);
/// Close code for a platform or bot that the tenant does not have.
const NO_SUCH_BOT: u16 = 4403;
const WORKING_EVERY: Duration = Duration::from_secs(5);
const FINISH_TIME: Duration = Duration::from_secs(2);
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A connection that was up for this long counts as healthy, and resets the reconnect delay.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);
const TOKEN_TTL_S: u64 = 300;
const FRAME_MAX_BYTES: usize = 1 << 20;
/// Buffer ids kept to drop duplicates.
const SEEN_MAX: usize = 4096;
/// Capacity of the queues of lines and events, and of a concurrent handler: more than a server sends without acks.
const QUEUE_MAX: usize = 1024;

/// Where to connect, and as which gateway.
#[derive(Clone)]
pub struct Dial {
    /// Base URL of the server (`http`, `https`, `ws` or `wss`).
    pub url: String,
    pub gateway_id: String,
    pub secret: Secret,
    /// (platform, bot id); the first is the default. `("relay", "")` is the built-in chat.
    pub identities: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Down,
    /// Closed on purpose; waits to be woken.
    Dormant,
    Up,
    Ended(TransportError),
}

struct Shared {
    dial: Dial,
    /// Maximum of concurrent deliveries in the handler.
    in_flight_max: usize,
    /// Whether a refusal of the first connection ends the transport.
    is_strict: bool,
    handler: Mutex<Option<Handler>>,
    pending: Mutex<HashMap<String, oneshot::Sender<ActionResult>>>,
    idle_ack: Mutex<Option<oneshot::Sender<()>>>,
    lines: Mutex<Option<mpsc::Sender<String>>>,
    descriptor: watch::Sender<Option<Descriptor>>,
    descriptors: Mutex<HashMap<String, Descriptor>>,
    phase: watch::Sender<Phase>,
    seen: Mutex<(HashSet<String>, VecDeque<String>)>,
    /// Buffer ids in the handler, and since when. Used to drop deliveries that are repeated on a new socket.
    handling: Mutex<HashMap<String, Instant>>,
    handled: tokio::sync::Notify,
    /// Deliveries that wait for the handler.
    queued: AtomicUsize,
    /// Number of connections so far.
    connections: AtomicU64,
    handshaken: AtomicBool,
    dormant: AtomicBool,
    wake: tokio::sync::Notify,
    requests: AtomicU64,
    stop: CancellationToken,
}

pub struct SocketTransport {
    shared: Arc<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

impl SocketTransport {
    /// The handler gets one delivery after the other.
    pub fn new(dial: Dial) -> Self {
        Self::with(dial, 1, false)
    }

    /// The handler gets deliveries while it still has others, and each is acked when it is done. A refusal of the first
    /// connection ends this transport.
    pub(crate) fn concurrent(dial: Dial) -> Self {
        Self::with(dial, QUEUE_MAX, true)
    }

    fn with(dial: Dial, in_flight_max: usize, is_strict: bool) -> Self {
        let shared = Shared {
            dial,
            in_flight_max,
            is_strict,
            handler: Mutex::default(),
            pending: Mutex::default(),
            idle_ack: Mutex::default(),
            lines: Mutex::default(),
            descriptor: watch::Sender::new(None),
            descriptors: Mutex::default(),
            phase: watch::Sender::new(Phase::Down),
            seen: Mutex::default(),
            handling: Mutex::default(),
            handled: tokio::sync::Notify::new(),
            queued: AtomicUsize::new(0),
            connections: AtomicU64::new(0),
            handshaken: AtomicBool::new(false),
            dormant: AtomicBool::new(false),
            wake: tokio::sync::Notify::new(),
            requests: AtomicU64::new(random() & 0xffff_ffff),
            stop: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Ends dormancy and connects at once.
    pub fn wake(&self) {
        self.shared.dormant.store(false, Ordering::SeqCst);
        self.shared.wake.notify_one();
    }

    pub fn is_dormant(&self) -> bool {
        *self.shared.phase.borrow() == Phase::Dormant
    }

    /// The credential was revoked; this transport does not connect again.
    pub fn is_revoked(&self) -> bool {
        *self.shared.phase.borrow() == Phase::Ended(TransportError::Revoked)
    }

    /// Waits until the transport has ended permanently, and returns the reason.
    pub async fn ended(&self) -> TransportError {
        let mut phase = self.shared.phase.subscribe();
        loop {
            if let Phase::Ended(why) = &*phase.borrow_and_update() {
                return why.clone();
            }
            if phase.changed().await.is_err() {
                return TransportError::NotConnected;
            }
        }
    }

    /// What a platform can do, once the server has described it.
    pub fn descriptor_of(&self, platform: &str) -> Option<Descriptor> {
        lock(&self.shared.descriptors).get(platform).cloned()
    }

    /// Waits for a connection, for at most so long.
    pub async fn wait_until_up(&self, limit: Duration) {
        let mut phase = self.shared.phase.subscribe();
        let up = phase.wait_for(|phase| matches!(phase, Phase::Up | Phase::Ended(_)));
        let _ = timeout(limit, up).await; // whatever follows says that there is none
    }

    /// Carries out an action on a platform; `None` is the first one.
    pub async fn act(&self, platform: Option<&str>, action: Action) -> Result<ActionResult, TransportError> {
        let request_id = format!("r{:x}", self.shared.requests.fetch_add(1, Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        lock(&self.shared.pending).insert(request_id.clone(), answer);
        let action = action.to_value();
        let line = GatewayLine::Outbound { request_id: &request_id, action: &action, platform, bot_id: None }.line();
        if line.len() > FRAME_MAX_BYTES {
            lock(&self.shared.pending).remove(&request_id);
            let text = format!("the action has {} bytes, and the server accepts {FRAME_MAX_BYTES}", line.len());
            return Ok(ActionResult::refused(Code::TooLarge, text));
        }
        let sent = self.send_line(line).await;
        // The result may arrive on the next socket, so keep waiting across a reconnect.
        let result = match sent {
            Ok(()) => match timeout(RESULT_TIME, answered).await {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(_)) => Err(TransportError::NotConnected),
                Err(_) => Err(TransportError::Timeout),
            },
            Err(error) => Err(error),
        };
        lock(&self.shared.pending).remove(&request_id);
        result
    }

    /// Number of the connection, which changes when there is another one.
    pub fn connection(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Whether received deliveries are not finished yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.queued.load(Ordering::SeqCst) > 0 || !lock(&self.shared.handling).is_empty()
    }

    /// Reconnects: after `going_idle` the server keeps messages until a new connection.
    pub(crate) fn redial(&self) {
        *lock(&self.shared.lines) = None; // closing the channel closes the socket
    }

    /// Tells the operator of a problem that the agent has; `None`: it has none any more.
    pub async fn report(&self, problem: Option<&str>) -> Result<(), TransportError> {
        self.send_line(GatewayLine::Report { problem }.line()).await
    }

    /// Base URL of the server, and a token for it.
    pub(crate) fn access(&self) -> (String, String) {
        let base = relay_url(&self.shared.dial.url).replacen("ws", "http", 1);
        (base.trim_end_matches("/relay").to_owned(), upgrade_token(&self.shared.dial))
    }

    /// Closes the socket and ends this transport.
    pub(crate) async fn finish(&self) {
        let mut phase = self.shared.phase.subscribe();
        self.shared.dormant.store(true, Ordering::SeqCst);
        *lock(&self.shared.lines) = None; // closing the channel closes the socket
        let down = phase.wait_for(|phase| matches!(phase, Phase::Dormant | Phase::Ended(_)));
        let _ = timeout(FINISH_TIME, down).await; // the server may not answer
        self.shared.stop.cancel();
        *lock(&self.shared.handler) = None; // it may own this transport
    }

    async fn send_line(&self, line: String) -> Result<(), TransportError> {
        let lines = lock(&self.shared.lines).clone().ok_or(TransportError::NotConnected)?;
        lines.send(line).await.map_err(|_| TransportError::NotConnected)
    }
}

impl Drop for SocketTransport {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl RelayTransport for SocketTransport {
    fn connect(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async {
            let mut phase = self.shared.phase.subscribe();
            tokio::spawn(supervise(self.shared.clone()));
            let up = phase.wait_for(|phase| matches!(phase, Phase::Up | Phase::Ended(_)));
            let reached = timeout(HANDSHAKE_TIME, up).await.map_err(|_| TransportError::Timeout)?;
            match reached.as_deref() {
                Ok(Phase::Ended(why)) => Err(why.clone()),
                Ok(_) => Ok(()),
                Err(_) => Err(TransportError::NotConnected),
            }
        })
    }

    fn disconnect(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.go_idle().await;
            self.shared.stop.cancel();
        })
    }

    fn handshake(&self) -> BoxFuture<'_, Result<Descriptor, TransportError>> {
        Box::pin(async {
            let mut descriptor = self.shared.descriptor.subscribe();
            let ready = timeout(HANDSHAKE_TIME, descriptor.wait_for(Option::is_some));
            let ready = ready.await.map_err(|_| TransportError::Timeout)?;
            ready.ok().and_then(|found| found.clone()).ok_or(TransportError::NotConnected)
        })
    }

    fn set_inbound_handler(&self, handler: Handler) {
        *lock(&self.shared.handler) = Some(handler);
    }

    fn send_outbound(&self, action: Action) -> BoxFuture<'_, Result<ActionResult, TransportError>> {
        Box::pin(self.act(None, action))
    }

    fn send_interrupt<'a>(
        &'a self,
        session_key: &'a str,
        reason: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.send_line(GatewayLine::Interrupt { session_key, reason }.line()))
    }

    fn go_idle(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let (answer, answered) = oneshot::channel();
            *lock(&self.shared.idle_ack) = Some(answer);
            if self.send_line(GatewayLine::GoingIdle.line()).await.is_err() {
                return false;
            }
            matches!(timeout(IDLE_ACK_TIME, answered).await, Ok(Ok(())))
        })
    }

    fn go_dormant(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let confirmed = self.go_idle().await;
            self.shared.dormant.store(true, Ordering::SeqCst);
            *lock(&self.shared.lines) = None; // closing the channel closes the socket
            confirmed
        })
    }
}

/// Connects until stopped: with growing delays after failures, and not while dormant.
async fn supervise(shared: Arc<Shared>) {
    let mut backoff = BACKOFF_FIRST;
    loop {
        let began = Instant::now();
        let run = tokio::select! {
            run = run_socket(&shared) => run,
            () = shared.stop.cancelled() => Err(TransportError::NotConnected),
        };
        *lock(&shared.lines) = None;
        if shared.stop.is_cancelled() {
            shared.phase.send_replace(Phase::Ended(TransportError::NotConnected));
            return;
        }
        if began.elapsed() >= HEALTHY_AFTER {
            backoff = BACKOFF_FIRST;
        }
        let is_final = shared.is_strict && matches!(run, Err(TransportError::Closed { code: NO_SUCH_BOT, .. }));
        match run {
            Err(end) if is_final => {
                shared.phase.send_replace(Phase::Ended(end));
                return;
            }
            Err(end @ (TransportError::Revoked | TransportError::BadUrl(_))) => {
                tracing::warn!(%end, "the relay transport ended");
                shared.phase.send_replace(Phase::Ended(end));
                return;
            }
            Err(TransportError::Closed { reason, .. }) if reason == Close::Replaced.reason() => {
                tracing::warn!(
                    "another process connected as this gateway and took over; each gateway needs an id of its own"
                );
            }
            Err(why) => tracing::info!(%why, "relay connection lost"),
            Ok(()) => backoff = BACKOFF_FIRST,
        }
        if shared.dormant.load(Ordering::SeqCst) {
            shared.phase.send_replace(Phase::Dormant);
            tokio::select! {
                () = shared.wake.notified() => {}
                () = shared.stop.cancelled() => {}
            }
            backoff = BACKOFF_FIRST;
            continue;
        }
        shared.phase.send_replace(Phase::Down);
        let jitter = Duration::from_millis(random() % (u64::try_from(backoff.as_millis()).unwrap_or(1000) / 4 + 1));
        tokio::select! {
            () = tokio::time::sleep(backoff + jitter) => {}
            () = shared.wake.notified() => {}
            () = shared.stop.cancelled() => {}
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

fn upgrade_token(dial: &Dial) -> String {
    #[allow(clippy::disallowed_methods)] // agents use real time; the server tolerates skew
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    token::mint(&dial.gateway_id, &dial.secret, now_s + TOKEN_TTL_S)
}

/// Lines that were not written when a socket ended. Their actions were certainly not carried out.
struct Unsent<'a> {
    shared: &'a Shared,
    lines: mpsc::Receiver<String>,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.lines.close();
        while let Ok(line) = self.lines.try_recv() {
            let frame: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            // Dropping the sender tells the waiting caller that there is no connection.
            lock(&self.shared.pending).remove(frame["requestId"].as_str().unwrap_or_default());
        }
    }
}

async fn write(
    sink: &mut (impl Sink<Message, Error = tokio_websockets::Error> + Unpin),
    message: Message,
) -> Result<(), TransportError> {
    let closed = |reason: String| TransportError::Closed { code: 1006, reason };
    let written =
        timeout(WRITE_TIME, sink.send(message)).await.map_err(|_| closed("the server does not read".into()))?;
    written.map_err(|error| closed(error.to_string()))
}

/// One socket from connect to close. `Ok` if it had been up.
async fn run_socket(shared: &Arc<Shared>) -> Result<(), TransportError> {
    let uri: http::Uri = relay_url(&shared.dial.url).parse().map_err(|e| TransportError::BadUrl(format!("{e}")))?;
    let header = http::HeaderValue::from_str(&format!("Bearer {}", upgrade_token(&shared.dial)))
        .map_err(|e| TransportError::BadUrl(e.to_string()))?;
    let builder = ClientBuilder::from_uri(uri)
        .add_header(http::header::AUTHORIZATION, header)
        .map_err(|e| TransportError::BadUrl(e.to_string()))?;
    let closed = |reason: String| TransportError::Closed { code: 1006, reason };
    let up_by = Instant::now() + HANDSHAKE_TIME;
    let late = |_| closed(format!("the server did not answer within {} s", HANDSHAKE_TIME.as_secs()));
    let (socket, _) = timeout_at(up_by, builder.connect()).await.map_err(late)?.map_err(|e| closed(e.to_string()))?;
    let (mut sink, mut stream) = socket.split();
    for (platform, bot_id) in &shared.dial.identities {
        // With a handler in place no event is dropped, so the server need not delay them.
        let ready = lock(&shared.handler).is_some();
        let hello = GatewayLine::Hello { platform, bot_id, ready }.line();
        write(&mut sink, Message::text(hello)).await?;
    }
    let (line_tx, line_rx) = mpsc::channel::<String>(QUEUE_MAX);
    let mut line_rx = Unsent { shared, lines: line_rx };
    let (event_tx, event_rx) = mpsc::channel(QUEUE_MAX);
    tokio::spawn(hand_over(shared.clone(), event_rx, line_tx.downgrade())); // it ends after `event_tx` is dropped
    let mut lines = Lines::new(FRAME_MAX_BYTES);
    let mut offered = Some(line_tx);
    let mut up = false;
    let mut last_received = Instant::now();
    let mut work = tokio::time::interval(WORKING_EVERY);
    loop {
        tokio::select! {
            _ = work.tick() => {
                // Reports deliveries in progress, so that the server does not send them again.
                let is_slow = |since: &Instant| since.elapsed() >= WORKING_EVERY / 2;
                let slow: Vec<String> =
                    lock(&shared.handling).iter().filter(|(_, since)| is_slow(since)).map(|(id, _)| id.clone()).collect();
                if up && !slow.is_empty() {
                    let line = GatewayLine::InboundWorking { buffer_ids: &slow }.line();
                    write(&mut sink, Message::text(line)).await?;
                }
                if last_received.elapsed() >= SILENCE_MAX {
                    return Err(closed(format!("the server was silent for {} s", SILENCE_MAX.as_secs())));
                }
                if last_received.elapsed() >= PING_AFTER {
                    write(&mut sink, Message::ping("")).await?;
                }
            }
            line = line_rx.lines.recv() => {
                let Some(mut line) = line else { break }; // all senders are dropped: dormant
                while let Ok(more) = line_rx.lines.try_recv() {
                    line.push_str(&more); // several frames may share one message
                }
                write(&mut sink, Message::text(line)).await?;
            }
            () = sleep_until(up_by), if !up => return Err(closed("the server sent no descriptor".into())),
            message = stream.next() => match message {
                Some(Ok(message)) if message.is_close() => {
                    let (code, reason) = message.as_close().map_or((1005, String::new()), |(code, why)| (code.into(), why.to_owned()));
                    let is_final = shared.is_strict || shared.handshaken.load(Ordering::SeqCst);
                    if code == 4401 && reason != "expired" && is_final {
                        return Err(TransportError::Revoked);
                    }
                    if code == NO_SUCH_BOT || reason == Close::Replaced.reason() {
                        return Err(TransportError::Closed { code, reason });
                    }
                    return if up { Ok(()) } else { Err(TransportError::Closed { code, reason }) };
                }
                Some(Ok(message)) => {
                    last_received = Instant::now();
                    let Some(text) = message.as_text() else { continue };
                    let mut frames = Vec::new();
                    lines.push(text, |line| frames.extend(serde_json::from_str::<DeskFrame>(line))).map_err(|_| closed("a frame is too long".into()))?;
                    for frame in frames {
                        if let DeskFrame::Descriptor { descriptor } = &frame {
                            lock(&shared.descriptors).insert(descriptor.platform.clone(), descriptor.clone());
                            if !up {
                                up = true;
                                shared.handshaken.store(true, Ordering::SeqCst);
                                shared.connections.fetch_add(1, Ordering::SeqCst);
                                *lock(&shared.lines) = offered.take();
                                shared.descriptor.send_replace(Some(descriptor.clone()));
                                shared.phase.send_replace(Phase::Up);
                            }
                        }
                        take_frame(shared, frame, &event_tx).await;
                    }
                }
                Some(Err(error)) => return if up { Ok(()) } else { Err(closed(error.to_string())) },
                None => return if up { Ok(()) } else { Err(closed("the server closed the connection".into())) },
            }
        }
    }
    let _ = timeout(CLOSE_TIME, sink.close()).await; // best effort: the peer may be gone
    Ok(())
}

async fn take_frame(shared: &Shared, frame: DeskFrame, events: &mpsc::Sender<(Inbound, Option<String>)>) {
    let (inbound, buffer_id) = match frame {
        DeskFrame::OutboundResult { request_id, result } => {
            if let Some(waiting) = lock(&shared.pending).remove(&request_id) {
                let _ = waiting.send(result); // the caller may be gone
            }
            return;
        }
        DeskFrame::GoingIdleAck => {
            if let Some(waiting) = lock(&shared.idle_ack).take() {
                let _ = waiting.send(());
            }
            return;
        }
        DeskFrame::Inbound { event, buffer_id } => match serde_json::from_value::<MessageEvent>(event) {
            Ok(event) => (Inbound::Event(Box::new(event)), buffer_id),
            Err(error) => return tracing::warn!(%error, "skipped an invalid event of the server"),
        },
        DeskFrame::PassthroughForward { forward, buffer_id } => (Inbound::Forward(forward), buffer_id),
        // Queued behind the event that it is about; events do not wait for each other here.
        DeskFrame::InterruptInbound { session_key, chat_id } if shared.in_flight_max > 1 => {
            (Inbound::Interrupt { session_key, chat_id }, None)
        }
        DeskFrame::InterruptInbound { session_key, chat_id } => {
            // Bypasses the queue, because the turn to be stopped may be blocking it.
            let handler = lock(&shared.handler).clone();
            if let Some(handler) = handler {
                let interrupted = handler(Inbound::Interrupt { session_key, chat_id });
                tokio::spawn(async move {
                    interrupted.await;
                });
            }
            return;
        }
        DeskFrame::Descriptor { .. } | DeskFrame::Unknown => return,
    };
    shared.queued.fetch_add(1, Ordering::SeqCst);
    if events.send((inbound, buffer_id)).await.is_err() {
        shared.queued.fetch_sub(1, Ordering::SeqCst); // it stays unacked and is sent again
    }
}

/// Hands deliveries to the handler in order, up to a number at once, and acks each one when it is done.
async fn hand_over(
    shared: Arc<Shared>,
    mut events: mpsc::Receiver<(Inbound, Option<String>)>,
    lines: mpsc::WeakSender<String>,
) {
    let mut running = FuturesUnordered::new();
    let mut is_open = true;
    loop {
        tokio::select! {
            next = events.recv(), if is_open && running.len() < shared.in_flight_max => match next {
                Some((inbound, buffer_id)) => {
                    running.push(handle(shared.clone(), inbound, buffer_id));
                    shared.queued.fetch_sub(1, Ordering::SeqCst);
                }
                None => is_open = false,
            },
            Some(acked) = running.next(), if !running.is_empty() => {
                let (Some(id), Some(lines)) = (acked, lines.upgrade()) else { continue };
                let ack = GatewayLine::InboundAck { buffer_id: &id }.line();
                let _ = lines.send(ack).await; // after a lost ack the event is repeated, and `seen` drops it
            }
            else => return,
        }
    }
}

/// Returns the id that is to be acked. The handler is called before this returns, so that the order stays.
fn handle(
    shared: Arc<Shared>,
    inbound: Inbound,
    buffer_id: Option<String>,
) -> impl Future<Output = Option<String>> + Send {
    let is_new = buffer_id.as_ref().is_none_or(|id| {
        let mut handling = lock(&shared.handling);
        let is_new = !lock(&shared.seen).0.contains(id) && !handling.contains_key(id);
        if is_new {
            handling.insert(id.clone(), Instant::now());
        }
        is_new
    });
    let handler = if is_new { lock(&shared.handler).clone() } else { None };
    let handled = handler.map(|handler| handler(inbound));
    async move {
        let Some(id) = buffer_id else {
            if let Some(handled) = handled {
                handled.await;
            }
            return None;
        };
        if is_new {
            let is_done = match handled {
                Some(handled) => handled.await,
                None => false, // there is no handler: no ack
            };
            if is_done {
                remember(&mut lock(&shared.seen), &id);
            }
            lock(&shared.handling).remove(&id);
            shared.handled.notify_waiters();
        } else {
            loop {
                let ended = shared.handled.notified();
                if !lock(&shared.handling).contains_key(&id) {
                    break;
                }
                ended.await;
            }
        }
        lock(&shared.seen).0.contains(&id).then_some(id)
    }
}

fn remember((known, order): &mut (HashSet<String>, VecDeque<String>), id: &str) {
    if known.insert(id.to_owned()) {
        order.push_back(id.to_owned());
        if order.len() > SEEN_MAX
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
    }
}

/// The base URL, or one that already names the socket, as `ws(s)://.../relay`.
fn relay_url(url: &str) -> String {
    let trimmed = url.trim().trim_end_matches('/');
    let scheme = trimmed.replacen("https://", "wss://", 1).replacen("http://", "ws://", 1);
    if scheme.ends_with("/relay") { scheme } else { format!("{scheme}/relay") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dial_url_is_made_from_any_form() {
        for url in ["http://h:1", "http://h:1/", "ws://h:1/relay", " ws://h:1 "] {
            assert_eq!(relay_url(url), "ws://h:1/relay");
        }
        assert_eq!(relay_url("https://h/base/"), "wss://h/base/relay");
    }

    #[test]
    fn the_duplicate_filter_is_bounded() {
        let mut seen = (HashSet::new(), VecDeque::new());
        for number in 0..SEEN_MAX + 10 {
            remember(&mut seen, &number.to_string());
        }
        assert_eq!(seen.0.len(), SEEN_MAX);
        assert!(!seen.0.contains("0") && seen.0.contains("10"));
    }
}
