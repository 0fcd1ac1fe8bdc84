//! How the vendor seals and signs, written from its documents and apart from what is tested.

use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::iv::FixedLength;
use base64::Engine as _;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD};

/// `EncodingAESKey` is base64 of 32 bytes without its last sign, and the unused bits may be any.
pub(super) fn key_of(text: &str) -> [u8; 32] {
    let config = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
    let bytes = engine.decode(format!("{text}=")).unwrap_or_default();
    bytes.try_into().unwrap_or([0; 32])
}

/// AES-256-CBC with the beginning of the key as vector, padded to 32 bytes.
pub(super) fn encrypted(key: &[u8; 32], plain: &[u8]) -> Vec<u8> {
    let count = 32 - plain.len() % 32;
    let mut bytes = plain.to_vec();
    bytes.extend(std::iter::repeat_n(u8::try_from(count).unwrap_or(32), count));
    let mut iv = [0; 16];
    iv.copy_from_slice(&key[..16]);
    let sealing = UnboundCipherKey::new(&AES_256, key).and_then(EncryptingKey::cbc);
    if let Ok(sealing) = sealing {
        let context = EncryptionContext::Iv128(FixedLength::from(iv));
        let _ = sealing.less_safe_encrypt(&mut bytes, context); // whole blocks
    }
    bytes
}

/// A message to a receiver, as base64.
pub(super) fn sealed(key: &[u8; 32], random: u64, message: &str, receiver: &str) -> String {
    let mut plain = format!("{random:016x}").into_bytes();
    plain.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    plain.extend(message.bytes());
    plain.extend(receiver.bytes());
    STANDARD.encode(encrypted(key, &plain))
}

pub(super) fn signature(token: &str, timestamp: &str, nonce: &str, sealed: &str) -> String {
    let mut parts = [token, timestamp, nonce, sealed];
    parts.sort_unstable();
    hex::encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, parts.concat().as_bytes()))
}
