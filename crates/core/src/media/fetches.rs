//! One fetch per file at a time: concurrent callers wait for its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::error::FetchError;

/// Concurrent fetches, in total and per tenant. Their bytes do not count for the quota until they are stored.
const FETCHES_MAX: usize = 64;
const FETCHES_PER_TENANT: usize = 8;
/// Callers that wait for one fetch. They continue to wait after their clients disconnect.
const WAITERS_MAX: usize = 32;

type Ended = Option<Result<(), FetchError>>;

#[derive(Default)]
pub(super) struct Fetches(Mutex<HashMap<String, Fetch>>);

struct Fetch {
    tenant: TenantId,
    ended: watch::Receiver<Ended>,
    waiters: Arc<Semaphore>,
}

pub(super) enum Joined<'a> {
    /// The caller must fetch it.
    Lead(Leader<'a>),
    Follow(Follower),
    /// Too many fetches are running, or too many callers wait for this one.
    Full,
}

/// A running fetch. If it is dropped before its end, one of the waiting callers starts again.
pub(super) struct Leader<'a> {
    fetches: &'a Fetches,
    id: String,
    ended: watch::Sender<Ended>,
}

pub(super) struct Follower {
    ended: watch::Receiver<Ended>,
    _waiter: OwnedSemaphorePermit,
}

impl Fetches {
    pub(super) fn join(&self, tenant: &TenantId, id: &str) -> Joined<'_> {
        let mut all = self.all();
        if let Some(fetch) = all.get(id) {
            let waiter = fetch.waiters.clone().try_acquire_owned();
            return waiter.map_or(Joined::Full, |waiter| {
                Joined::Follow(Follower { ended: fetch.ended.clone(), _waiter: waiter })
            });
        }
        let own = all.values().filter(|fetch| fetch.tenant == *tenant).count();
        if all.len() >= FETCHES_MAX || own >= FETCHES_PER_TENANT {
            return Joined::Full;
        }
        let (sender, ended) = watch::channel(None);
        all.insert(
            id.to_owned(),
            Fetch { tenant: tenant.to_owned(), ended, waiters: Arc::new(Semaphore::new(WAITERS_MAX)) },
        );
        Joined::Lead(Leader { fetches: self, id: id.to_owned(), ended: sender })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Fetch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leader<'_> {
    pub(super) fn end(self, how: Result<(), FetchError>) {
        self.ended.send_replace(Some(how)); // then the drop takes it out of the list
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.fetches.all().remove(&self.id);
    }
}

impl Follower {
    /// `None`: the fetch was dropped before its end.
    pub(super) async fn end(mut self) -> Ended {
        self.ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead<'a>(fetches: &'a Fetches, tenant: &str, id: &str) -> Leader<'a> {
        let Joined::Lead(leader) = fetches.join(&TenantId::from(tenant), id) else { panic!("{id} is not free") };
        leader
    }

    #[tokio::test]
    async fn those_who_come_later_get_the_same_end() {
        let fetches = Fetches::default();
        let first = lead(&fetches, "acme", "f");
        let (Joined::Follow(one), Joined::Follow(two)) =
            (fetches.join(&"acme".into(), "f"), fetches.join(&"acme".into(), "f"))
        else {
            panic!("it is fetched twice");
        };
        first.end(Err(FetchError::Gone("deleted".into())));
        for waiting in [one, two] {
            assert_eq!(waiting.end().await, Some(Err(FetchError::Gone("deleted".into()))));
        }
        assert!(fetches.all().is_empty());
        drop(lead(&fetches, "acme", "f"));
    }

    #[tokio::test]
    async fn a_fetch_that_is_given_up_lets_another_begin() {
        let fetches = Fetches::default();
        let first = lead(&fetches, "acme", "f");
        let Joined::Follow(waiting) = fetches.join(&"acme".into(), "f") else { panic!("it is fetched twice") };
        drop(first);
        assert_eq!(waiting.end().await, None);
        drop(lead(&fetches, "acme", "f"));
    }

    #[test]
    fn those_who_wait_for_one_fetch_are_bounded() {
        let fetches = Fetches::default();
        let _first = lead(&fetches, "acme", "f");
        let mut waiting = Vec::new();
        while let Joined::Follow(follower) = fetches.join(&"acme".into(), "f") {
            waiting.push(follower);
        }
        assert_eq!(waiting.len(), WAITERS_MAX);
        waiting.pop();
        assert!(matches!(fetches.join(&"acme".into(), "f"), Joined::Follow(_)));
    }

    #[test]
    fn fetches_are_bounded_for_a_tenant_and_in_all() {
        let fetches = Fetches::default();
        let mut held = Vec::new();
        for tenant in 0..FETCHES_MAX / FETCHES_PER_TENANT {
            for number in 0..FETCHES_PER_TENANT {
                held.push(lead(&fetches, &format!("t{tenant}"), &format!("{tenant}-{number}")));
            }
            assert!(matches!(fetches.join(&format!("t{tenant}").into(), "one more"), Joined::Full));
        }
        assert!(matches!(fetches.join(&"another".into(), "f"), Joined::Full));
        held.pop();
        assert!(matches!(fetches.join(&"another".into(), "f"), Joined::Lead(_)));
    }
}
