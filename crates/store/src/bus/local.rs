//! A bus within one process, for tests with several servers over one store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::bus::{Bus, Heard, Ring, To};
use frontdesk_wire::DeskNo;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

/// Rings that a server has not heard yet. More are lost, and the server is told so when it hears again.
const WAITING_MAX: usize = 1_024;

/// Connects the servers that were joined to it.
#[derive(Clone, Default)]
pub struct LocalHub(Arc<Mutex<HashMap<DeskNo, mpsc::Sender<Ring>>>>);

impl LocalHub {
    /// The bus of one server.
    pub fn join(&self) -> Arc<dyn Bus> {
        let (sender, rings) = mpsc::channel(WAITING_MAX);
        Arc::new(LocalBus { hub: self.clone(), sender, rings: AsyncMutex::new(rings), me: Mutex::default() })
    }
}

struct LocalBus {
    hub: LocalHub,
    sender: mpsc::Sender<Ring>,
    rings: AsyncMutex<mpsc::Receiver<Ring>>,
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

    fn ring(&self, to: To, ring: Ring) {
        let servers = self.hub.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, server) in servers.iter().filter(|(desk, _)| matches!(to, To::All) || to == To::Desk(**desk)) {
            let _ = server.try_send(ring.clone()); // a full one hears nothing until it sweeps
        }
    }

    fn hear(&self) -> BoxFuture<'_, Heard> {
        Box::pin(async move {
            match self.rings.lock().await.recv().await {
                Some(ring) => Heard::Ring(ring),
                None => std::future::pending().await, // never: this bus holds a sender
            }
        })
    }
}
