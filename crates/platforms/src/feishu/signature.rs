//! The signature of requests: SHA-256 over time, nonce, Encrypt Key and the raw body.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, Digest, SHA256};
use frontdesk_wire::Secret;

/// How far the time of a request may be from ours. Older ones may be replays.
pub const WINDOW_S: u64 = 300;
pub(super) const TIMESTAMP: &str = "x-lark-request-timestamp";
pub(super) const NONCE: &str = "x-lark-request-nonce";
pub(super) const SIGNATURE: &str = "x-lark-signature";
const NONCE_MAX_BYTES: usize = 256;

/// Why a request is not genuine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Forged {
    #[error("x-lark-request-timestamp, x-lark-request-nonce or x-lark-signature is missing, malformed or repeated")]
    Headers,
    #[error("x-lark-request-timestamp is more than 300 s away from the server's clock")]
    Stale,
    #[error("the signature does not match; check the encrypt_key of the bot")]
    Signature,
}

/// Checks the raw body. `headers` have names in lowercase. A header that comes twice is refused: it is not known which of the
/// two others would read.
pub fn verify(key: &Secret, headers: &[(String, String)], body: &[u8], now_s: u64) -> Result<(), Forged> {
    let header = |name: &str| {
        let mut all = headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        match (all.next(), all.next()) {
            (Some(value), None) => Ok(value),
            _ => Err(Forged::Headers),
        }
    };
    let (stamp, nonce, given) = (header(TIMESTAMP)?, header(NONCE)?, header(SIGNATURE)?);
    let is_number = !stamp.is_empty() && stamp.len() <= 12 && stamp.bytes().all(|byte| byte.is_ascii_digit());
    let sent_s: u64 = stamp.parse().ok().filter(|_| is_number).ok_or(Forged::Headers)?;
    let is_lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if given.len() != 64 || !given.bytes().all(is_lower_hex) || nonce.is_empty() || nonce.len() > NONCE_MAX_BYTES {
        return Err(Forged::Headers);
    }
    let given = hex::decode(given).map_err(|_| Forged::Headers)?;
    if sent_s.abs_diff(now_s) > WINDOW_S {
        return Err(Forged::Stale);
    }
    // An empty key must never verify a request.
    let expected = hash(key, stamp, nonce, body);
    let is_genuine = !key.expose().is_empty() && verify_slices_are_equal(expected.as_ref(), &given).is_ok();
    if is_genuine { Ok(()) } else { Err(Forged::Signature) }
}

/// The value of `x-lark-signature`, for tests.
pub fn sign(key: &Secret, stamp: &str, nonce: &str, body: &[u8]) -> String {
    hex::encode(hash(key, stamp, nonce, body))
}

fn hash(key: &Secret, stamp: &str, nonce: &str, body: &[u8]) -> Digest {
    let mut context = Context::new(&SHA256);
    for part in [stamp.as_bytes(), nonce.as_bytes(), key.expose().as_bytes(), body] {
        context.update(part);
    }
    context.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_700_000_000;
    const BODY: &[u8] = br#"{"encrypt":"abc"}"#;

    fn key() -> Secret {
        Secret::new("kudryavka")
    }

    fn headers(stamp: &str, nonce: &str, signature: &str) -> Vec<(String, String)> {
        [(TIMESTAMP, stamp), (NONCE, nonce), (SIGNATURE, signature)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    fn good() -> Vec<(String, String)> {
        headers("1700000000", "n0", &sign(&key(), "1700000000", "n0", BODY))
    }

    #[test]
    fn a_genuine_request_is_taken_for_five_minutes() {
        for now_s in [NOW_S, NOW_S - WINDOW_S, NOW_S + WINDOW_S] {
            assert_eq!(verify(&key(), &good(), BODY, now_s), Ok(()));
        }
        for now_s in [NOW_S - WINDOW_S - 1, NOW_S + WINDOW_S + 1, 0, u64::MAX] {
            assert_eq!(verify(&key(), &good(), BODY, now_s), Err(Forged::Stale));
        }
        // printf '1700000000n0kudryavka{"encrypt":"abc"}' | sha256sum
        assert_eq!(good()[2].1, "189acc67252e702d16632f42d0ba9bdde8d7879135062106145b6c97a9589ffc");
    }

    #[test]
    fn any_other_bit_is_refused() {
        for at in 0..BODY.len() * 8 {
            let mut body = BODY.to_vec();
            body[at / 8] ^= 1 << (at % 8);
            assert_eq!(verify(&key(), &good(), &body, NOW_S), Err(Forged::Signature));
        }
        let signature = good()[2].1.clone();
        for (stamp, nonce) in [("1700000001", "n0"), ("1700000000", "n1"), ("170000000", "0n0")] {
            let verdict = verify(&key(), &headers(stamp, nonce, &signature), BODY, NOW_S);
            assert!(matches!(verdict, Err(Forged::Signature | Forged::Stale)), "{stamp} {nonce}");
        }
        assert_eq!(verify(&Secret::new("other"), &good(), BODY, NOW_S), Err(Forged::Signature));
        let empty = Secret::new("");
        let forged = headers("1700000000", "n0", &sign(&empty, "1700000000", "n0", BODY));
        assert_eq!(verify(&empty, &forged, BODY, NOW_S), Err(Forged::Signature));
    }

    #[test]
    fn headers_are_there_once_and_well_formed() {
        for at in 0..3 {
            let mut missing = good();
            missing.remove(at);
            let mut twice = good();
            twice.push(twice[at].clone());
            for headers in [missing, twice] {
                assert_eq!(verify(&key(), &headers, BODY, NOW_S), Err(Forged::Headers));
            }
        }
        let signature = good()[2].1.clone();
        for (stamp, nonce, signature) in [
            ("", "n0", signature.as_str()),
            ("+1700000000", "n0", &signature),
            ("1700000000.0", "n0", &signature),
            ("1700000000", "", &signature),
            ("1700000000", "n0", ""),
            ("1700000000", "n0", &signature[..60]),
            ("1700000000", "n0", &signature.to_uppercase()),
        ] {
            assert_eq!(verify(&key(), &headers(stamp, nonce, signature), BODY, NOW_S), Err(Forged::Headers), "{stamp}");
        }
    }
}
