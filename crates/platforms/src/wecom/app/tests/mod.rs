//! Callbacks in, calls out: what is stored, and what the vendor gets.

mod acting;
mod doors;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use frontdesk_core::port::media::body_of;
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, OpenAnswer, OutcallError, PartValue};
use frontdesk_testkit::TestEnv;
use serde_json::{Value, json};

use super::*;
use crate::NoMedia;
use crate::wecom::crypt;

pub(super) const CORP: &str = "ww5823bf96d3bd56c7";
pub(super) const TOKEN: &str = "QDG6eK";
pub(super) const KEY: &str = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C";
pub(super) const NOW_S: u64 = 1_700_000_000;

/// Answers calls in turn with what was queued for their path, else as if all was well; records what was asked.
#[derive(Default)]
pub(super) struct Vendor {
    pub(super) calls: Mutex<Vec<(String, Value)>>,
    answers: Mutex<VecDeque<(&'static str, Answering)>>,
    pub(super) tokens: Mutex<u32>,
}

#[derive(Clone)]
pub(super) enum Answering {
    Json(u16, Value),
    Lost,
    NotSent,
}

fn path_of(url: &str) -> &str {
    url.split('?').next().unwrap_or_default().split("/cgi-bin/").nth(1).unwrap_or_default()
}

impl Vendor {
    pub(super) fn answers(&self, path: &'static str, answer: Answering) {
        self.answers.lock().unwrap().push_back((path, answer));
    }

    fn next(&self, path: &str) -> Option<Answering> {
        let mut answers = self.answers.lock().unwrap();
        let at = answers.iter().position(|(known, _)| *known == path)?;
        answers.remove(at).map(|(_, answer)| answer)
    }

    fn usual(&self, path: &str) -> Value {
        match path {
            "gettoken" => {
                let mut tokens = self.tokens.lock().unwrap();
                *tokens += 1;
                json!({ "errcode": 0, "errmsg": "ok", "access_token": format!("token-{tokens}"), "expires_in": 7200 })
            }
            "media/upload" => json!({ "errcode": 0, "errmsg": "ok", "type": "file", "media_id": "media-1" }),
            "agent/get" => json!({ "errcode": 0, "errmsg": "ok", "name": "Helper", "close": 0 }),
            _ => json!({ "errcode": 0, "errmsg": "ok", "msgid": format!("m{}", self.calls.lock().unwrap().len()) }),
        }
    }

    fn answer(&self, path: &str) -> Result<HttpAnswer, OutcallError> {
        match self.next(path).unwrap_or_else(|| Answering::Json(200, self.usual(path))) {
            Answering::Json(status, body) => {
                Ok(HttpAnswer { body: body.to_string().into_bytes(), ..HttpAnswer::of(status) })
            }
            Answering::Lost => Err(OutcallError::TimedOut),
            Answering::NotSent => Err(OutcallError::NotSent("refused".into())),
        }
    }

    pub(super) fn to(&self, path: &str) -> Vec<(String, Value)> {
        self.calls.lock().unwrap().iter().filter(|(url, _)| path_of(url) == path).cloned().collect()
    }
}

impl Outcall for Vendor {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            let mut body = Value::Null;
            let url = call.url.to_owned();
            match call.body {
                Body::Json(text) => body = serde_json::from_str(text).unwrap(),
                Body::Multipart(parts) => {
                    for part in parts {
                        let PartValue::File { filename, mime, length, body: bytes } = part.value else { panic!() };
                        let whole = frontdesk_core::port::media::read_whole(bytes).await.unwrap();
                        assert_eq!(length, Some(whole.len() as u64), "the length is told before");
                        body = json!([part.name, filename, mime, String::from_utf8_lossy(&whole)]);
                    }
                }
                _ => {}
            }
            self.calls.lock().unwrap().push((url.clone(), body));
            tokio::task::yield_now().await;
            self.answer(path_of(&url))
        })
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        self.calls.lock().unwrap().push((call.url.to_owned(), Value::Null));
        let answer = match self.next(path_of(call.url)) {
            Some(Answering::Json(status, body)) => Ok(OpenAnswer {
                status,
                headers: vec![("content-type".into(), "application/json; charset=UTF-8".into())],
                body: body_of(body.to_string().into_bytes()),
            }),
            Some(_) => Err(OutcallError::TimedOut),
            None => Ok(OpenAnswer {
                status: 200,
                headers: vec![("content-type".into(), "image/png".into())],
                body: body_of(Bytes::from_static(b"a picture")),
            }),
        };
        Box::pin(std::future::ready(answer))
    }
}

pub(super) struct Scene {
    pub(super) vendor: Arc<Vendor>,
    pub(super) env: Arc<TestEnv>,
    pub(super) app: App,
    pub(super) bot: Bot,
}

pub(super) fn bot_with(settings: &[(&str, &str)], secrets: &[(&str, &str)]) -> Bot {
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let secrets = owned(secrets).into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
    Bot::new("wc", Some("home".into()), owned(settings).into_iter().collect(), secrets)
}

pub(super) const SETTINGS: [(&str, &str); 2] = [("corp_id", CORP), ("agent_id", "1000002")];
pub(super) const SECRETS: [(&str, &str); 3] = [("secret", "the-secret-of-the-app"), ("token", TOKEN), ("aes_key", KEY)];

impl Scene {
    pub(super) fn new() -> Self {
        let (vendor, env) = (Arc::new(Vendor::default()), Arc::new(TestEnv::default()));
        let kit = Kit {
            env: env.clone(),
            outcall: vendor.clone(),
            media: Arc::new(NoMedia),
            public_url: "https://desk.example".into(),
            settings: toml::Table::new(),
        };
        let app = App::new(&kit);
        let bot = bot_with(&SETTINGS, &SECRETS);
        assert_eq!(app.check_bot(&bot), Ok(()));
        Self { vendor, env, app, bot }
    }

    /// A request as the vendor makes it.
    pub(super) fn request(plain: &str) -> RawRequest {
        let sealed = crypt::seal(&crypt::key_of(KEY).unwrap(), CORP, *b"0123456789abcdef", plain.as_bytes()).unwrap();
        let body = format!(
            "<xml><ToUserName><![CDATA[{CORP}]]></ToUserName><Encrypt><![CDATA[{sealed}]]></Encrypt>\
             <AgentID><![CDATA[1000002]]></AgentID></xml>"
        );
        RawRequest {
            door: DOOR,
            query: Self::query(&sealed),
            body: body.into_bytes().into(),
            now_ms: NOW_S * 1_000,
            ..RawRequest::default()
        }
    }

    pub(super) fn query(sealed: &str) -> String {
        let signature = crypt::sign(TOKEN, &NOW_S.to_string(), "n0", sealed);
        format!("msg_signature={signature}&timestamp={NOW_S}&nonce=n0")
    }

    pub(super) async fn act(&self, action: Value) -> Acted {
        let action = Action::parse(&action.to_string()).unwrap();
        self.app.act(ActingAs::new(&"home".into(), &self.bot), &action, None).await
    }
}

/// A message of Ann with these fields.
pub(super) fn message(fields: &str) -> String {
    format!(
        "<xml><ToUserName><![CDATA[{CORP}]]></ToUserName><FromUserName><![CDATA[ann]]></FromUserName>\
         <CreateTime>1348831860</CreateTime>{fields}<AgentID>1000002</AgentID></xml>"
    )
}
