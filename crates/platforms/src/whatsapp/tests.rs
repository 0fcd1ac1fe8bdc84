//! Webhooks in, calls out: what is stored, and what Meta gets.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use frontdesk_core::intake::TenantSource;
use frontdesk_core::port::media::body_of;
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, OpenAnswer, OutcallError};
use frontdesk_core::port::store::Outcome;
use frontdesk_testkit::TestEnv;
use frontdesk_wire::{Code, TenantId};
use serde_json::Value;

use super::*;
use crate::NoMedia;

const NUMBER_ID: &str = "106540352242922";
const ANN: &str = "15550001111";

/// Answers calls in turn with what was queued, else with a message; records what was asked.
#[derive(Default)]
struct Graph {
    calls: Mutex<Vec<(String, Value)>>,
    answers: Mutex<VecDeque<(u16, Value)>>,
}

impl Outcall for Graph {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        let body = match &call.body {
            Body::Json(text) => serde_json::from_str(text).unwrap(),
            Body::Multipart(parts) => json!(parts.iter().map(|part| part.name).collect::<Vec<_>>()),
            _ => Value::Null,
        };
        assert!(call.bearer.is_some() && !call.url.contains("the-access-token"));
        let mut calls = self.calls.lock().unwrap();
        calls.push((call.url.to_owned(), body));
        let usual = match call.url.rsplit('/').next() {
            Some("media") => json!({ "id": "media-1" }),
            _ => json!({ "messaging_product": "whatsapp", "messages": [{ "id": format!("wamid.{}", calls.len()) }] }),
        };
        let (status, body) = self.answers.lock().unwrap().pop_front().unwrap_or((200, usual));
        let answer = HttpAnswer { body: body.to_string().into_bytes(), ..HttpAnswer::of(status) };
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        assert!(call.bearer.is_none(), "a public file gets no token");
        let headers = vec![("content-type".into(), "image/png".into()), ("content-length".into(), "3".into())];
        Box::pin(std::future::ready(Ok(OpenAnswer { status: 200, headers, body: body_of(Bytes::from_static(b"png")) })))
    }
}

struct Scene {
    graph: Arc<Graph>,
    platform: WhatsApp,
    bot: Bot,
}

impl Scene {
    fn new(settings: &[(&str, &str)]) -> Self {
        let graph = Arc::new(Graph::default());
        let kit = Kit {
            env: Arc::new(TestEnv::default()),
            outcall: graph.clone(),
            media: Arc::new(NoMedia),
            public_url: "https://desk.example".into(),
            settings: toml::Table::new(),
        };
        let mut all = vec![("phone_number_id", NUMBER_ID)];
        all.extend_from_slice(settings);
        let settings = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = [("access_token", "the-access-token"), ("app_secret", "app"), ("verify_token", "verify me")];
        let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
        let bot = Bot::new("wa", Some("home".into()), settings, secrets);
        let platform = WhatsApp::new(&kit);
        assert_eq!(platform.check_bot(&bot), Ok(()));
        Self { graph, platform, bot }
    }

    fn post(&self, body: &Value) -> Result<ReceivedRequest, Reply> {
        let body = body.to_string();
        let headers = vec![("x-hub-signature-256".to_owned(), signature::sign("app", body.as_bytes()))];
        let request = RawRequest { door: DOOR, headers, body: body.into_bytes().into(), ..RawRequest::default() };
        self.platform.handle_request(&self.bot, &request)
    }

    fn receive(&self, messages: Value, statuses: Value) -> ReceivedRequest {
        self.post(&webhook(NUMBER_ID, messages, statuses)).ok().unwrap()
    }

    /// The only event of this message of Ann.
    fn said(&self, content: Value) -> frontdesk_core::intake::Intake {
        let mut message = json!({ "id": "wamid.in", "from": ANN, "timestamp": "1" });
        message.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        let mut received = self.receive(json!([message]), json!([]));
        assert_eq!(received.intakes.len(), 1);
        received.intakes.remove(0)
    }

    async fn act(&self, action: Value) -> Acted {
        let action = Action::parse(&action.to_string()).unwrap();
        let home = TenantId::from("home");
        let acting_as = ActingAs { idempotency_key: Some("7.1.0"), ..ActingAs::new(&home, &self.bot) };
        self.platform.act(acting_as, &action, None).await
    }

    fn sent(&self) -> Vec<Value> {
        self.graph.calls.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }

    fn answer(&self, status: u16, code: i64) {
        let error = json!({ "error": { "message": "no", "code": code } });
        self.graph.answers.lock().unwrap().push_back((status, error));
    }
}

fn webhook(number: &str, messages: Value, statuses: Value) -> Value {
    json!({ "object": "whatsapp_business_account", "entry": [{ "id": "1", "changes": [{ "field": "messages", "value": {
        "messaging_product": "whatsapp",
        "metadata": { "display_phone_number": "+1 555 999 0000", "phone_number_id": number },
        "contacts": [{ "profile": { "name": "Ann B" }, "wa_id": ANN }],
        "messages": messages, "statuses": statuses } }] }] })
}

#[test]
fn the_address_is_confirmed_to_whoever_knows_the_token() {
    let scene = Scene::new(&[]);
    let ask = |query: &str| {
        let request = RawRequest { door: DOOR, query: query.into(), ..RawRequest::default() };
        match scene.platform.handle_request(&scene.bot, &request) {
            Ok(ReceivedRequest { answer: DoorAnswer::Fixed(reply), .. }) => (reply.status, reply.body),
            Ok(_) => panic!("no reply"),
            Err(reply) => (reply.status, String::new()),
        }
    };
    let good = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=verify+me";
    assert_eq!(ask(good), (200, "1158201444".to_owned()));
    for (bad, status) in [
        ("hub.mode=subscribe&hub.challenge=1&hub.verify_token=verify", 403),
        ("hub.mode=subscribe&hub.challenge=1", 403),
        ("hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=verify+me", 403),
        ("hub.mode=subscribe&hub.verify_token=verify+me", 400),
        ("", 401),
    ] {
        assert_eq!(ask(bad).0, status, "{bad}");
    }
}

#[test]
fn a_text_is_a_direct_message_of_its_person() {
    let scene = Scene::new(&[]);
    let intake = scene.said(json!({ "type": "text", "text": { "body": "/new hello *you*" } }));
    let event = &intake.event;
    assert_eq!((event.text.as_str(), event.message_type.as_str()), ("/new hello *you*", "text"));
    assert_eq!(
        (event.message_id.as_deref(), &intake.tenant_source),
        (Some("wamid.in"), &TenantSource::Tenant("home".into()))
    );
    let source = &event.source;
    assert_eq!((source.platform.as_str(), source.chat_id.as_str()), ("whatsapp_cloud", ANN));
    assert_eq!((source.chat_type.as_str(), source.user_id.as_deref()), ("dm", Some(ANN)));
    assert_eq!((source.user_name.as_deref(), source.chat_name.as_deref()), (Some("Ann B"), Some("Ann B")));
    let reply = scene.said(json!({ "type": "text", "text": { "body": "that" },
        "context": { "from": "15559990000", "id": "wamid.ours" } }));
    assert_eq!(reply.event.reply_to_message_id.as_deref(), Some("wamid.ours"));
    assert_eq!(reply.event.reply_to.unwrap().is_own, Some(true));
    let nameless = webhook(
        NUMBER_ID,
        json!([{ "id": "w", "from": "4912345", "type": "text", "text": { "body": "x" } }]),
        json!([]),
    );
    let source = scene.post(&nameless).ok().unwrap().intakes.remove(0).event.source;
    assert_eq!((source.user_name, source.chat_name.as_deref()), (None, Some("4912345")));
}

#[test]
fn every_kind_of_message_is_told_or_skipped() {
    let scene = Scene::new(&[]);
    let file = |mime: &str| json!({ "id": "m1", "mime_type": mime, "sha256": "x" });
    for (content, kind, text, has_file) in [
        (
            json!({ "type": "image", "image": { "id": "m", "mime_type": "image/png", "caption": "look" } }),
            "photo",
            "look",
            true,
        ),
        (json!({ "type": "video", "video": file("video/mp4") }), "video", "", true),
        (json!({ "type": "audio", "audio": file("audio/ogg; codecs=opus") }), "voice", "", true),
        (json!({ "type": "sticker", "sticker": file("image/webp") }), "photo", "", true),
        (
            json!({ "type": "document", "document": { "id": "m", "filename": "a.pdf" } }),
            "document",
            "[Document: a.pdf]",
            true,
        ),
        (json!({ "type": "button", "button": { "text": "Yes", "payload": "y" } }), "text", "Yes", false),
        (
            json!({ "type": "interactive", "interactive": { "type": "list_reply", "list_reply": { "id": "x", "title": "Row" } } }),
            "text",
            "Row",
            false,
        ),
        (
            json!({ "type": "location", "location": { "latitude": 1.5, "longitude": -2.0, "name": "Cafe" } }),
            "location",
            "[The user shared a location.]\nVenue: Cafe\nlatitude: 1.5\nlongitude: -2",
            false,
        ),
        (
            json!({ "type": "contacts", "contacts": [{ "name": { "formatted_name": "Ben" }, "phones": [{ "phone": "+1" }] }] }),
            "text",
            "[Contact: Ben, +1]",
            false,
        ),
        (
            json!({ "type": "unsupported", "errors": [{ "code": 131_051 }] }),
            "text",
            "[A message of the kind \"unsupported\", which WhatsApp does not pass on]",
            false,
        ),
    ] {
        let intake = scene.said(content.clone());
        assert_eq!((intake.event.message_type.as_str(), intake.event.text.as_str()), (kind, text), "{content}");
        assert_eq!(intake.remote_media.len(), usize::from(has_file), "{content}");
    }
    let skipped = json!([
        { "id": "1", "from": ANN, "type": "reaction", "reaction": { "message_id": "w", "emoji": "👍" } },
        { "id": "2", "from": ANN, "type": "system", "system": { "body": "x" } },
        { "id": "3", "from": "15559990000", "type": "text", "text": { "body": "our own" } },
        { "id": "4", "from": ANN, "type": "text", "text": { "body": "" } },
    ]);
    assert!(scene.receive(skipped, json!([])).intakes.is_empty());
}

#[test]
fn a_pressed_button_answers_its_prompt() {
    let scene = Scene::new(&[]);
    let intake = scene.said(json!({ "type": "interactive", "context": { "id": "wamid.q", "from": "15559990000" },
        "interactive": { "type": "button_reply", "button_reply": { "id": "hp1:p:1:yes", "title": "Yes, go" } } }));
    let event = intake.event;
    assert_eq!((event.text.as_str(), event.message_type.as_str(), intake.addressed), ("/yes", "command", true));
    let response = event.prompt_response.unwrap();
    assert_eq!((response.prompt_id.as_str(), response.option_id.as_str()), ("p:1", "yes"));
    assert_eq!((response.label.as_deref(), response.prompt_message_id.as_deref()), (Some("Yes, go"), Some("wamid.q")));
}

#[test]
fn what_is_malformed_or_of_a_group_is_recorded_and_does_not_hide_the_rest() {
    let scene = Scene::new(&[]);
    let messages = json!([
        { "id": "1", "from": ANN, "type": "text", "text": { "body": 7 } },
        { "from": ANN, "type": "text", "text": { "body": "no id" } },
        { "id": "2", "from": ANN, "type": "text", "text": { "body": "fine" } },
        { "id": "3", "from": ANN, "group_id": "g", "type": "text", "text": { "body": "in a group" } },
    ]);
    let received = scene.receive(messages.clone(), json!([]));
    let refused: Vec<bool> = received.intakes.iter().map(|intake| intake.refused.is_some()).collect();
    assert_eq!(refused, [true, true, false, true]);
    let again = scene.receive(messages, json!([]));
    assert_eq!(again.intakes[0].event.message_id, received.intakes[0].event.message_id, "a retry is the same event");
}

#[test]
fn another_number_another_object_and_another_field_are_not_ours() {
    let scene = Scene::new(&[]);
    let text = json!([{ "id": "1", "from": ANN, "type": "text", "text": { "body": "x" } }]);
    assert!(scene.post(&webhook("999", text.clone(), json!([]))).ok().unwrap().intakes.is_empty());
    let mut other = webhook(NUMBER_ID, text, json!([]));
    other["entry"][0]["changes"][0]["field"] = "smb_message_echoes".into();
    assert!(scene.post(&other).ok().unwrap().intakes.is_empty());
    assert!(scene.post(&json!({ "object": "page", "entry": [] })).ok().unwrap().intakes.is_empty());
    for wrong in [json!([]), json!("x"), json!({ "object": "whatsapp_business_account", "entry": 1 })] {
        assert_eq!(scene.post(&wrong).err().map(|reply| reply.status), Some(400), "{wrong}");
    }
}

#[test]
fn statuses_close_what_was_sent() {
    let scene = Scene::new(&[]);
    let status = |name: &str| json!({ "id": "wamid.1", "status": name, "recipient_id": ANN, "biz_opaque_callback_data": "7.1.0" });
    let mut failed = status("failed");
    failed["errors"] = json!([{ "code": 131_047, "title": "Re-engagement message", "message": "Re-engagement message",
        "error_data": { "details": "24 hours have passed" } }]);
    let received = scene.receive(json!([]), json!([status("sent"), status("delivered"), failed, { "status": 1 }]));
    assert!(received.intakes.is_empty());
    let [delivered, failed] = &received.receipts[..] else { panic!("{:?}", received.receipts) };
    assert_eq!((delivered.outcome, delivered.event.is_none()), (Outcome::Delivered, true));
    assert_eq!(
        (failed.outcome, failed.vendor_id.as_str(), failed.key.as_deref()),
        (Outcome::Rejected, "wamid.1", Some("7.1.0"))
    );
    assert!(failed.note.contains("24 hours") && failed.note.contains("131047"), "{}", failed.note);
    let event = failed.event.as_ref().unwrap();
    assert!(event.text.contains("wamid.1") && event.source.chat_id.as_str() == ANN, "{event:?}");
}

#[tokio::test]
async fn a_text_goes_out_with_markup_and_key() {
    let scene = Scene::new(&[]);
    let acted = scene.act(json!({ "op": "send", "chat_id": ANN, "content": "**Done**", "reply_to": "wamid.in" })).await;
    assert_eq!((acted.result.message_id.as_deref(), acted.receipt_id.as_deref()), (Some("wamid.1"), Some("wamid.1")));
    let calls = scene.graph.calls.lock().unwrap();
    assert_eq!(calls[0].0, format!("https://graph.facebook.com/v23.0/{NUMBER_ID}/messages"));
    let wanted = json!({ "messaging_product": "whatsapp", "recipient_type": "individual", "to": ANN, "type": "text",
        "text": { "body": "*Done*", "preview_url": true }, "context": { "message_id": "wamid.in" },
        "biz_opaque_callback_data": "7.1.0" });
    assert_eq!(calls[0].1, wanted);
}

#[tokio::test]
async fn somebody_with_a_user_name_has_no_number() {
    let scene = Scene::new(&[]);
    let message = json!([{ "id": "w", "from_user_id": "US.1349120", "type": "text", "text": { "body": "hi" } }]);
    let mut webhook = webhook(
        NUMBER_ID,
        message,
        json!([{ "id": "wamid.1", "status": "failed", "recipient_user_id": "US.1349120" }]),
    );
    webhook["entry"][0]["changes"][0]["value"]["contacts"] =
        json!([{ "user_id": "US.1349120", "profile": { "name": "Ann" } }]);
    let received = scene.post(&webhook).ok().unwrap();
    let source = &received.intakes[0].event.source;
    assert_eq!((source.chat_id.as_str(), source.user_id.as_deref()), ("US.1349120", Some("US.1349120")));
    assert_eq!(source.user_name.as_deref(), Some("Ann"));
    assert_eq!(received.receipts[0].event.as_ref().unwrap().source.chat_id.as_str(), "US.1349120");
    assert!(scene.act(json!({ "op": "send", "chat_id": "US.1349120", "content": "x" })).await.result.success);
    let sent = scene.sent().remove(0);
    assert_eq!((&sent["recipient"], sent.get("to")), (&json!("US.1349120"), None));
}

#[test]
fn an_edit_is_told_under_the_id_of_its_message() {
    let scene = Scene::new(&[]);
    let edit = scene.said(json!({ "type": "edit", "edit": { "original_message_id": "wamid.first",
        "message": { "type": "text", "text": { "body": "better" } } } }));
    assert_eq!((edit.event.text.as_str(), edit.event.message_id.as_deref()), ("better", Some("wamid.first")));
    assert_eq!((edit.event.source.message_is_edit, edit.edit_id.as_deref()), (true, Some("wamid.in")));
}

#[tokio::test]
async fn typing_is_shown_below_the_last_message() {
    let scene = Scene::new(&[]);
    let typing = json!({ "op": "typing", "chat_id": ANN });
    assert_eq!(scene.act(typing.clone()).await.result.code, Some(Code::NotFound), "nothing was said yet");
    scene.said(json!({ "type": "text", "text": { "body": "hello" } }));
    scene.graph.answers.lock().unwrap().push_back((200, json!({ "success": true })));
    assert!(scene.act(typing).await.result.success);
    let wanted = json!({ "messaging_product": "whatsapp", "status": "read", "message_id": "wamid.in",
        "typing_indicator": { "type": "text" } });
    assert_eq!(scene.sent(), [wanted]);
}

#[tokio::test]
async fn a_closed_window_is_told_or_a_template_goes_out() {
    let scene = Scene::new(&[]);
    let send = json!({ "op": "send", "chat_id": ANN, "content": "**hi**\nthere" });
    scene.answer(400, WINDOW_CLOSED);
    for is_asked in [true, false] {
        let result = scene.act(send.clone()).await.result;
        assert_eq!((result.code, result.ambiguous), (Some(Code::Forbidden), false));
        assert!(result.error.unwrap().contains("24 hours"));
        assert_eq!(scene.sent().len(), 1, "Meta is asked once ({is_asked})");
    }
    scene.said(json!({ "type": "text", "text": { "body": "hello" } }));
    assert!(scene.act(send.clone()).await.result.success, "the person has written");

    let scene = Scene::new(&[("template", "note"), ("template_language", "de")]);
    scene.answer(400, WINDOW_CLOSED);
    assert!(scene.act(send.clone()).await.result.success);
    let template = scene.sent().pop().unwrap();
    assert_eq!(
        template["template"],
        json!({ "name": "note", "language": { "policy": "deterministic", "code": "de" },
        "components": [{ "type": "body", "parameters": [{ "type": "text", "text": "hi there" }] }] })
    );
    assert!(scene.act(send).await.result.success);
    assert_eq!(scene.sent().len(), 3, "the next one goes into the template at once");
    let long = json!({ "op": "send", "chat_id": ANN, "content": "x".repeat(2_000) });
    assert_eq!(scene.act(long).await.result.code, Some(Code::TooLarge));
}

#[tokio::test]
async fn questions_are_buttons_rows_or_text() {
    let scene = Scene::new(&[]);
    let ask = |count: usize, content: String| {
        let options: Vec<Value> =
            (0..count).map(|at| json!({ "id": format!("o{at}"), "label": format!("L{at}") })).collect();
        json!({ "op": "prompt", "chat_id": ANN, "prompt_id": "p", "content": content, "options": options })
    };
    assert!(scene.act(ask(3, "Go?".into())).await.result.success);
    assert!(scene.act(ask(10, "Which?".into())).await.result.success);
    assert!(scene.act(ask(11, "Which?".into())).await.result.success);
    let long = scene.act(ask(2, "word ".repeat(300))).await;
    assert_eq!(long.result.message_id.as_deref(), Some("wamid.5"), "the id is that of the buttons");
    let sent = scene.sent();
    let kinds: Vec<&Value> = sent.iter().map(|body| &body["interactive"]["type"]).collect();
    assert_eq!(kinds, [&json!("button"), &json!("list"), &Value::Null, &Value::Null, &json!("button")]);
    assert!(sent[2]["text"]["body"].as_str().unwrap().contains("11. L10 (/o10)"), "{}", sent[2]);
    scene.graph.answers.lock().unwrap().push_back((200, json!({ "messages": [{ "id": "wamid.first" }] })));
    scene.answer(400, 131_009);
    let result = scene.act(ask(2, "word ".repeat(300))).await.result;
    assert_eq!((result.code, result.message_id.as_deref()), (Some(Code::Partial), Some("wamid.first")));
}

#[tokio::test]
async fn files_are_uploaded_first_and_long_captions_follow() {
    let scene = Scene::new(&[]);
    let media = |kind: &str, caption: &str| {
        json!({ "op": "send_media", "chat_id": ANN, "media_kind": kind, "source_url": "https://files.example/a.png",
            "content": caption, "filename": "a.png" })
    };
    assert!(scene.act(media("image", "*look*")).await.result.success);
    let sent = scene.sent();
    assert_eq!(sent[0], json!(["messaging_product", "type", "file"]));
    assert_eq!(sent[1]["image"], json!({ "id": "media-1", "caption": "_look_" }));
    assert!(scene.act(media("document", "")).await.result.success);
    assert_eq!(scene.sent()[3]["document"], json!({ "id": "media-1", "filename": "a.png" }));
    assert!(scene.act(media("image", &"word ".repeat(300))).await.result.success);
    let sent = scene.sent();
    assert_eq!((sent.len(), &sent[5]["image"], &sent[6]["type"]), (7, &json!({ "id": "media-1" }), &json!("text")));
    scene.answer(500, 1);
    let result = scene.act(media("image", "")).await.result;
    assert_eq!((result.code, result.ambiguous), (Some(Code::Unavailable), false), "an upload is no message");
}

#[tokio::test]
async fn reactions_are_set_and_removed_and_wrong_ids_are_refused() {
    let scene = Scene::new(&[]);
    let react = |remove: bool| json!({ "op": "react", "chat_id": ANN, "message_id": "wamid.in", "emoji": "👍", "remove": remove });
    assert!(scene.act(react(false)).await.result.success && scene.act(react(true)).await.result.success);
    let emoji: Vec<Value> = scene.sent().iter().map(|body| body["reaction"]["emoji"].clone()).collect();
    assert_eq!(emoji, ["👍", ""]);
    for chat_id in ["+15550001111", "ann", "", "15550001111/../x"] {
        let result = scene.act(json!({ "op": "send", "chat_id": chat_id, "content": "x" })).await.result;
        assert_eq!(result.code, Some(Code::BadRequest), "{chat_id}");
    }
    for empty in ["", " \n"] {
        let result = scene.act(json!({ "op": "send", "chat_id": ANN, "content": empty })).await.result;
        assert_eq!(result.code, Some(Code::BadRequest));
    }
    assert_eq!(scene.sent().len(), 2, "nothing else was sent");
}

#[tokio::test]
async fn a_lost_answer_is_found_by_its_key() {
    let scene = Scene::new(&[]);
    scene.answer(503, 2);
    let acted = scene.act(json!({ "op": "send", "chat_id": ANN, "content": "x" })).await;
    assert_eq!((acted.result.ambiguous, acted.receipt_id.as_deref()), (true, Some("7.1.0")));
    scene.answer(400, 131_056);
    let acted = scene.act(json!({ "op": "send", "chat_id": ANN, "content": "x" })).await;
    assert_eq!((acted.pace.retry_after_ms, acted.pace.bucket), (Some(6_000), Some(format!("chat:{ANN}"))));
}
