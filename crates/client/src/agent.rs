//! An agent as a handler of messages: one at a time in each chat, several chats at once, acks after the handler, and sleep.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frontdesk_wire::frame::PassthroughForward;
use frontdesk_wire::{Act, Action, ActionResult, Code, MessageEvent, SessionKey, build_session_key};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::socket::{Dial, SocketTransport};
use crate::transport::{BoxFuture, Inbound, RelayTransport as _, TransportError};

/// Pauses between the attempts of a handler that fails.
const RETRY_PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(25)];

/// How long an action waits for a connection.
const UP_TIME: Duration = Duration::from_secs(30);

/// Waiting messages arrive within this time after a connect, so the agent does not go to sleep before.
const COMES_TIME: Duration = Duration::from_secs(5);

/// Why a handler failed; for the log.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why an action was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ActError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("{text}")]
    Refused { code: Option<Code>, ambiguous: bool, text: String },
}

impl ActError {
    /// The action may have been carried out, so it must not be repeated blindly.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Transport(error) => *error == TransportError::Timeout,
            Self::Refused { ambiguous, .. } => *ambiguous,
        }
    }
}

/// One attempt to handle a message.
pub struct Turn {
    pub event: MessageEvent,
    /// Cancelled when the user says `/stop`. A handler that ends after that counts as done.
    pub stopped: CancellationToken,
    /// Number of the attempt, starting at 0.
    pub attempt: usize,
}

impl Turn {
    /// Whether this is the last attempt. If it fails, the message is tried again only when the server sends it again.
    pub fn is_last(&self) -> bool {
        self.attempt == RETRY_PAUSES.len()
    }
}

/// What an agent does.
pub trait Serve: Send + Sync + 'static {
    /// Repeated with pauses where it fails; the next messages of the chat wait.
    fn message(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<(), Failure>>;

    /// Takes an event before it is queued, for example the answer to a question of the running turn. True if it was taken.
    fn out_of_turn(&self, _event: &MessageEvent) -> bool {
        false
    }

    /// A forwarded request, such as an alarm. It is acked if this returns true.
    fn forward(self: Arc<Self>, _forward: PassthroughForward) -> BoxFuture<'static, bool> {
        Box::pin(async {
            tracing::warn!("a forwarded request was not handled: this agent does not support it; the server keeps it");
            false
        })
    }
}

/// Platform, chat and thread.
type ChatKey = (String, String, Option<String>);

#[derive(Default)]
struct Chat {
    waiting: VecDeque<(MessageEvent, oneshot::Sender<bool>)>,
    /// The session of the first one that is not done, and what stops it.
    running: Option<(SessionKey, CancellationToken)>,
}

/// Connects as a gateway and serves messages.
pub struct Agent {
    transport: SocketTransport,
    chats: Mutex<HashMap<ChatKey, Chat>>,
    room: Semaphore,
    /// The last time that something happened.
    last: Mutex<Instant>,
    stirred: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    /// `concurrency`: chats that are served at once.
    pub fn new(dial: Dial, concurrency: usize) -> Arc<Self> {
        Arc::new(Self {
            transport: SocketTransport::concurrent(dial),
            chats: Mutex::default(),
            room: Semaphore::new(concurrency.max(1)),
            last: Mutex::new(Instant::now()),
            stirred: Notify::new(),
        })
    }

    pub fn transport(&self) -> &SocketTransport {
        &self.transport
    }

    /// Serves until nothing has happened for `sleep_after` and the server has confirmed that it keeps messages, or until
    /// the server does not accept the agent any more. The agent cannot be used after that.
    pub async fn serve(
        self: &Arc<Self>,
        what: Arc<dyn Serve>,
        sleep_after: Option<Duration>,
    ) -> Result<(), TransportError> {
        let served = self.serve_until_quiet(what, sleep_after).await;
        self.transport.finish().await;
        served
    }

    async fn serve_until_quiet(
        self: &Arc<Self>,
        what: Arc<dyn Serve>,
        sleep_after: Option<Duration>,
    ) -> Result<(), TransportError> {
        self.stir();
        let agent = self.clone();
        self.transport.set_inbound_handler(Arc::new(move |inbound| agent.take(&what, inbound)));
        match self.transport.connect().await {
            // It keeps trying.
            Err(TransportError::Timeout) => tracing::warn!("the server did not answer; trying again"),
            other => other?,
        }
        loop {
            tokio::select! {
                why = self.transport.ended() => return Err(why),
                () = self.quiet(sleep_after) => {}
            }
            // What came before the server confirmed is handled first.
            if self.transport.go_idle().await && lock(&self.chats).is_empty() && !self.transport.is_busy() {
                return Ok(());
            }
            self.transport.redial();
            self.stir();
        }
    }

    /// Returns after this idle time, unless the connection is new.
    async fn quiet(&self, sleep_after: Option<Duration>) {
        let Some(sleep_after) = sleep_after else { return std::future::pending().await };
        let (mut connection, mut since) = (None, Instant::now());
        loop {
            self.transport.wait_until_up(Duration::MAX).await;
            let current = self.transport.connection();
            if connection.replace(current) != Some(current) {
                since = Instant::now();
            }
            let until = (*lock(&self.last) + sleep_after).max(since + COMES_TIME.min(sleep_after));
            let is_busy = !lock(&self.chats).is_empty();
            if !is_busy && Instant::now() >= until {
                return;
            }
            tokio::select! {
                () = sleep_until(until), if !is_busy => {}
                () = self.stirred.notified() => {}
            }
        }
    }

    fn stir(&self) {
        *lock(&self.last) = Instant::now();
        self.stirred.notify_one();
    }

    /// Carries out an action in the chat and thread of an event.
    pub async fn act(&self, event: &MessageEvent, act: Act) -> Result<ActionResult, ActError> {
        self.stir();
        let mut action = Action::from(act);
        if event.delivery.is_some() && matches!(action.act, Act::Send { .. }) {
            // In a thread, another text would count as progress of the answer that another agent waits for.
            action.metadata.insert("notify".into(), true.into());
        }
        if let Some(thread) = &event.source.thread_id {
            action.metadata.insert("thread_id".into(), thread.as_str().into());
        }
        let platform = Some(event.source.platform.as_str()).filter(|name| !name.is_empty());
        self.transport.wait_until_up(UP_TIME).await;
        let result = self.transport.act(platform, action).await?;
        self.stir();
        match result {
            ActionResult { success: true, .. } => Ok(result),
            ActionResult { code, ambiguous, error, .. } => {
                Err(ActError::Refused { code, ambiguous, text: error.unwrap_or_else(|| "refused".into()) })
            }
        }
    }

    fn take(self: &Arc<Self>, what: &Arc<dyn Serve>, inbound: Inbound) -> BoxFuture<'static, bool> {
        self.stir();
        match inbound {
            Inbound::Interrupt { session_key, .. } => {
                let chats = lock(&self.chats);
                let running = chats.values().filter_map(|chat| chat.running.as_ref());
                running.filter(|(key, _)| *key == session_key).for_each(|(_, stopped)| stopped.cancel());
                Box::pin(async { true })
            }
            Inbound::Forward(forward) => what.clone().forward(forward),
            Inbound::Event(event) if what.out_of_turn(&event) => Box::pin(async { true }),
            Inbound::Event(event) => {
                let (done, is_done) = oneshot::channel();
                let source = &event.source;
                let place = (source.platform.clone(), source.chat_id.to_string(), source.thread_id.clone());
                let mut chats = lock(&self.chats);
                let is_new = !chats.contains_key(&place);
                chats.entry(place.clone()).or_default().waiting.push_back((*event, done));
                drop(chats);
                if is_new {
                    tokio::spawn(self.clone().work(place, what.clone()));
                }
                Box::pin(async { is_done.await.unwrap_or(false) })
            }
        }
    }

    /// Handles the messages of one chat, one after another.
    async fn work(self: Arc<Self>, place: ChatKey, what: Arc<dyn Serve>) {
        while let Some((event, done, stopped)) = self.next_in(&place) {
            let Ok(_room) = self.room.acquire().await else { return };
            self.stir();
            let is_done = stopped.is_cancelled()
                || attempts(&stopped, |attempt| {
                    what.clone().message(Turn { event: event.clone(), stopped: stopped.clone(), attempt })
                })
                .await;
            let _ = done.send(is_done); // the socket may be gone
            self.stir();
        }
        self.stir();
    }

    /// The next message of a chat, which can be stopped from now on.
    fn next_in(&self, place: &ChatKey) -> Option<(MessageEvent, oneshot::Sender<bool>, CancellationToken)> {
        let mut chats = lock(&self.chats);
        let chat = chats.get_mut(place)?;
        let Some((event, done)) = chat.waiting.pop_front() else {
            chats.remove(place);
            return None;
        };
        let stopped = CancellationToken::new();
        chat.running = Some((build_session_key(&event.source), stopped.clone()));
        Some((event, done, stopped))
    }
}

/// Runs the handler with retries. True: the message must be acked.
async fn attempts<F>(stopped: &CancellationToken, mut attempt: impl FnMut(usize) -> F) -> bool
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    for number in 0..=RETRY_PAUSES.len() {
        // In its own task, so that a panic counts as a failed attempt.
        let why = match tokio::spawn(attempt(number)).await {
            Ok(Ok(())) => return true,
            Ok(Err(why)) => why.to_string(),
            Err(panicked) => panicked.to_string(),
        };
        if stopped.is_cancelled() {
            return true;
        }
        let Some(pause) = RETRY_PAUSES.get(number) else {
            tracing::error!(why, attempts = number + 1, "handling a message failed; the server keeps it");
            return false;
        };
        tracing::warn!(why, pause_s = pause.as_secs(), "handling a message failed; trying again");
        tokio::select! {
            () = sleep(*pause) => {}
            () = stopped.cancelled() => return true,
        }
    }
    false
}
