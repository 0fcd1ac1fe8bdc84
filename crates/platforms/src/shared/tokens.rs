//! The access token of an app, which is requested once for all callers.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_wire::Secret;

/// Above this number of apps all are removed, and request a token again.
const APPS_MAX: usize = 1_000;
const MARGIN_MS: u64 = 300_000;

type Key = [u8; 16];

pub(crate) struct Tokens<E> {
    cells: Mutex<HashMap<Key, Arc<Cell<E>>>>,
    /// A token is replaced so long before it expires, or after half of its time.
    margin_ms: u64,
    /// After a failure no token is requested for this time.
    failed_for_ms: u64,
}

struct Cell<E> {
    /// Locked while a token is requested, so that callers share one request.
    known: tokio::sync::Mutex<Known<E>>,
    /// How often a token was requested.
    asked: AtomicU64,
}

struct Known<E> {
    token: Option<Arc<Secret>>,
    until_ms: u64,
    /// The last failure, and its time.
    failed: Option<(u64, E)>,
}

/// A token, and for how long the vendor says that it is valid.
pub(crate) struct Granted {
    pub(crate) token: Secret,
    pub(crate) valid_ms: u64,
}

impl<E: Clone> Default for Tokens<E> {
    fn default() -> Self {
        Self::new(MARGIN_MS, 0)
    }
}

impl<E: Clone> Tokens<E> {
    pub(crate) fn new(margin_ms: u64, failed_for_ms: u64) -> Self {
        Self { cells: Mutex::default(), margin_ms, failed_for_ms }
    }

    fn cell(&self, key: Key) -> Arc<Cell<E>> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if cells.len() >= APPS_MAX && !cells.contains_key(&key) {
            cells.clear();
        }
        let unknown = || {
            let known = Known { token: None, until_ms: 0, failed: None };
            Arc::new(Cell { known: tokio::sync::Mutex::new(known), asked: AtomicU64::new(0) })
        };
        cells.entry(key).or_insert_with(unknown).clone()
    }

    /// The token of an app, by any names of the app and its secret. `refused` is one that the vendor did not accept.
    pub(crate) async fn get(
        &self,
        key: Key,
        now_ms: u64,
        refused: Option<&Secret>,
        ask: impl Future<Output = Result<Granted, E>> + Send,
    ) -> Result<Arc<Secret>, E> {
        let cell = self.cell(key);
        let asked = cell.asked.load(Ordering::SeqCst);
        let mut known = cell.known.lock().await;
        let is_good = |token: &&Arc<Secret>| refused.is_none_or(|refused| refused.expose() != token.expose());
        if let Some(token) = known.token.as_ref().filter(is_good).filter(|_| now_ms < known.until_ms) {
            return Ok(token.clone());
        }
        // Another caller requested one while this one waited, or just before.
        let was_asked = cell.asked.load(Ordering::SeqCst) != asked;
        let is_recent = |at_ms: u64| now_ms.saturating_sub(at_ms) < self.failed_for_ms;
        if let Some((_, failed)) = known.failed.as_ref().filter(|(at_ms, _)| was_asked || is_recent(*at_ms)) {
            return Err(failed.clone());
        }
        let outcome = ask.await;
        cell.asked.fetch_add(1, Ordering::SeqCst);
        match outcome {
            Ok(Granted { token, valid_ms }) => {
                let token = Arc::new(token);
                let until_ms = now_ms + valid_ms.saturating_sub(self.margin_ms).max(valid_ms / 2);
                *known = Known { token: Some(token.clone()), until_ms, failed: None };
                Ok(token)
            }
            Err(error) => {
                *known = Known { token: None, until_ms: 0, failed: Some((now_ms, error.clone())) };
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn granted(count: &AtomicU64) -> Result<Granted, &'static str> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let number = count.fetch_add(1, Ordering::SeqCst);
        Ok(Granted { token: Secret::new(format!("t{number}")), valid_ms: 7_200_000 })
    }

    async fn failing(count: &AtomicU64) -> Result<Granted, &'static str> {
        tokio::time::sleep(Duration::from_millis(5)).await;
        count.fetch_add(1, Ordering::SeqCst);
        Err("no")
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_for_once() {
        let (tokens, count) = (Tokens::default(), AtomicU64::new(0));
        let get = async |now_ms, refused: Option<&Secret>| {
            tokens.get([1; 16], now_ms, refused, granted(&count)).await.unwrap().expose().to_owned()
        };
        let all = futures_util::future::join_all((0..50).map(|_| get(0, None))).await;
        assert!(all.iter().all(|token| token == "t0"));
        assert_eq!((get(6_899_999, None).await, get(6_900_000, None).await), ("t0".into(), "t1".into()));
        let refused = Secret::new("t1");
        let all = futures_util::future::join_all((0..50).map(|_| get(6_900_001, Some(&refused)))).await;
        assert!(all.iter().all(|token| token == "t2"), "{all:?}");
        assert_eq!(count.load(Ordering::SeqCst), 3);
        let other = tokens.get([2; 16], 0, None, granted(&count)).await.unwrap();
        assert_eq!(other.expose(), "t3", "another app has another one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_to_all_who_wait_and_then_tried_again() {
        let (tokens, count) = (Tokens::default(), AtomicU64::new(0));
        let get = async || tokens.get([1; 16], 0, None, failing(&count)).await.is_err();
        let all = futures_util::future::join_all((0..50).map(|_| get())).await;
        assert_eq!((all.iter().all(|failed| *failed), count.load(Ordering::SeqCst)), (true, 1));
        assert!(get().await);
        assert_eq!(count.load(Ordering::SeqCst), 2);
        for number in 0..=APPS_MAX {
            let key = u128::try_from(number).unwrap().to_be_bytes();
            tokens.get(key, 0, None, granted(&count)).await.unwrap();
        }
        assert!(tokens.cells.lock().unwrap().len() <= APPS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_can_be_remembered_for_a_while() {
        let (tokens, count) = (Tokens::new(MARGIN_MS, 3_000), AtomicU64::new(0));
        for (now_ms, asked) in [(0, 1), (2_999, 1), (3_000, 2), (4_000, 2)] {
            assert!(tokens.get([1; 16], now_ms, None, failing(&count)).await.is_err());
            assert_eq!(count.load(Ordering::SeqCst), asked, "{now_ms}");
        }
        assert!(tokens.get([1; 16], 6_000, None, granted(&count)).await.is_ok());
    }
}
