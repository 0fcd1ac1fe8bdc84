//! Prints what is sent to Meta for every action: one JSON body a line. Meta's published description judges it
//! (`tests/vendors/phones.py`).

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::media::body_of;
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, OpenAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{ActingAs, Bot, Platform as _, RawRequest};
use frontdesk_platforms::whatsapp::{WhatsApp, signature};
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_testkit::TestEnv;
use frontdesk_wire::{Action, Secret, TenantId};
use serde_json::{Value, json};

const ANN: &str = "15550001111";

/// Answers in turn with what was queued, else as Meta does.
#[derive(Default)]
struct Recorder {
    bodies: Mutex<Vec<String>>,
    answers: Mutex<VecDeque<(u16, Value)>>,
}

impl Outcall for Recorder {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        if let Body::Json(text) = call.body {
            self.bodies.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
        }
        let usual = (200, json!({ "id": "1", "success": true, "messages": [{ "id": "wamid.1" }] }));
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front().unwrap_or(usual);
        let answer = HttpAnswer { body: answer.1.to_string().into_bytes(), ..HttpAnswer::of(answer.0) };
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        let mime = call.url.rsplit("type=").next().unwrap_or_default().to_owned();
        let headers = vec![("content-type".to_owned(), mime), ("content-length".to_owned(), "1".to_owned())];
        Box::pin(std::future::ready(Ok(OpenAnswer { status: 200, headers, body: body_of("x") })))
    }
}

fn actions() -> Vec<Value> {
    let options = |count: usize| -> Vec<Value> {
        (0..count).map(|at| json!({ "id": format!("o{at}"), "label": format!("An option with number {at}") })).collect()
    };
    let short = json!([{ "id": "y", "label": "Yes" }, { "id": "n", "label": "No" }]);
    let file = |kind: &str, mime: &str| {
        json!({ "op": "send_media", "media_kind": kind, "source_url": format!("https://files.example/?type={mime}"),
            "content": "a *caption*", "filename": "a.bin" })
    };
    vec![
        json!({ "op": "send", "content": "**bold** text" }),
        json!({ "op": "send", "content": "an answer", "reply_to": "wamid.in" }),
        json!({ "op": "typing" }),
        json!({ "op": "react", "message_id": "wamid.in", "emoji": "👍" }),
        json!({ "op": "react", "message_id": "wamid.in", "emoji": "👍", "remove": true }),
        json!({ "op": "prompt", "prompt_id": "p", "content": "Go?", "options": short }),
        json!({ "op": "prompt", "prompt_id": "p", "content": "Which?", "options": options(10), "reply_to": "wamid.in" }),
        json!({ "op": "prompt", "prompt_id": "p", "content": "Which?", "options": options(11) }),
        file("image", "image/png"),
        file("video", "video/mp4"),
        file("voice", "audio/ogg"),
        file("document", "application/pdf"),
        json!({ "op": "send", "content": "after 24 hours" }),
    ]
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let recorder = Arc::new(Recorder::default());
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: recorder.clone(),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    };
    let settings = [("phone_number_id", "106540352242922"), ("template", "note")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let secrets =
        ["access_token", "app_secret", "verify_token"].map(|name| (name.to_owned(), Secret::new(name))).into();
    let bot = Bot::new("wa", None, settings, secrets);
    let platform = WhatsApp::new(&kit);
    // Typing is shown below a message.
    let message = json!({ "id": "wamid.in", "from": ANN, "type": "text", "text": { "body": "hello" } });
    let value = json!({ "metadata": { "phone_number_id": "106540352242922" }, "messages": [message] });
    let change = json!({ "changes": [{ "field": "messages", "value": value }] });
    let body = json!({ "object": "whatsapp_business_account", "entry": [change] }).to_string();
    let headers = vec![("x-hub-signature-256".to_owned(), signature::sign("app_secret", body.as_bytes()))];
    let request = RawRequest { headers, body: body.into_bytes().into(), ..RawRequest::default() };
    if let Err(reply) = platform.receive(Some(&bot), &request).await {
        return Err(io::Error::other(reply.body));
    }
    let all = actions();
    let last = all.len() - 1;
    for (at, mut action) in all.into_iter().enumerate() {
        action["chat_id"] = ANN.into();
        if at == last {
            let closed = json!({ "error": { "message": "Re-engagement message", "code": 131_047 } });
            recorder.answers.lock().unwrap_or_else(PoisonError::into_inner).push_back((400, closed));
        }
        let action = Action::parse(&action.to_string()).map_err(io::Error::other)?;
        let home = TenantId::from("home");
        let acting_as = ActingAs { idempotency_key: Some("1700000000000.17.0"), ..ActingAs::new(&home, &bot) };
        let result = platform.act(acting_as, &action, None).await.result;
        if !result.success {
            return Err(io::Error::other(result.error.unwrap_or_default()));
        }
    }
    let mut out = io::stdout().lock();
    for body in recorder.bodies.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        writeln!(out, "{body}")?;
    }
    Ok(())
}
