//! Whether a request to the interactions endpoint comes from Discord: Ed25519 over the timestamp and the raw body.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

/// Discord prescribes no window. A request that is older, or from the future, is a replay or a wrong clock.
const WINDOW_S: u64 = 300;
const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forged {
    #[error("X-Signature-Timestamp is missing")]
    NoTimestamp,
    #[error("X-Signature-Ed25519 is missing, or not {} hexadecimal digits", SIGNATURE_BYTES * 2)]
    NoSignature,
    #[error("the signature does not match the timestamp and the body; check the public_key of the bot")]
    Wrong,
    #[error("X-Signature-Timestamp is over {WINDOW_S} s away from the clock of this server")]
    Stale,
}

/// As the developer portal shows it.
pub(super) fn is_public_key(hex: &str) -> bool {
    hex::decode(hex).is_ok_and(|key| key.len() == KEY_BYTES)
}

/// Whether the signature is that of the key. The time is not looked at.
pub fn verify(public_key: &str, timestamp: Option<&str>, signature: Option<&str>, body: &[u8]) -> Result<(), Forged> {
    let timestamp = timestamp.filter(|text| !text.is_empty()).ok_or(Forged::NoTimestamp)?;
    let signature = signature.and_then(|text| hex::decode(text).ok());
    let signature = signature.filter(|bytes| bytes.len() == SIGNATURE_BYTES).ok_or(Forged::NoSignature)?;
    let key = hex::decode(public_key).map_err(|_| Forged::Wrong)?;
    let message = [timestamp.as_bytes(), body].concat();
    UnparsedPublicKey::new(&ED25519, key).verify(&message, &signature).map_err(|_| Forged::Wrong)
}

/// When the request was sent, in milliseconds, if that was lately.
pub(super) fn sent_ms(timestamp: Option<&str>, now_ms: u64) -> Result<u64, Forged> {
    let sent_s: u64 = timestamp.and_then(|text| text.parse().ok()).ok_or(Forged::Stale)?;
    match sent_s.abs_diff(now_ms / 1_000) <= WINDOW_S {
        true => Ok(sent_s * 1_000),
        false => Err(Forged::Stale),
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    #[test]
    fn only_the_signed_bytes_pass() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = hex::encode(pair.public_key().as_ref());
        let good = hex::encode(pair.sign(b"1700000000{}").as_ref());
        let check =
            |key: &str, time: &str, signature: &str, body: &[u8]| verify(key, Some(time), Some(signature), body);
        assert_eq!(check(&key, "1700000000", &good, b"{}"), Ok(()));
        assert_eq!(check(&key, "1700000000", &good.to_uppercase(), b"{}"), Ok(()));
        for (time, signature, body) in [
            ("1700000001", good.as_str(), b"{}".as_slice()),
            ("1700000000", &good, b"{} "),
            ("170000000", &good, b"0{ }"),
            ("1700000000", &"0".repeat(128), b"{}"),
        ] {
            assert_eq!(check(&key, time, signature, body), Err(Forged::Wrong), "{time} {signature}");
        }
        let other = hex::encode(Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap().public_key().as_ref());
        assert_eq!(check(&other, "1700000000", &good, b"{}"), Err(Forged::Wrong));
        assert_eq!(check("zz", "1700000000", &good, b"{}"), Err(Forged::Wrong));
        for signature in ["", "0", "zz", &good[2..]] {
            assert_eq!(check(&key, "1700000000", signature, b"{}"), Err(Forged::NoSignature));
        }
        assert_eq!(verify(&key, None, Some(&good), b"{}"), Err(Forged::NoTimestamp));
        assert_eq!(verify(&key, Some("1700000000"), None, b"{}"), Err(Forged::NoSignature));
        assert!(is_public_key(&key) && !is_public_key(&key[2..]) && !is_public_key("x"));
    }

    #[test]
    fn old_and_future_requests_are_refused() {
        let sent = |text: &str| sent_ms(Some(text), 1_000_000_999);
        assert_eq!(sent("1000000"), Ok(1_000_000_000));
        assert_eq!((sent("999700"), sent("1000300")), (Ok(999_700_000), Ok(1_000_300_000)));
        for stale in ["999699", "1000301", "-1", "", "now", "18446744073709551616", "18446744073709551615"] {
            assert_eq!(sent(stale), Err(Forged::Stale), "{stale}");
        }
        assert_eq!(sent_ms(None, 0), Err(Forged::Stale));
    }
}
