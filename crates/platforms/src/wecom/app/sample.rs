//! Messages as `WeCom` would send them to an app, for benchmarks and tests.

use std::collections::BTreeMap;

use super::PLATFORM;
use crate::shared::sample::{Said, Sample, SampleRequest, named};
use crate::wecom::crypt::{key_of, seal, sign};

const CORP: &str = "ww5823bf96d3bd56c7";
const TOKEN: &str = "the-token-of-the-callback";
const KEY: &str = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C";

pub(crate) struct SampleApp;

impl Sample for SampleApp {
    fn platform(&self) -> &'static str {
        PLATFORM
    }

    fn settings(&self, vendor: &str) -> BTreeMap<String, String> {
        named([("base_url", vendor), ("corp_id", CORP), ("agent_id", "1")])
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        named([("secret", "never-used"), ("token", TOKEN), ("aes_key", KEY)])
    }

    fn signs_time(&self) -> bool {
        true
    }

    fn user(&self, _: &str, person: u64) -> String {
        format!("person-{person}")
    }

    fn request(&self, said: &Said<'_>) -> SampleRequest {
        let (now_s, from) = ((said.now_ms / 1_000).to_string(), self.user(said.bot, said.person));
        let message = format!(
            "<xml><ToUserName>{CORP}</ToUserName><FromUserName>{from}</FromUserName><CreateTime>{now_s}</CreateTime>\
             <MsgType>text</MsgType><Content>{}</Content><MsgId>{}</MsgId><AgentID>1</AgentID></xml>",
            said.text, said.number
        );
        let sealed = key_of(KEY).and_then(|key| seal(&key, CORP, [7; 16], message.as_bytes())).unwrap_or_default();
        let signature = sign(TOKEN, &now_s, "n", &sealed);
        SampleRequest {
            path: format!("/wecom/{}?msg_signature={signature}&timestamp={now_s}&nonce=n", said.bot),
            headers: "Content-Type: text/xml\r\n".to_owned(),
            body: format!("<xml><ToUserName>{CORP}</ToUserName><Encrypt>{sealed}</Encrypt><AgentID>1</AgentID></xml>"),
        }
    }
}
