//! Judges requests on stdin as the door of an app does: one JSON object a line in, one a line out.
//! `{"token","aes_key","corp_id","query","body","now_s"}` in, with the body in base64; `{"status","body","text","id"}` out: what is
//! answered, and the text and id of the message that is stored. The comparison with what others sign drives it
//! (`tests/vendors/wecom_signatures.py`).

use std::io::{self, BufRead as _, BufWriter, Write as _};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{Bot, DoorAnswer, Platform as _, RawRequest};
use frontdesk_platforms::wecom::app::App;
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_wire::Secret;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

struct Nothing;

impl Outcall for Nothing {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Err(OutcallError::Refused)
    }

    fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(std::future::ready(Err(OutcallError::Refused)))
    }
}

impl Env for Nothing {
    fn now_ms(&self) -> u64 {
        0
    }

    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

fn main() -> io::Result<()> {
    let kit = Kit {
        env: Arc::new(Nothing),
        outcall: Arc::new(Nothing),
        media: Arc::new(NoMedia),
        public_url: String::new(),
        settings: toml::Table::new(),
    };
    let app = App::new(&kit);
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let given: Value = serde_json::from_str(&line?)?;
        let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
        let settings = [("corp_id", text("corp_id")), ("agent_id", "1000002".to_owned())];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
        let secrets = ["token", "aes_key"].map(|name| (name.to_owned(), Secret::new(text(name)))).into();
        let bot = Bot::new("b", Some("t".into()), settings, secrets);
        let body = STANDARD.decode(text("body")).map_err(io::Error::other)?.into();
        let now_ms = given["now_s"].as_u64().unwrap_or(0) * 1_000;
        let request = RawRequest { query: text("query"), body, now_ms, ..RawRequest::default() };
        let received = app.receive(Some(&bot), &request).now_or_never();
        let shown = match received {
            Some(Ok(received)) => {
                let event = received.intakes.first().map(|intake| &intake.event);
                let DoorAnswer::Fixed(reply) = received.answer else { return Err(io::Error::other("no reply")) };
                json!({ "status": reply.status, "body": reply.body, "text": event.map(|event| &event.text),
                    "id": event.and_then(|event| event.message_id.as_ref()) })
            }
            Some(Err(reply)) => json!({ "status": reply.status, "body": reply.body }),
            None => return Err(io::Error::other("it waits for something")),
        };
        writeln!(out, "{shown}")?;
    }
    out.flush()
}
