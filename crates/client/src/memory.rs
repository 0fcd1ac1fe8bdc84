//! A transport without network, for tests of agents: the test plays the server.

use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_wire::{Action, ActionResult, Descriptor};
use tokio::sync::mpsc;

use crate::transport::{BoxFuture, Handler, Inbound, RelayTransport, TransportError};

/// What the agent did.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Action(Action),
    Interrupt { session_key: String, reason: Option<String> },
    Idle,
    Dormant,
}

type Answer = Box<dyn Fn(&Action) -> ActionResult + Send + Sync>;

pub struct MemoryTransport {
    descriptor: Descriptor,
    handler: Mutex<Option<Handler>>,
    seen: mpsc::UnboundedSender<Seen>,
    answer: Answer,
}

impl MemoryTransport {
    /// `answer` returns the result of each action.
    pub fn new(
        descriptor: Descriptor,
        answer: impl Fn(&Action) -> ActionResult + Send + Sync + 'static,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Seen>) {
        let (seen, watch) = mpsc::unbounded_channel();
        let transport = Self { descriptor, handler: Mutex::default(), seen, answer: Box::new(answer) };
        (Arc::new(transport), watch)
    }

    /// Passes something to the agent, waits until its handler has returned, and returns whether it would be acked.
    pub async fn deliver(&self, inbound: Inbound) -> bool {
        let handler = self.handler.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match handler {
            Some(handler) => handler(inbound).await,
            None => false,
        }
    }

    fn note(&self, seen: Seen) {
        let _ = self.seen.send(seen); // the test may have dropped the receiver
    }
}

impl RelayTransport for MemoryTransport {
    fn connect(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async { Ok(()) })
    }

    fn disconnect(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn handshake(&self) -> BoxFuture<'_, Result<Descriptor, TransportError>> {
        Box::pin(async { Ok(self.descriptor.clone()) })
    }

    fn set_inbound_handler(&self, handler: Handler) {
        *self.handler.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
    }

    fn send_outbound(&self, action: Action) -> BoxFuture<'_, Result<ActionResult, TransportError>> {
        let result = (self.answer)(&action);
        self.note(Seen::Action(action));
        Box::pin(async { Ok(result) })
    }

    fn send_interrupt<'a>(
        &'a self,
        session_key: &'a str,
        reason: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.note(Seen::Interrupt { session_key: session_key.into(), reason: reason.map(str::to_owned) });
        Box::pin(async { Ok(()) })
    }

    fn go_idle(&self) -> BoxFuture<'_, bool> {
        self.note(Seen::Idle);
        Box::pin(async { true })
    }

    fn go_dormant(&self) -> BoxFuture<'_, bool> {
        self.note(Seen::Dormant);
        Box::pin(async { true })
    }
}
