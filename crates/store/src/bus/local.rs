//! A bus within one process, for tests with several servers over one store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::bus::{Bus, BusEvent, Hint, To};
use frontdesk_wire::DeskNo;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

/// Hints that a server has not received yet. More are lost.
const WAITING_MAX: usize = 1_024;

/// Connects the servers that were joined to it.
#[derive(Clone, Default)]
pub struct LocalHub(Arc<Mutex<HashMap<DeskNo, mpsc::Sender<Hint>>>>);

impl LocalHub {
    /// The bus of one server.
    pub fn join(&self) -> Arc<dyn Bus> {
        let (sender, hints) = mpsc::channel(WAITING_MAX);
        Arc::new(LocalBus { hub: self.clone(), sender, hints: AsyncMutex::new(hints), me: Mutex::default() })
    }
}

struct LocalBus {
    hub: LocalHub,
    sender: mpsc::Sender<Hint>,
    hints: AsyncMutex<mpsc::Receiver<Hint>>,
    me: Mutex<DeskNo>,
}

impl Drop for LocalBus {
    fn drop(&mut self) {
        let me = *self.me.lock().unwrap_or_else(PoisonError::into_inner);
        self.hub.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&me);
    }
}

impl Bus for LocalBus {
    fn listen_as(&self, me: DeskNo) {
        let before = std::mem::replace(&mut *self.me.lock().unwrap_or_else(PoisonError::into_inner), me);
        let mut servers = self.hub.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.remove(&before);
        servers.insert(me, self.sender.clone());
    }

    fn send(&self, to: To, hint: Hint) {
        let servers = self.hub.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, server) in servers.iter().filter(|(desk, _)| matches!(to, To::All) || to == To::Desk(**desk)) {
            let _ = server.try_send(hint.clone()); // a full one loses the hint; a sweep finds what it was about
        }
    }

    fn next_event(&self) -> BoxFuture<'_, BusEvent> {
        Box::pin(async move {
            match self.hints.lock().await.recv().await {
                Some(hint) => BusEvent::Hint(hint),
                None => std::future::pending().await, // never: this bus holds a sender
            }
        })
    }
}
