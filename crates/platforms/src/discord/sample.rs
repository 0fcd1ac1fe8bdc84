//! Interactions as Discord would send them, for the benchmark.

use std::collections::BTreeMap;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use super::PLATFORM;
use crate::shared::sample::{Said, Sample, SampleRequest, named};

const APPLICATION: &str = "1100000000000000001";

/// A bot and the key with which its interactions are signed.
pub(crate) struct SampleBot {
    key: Option<Ed25519KeyPair>,
}

impl SampleBot {
    pub(crate) fn new() -> Self {
        Self { key: Ed25519KeyPair::from_seed_unchecked(&[7; 32]).ok() }
    }
}

impl Sample for SampleBot {
    fn platform(&self) -> &'static str {
        PLATFORM
    }

    fn settings(&self, vendor: &str) -> BTreeMap<String, String> {
        let public_key = self.key.as_ref().map(|key| hex::encode(key.public_key().as_ref())).unwrap_or_default();
        named([
            ("base_url", &format!("{vendor}/api/v10")),
            ("socket", "off"),
            ("application_id", APPLICATION),
            ("public_key", &public_key),
        ])
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        named([("token", "a-token-that-is-never-used")])
    }

    fn signs_time(&self) -> bool {
        true
    }

    fn user(&self, _: &str, person: u64) -> String {
        (2_000_000_000_000_000_000 + person).to_string()
    }

    /// A slash command.
    fn request(&self, said: &Said<'_>) -> SampleRequest {
        let (id, channel) = (1_100_000_000_000_000_000 + said.number, format!("3{:018}", said.person));
        let body = json!({
            "id": id.to_string(), "application_id": APPLICATION, "type": 2, "version": 1,
            "token": format!("token-of-{id}"), "channel_id": channel, "channel": { "id": channel, "type": 1 },
            "user": { "id": self.user(said.bot, said.person), "username": format!("u{}", said.person), "global_name": "A person" },
            "data": { "id": "1", "name": "ask", "type": 1,
                "options": [{ "name": "question", "type": 3, "value": said.text }] },
        });
        let (body, now_s) = (body.to_string(), (said.now_ms / 1_000).to_string());
        let signed = self.key.as_ref().map(|key| key.sign(&[now_s.as_bytes(), body.as_bytes()].concat()));
        let signature = signed.map(|signature| hex::encode(signature.as_ref())).unwrap_or_default();
        let headers = format!("X-Signature-Ed25519: {signature}\r\nX-Signature-Timestamp: {now_s}\r\n");
        SampleRequest { path: format!("/interactions/{}", said.bot), headers, body }
    }

    /// A deferred answer: an agent gets the command.
    fn answer(&self) -> (u16, &'static str) {
        (200, "{\"type\":5}")
    }
}
