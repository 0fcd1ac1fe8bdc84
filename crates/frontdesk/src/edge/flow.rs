//! Limits on the resources that a peer can hold: time to receive requests and send responses, and memory per tenant for
//! responses that are not read yet.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use frontdesk_core::port::store::PAGE_MAX_BYTES;
use futures_util::StreamExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};

/// Time limit for the head of a request.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(10);
/// A body without progress for this time is given up.
const BODY_IDLE_TIME: Duration = Duration::from_secs(15);
/// A peer that reads nothing for this time is given up. Gateways can block for half a minute, so it must be longer;
/// dead ones are detected much earlier by missing pongs and acks.
const WRITE_TIME: Duration = Duration::from_mins(1);
/// How long a response waits for budget of its tenant.
const BUDGET_TIME: Duration = Duration::from_secs(5);
/// How much of the body of a refused request is read and discarded, so that the sender can read the refusal.
const DISCARD_BYTES: usize = 32 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(3);

/// Fires after a time without progress. The timer is created on first use, because most bodies and responses need none.
#[derive(Default)]
struct Stall(Option<Pin<Box<Sleep>>>);

impl Stall {
    fn poll(&mut self, limit: Duration, context: &mut Context<'_>) -> Poll<()> {
        self.0.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context)
    }

    fn reset(&mut self) {
        self.0 = None;
    }
}

// ---- request bodies --------------------------------------------------------------------------

/// A request body that fails when it stops making progress.
pub(super) struct TimedBody<B> {
    /// `None`: it was dropped.
    body: Option<B>,
    stall: Stall,
    unread: Unread<B>,
    /// The rest of the body may still arrive.
    is_coming: bool,
}

/// The part of a request body that a handler did not read.
pub(super) struct Unread<B>(Arc<Mutex<Option<B>>>);

impl<B> Unread<B> {
    pub(super) fn take(&self) -> Option<B> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<B> TimedBody<B> {
    /// `waits`: the peer sends the body only after the server starts to read it.
    pub(super) fn new(body: B, waits: bool) -> (Self, Unread<B>) {
        let unread = Arc::default();
        let read =
            Self { body: Some(body), stall: Stall::default(), unread: Unread(Arc::clone(&unread)), is_coming: !waits };
        (read, Unread(unread))
    }
}

impl<B> Drop for TimedBody<B> {
    fn drop(&mut self) {
        if self.is_coming {
            *self.unread.0.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
        }
    }
}

impl<B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Unpin> HttpBody for TimedBody<B> {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
            self.is_coming = matches!(frame, Some(Ok(_)));
            self.stall.reset();
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        self.is_coming = true;
        ready!(self.stall.poll(BODY_IDLE_TIME, context));
        self.is_coming = false;
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

/// Reads and discards the rest for a moment: a peer whose connection is closed while it sends may never see the
/// response.
pub(super) async fn discard(body: Body) {
    let mut pieces = body.into_data_stream();
    let reading = async {
        let mut room = DISCARD_BYTES;
        while let Some(Ok(piece)) = pieces.next().await {
            match room.checked_sub(piece.len()) {
                Some(rest) => room = rest,
                None => return,
            }
        }
    };
    let _ = timeout(DISCARD_TIME, reading).await; // best effort, bounded in time and bytes
}

// ---- connections -----------------------------------------------------------------------------

/// Waiting for a request head that is due now or has begun to arrive.
const HEAD: u64 = 0;
const ANSWER: u64 = 1;
/// The rest of the request's body may still arrive.
const ANSWERED: u64 = 2;
/// The peer may send another request later.
const IDLE: u64 = 3;
/// The connection is not HTTP any more.
const UPGRADED: u64 = 4;
const PHASES: u64 = 8;

/// Phase of a connection (lower digit) and its number of requests. Shared by stream and service, because only the service
/// knows when a head is complete.
#[derive(Clone, Default)]
pub(super) struct Phase(Arc<AtomicU64>);

impl Phase {
    /// To be called with each request.
    pub(super) fn answering(&self) -> Answering {
        let request = self.0.load(Relaxed) / PHASES + 1;
        self.0.store(request * PHASES + ANSWER, Relaxed);
        Answering { phase: self.clone(), request }
    }

    #[cfg(test)]
    pub(super) fn is_answering(&self) -> bool {
        self.now() == ANSWER
    }

    fn now(&self) -> u64 {
        self.0.load(Relaxed) % PHASES
    }

    fn enter(&self, phase: u64) {
        self.0.store(self.0.load(Relaxed) / PHASES * PHASES + phase, Relaxed);
    }
}

/// A request that is being answered.
pub(super) struct Answering {
    phase: Phase,
    request: u64,
}

impl Answering {
    /// The request is answered when the body is dropped.
    pub(super) fn with(self, response: Response) -> http::Response<AnswerBody> {
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            self.phase.enter(UPGRADED);
        }
        response.map(|body| AnswerBody { body, _answering: self })
    }
}

impl Drop for Answering {
    /// Does not change an upgraded connection, nor one whose next request has started before this body was dropped.
    fn drop(&mut self) {
        let own = self.request * PHASES;
        let _ = self.phase.0.compare_exchange(own + ANSWER, own + ANSWERED, Relaxed, Relaxed);
    }
}

pub(super) struct AnswerBody {
    body: Body,
    _answering: Answering,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes received on a connection. Shows how much of an incomplete WebSocket message has arrived.
#[derive(Clone, Default)]
pub(crate) struct Received(Arc<AtomicU64>);

impl Received {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A connection that fails when the head of a request does not arrive in time, or when the peer stops reading.
pub(super) struct TimedStream<S> {
    stream: S,
    phase: Phase,
    received: Received,
    head: Stall,
    stall: Stall,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S, phase: Phase, received: Received) -> Self {
        Self { stream, phase, received, head: Stall::default(), stall: Stall::default() }
    }

    fn note_progress<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall.reset();
            return written;
        }
        ready!(self.stall.poll(WRITE_TIME, context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = room.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, room);
        self.received.0.fetch_add((room.filled().len() - before) as u64, Relaxed);
        match self.phase.now() {
            HEAD if read.is_pending() => {
                ready!(self.head.poll(HEAD_TIME, context));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            HEAD => return read,
            ANSWERED if read.is_pending() => self.phase.enter(IDLE),
            IDLE if read.is_ready() => self.phase.enter(HEAD),
            _ => {}
        }
        self.head.reset();
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_progress(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note_progress(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.note_progress(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

// ---- budgets ---------------------------------------------------------------------------------

/// A limited amount of a resource per tenant.
pub struct Budgets {
    each: usize,
    /// One per known tenant, so the map is bounded.
    tenants: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// KiB that one page of messages may need: its rows and the JSON around them.
pub(crate) const PAGE_KIB: usize = 2 * PAGE_MAX_BYTES / 1024;

/// Held while the budget is in use.
pub(crate) type Spent = OwnedSemaphorePermit;

impl Budgets {
    pub(crate) fn new(each: usize) -> Self {
        Self { each, tenants: Mutex::default() }
    }

    /// Caps the additional permits: an answer larger than the whole budget takes the whole budget.
    pub(crate) fn at_most(&self, more: usize, spent: &Spent) -> usize {
        more.min(self.each.saturating_sub(spent.num_permits()))
    }

    /// `None`: the tenant's budget was used up for the whole waiting time.
    pub(crate) async fn take(&self, tenant: &str, amount: usize) -> Option<Spent> {
        self.take_within(tenant, amount, BUDGET_TIME).await
    }

    pub(super) async fn take_within(&self, tenant: &str, amount: usize, wait: Duration) -> Option<Spent> {
        if let Some(taken) = self.take_now(tenant, amount) {
            return Some(taken);
        }
        let taking = self.of(tenant).acquire_many_owned(self.share(amount));
        timeout(wait, taking).await.ok()?.ok()
    }

    /// Takes the amount without waiting.
    pub(crate) fn take_now(&self, tenant: &str, amount: usize) -> Option<Spent> {
        self.of(tenant).try_acquire_many_owned(self.share(amount)).ok()
    }

    fn of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.entry(tenant.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
    }

    fn share(&self, amount: usize) -> u32 {
        u32::try_from(amount.min(self.each)).unwrap_or(u32::MAX)
    }
}

/// Returns the budget that a response of this size does not need.
pub(crate) fn shrunk(mut spent: Spent, bytes: usize) -> Spent {
    spent.split(bytes / 1024 + 1).unwrap_or(spent)
}

/// A response that keeps its budget until it was sent or given up.
pub(crate) fn holding(response: Response, spent: impl Send + Unpin + 'static) -> Response {
    response.map(|body| Body::new(HeldBody { body, _spent: spent }))
}

struct HeldBody<S> {
    body: Body,
    _spent: S,
}

impl<S: Unpin> HttpBody for HeldBody<S> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    /// Hyper drops a body that reports its end as soon as it has buffered the last piece, long before the peer has read
    /// it.
    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_reading_fails_and_a_slow_one_does_not() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut stream = TimedStream::new(ours, Phase::default(), Received::default());
        let reading = tokio::spawn(async move {
            let mut taken = Vec::new();
            while taken.len() < 64 {
                sleep(Duration::from_secs(35)).await; // longer than a gateway can block
                theirs.read_buf(&mut taken).await.unwrap();
            }
            theirs
        });
        stream.write_all(&[1; 64]).await.unwrap();
        let _theirs = reading.await.unwrap();
        let left = timeout(WRITE_TIME * 2, stream.write_all(&[1; 64])).await;
        assert_eq!(left.expect("an end").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_fails_and_a_slow_one_does_not() {
        let pieces = |pauses: &'static [u64]| {
            let each = futures_util::stream::iter(pauses).then(|pause| async move {
                sleep(Duration::from_secs(*pause)).await;
                Ok::<_, io::Error>(Bytes::from_static(b"x"))
            });
            Body::new(TimedBody::new(Body::from_stream(each), false).0)
        };
        let slow = axum::body::to_bytes(pieces(&[14, 14, 14]), 9).await.unwrap();
        assert_eq!(slow.len(), 3);
        assert!(axum::body::to_bytes(pieces(&[1, 16, 1]), 9).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_is_per_tenant_and_is_returned() {
        let budgets = Budgets::new(10);
        let held = budgets.take("a", 8).await.unwrap();
        assert!(budgets.take("a", 3).await.is_none());
        assert!(budgets.take("b", 99).await.is_some(), "an amount above the limit takes the whole budget");
        drop(held);
        let held = shrunk(budgets.take("a", 9).await.unwrap(), 1025);
        assert_eq!(held.num_permits(), 2);
        assert!(budgets.take("a", 9).await.is_none());
        assert!(budgets.take("a", 8).await.is_some());
        assert_eq!(shrunk(held, 1 << 20).num_permits(), 2, "it does not grow");
        let held = budgets.take_now("a", 9).unwrap();
        assert!(budgets.take_now("a", 2).is_none());
        drop(held);
        assert!(budgets.take_now("a", 99).is_some());
    }
}
