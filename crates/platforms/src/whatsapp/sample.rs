//! Messages as Meta would send them, for the benchmark.

use std::collections::BTreeMap;

use serde_json::json;

use super::PLATFORM;
use super::signature::sign;
use crate::shared::sample::{Said, Sample, SampleRequest, named};

const APP_SECRET: &str = "0123456789abcdef0123456789abcdef";
const NUMBER_ID: &str = "106540352242922";

pub(crate) struct SampleNumber;

impl Sample for SampleNumber {
    fn platform(&self) -> &'static str {
        PLATFORM
    }

    fn settings(&self, vendor: &str) -> BTreeMap<String, String> {
        named([("base_url", vendor), ("phone_number_id", NUMBER_ID)])
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        named([("access_token", "never-used"), ("app_secret", APP_SECRET), ("verify_token", "never-used")])
    }

    fn user(&self, _: &str, person: u64) -> String {
        format!("1555{:07}", person + 1)
    }

    fn request(&self, said: &Said<'_>) -> SampleRequest {
        let from = self.user(said.bot, said.person);
        let value = json!({
            "messaging_product": "whatsapp",
            "metadata": { "display_phone_number": "15559990000", "phone_number_id": NUMBER_ID },
            "contacts": [{ "profile": { "name": "A person" }, "wa_id": from }],
            "messages": [{ "from": from, "id": format!("wamid.{:016X}", said.number), "type": "text",
                "timestamp": (said.now_ms / 1_000).to_string(), "text": { "body": said.text } }],
        });
        let entry = json!({ "id": "0", "changes": [{ "field": "messages", "value": value }] });
        let body = json!({ "object": "whatsapp_business_account", "entry": [entry] }).to_string();
        let signature = sign(APP_SECRET, body.as_bytes());
        let headers = format!("Content-Type: application/json\r\nX-Hub-Signature-256: {signature}\r\n");
        SampleRequest { path: format!("/whatsapp/{}", said.bot), headers, body }
    }
}
