//! Webhook for an external scheduler: Standard Webhooks, verified over the raw bytes before parsing.

use std::collections::HashMap;
use std::sync::Mutex;

use axum::http::HeaderMap;
use frontdesk_core::short_hash;
use frontdesk_platforms::shared::standard_webhooks::{Forged, Keys, WINDOW_S};
use frontdesk_wire::Secret;

/// Ids that are remembered. A scheduler does not send more within the window.
const IDS_MAX: usize = 100_000;

/// Why a call was refused. The response is the same for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAccepted {
    #[error("{0} (the keys are in cron.relay_keys)")]
    Forged(#[from] Forged),
    #[error("webhook-id was already used")]
    Replayed,
    #[error("more than {IDS_MAX} calls came within {} s", 2 * WINDOW_S)]
    TooMany,
}

pub struct SchedulerWebhook {
    keys: Keys,
    /// Hashes of accepted webhook ids, and the time until which they are remembered.
    seen: Mutex<HashMap<[u8; 16], u64>>,
}

impl SchedulerWebhook {
    pub fn new(keys: &[String]) -> Self {
        let keys: Vec<Secret> = keys.iter().map(Secret::new).collect();
        Self { keys: Keys::new(keys.iter()), seen: Mutex::default() }
    }

    /// Returns the id of a call that is genuine, recent and new. The id must be given back if the work fails, so that
    /// the scheduler can retry.
    pub(crate) fn check(&self, headers: &HeaderMap, body: &[u8], now_s: u64) -> Result<String, NotAccepted> {
        let header = |name: &str| {
            let mut all = headers.get_all(name).iter();
            all.next().filter(|_| all.next().is_none()).and_then(|value| value.to_str().ok())
        };
        let id = self.keys.verify(header, body, now_s)?;
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if seen.len() >= IDS_MAX {
            seen.retain(|_, until_s| *until_s > now_s);
        }
        if seen.get(&short_hash(&[id])).is_some_and(|until_s| *until_s > now_s) {
            return Err(NotAccepted::Replayed);
        }
        if seen.len() >= IDS_MAX {
            return Err(NotAccepted::TooMany);
        }
        seen.insert(short_hash(&[id]), now_s + 2 * WINDOW_S);
        Ok(id.to_owned())
    }

    /// Forgets the id after a failure, so that the call can be retried.
    pub(crate) fn give_back(&self, id: &str) {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&short_hash(&[id]));
    }
}

#[cfg(test)]
mod tests {
    use frontdesk_platforms::shared::standard_webhooks::sign;

    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn headers(id: &str, stamp: &str, signature: &str) -> HeaderMap {
        let pairs = [("webhook-id", id), ("webhook-timestamp", stamp), ("webhook-signature", signature)];
        pairs.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_call_is_accepted_once() {
        let door = SchedulerWebhook::new(&["plain key".into()]);
        let body = b"{}";
        let good = headers("a", &NOW_S.to_string(), &sign(b"plain key", "a", NOW_S, body));
        assert_eq!(door.check(&good, body, NOW_S), Ok("a".into()));
        assert_eq!(door.check(&good, body, NOW_S), Err(NotAccepted::Replayed));
        door.give_back("a");
        assert_eq!(door.check(&good, body, NOW_S), Ok("a".into()));
        let forged = headers("b", &NOW_S.to_string(), &sign(b"wrong", "b", NOW_S, body));
        assert_eq!(door.check(&forged, body, NOW_S), Err(Forged::Signature.into()));
        assert_eq!(door.check(&HeaderMap::new(), body, NOW_S), Err(Forged::Headers.into()));
        for number in 1..IDS_MAX {
            door.seen.lock().unwrap().insert(short_hash(&[&number.to_string()]), NOW_S + 1);
        }
        let next = headers("b", &NOW_S.to_string(), &sign(b"plain key", "b", NOW_S, body));
        assert_eq!(door.check(&next, body, NOW_S), Err(NotAccepted::TooMany));
        assert_eq!(door.check(&next, body, NOW_S + 1), Ok("b".into()), "those are forgotten");
        let shut = SchedulerWebhook::new(&[String::new()]);
        assert_eq!(shut.check(&good, body, NOW_S), Err(Forged::NoKey.into()), "an empty key does not count");
    }
}
