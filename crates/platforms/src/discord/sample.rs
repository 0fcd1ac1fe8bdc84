//! Interactions as Discord would send them, for the benchmark.

use std::collections::BTreeMap;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;

pub use super::PLATFORM;

const APPLICATION: &str = "1100000000000000001";

/// A bot and the key with which its interactions are signed.
pub struct SampleBot {
    key: Ed25519KeyPair,
}

impl SampleBot {
    pub fn new() -> Option<Self> {
        Some(Self { key: Ed25519KeyPair::from_seed_unchecked(&[7; 32]).ok()? })
    }

    pub fn settings(&self) -> BTreeMap<String, String> {
        let settings = [
            // Nothing answers there: interactions must not need it.
            ("base_url", "http://127.0.0.1:9/api/v10".to_owned()),
            ("socket", "off".to_owned()),
            ("application_id", APPLICATION.to_owned()),
            ("public_key", hex::encode(self.key.public_key().as_ref())),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).into()
    }

    pub fn secrets() -> BTreeMap<String, String> {
        [("token".to_owned(), "a-token-that-is-never-used".to_owned())].into()
    }

    /// A person of this number.
    pub fn user(number: u64) -> String {
        (2_000_000_000_000_000_000 + number).to_string()
    }

    /// A command of a person in their direct chat: header lines and body.
    pub fn command(&self, number: u64, person: u64, text: &str, now_ms: u64) -> (String, String) {
        let (id, channel) = (1_100_000_000_000_000_000 + number, format!("3{person:018}"));
        let body = json!({
            "id": id.to_string(), "application_id": APPLICATION, "type": 2, "version": 1,
            "token": format!("token-of-{id}"), "channel_id": channel, "channel": { "id": channel, "type": 1 },
            "user": { "id": Self::user(person), "username": format!("u{person}"), "global_name": "A person" },
            "data": { "id": "1", "name": "ask", "type": 1, "options": [{ "name": "question", "type": 3, "value": text }] },
        });
        let (body, now_s) = (body.to_string(), (now_ms / 1_000).to_string());
        let signature = self.key.sign(&[now_s.as_bytes(), body.as_bytes()].concat());
        let signature = hex::encode(signature.as_ref());
        (format!("X-Signature-Ed25519: {signature}\r\nX-Signature-Timestamp: {now_s}\r\n"), body)
    }
}
