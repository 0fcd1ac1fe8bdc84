//! One fetch per file at a time: concurrent callers wait for its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::error::FetchError;

/// Concurrent fetches, in total and per tenant. Bytes that are being fetched do not count for a quota yet.
const FLIGHTS_MAX: usize = 64;
const FLIGHTS_PER_TENANT: usize = 8;
/// Callers that wait for one fetch. They continue to wait after their clients disconnect.
const WAITERS_MAX: usize = 32;

type Ended = Option<Result<(), FetchError>>;

#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<String, Flight>>);

struct Flight {
    tenant: String,
    ended: watch::Receiver<Ended>,
    waiters: Arc<Semaphore>,
}

pub(super) enum Turn<'a> {
    /// The caller must fetch it.
    Mine(Mine<'a>),
    Theirs(Theirs),
    /// Too many others are being fetched, or too many wait for this one.
    Full,
}

/// A running fetch. If it is dropped before its end, one of the waiting callers starts again.
pub(super) struct Mine<'a> {
    flights: &'a Flights,
    id: String,
    ended: watch::Sender<Ended>,
}

pub(super) struct Theirs {
    ended: watch::Receiver<Ended>,
    _waiter: OwnedSemaphorePermit,
}

impl Flights {
    pub(super) fn join(&self, tenant: &str, id: &str) -> Turn<'_> {
        let mut all = self.all();
        if let Some(flight) = all.get(id) {
            let waiter = flight.waiters.clone().try_acquire_owned();
            return waiter
                .map_or(Turn::Full, |waiter| Turn::Theirs(Theirs { ended: flight.ended.clone(), _waiter: waiter }));
        }
        let own = all.values().filter(|flight| flight.tenant == tenant).count();
        if all.len() >= FLIGHTS_MAX || own >= FLIGHTS_PER_TENANT {
            return Turn::Full;
        }
        let (sender, ended) = watch::channel(None);
        all.insert(
            id.to_owned(),
            Flight { tenant: tenant.to_owned(), ended, waiters: Arc::new(Semaphore::new(WAITERS_MAX)) },
        );
        Turn::Mine(Mine { flights: self, id: id.to_owned(), ended: sender })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Flight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mine<'_> {
    pub(super) fn end(self, how: Result<(), FetchError>) {
        self.ended.send_replace(Some(how)); // then the drop takes it out of the list
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        self.flights.all().remove(&self.id);
    }
}

impl Theirs {
    /// `None`: the fetch was dropped before its end.
    pub(super) async fn end(mut self) -> Ended {
        self.ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine<'a>(flights: &'a Flights, tenant: &str, id: &str) -> Mine<'a> {
        let Turn::Mine(mine) = flights.join(tenant, id) else { panic!("{id} is not free") };
        mine
    }

    #[tokio::test]
    async fn those_who_come_later_get_the_same_end() {
        let flights = Flights::default();
        let first = mine(&flights, "acme", "f");
        let (Turn::Theirs(one), Turn::Theirs(two)) = (flights.join("acme", "f"), flights.join("acme", "f")) else {
            panic!("it is fetched twice");
        };
        first.end(Err(FetchError::Gone("deleted".into())));
        for waiting in [one, two] {
            assert_eq!(waiting.end().await, Some(Err(FetchError::Gone("deleted".into()))));
        }
        assert!(flights.all().is_empty());
        drop(mine(&flights, "acme", "f"));
    }

    #[tokio::test]
    async fn a_fetch_that_is_given_up_lets_another_begin() {
        let flights = Flights::default();
        let first = mine(&flights, "acme", "f");
        let Turn::Theirs(waiting) = flights.join("acme", "f") else { panic!("it is fetched twice") };
        drop(first);
        assert_eq!(waiting.end().await, None);
        drop(mine(&flights, "acme", "f"));
    }

    #[test]
    fn those_who_wait_for_one_fetch_are_bounded() {
        let flights = Flights::default();
        let _first = mine(&flights, "acme", "f");
        let mut waiting = Vec::new();
        while let Turn::Theirs(theirs) = flights.join("acme", "f") {
            waiting.push(theirs);
        }
        assert_eq!(waiting.len(), WAITERS_MAX);
        waiting.pop();
        assert!(matches!(flights.join("acme", "f"), Turn::Theirs(_)));
    }

    #[test]
    fn fetches_are_bounded_for_a_tenant_and_in_all() {
        let flights = Flights::default();
        let mut held = Vec::new();
        for tenant in 0..FLIGHTS_MAX / FLIGHTS_PER_TENANT {
            for number in 0..FLIGHTS_PER_TENANT {
                held.push(mine(&flights, &format!("t{tenant}"), &format!("{tenant}-{number}")));
            }
            assert!(matches!(flights.join(&format!("t{tenant}"), "one more"), Turn::Full));
        }
        assert!(matches!(flights.join("another", "f"), Turn::Full));
        held.pop();
        assert!(matches!(flights.join("another", "f"), Turn::Mine(_)));
    }
}
