//! Hashes of texts.

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};

/// A map by short texts that is read for every message. Its seed differs from process to process.
pub(crate) type TextMap<K, V> = HashMap<K, V, foldhash::quality::RandomState>;

/// Lowercase hex SHA-256, for tokens that are kept only as hashes.
pub fn sha256_hex(text: &str) -> String {
    hex::encode(digest(&SHA256, text.as_bytes()))
}

/// The first 16 bytes of SHA-256 over length-prefixed parts: different lists of parts give different names.
pub fn short_hash(parts: &[&str]) -> [u8; 16] {
    let mut context = aws_lc_rs::digest::Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut short = [0; 16];
    short.copy_from_slice(&context.finish().as_ref()[..16]);
    short
}
