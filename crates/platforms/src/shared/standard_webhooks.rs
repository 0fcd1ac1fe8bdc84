//! The signature scheme of Standard Webhooks: HMAC-SHA256 over id, timestamp and the raw body.
//!
//! `webhook-signature` may hold several signatures and we may hold several keys, so that keys can be rotated. One
//! match of any two is enough.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_wire::Secret;

/// How far the sender's clock may be from ours.
pub const WINDOW_S: u64 = 300;
const ID_MAX_BYTES: usize = 256;
/// Signatures that are tried at most.
const SIGNATURES_MAX: usize = 16;

/// Why a request is not genuine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Forged {
    #[error("no key is configured")]
    NoKey,
    #[error("a webhook-* header is missing, malformed or present twice")]
    Headers,
    #[error("webhook-timestamp is more than 300 s away from the server's clock")]
    Stale,
    #[error("the signature does not match")]
    Signature,
}

/// Keys that a sender may sign with.
pub struct Keys(Vec<hmac::Key>);

impl Keys {
    /// Each text is `whsec_` and base64, or the key itself. Empty ones are none.
    pub fn new<'a>(texts: impl Iterator<Item = &'a Secret>) -> Self {
        let key = |text: &Secret| Self::bytes_of(text).map(|bytes| hmac::Key::new(hmac::HMAC_SHA256, &bytes));
        Self(texts.filter_map(key).collect())
    }

    /// The bytes of one key; `None` if it is empty or its base64 is not valid.
    pub fn bytes_of(text: &Secret) -> Option<Vec<u8>> {
        let text = text.expose().trim();
        let bytes = match text.strip_prefix("whsec_") {
            Some(encoded) => STANDARD.decode(encoded).ok()?,
            None => text.as_bytes().to_vec(),
        };
        (!bytes.is_empty()).then_some(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The id of a genuine and fresh request. Whether it was here before is the caller's question.
    pub fn verify<'a>(
        &self,
        header: impl Fn(&str) -> Option<&'a str>,
        body: &[u8],
        now_s: u64,
    ) -> Result<&'a str, Forged> {
        if self.is_empty() {
            return Err(Forged::NoKey);
        }
        let header = |name: &str| header(name).ok_or(Forged::Headers);
        let (id, stamp, signatures) =
            (header("webhook-id")?, header("webhook-timestamp")?, header("webhook-signature")?);
        let sent_s: u64 = stamp.parse().map_err(|_| Forged::Headers)?;
        if id.is_empty() || id.len() > ID_MAX_BYTES {
            return Err(Forged::Headers);
        }
        if sent_s.abs_diff(now_s) > WINDOW_S {
            return Err(Forged::Stale);
        }
        let message = [id.as_bytes(), b".", stamp.as_bytes(), b".", body].concat();
        let given = signatures.split_whitespace().filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok());
        let is_genuine = |tag: Vec<u8>| self.0.iter().any(|key| hmac::verify(key, &message, &tag).is_ok());
        if given.take(SIGNATURES_MAX).any(is_genuine) { Ok(id) } else { Err(Forged::Signature) }
    }
}

/// The value of `webhook-signature` for a request of our own, and for tests.
pub fn sign(key: &[u8], id: &str, stamp_s: u64, body: &[u8]) -> String {
    let message = [id.as_bytes(), b".", stamp_s.to_string().as_bytes(), b".", body].concat();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &message);
    format!("v1,{}", STANDARD.encode(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn keys(texts: &[&str]) -> Keys {
        let secrets: Vec<Secret> = texts.iter().map(|text| Secret::new(*text)).collect();
        Keys::new(secrets.iter())
    }

    fn verify<'a>(
        keys: &Keys,
        id: &'a str,
        stamp: &'a str,
        signature: &'a str,
        body: &[u8],
    ) -> Result<&'a str, Forged> {
        let header = |name: &str| match name {
            "webhook-id" => Some(id),
            "webhook-timestamp" => Some(stamp),
            "webhook-signature" => Some(signature),
            _ => None,
        };
        keys.verify(header, body, NOW_S)
    }

    #[test]
    fn genuine_and_fresh_or_not_at_all() {
        let encoded = format!("whsec_{}", STANDARD.encode(b"another key"));
        let keys = keys(&["plain key", &encoded]);
        let stamp = NOW_S.to_string();
        let body = b"{}";
        let good = sign(b"plain key", "a", NOW_S, body);
        assert_eq!(verify(&keys, "a", &stamp, &good, body), Ok("a"));
        let both = format!("v1,AAAA v2,x {}", sign(b"another key", "b", NOW_S, body));
        assert_eq!(verify(&keys, "b", &stamp, &both, body), Ok("b"), "any key, any of the signatures");
        for (id, signature, body) in [
            ("a", sign(b"wrong", "a", NOW_S, b"{}"), b"{}".as_slice()),
            ("a", good.clone(), b"{} ".as_slice()),
            ("c", good.clone(), b"{}".as_slice()),
            ("a", good.replace("v1,", "v2,"), b"{}".as_slice()),
            ("a", good.replace("v1,", ""), b"{}".as_slice()),
            ("a", String::new(), b"{}".as_slice()),
        ] {
            assert_eq!(verify(&keys, id, &stamp, &signature, body), Err(Forged::Signature), "{signature}");
        }
        for stamp in [NOW_S - WINDOW_S - 1, NOW_S + WINDOW_S + 1] {
            let signature = sign(b"plain key", "e", stamp, body);
            assert_eq!(verify(&keys, "e", &stamp.to_string(), &signature, body), Err(Forged::Stale));
        }
        for (id, stamp) in [("", stamp.as_str()), ("a", "soon"), ("a", "-5"), (&"x".repeat(257), stamp.as_str())] {
            assert_eq!(verify(&keys, id, stamp, &good, body), Err(Forged::Headers));
        }
        assert_eq!(keys.verify(|_| None, body, NOW_S), Err(Forged::Headers));
    }

    #[test]
    fn an_empty_key_is_none() {
        for text in ["", "  ", "whsec_", "whsec_???"] {
            let keys = keys(&[text]);
            let signature = sign(b"", "a", NOW_S, b"{}");
            assert_eq!(verify(&keys, "a", &NOW_S.to_string(), &signature, b"{}"), Err(Forged::NoKey), "{text:?}");
        }
    }

    /// The worked example in the scheme's own documents.
    #[test]
    fn the_published_example_verifies() {
        let keys = keys(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]);
        let header = |name: &str| match name {
            "webhook-id" => Some("msg_p5jXN8AQM9LWM0D4loKWxJek"),
            "webhook-timestamp" => Some("1614265330"),
            "webhook-signature" => Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
            _ => None,
        };
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(keys.verify(header, body, 1_614_265_330), Ok("msg_p5jXN8AQM9LWM0D4loKWxJek"));
    }
}
