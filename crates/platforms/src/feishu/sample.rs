//! Events as Feishu would send them, for benchmarks and tests.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_wire::Secret;
use serde_json::json;

use super::PLATFORM;
use super::signature::sign;
use crate::shared::cbc;
use crate::shared::sample::{Said, Sample, SampleRequest, named};

const APP: &str = "cli_1";
const KEY: &str = "the-encrypt-key-of-the-app";
const BLOCK: usize = 16;

pub(crate) struct SampleApp;

impl Sample for SampleApp {
    fn platform(&self) -> &'static str {
        PLATFORM
    }

    fn settings(&self, vendor: &str) -> BTreeMap<String, String> {
        named([("base_url", vendor), ("app_id", APP), ("mode", "events")])
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        named([("app_secret", "never-used"), ("encrypt_key", KEY)])
    }

    fn signs_time(&self) -> bool {
        true
    }

    fn vendor_answer(&self) -> &'static str {
        r#"{"code": 0, "tenant_access_token": "t", "expire": 7200, "bot": {"open_id": "ou_me", "app_name": "Desk"},
            "data": {"user": {"name": "A person"}}}"#
    }

    fn user(&self, _: &str, person: u64) -> String {
        format!("person-{person}")
    }

    fn request(&self, said: &Said<'_>) -> SampleRequest {
        let stamp = (said.now_ms / 1_000).to_string();
        let header =
            json!({ "event_type": "im.message.receive_v1", "event_id": format!("e{}", said.number), "app_id": APP });
        let message = json!({ "message_id": format!("om_{}", said.number), "chat_id": format!("oc_{}", said.person),
            "chat_type": "p2p", "message_type": "text", "content": json!({ "text": said.text }).to_string(),
            "create_time": said.now_ms.to_string() });
        let user = self.user(said.bot, said.person);
        let sender =
            json!({ "sender_id": { "user_id": user, "open_id": format!("ou_{user}") }, "sender_type": "user" });
        let event = json!({ "message": message, "sender": sender });
        let body = sealed(&json!({ "schema": "2.0", "header": header, "event": event }).to_string());
        let signature = sign(&Secret::new(KEY), &stamp, "n", body.as_bytes());
        let headers = format!(
            "Content-Type: application/json\r\nX-Lark-Request-Timestamp: {stamp}\r\nX-Lark-Request-Nonce: n\r\n\
             X-Lark-Signature: {signature}\r\n"
        );
        SampleRequest { path: format!("/feishu/{}", said.bot), headers, body }
    }
}

fn sealed(text: &str) -> String {
    let mut plain = text.as_bytes().to_vec();
    let padded = BLOCK - plain.len() % BLOCK;
    plain.resize(plain.len() + padded, u8::try_from(padded).unwrap_or_default());
    let iv = [7; BLOCK];
    let key = digest(&SHA256, KEY.as_bytes());
    let key = <[u8; 32]>::try_from(key.as_ref()).unwrap_or_default();
    let bytes = cbc::encrypt(&key, &iv, &plain).unwrap_or_default();
    json!({ "encrypt": STANDARD.encode([&iv[..], &bytes].concat()) }).to_string()
}
