//! Messages as Twilio would send them, for the benchmark.

use std::collections::BTreeMap;

use super::PLATFORM;
use super::signature::sign;
use crate::shared::sample::{Said, Sample, SampleRequest, named};

const ACCOUNT: &str = "AC00000000000000000000000000000000";
const AUTH_TOKEN: &str = "the-auth-token-of-the-benchmark";
const NUMBER: &str = "+15550000000";

pub(crate) struct SampleNumber;

impl Sample for SampleNumber {
    fn platform(&self) -> &'static str {
        PLATFORM
    }

    fn settings(&self, vendor: &str) -> BTreeMap<String, String> {
        named([("base_url", vendor), ("account_sid", ACCOUNT), ("from", NUMBER)])
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        named([("auth_token", AUTH_TOKEN)])
    }

    fn user(&self, _: &str, person: u64) -> String {
        format!("+1555{:07}", person + 1)
    }

    fn request(&self, said: &Said<'_>) -> SampleRequest {
        let path = format!("/twilio/{}", said.bot);
        let (id, from) = (format!("SM{:032x}", said.number), self.user(said.bot, said.person));
        let fields = [
            ("AccountSid", ACCOUNT),
            ("ApiVersion", "2010-04-01"),
            ("Body", said.text),
            ("From", &from),
            ("MessageSid", &id),
            ("NumMedia", "0"),
            ("SmsStatus", "received"),
            ("To", NUMBER),
        ];
        // Only what these fields have; other letters may be there as they are.
        let escape = |text: &str| text.replace('+', "%2B").replace('=', "%3D");
        let body = fields.map(|(name, value)| format!("{name}={}", escape(value))).join("&");
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let signature = sign(AUTH_TOKEN, &format!("{}{path}", said.public_url), &fields);
        let headers = format!("Content-Type: application/x-www-form-urlencoded\r\nX-Twilio-Signature: {signature}\r\n");
        SampleRequest { path, headers, body }
    }

    fn answer(&self) -> (u16, &'static str) {
        (200, "<Response>")
    }
}
