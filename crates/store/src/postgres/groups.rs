//! Work of many callers that shares one transaction. Requests that come while one transaction runs go into the next.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_core::port::store::StoreError;
use tokio::sync::oneshot;

/// The request of one caller, and the channel for its answer.
pub(super) struct Asked<I, O> {
    pub(super) what: I,
    answer: oneshot::Sender<Result<O, StoreError>>,
}

impl<I, O> Asked<I, O> {
    pub(super) fn answer(self, answer: Result<O, StoreError>) {
        let _ = self.answer.send(answer); // the caller may be gone
    }
}

/// Requests that wait for the next transaction. Bounded by the jobs of the worker: each of them brings one.
pub(super) struct Group<I, O>(Arc<Mutex<VecDeque<Asked<I, O>>>>);

impl<I, O> Clone for Group<I, O> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<I, O> Default for Group<I, O> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<I, O> Group<I, O> {
    pub(super) fn add(&self, what: I) -> oneshot::Receiver<Result<O, StoreError>> {
        let (answer, answered) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(Asked { what, answer });
        answered
    }

    /// The next ones, as many as cost `max` together; at least one if there is one.
    pub(super) fn take(&self, max: usize, cost: impl Fn(&I) -> usize) -> Vec<Asked<I, O>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, mut spent) = (Vec::new(), 0);
        while let Some(next) = waiting.front() {
            spent += cost(&next.what);
            if spent > max && !taken.is_empty() {
                break;
            }
            taken.extend(waiting.pop_front());
        }
        taken
    }
}
