//! The keys with which interactions are signed. Each bot has one that follows from its id.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

use super::snowflake::Id;

#[allow(clippy::expect_used, reason = "a digest of 256 bits is always a valid seed")]
fn key(bot: Id) -> Ed25519KeyPair {
    let seed = digest(&SHA256, format!("fake discord application {bot}").as_bytes());
    Ed25519KeyPair::from_seed_unchecked(seed.as_ref()).expect("a seed of 32 bytes")
}

/// As the portal shows it: hexadecimal.
pub fn public_key(bot: Id) -> String {
    hex::encode(key(bot).public_key().as_ref())
}

/// The headers of a request with this body.
pub fn headers(bot: Id, now_ms: u64, body: &[u8]) -> [(&'static str, String); 2] {
    let timestamp = (now_ms / 1_000).to_string();
    let signature = key(bot).sign(&[timestamp.as_bytes(), body].concat());
    [("X-Signature-Ed25519", hex::encode(signature.as_ref())), ("X-Signature-Timestamp", timestamp)]
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    #[test]
    fn signatures_are_over_timestamp_and_body() {
        let [(_, signature), (_, timestamp)] = headers(7, 1_700_000_000_123, b"{}");
        let key = UnparsedPublicKey::new(&ED25519, hex::decode(public_key(7)).unwrap());
        let signature = hex::decode(signature).unwrap();
        assert_eq!(timestamp, "1700000000");
        assert!(key.verify(b"1700000000{}", &signature).is_ok());
        assert!(key.verify(b"1700000001{}", &signature).is_err());
    }
}
