//! The door for an outside scheduler: Standard Webhooks, checked over the raw bytes before anything is parsed.

use std::collections::HashMap;
use std::sync::Mutex;

use aws_lc_rs::hmac;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_wire::Secret;

/// How far the scheduler's clock may be from ours.
const WINDOW_S: u64 = 300;
/// Ids remembered at most; the window forgets them anyway.
const IDS_MAX: usize = 100_000;

/// Why a call is not believed. All look the same from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Disbelieved {
    #[error("no key is configured in cron.relay_keys")]
    NoKey,
    #[error("a webhook-* header is missing or malformed")]
    Headers,
    #[error("webhook-timestamp is too old or in the future")]
    Stale,
    #[error("the signature does not match")]
    Signature,
    #[error("webhook-id was already used")]
    Replayed,
}

pub struct SchedulerWebhook {
    keys: Vec<hmac::Key>,
    /// Webhook ids that were taken, and when they may be forgotten.
    seen: Mutex<HashMap<String, u64>>,
}

impl SchedulerWebhook {
    pub fn new(keys: &[String]) -> Self {
        let key = |text: &String| {
            let secret = Secret::new(text.trim());
            let bytes = match secret.expose().strip_prefix("whsec_") {
                Some(encoded) => STANDARD.decode(encoded).unwrap_or_default(),
                None => secret.expose().as_bytes().to_vec(),
            };
            (!bytes.is_empty()).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        };
        Self { keys: keys.iter().filter_map(key).collect(), seen: Mutex::default() }
    }

    /// The id of a call that is genuine, fresh and new. It must be given back if the work fails, so that
    /// the scheduler may try again.
    pub(crate) fn check(&self, headers: &HeaderMap, body: &[u8], now_s: u64) -> Result<String, Disbelieved> {
        if self.keys.is_empty() {
            return Err(Disbelieved::NoKey);
        }
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).ok_or(Disbelieved::Headers);
        let (id, stamp, signatures) =
            (header("webhook-id")?, header("webhook-timestamp")?, header("webhook-signature")?);
        let sent_s: u64 = stamp.parse().map_err(|_| Disbelieved::Headers)?;
        if id.is_empty() || id.len() > 256 {
            return Err(Disbelieved::Headers);
        }
        if sent_s.abs_diff(now_s) > WINDOW_S {
            return Err(Disbelieved::Stale);
        }
        let message = [id.as_bytes(), b".", stamp.as_bytes(), b".", body].concat();
        let given = signatures.split_whitespace().filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok());
        let genuine = |tag: Vec<u8>| self.keys.iter().any(|key| hmac::verify(key, &message, &tag).is_ok());
        if !given.take(16).any(genuine) {
            return Err(Disbelieved::Signature);
        }
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if seen.len() >= IDS_MAX {
            seen.retain(|_, until_s| *until_s > now_s);
        }
        if seen.get(id).is_some_and(|until_s| *until_s > now_s) {
            return Err(Disbelieved::Replayed);
        }
        seen.insert(id.to_owned(), sent_s + 2 * WINDOW_S);
        Ok(id.to_owned())
    }

    /// It did not work out: the same call may come again.
    pub(crate) fn give_back(&self, id: &str) {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn headers(id: &str, stamp: &str, signature: &str) -> HeaderMap {
        let pairs = [("webhook-id", id), ("webhook-timestamp", stamp), ("webhook-signature", signature)];
        pairs.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn signed(key: &[u8], id: &str, stamp: u64, body: &[u8]) -> String {
        let message = [id.as_bytes(), b".", stamp.to_string().as_bytes(), b".", body].concat();
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &message);
        format!("v1,{}", STANDARD.encode(tag))
    }

    #[test]
    fn genuine_fresh_and_new_or_not_at_all() {
        let encoded = format!("whsec_{}", STANDARD.encode(b"another key"));
        let door = SchedulerWebhook::new(&["plain key".into(), encoded]);
        let check = |id: &str, stamp: u64, signature: &str, body: &[u8]| {
            door.check(&headers(id, &stamp.to_string(), signature), body, NOW_S)
        };
        let body = b"{}";
        assert_eq!(check("a", NOW_S, &signed(b"plain key", "a", NOW_S, body), body), Ok("a".into()));
        assert_eq!(check("a", NOW_S, &signed(b"plain key", "a", NOW_S, body), body), Err(Disbelieved::Replayed));
        door.give_back("a");
        assert!(check("a", NOW_S, &signed(b"plain key", "a", NOW_S, body), body).is_ok());
        let both = format!("v1,AAAA {}", signed(b"another key", "b", NOW_S, body));
        assert_eq!(check("b", NOW_S, &both, body), Ok("b".into()), "any key, any of the signatures");
        assert_eq!(check("c", NOW_S, &signed(b"wrong", "c", NOW_S, body), body), Err(Disbelieved::Signature));
        assert_eq!(check("c", NOW_S, &signed(b"plain key", "c", NOW_S, body), b"{} "), Err(Disbelieved::Signature));
        assert_eq!(check("c", NOW_S, &signed(b"plain key", "d", NOW_S, body), body), Err(Disbelieved::Signature));
        for stamp in [NOW_S - WINDOW_S - 1, NOW_S + WINDOW_S + 1] {
            assert_eq!(check("e", stamp, &signed(b"plain key", "e", stamp, body), body), Err(Disbelieved::Stale));
        }
        assert_eq!(door.check(&HeaderMap::new(), body, NOW_S), Err(Disbelieved::Headers));
        assert_eq!(door.check(&headers("f", "soon", "v1,AAAA"), body, NOW_S), Err(Disbelieved::Headers));
        let shut = SchedulerWebhook::new(&[String::new()]);
        let good = headers("a", &NOW_S.to_string(), &signed(b"", "a", NOW_S, body));
        assert_eq!(shut.check(&good, body, NOW_S), Err(Disbelieved::NoKey), "an empty key is none");
    }
}
