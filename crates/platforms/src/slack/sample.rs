//! Events as Slack would send them, for the benchmark.

use std::collections::BTreeMap;

use frontdesk_wire::Secret;
use serde_json::json;

use super::PLATFORM;
use super::signature::sign;
use crate::shared::sample::{Said, Sample, SampleRequest, named};

const SIGNING_SECRET: &str = "0123456789abcdef0123456789abcdef";

pub(crate) struct SampleApp;

impl Sample for SampleApp {
    fn platform(&self) -> &'static str {
        PLATFORM
    }

    fn settings(&self, vendor: &str) -> BTreeMap<String, String> {
        named([("base_url", &format!("{vendor}/api")), ("mode", "events")])
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        named([("bot_token", "xoxb-never-used"), ("signing_secret", SIGNING_SECRET)])
    }

    fn signs_time(&self) -> bool {
        true
    }

    fn vendor_answer(&self) -> &'static str {
        r#"{"ok": true, "user": {"profile": {"display_name": "A person"}}}"#
    }

    fn user(&self, _: &str, person: u64) -> String {
        format!("U{person:08}")
    }

    fn request(&self, said: &Said<'_>) -> SampleRequest {
        let now_s = said.now_ms / 1_000;
        let body = json!({
            "type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event_id": format!("Ev{:08}", said.number),
            "event_time": now_s, "authorizations": [{ "team_id": "T1", "user_id": "UBOT", "is_bot": true }],
            "event": { "type": "message", "channel": format!("D{:08}", said.person), "channel_type": "im",
                "user": self.user(said.bot, said.person), "text": said.text, "ts": format!("{now_s}.{:06}", said.number % 1_000_000) },
        });
        let body = body.to_string();
        let signature = sign(&Secret::new(SIGNING_SECRET), now_s, body.as_bytes());
        let headers = format!(
            "Content-Type: application/json\r\nX-Slack-Request-Timestamp: {now_s}\r\nX-Slack-Signature: {signature}\r\n"
        );
        SampleRequest { path: format!("/slack/{}/events", said.bot), headers, body }
    }
}
