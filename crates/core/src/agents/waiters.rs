//! Callers that wait at this server for the answer of an agent. A waiter lives as long as its request; what is shared with
//! other servers is in the store (`port::exchanges`). The question itself is stored as well, so an agent that reconnects can
//! still answer it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::{InstanceNo, TenantId};
use tokio::sync::oneshot;

use crate::port::exchanges::StoredAnswer;

/// Exchanges in progress per process; each is an open request.
const WAITERS_MAX: usize = 10_000;
/// Exchanges in progress per tenant, so that one tenant cannot block the others.
const TENANT_WAITERS_MAX: usize = 2_500;

struct Waiter {
    tenant: TenantId,
    agent: InstanceNo,
    answer: oneshot::Sender<StoredAnswer>,
}

/// By the token of the exchange.
#[derive(Default, Clone)]
pub struct Waiters(Arc<Mutex<HashMap<u64, Waiter>>>);

/// Slot of a waiting caller; freed on drop.
pub struct Ticket {
    waiters: Waiters,
    token: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.waiters.all().remove(&self.token);
    }
}

/// Receives the answer. Closes without one if the asked agent was deleted.
pub type Waiting = oneshot::Receiver<StoredAnswer>;

impl Waiters {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Waiter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the limit of waiting callers is reached.
    pub fn wait(&self, token: u64, tenant: &TenantId, agent: InstanceNo) -> Option<(Ticket, Waiting)> {
        let mut all = self.all();
        let own = || all.values().filter(|waiter| waiter.tenant == *tenant).count();
        if all.len() >= WAITERS_MAX || own() >= TENANT_WAITERS_MAX {
            return None;
        }
        let (answer, waiting) = oneshot::channel();
        all.insert(token, Waiter { tenant: tenant.clone(), agent, answer });
        drop(all);
        Some((Ticket { waiters: self.clone(), token }, waiting))
    }

    /// Removes all waiters of a deleted agent.
    pub fn forget(&self, agent: InstanceNo) {
        self.all().retain(|_, waiter| waiter.agent != agent);
    }

    /// Passes the answer to the waiting caller. If the caller is gone, the answer stays in the store.
    pub fn answer(&self, token: u64, answer: StoredAnswer) {
        if let Some(waiter) = self.all().remove(&token) {
            let _ = waiter.answer.send(answer);
        }
    }

    /// Tokens of the exchanges that still wait for an answer.
    pub fn tokens(&self) -> Vec<u64> {
        self.all().keys().copied().collect()
    }

    pub fn len(&self) -> usize {
        self.all().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(content: &str) -> StoredAnswer {
        StoredAnswer { content: content.into(), at_ms: 5 }
    }

    #[tokio::test]
    async fn a_waiter_gets_the_answer_of_its_exchange() {
        let waiters = Waiters::default();
        let (_first, answer) = waiters.wait(1, &"t".into(), InstanceNo(7)).unwrap();
        let (second, _) = waiters.wait(2, &"t".into(), InstanceNo(7)).unwrap();
        drop(second);
        assert_eq!(waiters.tokens(), [1]);
        waiters.answer(2, said("nobody"));
        waiters.answer(1, said("yes"));
        waiters.answer(1, said("again"));
        assert_eq!(answer.await, Ok(said("yes")));
        let (_gone, answer) = waiters.wait(3, &"t".into(), InstanceNo(7)).unwrap();
        let _stays = waiters.wait(4, &"t".into(), InstanceNo(8)).unwrap();
        waiters.forget(InstanceNo(7));
        assert!(answer.await.is_err() && waiters.len() == 1);
    }

    #[test]
    fn the_limit_per_tenant_leaves_room_for_other_tenants() {
        let waiters = Waiters::default();
        let ask = |tenant: &str, token: u64| waiters.wait(token, &TenantId::from(tenant), InstanceNo(7));
        let max = u64::try_from(TENANT_WAITERS_MAX).unwrap();
        let mut held: Vec<_> = (0..max).map(|token| ask("t", token).unwrap()).collect();
        assert!(ask("t", max).is_none() && ask("u", max + 1).is_some());
        held.pop();
        assert!(ask("t", max).is_some());
    }
}
