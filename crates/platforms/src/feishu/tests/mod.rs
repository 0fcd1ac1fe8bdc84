//! The platform against a vendor that answers as a test says.

mod acting;
mod doors;
mod normalize;
mod socket;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use frontdesk_core::DeskError;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{
    Body, Call, Dial, HttpAnswer, HttpMethod, OpenAnswer, Outcall, OutcallError, PartValue, Socket, SocketMessage,
};
use frontdesk_core::port::platform::{Bot, Change, Gap, Inlet, LateReceipt};
use frontdesk_core::port::store::StoreError;
use frontdesk_testkit::TestEnv;
use frontdesk_wire::api::VerdictBrief;
use frontdesk_wire::{EventId, Secret};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Feishu;
use super::frame::Frame;
use crate::{Kit, NoMedia};

pub(super) const KEY: &str = "the-encrypt-key";
pub(super) const TOKEN: &str = "the-verification-token";
pub(super) const SECRET: &str = "the-secret-of-the-app";

/// A call that was made.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) what: String,
    pub(super) bearer: Option<String>,
    pub(super) body: Value,
}

impl Made {
    /// The content of a message, which is JSON in a text.
    pub(super) fn content(&self) -> Value {
        serde_json::from_str(self.body["content"].as_str().unwrap()).unwrap()
    }
}

#[derive(Default)]
pub(super) struct Vendor {
    /// The next answers, by method and path; the last one stays.
    answers: Mutex<HashMap<String, VecDeque<HttpAnswer>>>,
    made: Mutex<Vec<Made>>,
    /// Paths that get no answer.
    stalling: Mutex<Vec<String>>,
    sockets: Mutex<VecDeque<Script>>,
}

impl Vendor {
    /// `what` is the method and the path behind `/open-apis`, without the query.
    pub(super) fn answers(&self, what: &str, data: Value) {
        self.says(what, 200, json!({ "code": 0, "msg": "success", "data": data }));
    }

    pub(super) fn says(&self, what: &str, status: u16, body: Value) {
        let answer = HttpAnswer { body: body.to_string().into_bytes(), ..HttpAnswer::of(status) };
        self.answers.lock().unwrap().entry(what.to_owned()).or_default().push_back(answer);
    }

    pub(super) fn refuses(&self, what: &str, code: i64) {
        self.says(what, 400, json!({ "code": code, "msg": "no" }));
    }

    pub(super) fn stalls(&self, paths: &[&str]) {
        *self.stalling.lock().unwrap() = paths.iter().map(|path| (*path).to_owned()).collect();
    }

    pub(super) fn calls(&self, what: &str) -> Vec<Made> {
        self.made.lock().unwrap().iter().filter(|it| it.what.split('?').next() == Some(what)).cloned().collect()
    }

    pub(super) fn script(&self, script: Script) {
        self.sockets.lock().unwrap().push_back(script);
    }

    fn what(call: &Call<'_>) -> String {
        let method = match call.method {
            HttpMethod::Get => "GET",
            HttpMethod::Head => "HEAD",
            HttpMethod::Post => "POST",
            HttpMethod::Put => "PUT",
            HttpMethod::Patch => "PATCH",
            HttpMethod::Delete => "DELETE",
        };
        let path = call.url.strip_prefix("http://vendor.example").expect("only the base URL is called");
        format!("{method} {}", path.strip_prefix("/open-apis").unwrap_or(path))
    }

    fn answer(&self, what: &str) -> HttpAnswer {
        let what = what.split('?').next().unwrap();
        let mut answers = self.answers.lock().unwrap();
        let Some(queue) = answers.get_mut(what) else {
            // Messages that a test does not speak of are in one chat.
            if what.starts_with("GET /im/v1/messages/om_") && what.split('/').count() == 5 {
                let data = json!({ "items": [{ "chat_id": "oc_1", "msg_type": "text", "body": { "content": "{}" } }] });
                let body = json!({ "code": 0, "data": data }).to_string().into_bytes();
                return HttpAnswer { body, ..HttpAnswer::of(200) };
            }
            let body = json!({ "code": 99_991_404, "msg": format!("nothing is known about {what}") });
            return HttpAnswer { body: body.to_string().into_bytes(), ..HttpAnswer::of(404) };
        };
        if queue.len() > 1 { queue.pop_front().unwrap() } else { queue[0].clone() }
    }

    async fn note(&self, what: String, call: Call<'_>) {
        let body = match call.body {
            Body::Empty => Value::Null,
            Body::Json(text) => serde_json::from_str(text).unwrap(),
            Body::Multipart(parts) => {
                let mut fields = json!({});
                for part in parts {
                    fields[part.name] = match part.value {
                        PartValue::Text(text) => text.into(),
                        PartValue::File { filename, mut body, .. } => {
                            let mut whole = Vec::new();
                            while let Some(piece) = body.next().await {
                                whole.extend_from_slice(&piece.unwrap());
                            }
                            json!({ "filename": filename, "content": String::from_utf8_lossy(&whole) })
                        }
                    };
                }
                fields
            }
            _ => panic!("nothing goes out in this form"),
        };
        let bearer = call.bearer.map(|token| token.expose().to_owned());
        self.made.lock().unwrap().push(Made { what, bearer, body });
    }
}

impl Outcall for Vendor {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            let what = Self::what(&call);
            self.note(what.clone(), call).await;
            let is_stalling = self.stalling.lock().unwrap().iter().any(|path| what.contains(path.as_str()));
            if is_stalling {
                std::future::pending::<()>().await;
            }
            Ok(self.answer(&what))
        })
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        Box::pin(async move {
            if call.url.starts_with("https://files.example") {
                let piece = Ok(bytes::Bytes::from_static(b"bytes"));
                let mime = if call.url.contains("a.png") { "image/png" } else { "application/octet-stream" };
                let mut headers = vec![("content-type".to_owned(), mime.to_owned())];
                if call.url.contains("sized") {
                    headers.push(("content-length".to_owned(), "5".to_owned()));
                }
                return Ok(OpenAnswer { status: 200, headers, body: Box::pin(futures_util::stream::iter([piece])) });
            }
            let what = Self::what(&call);
            self.note(what.clone(), call).await;
            let HttpAnswer { status, headers, body } = self.answer(&what);
            let piece = Ok(bytes::Bytes::from(body));
            Ok(OpenAnswer { status, headers, body: Box::pin(futures_util::stream::iter([piece])) })
        })
    }

    fn socket<'a>(&'a self, dial: Dial<'a>) -> BoxFuture<'a, Result<Box<dyn Socket>, OutcallError>> {
        assert!(dial.url.starts_with("ws://vendor.example/"), "{}", dial.url);
        let script = self.sockets.lock().unwrap().pop_front();
        Box::pin(async move {
            match script {
                Some(script) => Ok(Box::new(script) as Box<dyn Socket>),
                None => Err(OutcallError::NotSent("the connection failed".into())),
            }
        })
    }
}

/// A socket that a test holds the other end of.
pub(super) struct Script {
    incoming: mpsc::UnboundedReceiver<SocketMessage>,
    outgoing: mpsc::UnboundedSender<SocketMessage>,
}

pub(super) struct OtherEnd {
    pub(super) say: mpsc::UnboundedSender<SocketMessage>,
    received: mpsc::UnboundedReceiver<SocketMessage>,
}

impl OtherEnd {
    pub(super) fn frame(&self, frame: &Frame) {
        self.say.send(SocketMessage::Binary(frame.bytes())).unwrap();
    }

    pub(super) async fn next(&mut self) -> Frame {
        match self.received.recv().await.expect("the socket was left") {
            SocketMessage::Binary(bytes) => Frame::read(bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// The next one that is no ping.
    pub(super) async fn next_data(&mut self) -> Frame {
        loop {
            let frame = self.next().await;
            if frame.method == super::frame::DATA {
                return frame;
            }
        }
    }
}

pub(super) fn script() -> (Script, OtherEnd) {
    let ((say, incoming), (outgoing, received)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    (Script { incoming, outgoing }, OtherEnd { say, received })
}

impl Socket for Script {
    fn next(&mut self) -> BoxFuture<'_, Result<SocketMessage, String>> {
        Box::pin(async move { self.incoming.recv().await.ok_or_else(|| "the connection was closed".to_owned()) })
    }

    fn send(&mut self, message: SocketMessage) -> BoxFuture<'_, Result<(), String>> {
        let sent = self.outgoing.send(message).map_err(|_| "the connection was lost".to_owned());
        Box::pin(std::future::ready(sent))
    }
}

/// The platform with a vendor, and a bot of the app `cli_1`.
pub(super) struct Stage {
    pub(super) feishu: Feishu,
    pub(super) vendor: Arc<Vendor>,
    pub(super) env: Arc<TestEnv>,
    pub(super) bot: Bot,
}

pub(super) fn stage_with(settings: &[(&str, &str)], secrets: &[(&str, &str)]) -> Stage {
    let vendor = Arc::new(Vendor::default());
    let token = |token: &str| json!({ "code": 0, "msg": "ok", "tenant_access_token": token, "expire": 7200 });
    for number in 1..=3 {
        vendor.says("POST /auth/v3/tenant_access_token/internal", 200, token(&format!("t-{number}")));
    }
    let me = json!({ "activate_status": 2, "app_name": "Desk", "open_id": "ou_me" });
    vendor.says("GET /bot/v3/info", 200, json!({ "code": 0, "msg": "ok", "bot": me }));
    vendor.answers("GET /contact/v3/users/ann", json!({ "user": { "name": "Ann" } }));
    for (chat, mode) in [("oc_group", "group"), ("oc_direct", "p2p")] {
        let name = if mode == "group" { "Team" } else { "" };
        let response = json!({ "name": name, "chat_mode": mode, "chat_type": "private" });
        vendor.answers(&format!("GET /im/v1/chats/{chat}"), response);
    }
    let env = Arc::new(TestEnv::default());
    let kit = Kit {
        env: env.clone(),
        outcall: vendor.clone(),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    };
    let all = [("base_url", "http://vendor.example"), ("app_id", "cli_1")];
    let settings: BTreeMap<_, _> =
        all.iter().chain(settings).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let secrets = [("app_secret", SECRET)].iter().chain(secrets);
    let secrets = secrets.map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
    Stage { feishu: Feishu::new(&kit), vendor, env, bot: Bot::new("fs", None, settings, secrets) }
}

pub(super) fn stage() -> Stage {
    stage_with(&[], &[("encrypt_key", KEY), ("verification_token", TOKEN)])
}

/// An event of schema 2.0.
pub(super) fn payload(kind: &str, event: Value) -> Value {
    let header = json!({ "event_id": "e1", "event_type": kind, "create_time": "1700000000000", "token": TOKEN,
        "app_id": "cli_1", "tenant_key": "tk" });
    json!({ "schema": "2.0", "header": header, "event": event })
}

/// A message of Ann.
pub(super) fn said(chat: &str, text: &str, more: Value) -> Value {
    let chat_type = if chat == "oc_direct" { "p2p" } else { "group" };
    let mut message = json!({ "message_id": "om_1", "chat_id": chat, "chat_type": chat_type, "message_type": "text",
        "create_time": "1700000000000", "content": json!({ "text": text }).to_string() });
    for (name, value) in more.as_object().unwrap() {
        message[name] = value.clone();
    }
    let sender = json!({ "sender_id": { "open_id": "ou_ann", "user_id": "ann", "union_id": "on_ann" },
        "sender_type": "user", "tenant_key": "tk" });
    payload("im.message.receive_v1", json!({ "sender": sender, "message": message }))
}

pub(super) fn receipt(outcome: &str, text: &str) -> Receipt {
    let delivery = (outcome == "delivered").then_some("pushed".into());
    let verdict = VerdictBrief { outcome: outcome.into(), text: text.into(), delivery };
    Receipt { event_id: EventId(1), verdict, fresh: true, line: None }
}

/// Keeps what is stored; fails while a test asks for it.
pub(super) struct Store {
    pub(super) taken: mpsc::UnboundedSender<Intake>,
    pub(super) changed: Mutex<Vec<Change>>,
    pub(super) gaps: Mutex<Vec<Gap>>,
    pub(super) cursors: Mutex<Vec<String>>,
    pub(super) is_down: std::sync::atomic::AtomicBool,
}

impl Store {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Intake>) {
        let (taken, take) = mpsc::unbounded_channel();
        let (changed, gaps, cursors) = (Mutex::default(), Mutex::default(), Mutex::default());
        (Self { taken, changed, gaps, cursors, is_down: false.into() }, take)
    }
}

impl Inlet for Store {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        if self.is_down.load(std::sync::atomic::Ordering::SeqCst) {
            let error = DeskError::Store(StoreError::Unavailable("down".into()));
            return Box::pin(std::future::ready(Err(error)));
        }
        let receipts = intakes.iter().map(|_| Ok(receipt("delivered", ""))).collect();
        for intake in intakes {
            let _ = self.taken.send(intake); // the test may not look any more
        }
        Box::pin(std::future::ready(Ok(receipts)))
    }

    fn changed(&self, change: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        self.changed.lock().unwrap().push(change);
        Box::pin(std::future::ready(Ok(())))
    }

    fn receipt<'a>(&'a self, _: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    fn gap(&self, gap: Gap) {
        self.gaps.lock().unwrap().push(gap);
    }

    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>> {
        self.cursors.lock().unwrap().push(cursor);
        Box::pin(std::future::ready(Ok(())))
    }
}
