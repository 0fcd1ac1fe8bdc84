//! I/O of one relay session: reads, writes, timers, and the effects that the session requests.
//!
//! These run concurrently, with one exception: a peer that does not read is not read from.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use frontdesk_core::Desk;
use frontdesk_core::delivery::interrupt::InterruptRequest;
use frontdesk_core::delivery::session::{Beginning, Effect, Row, Session, Write};
use frontdesk_core::directory::Caller;
use frontdesk_core::port::store::{Position, StoreError};
use futures_util::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::time::{Instant, sleep_until, timeout};
use tungstenite::error::ProtocolError;

use super::{CLOSE_TIME, close_message};
use crate::edge::flow::Received;
use crate::edge::{App, ConnectionSlot};

/// Messages read in a row before deliveries get their turn.
const READ_BURST: usize = 64;
/// The session is notified of an arriving message after each further part of this size.
const PART_BYTES: usize = 16 << 10;

/// Input of a session. Boxed, because it moves through several futures, each of which would reserve space for it.
pub(super) struct Begin {
    pub(super) app: App,
    pub(super) caller: Caller,
    pub(super) slot: ConnectionSlot,
}

/// Result of a store request or lookup.
enum Done {
    Begun(Result<Position, StoreError>),
    Read(Result<Vec<Row>, StoreError>, usize),
    Saved(Result<bool, StoreError>),
    /// The result reaches the session as an order.
    Carried,
}

type Pending = std::pin::Pin<Box<dyn Future<Output = Done> + Send>>;

struct Carrier {
    app: App,
    session: Session,
    started: Instant,
    arriving: Arriving,
    /// Store requests in progress.
    pending: FuturesUnordered<Pending>,
}

/// How much of a message has arrived.
struct Arriving {
    received: Received,
    /// Bytes received when the previous message was complete.
    complete: u64,
    /// Bytes that the session was notified of.
    noted: usize,
}

impl Arriving {
    fn bytes(&self) -> usize {
        usize::try_from(self.received.bytes().saturating_sub(self.complete)).unwrap_or(usize::MAX)
    }
}

/// Input of a socket.
enum Input {
    /// `None`: the peer is gone.
    Message(Option<Result<Message, axum::Error>>),
    /// Another part of a message arrived.
    Part,
}

pub(super) async fn run(begin: Box<Begin>, socket: WebSocket) {
    let (sink, stream) = socket.split();
    let Begin { app, caller, slot } = *begin;
    let session = Session::new(app.desk.delivery(), caller, 0);
    let arriving = Arriving { complete: slot.received.bytes(), received: slot.received.clone(), noted: 0 };
    let carrier = Carrier { app, session, started: Instant::now(), arriving, pending: FuturesUnordered::new() };
    let carrier = Box::new(carrier);
    carrier.live(sink, stream).await;
    drop(slot); // a socket counts as a connection while it is open
}

impl Carrier {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn live(mut self: Box<Self>, mut sink: SplitSink<WebSocket, Message>, mut stream: SplitStream<WebSocket>) {
        let leave = self.app.drain.slice();
        let mut tick = std::pin::pin!(sleep_until(self.started));
        let (mut is_writing, mut is_gone, mut is_leaving) = (false, false, false);
        loop {
            let turn_ms = self.now_ms();
            self.session.turn(turn_ms);
            self.carry_out_all();
            if self.session.closing().is_some() {
                break;
            }
            if !is_writing && let Some(message) = self.next_message() {
                if sink.feed(message).await.is_err() {
                    break;
                }
                is_writing = true;
                self.session.writing(self.now_ms());
            }
            let tick_at = self.started + Duration::from_millis(self.session.next_tick_ms(turn_ms));
            if tick.deadline() != tick_at {
                tick.as_mut().reset(tick_at);
            }
            let mailbox = self.session.mailbox().cloned();
            tokio::select! {
                biased;
                Some(done) = self.pending.next(), if !self.pending.is_empty() => self.note(done),
                input = next_input(&mut stream, &self.arriving), if self.session.may_read() => {
                    is_gone = !self.take(input);
                    for _ in 0..READ_BURST {
                        if is_gone || !self.session.may_read() { break; }
                        let Some(message) = stream.next().now_or_never() else { break };
                        is_gone = !self.take(Input::Message(message));
                    }
                    if is_gone { break; }
                }
                flushed = sink.flush(), if is_writing => {
                    is_writing = false;
                    if flushed.is_err() { break; }
                    self.session.written(self.now_ms());
                }
                () = async { match &mailbox { Some(mailbox) => mailbox.changed().await, None => std::future::pending().await } } => {}
                () = tick.as_mut() => self.session.tick(self.now_ms()),
                () = leave.cancelled(), if !is_leaving => {
                    is_leaving = true;
                    self.session.leave(self.now_ms());
                }
            }
        }
        // Frames that the peer sent before it left are processed, and work in progress is finished.
        self.session.hang_up();
        self.carry_out_all();
        while let Some(done) = self.pending.next().await {
            self.note(done);
            self.carry_out_all();
        }
        Box::pin(self.end(sink, stream, is_gone)).await;
    }

    /// Releases the instance for the next socket, then closes this one.
    async fn end(self, mut sink: SplitSink<WebSocket, Message>, mut stream: SplitStream<WebSocket>, is_gone: bool) {
        let (app, caller, received) = (self.app, self.session.caller().clone(), self.arriving.received);
        let mut arriving = Arriving { complete: received.bytes(), received, noted: 0 };
        let mut ending = self.session.end();
        let left = app.desk.delivery().release(&mut ending).await;
        if let Some((mailbox, lanes)) = left {
            let (desk, caller) = (app.desk.clone(), caller.clone());
            app.sessions.spawn(async move {
                for lane in lanes {
                    desk.outbound().work_off(&caller, &mailbox, &lane).await;
                }
            });
        }
        let interrupts = std::mem::take(&mut ending.interrupts);
        if !interrupts.is_empty() {
            let desk = app.desk.clone();
            app.sessions.spawn(async move {
                for asked in interrupts {
                    interrupt(&desk, &caller, &asked).await;
                }
            });
        }
        if is_gone {
            let _ = timeout(CLOSE_TIME, sink.close()).await; // our close frame, if the peer still reads
            return;
        }
        let Some(close) = ending.close else { return };
        let polite = async {
            while let Some(message) = ending.next_message() {
                sink.send(Message::Text(message.into())).await?;
            }
            sink.send(close_message(close)).await?;
            // Stops at a large message, because memory for it is not counted any more.
            while let Input::Message(Some(Ok(_))) = next_input(&mut stream, &arriving).await {
                arriving.complete = arriving.received.bytes();
            }
            Ok::<_, axum::Error>(())
        };
        let _ = timeout(CLOSE_TIME, polite).await; // a peer that does not respond is dropped
    }

    /// False: the peer is gone.
    fn take(&mut self, input: Input) -> bool {
        let now_ms = self.now_ms();
        let Input::Message(message) = input else {
            self.arriving.noted = self.arriving.bytes();
            self.session.arriving(self.arriving.noted, now_ms);
            return true;
        };
        match &message {
            // May come between the parts of a message.
            Some(Ok(Message::Ping(payload) | Message::Pong(payload))) => {
                self.arriving.complete += control_bytes(payload);
            }
            _ => self.complete(now_ms),
        }
        match message {
            Some(Ok(Message::Text(text))) => self.session.take_text(&text, now_ms),
            Some(Ok(Message::Binary(_))) => self.session.bad_frame("binary", now_ms),
            Some(Ok(Message::Ping(_))) => self.session.note_received(now_ms, false),
            Some(Ok(Message::Pong(_))) => self.session.note_received(now_ms, true),
            Some(Ok(Message::Close(_))) | None => return false,
            Some(Err(error)) => {
                tracing::debug!(%error, "relay connection failed");
                if is_gone(error) {
                    return false;
                }
                // Over the message limit, or not a valid WebSocket frame. The peer may still read the reason.
                self.session.unreadable("unreadable");
            }
        }
        true
    }

    /// A message is complete.
    fn complete(&mut self, now_ms: u64) {
        self.arriving.complete = self.arriving.received.bytes();
        if std::mem::take(&mut self.arriving.noted) > 0 {
            self.session.arriving(0, now_ms);
        }
    }

    fn next_message(&mut self) -> Option<Message> {
        Some(match self.session.next_message()? {
            Write::Text(text) => Message::Text(text.into()),
            Write::Ping => Message::Ping(axum::body::Bytes::new()),
        })
    }

    fn note(&mut self, done: Done) {
        let now_ms = self.now_ms();
        match done {
            Done::Begun(position) => self.session.begun(position, now_ms),
            Done::Read(rows, limit) => self.session.read(rows, limit, now_ms),
            Done::Saved(saved) => self.session.saved(saved),
            Done::Carried => {}
        }
    }

    fn carry_out_all(&mut self) {
        while let Some(effect) = self.session.next_effect() {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let desk = self.app.desk.clone();
        let caller = || self.session.caller().clone();
        let instance = self.session.caller().instance.no;
        match effect {
            Effect::Begin(beginning) => self.wait(begin(desk, caller(), beginning)),
            Effect::Read { after, limit } => {
                self.wait(async move { Done::Read(desk.delivery().read_rows(instance, after, limit).await, limit) });
            }
            Effect::Save(settlement) => {
                self.wait(async move { Done::Saved(desk.delivery().settle(instance, settlement).await) });
            }
            Effect::Interrupt { asked, mailbox } => {
                let caller = caller();
                self.spawn(async move {
                    interrupt(&desk, &caller, &asked).await;
                    mailbox.interrupt_done();
                });
            }
            Effect::GoIdle(mailbox) => {
                let caller = caller();
                // Waited for at the end, so that it is stored before the end of the session.
                self.wait(async move {
                    desk.delivery().go_idle(&caller, &mailbox).await;
                    Done::Carried
                });
            }
            Effect::NeverAcks => {
                let caller = caller();
                self.spawn(async move { desk.delivery().note_never_acks(&caller).await });
            }
            Effect::GiveUp { rows, mailbox } => {
                let caller = caller();
                self.spawn(async move { desk.delivery().give_up_rows(&caller, &mailbox, &rows).await });
            }
            Effect::Work { lane, name, mailbox } => {
                let caller = caller();
                self.spawn(async move {
                    desk.outbound().work_off(&caller, &mailbox, &lane).await;
                    mailbox.lane_done(name);
                });
            }
            Effect::Refused(refused) => {
                if let Some(noting) = desk.outbound().note_refused(self.session.caller(), &refused) {
                    self.spawn(noting);
                }
            }
        }
    }

    /// The session gets the result of this work.
    fn wait(&self, work: impl Future<Output = Done> + Send + 'static) {
        self.pending.push(Box::pin(work));
    }

    /// Runs independently of the session.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.app.sessions.spawn(work);
    }
}

/// A control frame of a client: two bytes, a mask of four, and the payload.
fn control_bytes(payload: &[u8]) -> u64 {
    6 + payload.len() as u64
}

async fn next_input(stream: &mut SplitStream<WebSocket>, arriving: &Arriving) -> Input {
    std::future::poll_fn(|context| match stream.poll_next_unpin(context) {
        Poll::Ready(message) => Poll::Ready(Input::Message(message)),
        Poll::Pending if arriving.bytes() > arriving.noted + PART_BYTES => Poll::Ready(Input::Part),
        Poll::Pending => Poll::Pending,
    })
    .await
}

async fn begin(desk: Arc<Desk>, caller: Caller, beginning: Beginning) -> Done {
    Done::Begun(desk.delivery().begin(&caller, beginning).await)
}

async fn interrupt(desk: &Desk, caller: &Caller, asked: &InterruptRequest) {
    if let Err(error) = desk.delivery().interrupts().forward(caller, asked).await {
        tracing::error!(%error, "routing an interrupt failed");
    }
}

/// Whether the peer disconnected. All other errors are protocol violations.
fn is_gone(error: axum::Error) -> bool {
    use tungstenite::Error;
    let error = error.into_inner().downcast::<Error>();
    error.is_ok_and(|error| match *error {
        Error::ConnectionClosed | Error::AlreadyClosed | Error::Io(_) => true,
        Error::Protocol(why) => why == ProtocolError::ResetWithoutClosingHandshake,
        _ => false,
    })
}
