//! Updates as Telegram would send them, for the benchmark.

use std::collections::BTreeMap;

use serde_json::json;

use super::PLATFORM;
use crate::shared::sample::{Said, Sample, SampleRequest, named};

const WEBHOOK_SECRET: &str = "the-secret-of-the-benchmark";
const FIRST_USER: u64 = 10_000;

pub(crate) struct SampleBot;

impl Sample for SampleBot {
    fn platform(&self) -> &'static str {
        PLATFORM
    }

    fn settings(&self, vendor: &str) -> BTreeMap<String, String> {
        named([("base_url", vendor), ("mode", "webhook")])
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        named([("token", "7001:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr"), ("webhook_secret", WEBHOOK_SECRET)])
    }

    fn vendor_answer(&self) -> &'static str {
        r#"{"ok": true, "result": {"id": 7001, "is_bot": true, "first_name": "Desk", "username": "desk_bot"}}"#
    }

    fn user(&self, _: &str, person: u64) -> String {
        (FIRST_USER + person).to_string()
    }

    fn signs_body(&self) -> bool {
        false
    }

    fn request(&self, said: &Said<'_>) -> SampleRequest {
        let id = FIRST_USER + said.person;
        let body = json!({ "update_id": said.number + 1, "message": {
            "message_id": said.number + 1, "date": said.now_ms / 1_000, "text": said.text,
            "chat": { "id": id, "type": "private", "first_name": "A person" },
            "from": { "id": id, "is_bot": false, "first_name": "A person" },
        } });
        let headers =
            format!("Content-Type: application/json\r\nX-Telegram-Bot-Api-Secret-Token: {WEBHOOK_SECRET}\r\n");
        SampleRequest { path: format!("/telegram/{}", said.bot), headers, body: body.to_string() }
    }
}
