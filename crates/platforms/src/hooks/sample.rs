//! Signed webhooks, for the benchmark.

use std::collections::BTreeMap;

use super::PLATFORM;
use crate::shared::sample::{Said, Sample, SampleRequest, named};
use crate::shared::standard_webhooks::sign;

const KEY: &str = "the key of the benchmark";

pub(crate) struct SampleHook;

impl Sample for SampleHook {
    fn platform(&self) -> &'static str {
        PLATFORM
    }

    fn settings(&self, _: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        named([("key", KEY)])
    }

    fn signs_time(&self) -> bool {
        true
    }

    /// A webhook has no people: it is its own sender.
    fn user(&self, bot: &str, _: u64) -> String {
        bot.to_owned()
    }

    fn request(&self, said: &Said<'_>) -> SampleRequest {
        let (id, now_s) = (format!("m{}", said.number), said.now_ms / 1_000);
        let signature = sign(KEY.as_bytes(), &id, now_s, said.text.as_bytes());
        let headers = format!("webhook-id: {id}\r\nwebhook-timestamp: {now_s}\r\nwebhook-signature: {signature}\r\n");
        SampleRequest { path: format!("/hooks/{}", said.bot), headers, body: said.text.to_owned() }
    }

    fn answer(&self) -> (u16, &'static str) {
        (202, "")
    }
}
