//! The example agent of the demo: echoes in small edits, asks with buttons, can be interrupted, goes idle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use frontdesk_client::wake::WakeListener;
use frontdesk_client::{Dial, Inbound, RelayTransport, SocketTransport, TransportError};
use frontdesk_wire::action::PromptOption;
use frontdesk_wire::{Act, MessageEvent};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The agent goes idle after this time without messages.
const QUIET: Duration = Duration::from_secs(6);
/// Time between two edits of a streamed answer.
const STEP: Duration = Duration::from_millis(140);
const HELP: &str = "I am a small example. Say anything and I echo it. /buttons asks you something, /count counts \
                    slowly until you type /stop. After a few quiet seconds I sleep, and your next message wakes me.";

struct Agent {
    transport: SocketTransport,
    turns: AtomicUsize,
    /// Notified at the start and end of each turn.
    stir: Notify,
    /// Cancels the running turns.
    running: Mutex<CancellationToken>,
}

pub(super) async fn live(dial: Dial, listener: WakeListener) -> Result<(), TransportError> {
    let agent = Arc::new(Agent {
        transport: SocketTransport::new(dial),
        turns: AtomicUsize::new(0),
        stir: Notify::new(),
        running: Mutex::default(),
    });
    let taker = agent.clone();
    agent.transport.set_inbound_handler(Arc::new(move |inbound| {
        let agent = taker.clone();
        Box::pin(async move {
            agent.take(inbound);
            true
        })
    }));
    agent.transport.connect().await?;
    loop {
        while tokio::time::timeout(QUIET, agent.stir.notified()).await.is_ok() || agent.turns.load(Ordering::SeqCst) > 0
        {
        }
        agent.transport.go_dormant().await;
        listener.called().await;
        agent.transport.wake();
    }
}

impl Agent {
    fn token(&self) -> std::sync::MutexGuard<'_, CancellationToken> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the event, which acks it, and runs the turn concurrently with others.
    fn take(self: Arc<Self>, inbound: Inbound) {
        match inbound {
            Inbound::Interrupt { .. } => std::mem::take(&mut *self.token()).cancel(),
            Inbound::Event(event) => {
                let stopped = self.token().clone();
                self.turns.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    self.stir.notify_one();
                    let turn = self.turn(&event, &stopped).await;
                    if let Err(error) = turn {
                        tracing::warn!(%error, "example agent failed to answer");
                    }
                    self.turns.fetch_sub(1, Ordering::SeqCst);
                    self.stir.notify_one();
                });
            }
            Inbound::Forward(_) => {}
        }
    }

    async fn turn(&self, event: &MessageEvent, stopped: &CancellationToken) -> Result<(), TransportError> {
        let chat = &event.source.chat_id;
        self.act(Act::Typing { chat_id: chat.clone(), content: None }).await?;
        if event.delivery.is_some() {
            // Another agent may wait for this and takes the first message as the reply, so it is sent complete.
            let (content, reply_to) = (format!("echo: {}", event.text), event.message_id.clone());
            return self.act(Act::Send { chat_id: chat.clone(), content, reply_to }).await.map(drop);
        }
        if let Some(pressed) = &event.prompt_response {
            return self.stream(chat, &[&format!("you pressed {}", pressed.option_id)], stopped).await;
        }
        match event.text.trim() {
            "/help" => self.stream(chat, &[HELP], stopped).await,
            "/buttons" => self.ask(event).await,
            "/count" => {
                let numbers: Vec<String> = (1..=40).map(|number| format!("{number} ")).collect();
                self.stream(chat, &numbers.iter().map(String::as_str).collect::<Vec<_>>(), stopped).await
            }
            text => {
                let answer = format!("echo: {text}");
                let words: Vec<&str> = answer.split_inclusive(' ').collect();
                self.stream(chat, &words, stopped).await
            }
        }
    }

    async fn ask(&self, event: &MessageEvent) -> Result<(), TransportError> {
        let option = |id: &str, label: &str, style: &str| PromptOption {
            id: id.into(),
            label: label.into(),
            style: Some(style.into()),
        };
        self.act(Act::Prompt {
            chat_id: event.source.chat_id.clone(),
            prompt_kind: "choice".into(),
            prompt_id: event.message_id.clone().unwrap_or_default().chars().take(40).collect(),
            content: "Shall I go on?".into(),
            options: vec![option("yes", "Yes", "primary"), option("no", "No", "secondary")],
            timeout_s: None,
            reply_to: event.message_id.clone(),
        })
        .await
        .map(drop)
    }

    /// Streams the answer by edits, like a model.
    async fn stream(&self, chat: &str, pieces: &[&str], stopped: &CancellationToken) -> Result<(), TransportError> {
        let mut shown = String::new();
        let mut message_id: Option<String> = None;
        for piece in pieces {
            if stopped.is_cancelled() {
                shown.push_str("(stopped)");
            } else {
                shown.push_str(piece);
            }
            let act = match &message_id {
                None => Act::Send { chat_id: chat.into(), content: shown.clone(), reply_to: None },
                Some(id) => Act::Edit { chat_id: chat.into(), message_id: id.clone().into(), content: shown.clone() },
            };
            let result = self.act(act).await?;
            if message_id.is_none() {
                message_id = result;
            }
            if stopped.is_cancelled() {
                break;
            }
            tokio::time::sleep(STEP).await;
        }
        Ok(())
    }

    async fn act(&self, act: Act) -> Result<Option<String>, TransportError> {
        Ok(self.transport.send_outbound(act.into()).await?.message_id.map(Into::into))
    }
}
