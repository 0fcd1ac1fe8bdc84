//! How `WeCom` signs and seals what it sends.
//!
//! The signature is SHA-1 over the sorted token, time, nonce and sealed text. Sealed is, with AES-256-CBC: 16 random bytes, the
//! length of the text in four bytes, the text, and the id of the receiver; padded to blocks of 32 bytes. The vector is the
//! beginning of the key.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD};
use frontdesk_wire::secret::same_bytes;

use crate::shared::cbc;

/// How far the time of a request may be from ours. Older ones may be replays.
pub const WINDOW_S: u64 = 300;

/// Of the padding.
const BLOCK: usize = 32;
pub(super) const CIPHER_BLOCK: usize = 16;
const RANDOM: usize = 16;
const KEY_CHARS: usize = 43;

/// 43 characters hold two bits more than the key has, and those may have any value.
const KEY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a request is not genuine, or cannot be read although it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Forged {
    #[error("msg_signature, timestamp or nonce is missing, malformed or present twice")]
    Query,
    #[error("timestamp is more than 300 s away from the server's clock")]
    Stale,
    #[error("the signature does not match; check that token is the Token of the app's callback")]
    Signature,
    #[error("the text cannot be decrypted; check that aes_key is the EncodingAESKey of the app's callback")]
    Sealed,
    #[error("the text is encrypted for another receiver; check that corp_id is the id of the company")]
    Receiver,
}

/// What a request says about itself, beside the sealed text.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    pub signature: &'a str,
    pub timestamp: &'a str,
    pub nonce: &'a str,
}

/// Checks that the sender of the sealed text knows the token, and that it is new.
pub fn verify(token: &str, signed: Signed<'_>, sealed: &str, now_s: u64) -> Result<(), Forged> {
    let Signed { signature, timestamp, nonce } = signed;
    let is_number = (1..=12).contains(&timestamp.len()) && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let sent_s: u64 = timestamp.parse().ok().filter(|_| is_number).ok_or(Forged::Query)?;
    let is_hex = signature.len() == 40 && signature.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !is_hex || nonce.is_empty() || nonce.len() > 128 {
        return Err(Forged::Query);
    }
    if sent_s.abs_diff(now_s) > WINDOW_S {
        return Err(Forged::Stale);
    }
    // An empty token must never verify a request.
    let expected = sign(token, timestamp, nonce, sealed);
    match !token.is_empty() && same_bytes(expected.as_bytes(), signature.as_bytes()) {
        true => Ok(()),
        false => Err(Forged::Signature),
    }
}

/// The value of `msg_signature`.
pub fn sign(token: &str, timestamp: &str, nonce: &str, sealed: &str) -> String {
    let mut parts = [token, timestamp, nonce, sealed];
    parts.sort_unstable();
    hex::encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, parts.concat().as_bytes()))
}

/// The key in the 43 characters that the vendor shows. `None`: it is not one.
pub fn key_of(text: &str) -> Option<[u8; 32]> {
    let is_whole = text.len() == KEY_CHARS;
    KEY_BASE64.decode(text).ok().filter(|_| is_whole)?.try_into().ok()
}

/// The text that is sealed for this receiver.
pub fn open(key: &[u8; 32], receiver: &str, sealed: &str) -> Result<Vec<u8>, Forged> {
    let bytes = STANDARD.decode(sealed).map_err(|_| Forged::Sealed)?;
    let plain = decrypted(key, &bytes).ok_or(Forged::Sealed)?;
    let (length, rest) = plain.get(RANDOM..).and_then(|rest| rest.split_first_chunk::<4>()).ok_or(Forged::Sealed)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| Forged::Sealed)?;
    let (text, named) = rest.split_at_checked(length).ok_or(Forged::Sealed)?;
    match same_bytes(named, receiver.as_bytes()) {
        true => Ok(text.to_vec()),
        false => Err(Forged::Receiver),
    }
}

/// A text sealed for this receiver, as the vendor does it. For tests.
pub fn seal(key: &[u8; 32], receiver: &str, random: [u8; RANDOM], text: &[u8]) -> Option<String> {
    let length = u32::try_from(text.len()).ok()?.to_be_bytes();
    let mut plain = [&random[..], &length, text, receiver.as_bytes()].concat();
    let padded = BLOCK - plain.len() % BLOCK;
    plain.resize(plain.len() + padded, u8::try_from(padded).ok()?);
    Some(STANDARD.encode(cbc::encrypt(key, &vector(key), &plain)?))
}

/// Without the padding.
fn decrypted(key: &[u8; 32], sealed: &[u8]) -> Option<Vec<u8>> {
    let mut plain = cbc::decrypt(key, &vector(key), sealed)?;
    let padded = padding(&plain)?;
    plain.truncate(plain.len() - padded);
    Some(plain)
}

/// What the chain of blocks begins with.
pub fn vector(key: &[u8; 32]) -> [u8; CIPHER_BLOCK] {
    std::array::from_fn(|at| key[at])
}

/// How many bytes at the end are padding: each of them is their number. `None`: they are not.
pub fn padding(plain: &[u8]) -> Option<usize> {
    let number = usize::from(*plain.last()?);
    let tail = plain.get(plain.len().checked_sub(number)?..)?;
    ((1..=BLOCK).contains(&number) && tail.iter().all(|byte| usize::from(*byte) == number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by wechatpy and by @wecom/crypto, which agree; the first is in the vendor's documents.
    const VECTORS: &str = include_str!("vectors.json");
    const TOKEN: &str = "QDG6eK";
    const KEY: &str = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C";
    const CORP: &str = "wx5823bf96d3bd56c7";

    fn key() -> [u8; 32] {
        key_of(KEY).unwrap()
    }

    #[test]
    fn what_others_sealed_is_opened() {
        let vectors: Vec<serde_json::Value> = serde_json::from_str(VECTORS).unwrap();
        assert_eq!(vectors.len(), 6);
        for vector in vectors {
            let text = |name: &str| vector[name].as_str().unwrap_or_default();
            let sealed = if text("kind") == "verify_url" { text("echostr") } else { text("encrypt") };
            let signed =
                Signed { signature: text("msg_signature"), timestamp: text("timestamp"), nonce: text("nonce") };
            let now_s: u64 = text("timestamp").parse().unwrap();
            assert_eq!(verify(text("token"), signed, sealed, now_s), Ok(()), "{vector}");
            let key = key_of(text("aes_key")).unwrap();
            assert_eq!(open(&key, text("receive_id"), sealed), Ok(text("plain").as_bytes().to_vec()), "{vector}");
            assert_eq!(open(&key, "another", sealed), Err(Forged::Receiver));
            if let Ok(random) = text("random16").as_bytes().try_into() {
                let ours = seal(&key, text("receive_id"), random, text("plain").as_bytes());
                assert_eq!(ours.as_deref(), Some(sealed), "{vector}");
            }
        }
    }

    #[test]
    fn any_other_word_is_refused() {
        let sealed = "LpOuuS4iGQWcZQUaoudyHtDmokivR5cML6fkGlVOuL7YQTQ8kt9cUjnsUVLJEMknA8WcMv1KSvtqOYmI13qmlQ==";
        let good =
            Signed { signature: "884df52cc937b7b378319f3506f65338f8b2b80d", timestamp: "1700000000", nonce: "n" };
        let signature = sign(TOKEN, "1700000000", "n", sealed);
        let good = Signed { signature: &signature, ..good };
        let now_s = 1_700_000_000;
        assert_eq!(verify(TOKEN, good, sealed, now_s), Ok(()));
        for at in 0..sealed.len() {
            let mut bytes = sealed.as_bytes().to_vec();
            bytes[at] ^= 1;
            let other = String::from_utf8(bytes).unwrap();
            assert_eq!(verify(TOKEN, good, &other, now_s), Err(Forged::Signature));
        }
        for (signed, forged) in [
            (Signed { nonce: "m", ..good }, Forged::Signature),
            (Signed { timestamp: "1700000001", ..good }, Forged::Signature),
            (Signed { timestamp: "1699999000", ..good }, Forged::Stale),
            (Signed { timestamp: "1700000301", ..good }, Forged::Stale),
            (Signed { timestamp: "+1700000000", ..good }, Forged::Query),
            (Signed { timestamp: "", ..good }, Forged::Query),
            (Signed { nonce: "", ..good }, Forged::Query),
            (Signed { signature: &signature[1..], ..good }, Forged::Query),
            (Signed { signature: &signature.to_uppercase(), ..good }, Forged::Query),
            (Signed { signature: "", ..good }, Forged::Query),
        ] {
            assert_eq!(verify(TOKEN, signed, sealed, now_s), Err(forged), "{signed:?}");
        }
        assert_eq!(verify("other", good, sealed, now_s), Err(Forged::Signature));
        let nobody = sign("", "1700000000", "n", sealed);
        assert_eq!(verify("", Signed { signature: &nobody, ..good }, sealed, now_s), Err(Forged::Signature));
    }

    #[test]
    fn what_is_sealed_badly_is_refused() {
        let open = |sealed: &str| open(&key(), CORP, sealed);
        for sealed in ["", "x", "AAAA", "****", "AAAAAAAAAAAAAAAAAAAAAA==", &"A".repeat(128)] {
            assert_eq!(open(sealed), Err(Forged::Sealed), "{sealed:?}");
        }
        let good = "LpOuuS4iGQWcZQUaoudyHtDmokivR5cML6fkGlVOuL7YQTQ8kt9cUjnsUVLJEMknA8WcMv1KSvtqOYmI13qmlQ==";
        assert_eq!(open(good), Ok(Vec::new()));
        assert_eq!(super::open(&[7; 32], CORP, good), Err(Forged::Sealed), "another key");
        // A bit of the first block is a bit of the length, which is in the second.
        for (at, forged) in [(0, Forged::Sealed), (3, Forged::Receiver)] {
            let mut bytes = STANDARD.decode(good).unwrap();
            bytes[at] ^= 1;
            assert_eq!(open(&STANDARD.encode(&bytes)), Err(forged));
        }
    }

    #[test]
    fn a_key_has_43_characters() {
        assert!(key_of(KEY).is_some());
        for wrong in ["", &KEY[1..], "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C=", &KEY.replace('j', "*")] {
            assert_eq!(key_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn padding_is_whole_or_wrong() {
        let padded = |length: usize, number: u8, count: usize| [vec![9; length], vec![number; count]].concat();
        assert_eq!(padding(&padded(31, 1, 1)), Some(1));
        assert_eq!(padding(&padded(0, 32, 32)), Some(32));
        for wrong in [vec![], vec![0], padded(1, 33, 33), padded(30, 3, 2), padded(0, 5, 4)] {
            assert_eq!(padding(&wrong), None, "{wrong:?}");
        }
    }
}
