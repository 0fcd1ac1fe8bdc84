//! The duties that this server has, each for one use. The store grants a server a duty that it already has, so a listener
//! and a task that waits for its end must be kept apart here.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_core::Desk;
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::DeskNo;

use frontdesk_core::inbound::share::PartName;

pub(super) struct Duties {
    desk: Arc<Desk>,
    held: Mutex<HashSet<PartName>>,
    /// Duties that are still held and must be given up by the main loop.
    abandoned: Mutex<Vec<PartName>>,
}

/// An attempt to take a duty. If it is dropped without an answer of the store, the duty may be held and is abandoned.
struct Attempt<'a> {
    duties: &'a Duties,
    name: &'a PartName,
    is_answered: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.duties.abandon(self.name.clone());
        }
    }
}

impl Duties {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { desk, held: Mutex::default(), abandoned: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashSet<PartName>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of this server and the token. `None`: another server has it, or this one uses it.
    pub(super) async fn take(&self, name: &PartName) -> Result<Option<(DeskNo, u64)>, StoreError> {
        if !self.held().insert(name.clone()) {
            return Ok(None);
        }
        let mut attempt = Attempt { duties: self, name, is_answered: false };
        let me = self.desk.lease().me();
        let token = self.desk.lease().take_duty(&name.duty()).await?;
        attempt.is_answered = true;
        if token.is_none() {
            self.release(name);
        }
        Ok(token.map(|token| (me, token)))
    }

    /// The duty is not used here any more, but is still held by this server in the store.
    pub(super) fn release(&self, name: &PartName) {
        self.held().remove(name);
    }

    /// Leaves the duty to be given up later.
    pub(super) fn abandon(&self, name: PartName) {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }

    pub(super) fn abandoned(&self) -> Vec<PartName> {
        std::mem::take(&mut *self.abandoned.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives up the duty in the store. `Err`: it is still held.
    pub(super) async fn give_up(&self, name: &PartName) -> Result<(), StoreError> {
        self.desk.lease().drop_duty(&name.duty()).await?;
        self.release(name);
        Ok(())
    }
}
