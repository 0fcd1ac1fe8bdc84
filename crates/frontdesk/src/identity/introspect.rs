//! An account URL is asked about bearer tokens. Anybody can send tokens that nobody knows, so calls are bounded, and those for
//! tokens that were valid before do not wait behind the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frontdesk_core::Env;
use frontdesk_core::port::outcall::{Call, Outcall, OutcallError};
use frontdesk_core::sha256_hex;
use frontdesk_wire::Secret;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Claims, Unknown};

/// How long the claims of an account are used.
const ACCOUNT_LIFE_MS: u64 = 30_000;
/// How long it is remembered that a token is not valid.
const REFUSAL_LIFE_MS: u64 = 5_000;
/// Accounts that are remembered, and refused tokens.
const REMEMBERED_MAX: usize = 10_000;
const ACCOUNT_MAX_BYTES: usize = 64 * 1024;
/// Calls at the same time for tokens that were valid before, and as many for others; and how long a request waits for one.
const CALLS_MAX: usize = 32;
const CALL_WAIT: Duration = Duration::from_secs(10);

pub(super) struct Introspect {
    url: String,
    /// The claims that are kept of an account.
    used: Vec<String>,
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    calls_for_known: Semaphore,
    calls_for_others: Semaphore,
    not_asked: AtomicU64,
    remembered: Mutex<Remembered>,
}

/// By the hash of a token, with the time at which it expires.
#[derive(Default)]
struct Remembered {
    /// Expired ones stay for a while: their tokens were valid.
    accounts: HashMap<String, (Claims, u64)>,
    refused: HashMap<String, u64>,
}

/// Makes room for one more.
fn make_room<T>(map: &mut HashMap<String, T>, is_expired: impl Fn(&T) -> bool) {
    if map.len() >= REMEMBERED_MAX {
        map.retain(|_, it| !is_expired(it));
    }
    if map.len() >= REMEMBERED_MAX {
        map.clear();
    }
}

/// What the account URL said.
enum Answer {
    Account(Claims),
    /// It does not know the token.
    Refused,
    /// It does not answer this request, which may be due to something else than the token.
    NotAnswered,
}

impl Introspect {
    pub(super) fn new(url: String, used: Vec<String>, env: Arc<dyn Env>, outcall: Arc<dyn Outcall>) -> Self {
        let (calls_for_known, calls_for_others) = (Semaphore::new(CALLS_MAX), Semaphore::new(CALLS_MAX));
        let (not_asked, remembered) = (AtomicU64::new(0), Mutex::default());
        Self { url, used, env, outcall, calls_for_known, calls_for_others, not_asked, remembered }
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claims of the account.
    pub(super) async fn ask(&self, bearer: &str) -> Result<Claims, Unknown> {
        let hash = sha256_hex(bearer);
        if let Some(known) = self.recall(&hash) {
            return known;
        }
        let was_valid = self.remembered().accounts.contains_key(&hash);
        let calls = if was_valid { &self.calls_for_known } else { &self.calls_for_others };
        let Ok(Ok(_call)) = timeout(CALL_WAIT, calls.acquire()).await else {
            let count = self.not_asked.fetch_add(1, Ordering::Relaxed) + 1;
            if count.is_power_of_two() {
                tracing::warn!(max = CALLS_MAX, count, "identity.url was not called: too many calls were in progress");
            }
            return Err(Unknown::Down);
        };
        if let Some(known) = self.recall(&hash) {
            return known; // another request has asked meanwhile
        }
        let answer = self.call(bearer).await?;
        let now_ms = self.env.steady_ms();
        let mut remembered = self.remembered();
        match answer {
            Answer::Account(claims) => {
                make_room(&mut remembered.accounts, |(_, until_ms)| *until_ms <= now_ms);
                remembered.accounts.insert(hash, (claims.clone(), now_ms + ACCOUNT_LIFE_MS));
                Ok(claims)
            }
            Answer::Refused => {
                make_room(&mut remembered.refused, |until_ms| *until_ms <= now_ms);
                remembered.refused.insert(hash, now_ms + REFUSAL_LIFE_MS);
                Err(Unknown::Invalid)
            }
            Answer::NotAnswered => Err(Unknown::Invalid),
        }
    }

    fn recall(&self, hash: &str) -> Option<Result<Claims, Unknown>> {
        let (now_ms, remembered) = (self.env.steady_ms(), self.remembered());
        if remembered.refused.get(hash).is_some_and(|until_ms| *until_ms > now_ms) {
            return Some(Err(Unknown::Invalid));
        }
        let (claims, until_ms) = remembered.accounts.get(hash)?;
        (*until_ms > now_ms).then(|| Ok(claims.clone()))
    }

    async fn call(&self, bearer: &str) -> Result<Answer, Unknown> {
        let secret = Secret::new(bearer);
        let call = Call { bearer: Some(&secret), ..Call::get(&self.url, ACCOUNT_MAX_BYTES) };
        let answer = self.outcall.call(call).await.map_err(|error: OutcallError| {
            tracing::error!(%error, "identity.url request failed");
            Unknown::Down
        })?;
        let mut claims = match answer.status {
            200..300 => serde_json::from_slice::<Claims>(&answer.body).map_err(|_| {
                tracing::error!("identity.url returned a body that is not a JSON object");
                Unknown::Down
            })?,
            400 | 401 => return Ok(Answer::Refused),
            // It has too much to do, or did not get the whole request.
            status @ (408 | 425 | 429) => {
                tracing::error!(status, "identity.url refused a request for now");
                return Err(Unknown::Down);
            }
            402..500 => return Ok(Answer::NotAnswered),
            status => {
                tracing::error!(status, "identity.url returned an error status");
                return Err(Unknown::Down);
            }
        };
        // RFC 7662 responds with 200 for a token that is no longer valid, too.
        if claims.get("active") == Some(&Value::Bool(false)) {
            return Ok(Answer::Refused);
        }
        claims.retain(|name, _| self.used.contains(name));
        Ok(Answer::Account(claims))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_by_dropping_what_expired() {
        let mut map: HashMap<String, u64> = (0..REMEMBERED_MAX as u64).map(|n| (n.to_string(), n)).collect();
        make_room(&mut map, |until_ms| *until_ms < 100);
        assert_eq!(map.len(), REMEMBERED_MAX - 100);
        make_room(&mut map, |_| true);
        assert_eq!(map.len(), REMEMBERED_MAX - 100, "there is room");
        map.extend((0..100).map(|n| (format!("x{n}"), 0)));
        make_room(&mut map, |_| false);
        assert!(map.is_empty());
    }
}
