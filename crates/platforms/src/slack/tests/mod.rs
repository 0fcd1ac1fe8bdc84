//! The platform against a vendor that answers as a test says.

mod acting;
mod doors;
mod install;
mod normalize;
mod socket;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use frontdesk_core::DeskError;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{
    Body, Call, Dial, HttpAnswer, OpenAnswer, Outcall, OutcallError, Socket, SocketMessage,
};
use frontdesk_core::port::platform::{Bot, Change, Gap, Inlet, LateReceipt};
use frontdesk_core::port::store::StoreError;
use frontdesk_testkit::TestEnv;
use frontdesk_wire::api::VerdictBrief;
use frontdesk_wire::{EventId, Secret};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Slack;
use crate::{Kit, NoMedia};

pub(super) const SIGNING: &str = "8f742231b10e8888abcd99yyyzzz85a5";
pub(super) const NOW_MS: u64 = 1_700_000_000_000;

/// A call that was made: method or address, and what it carried.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) url: String,
    pub(super) bearer: Option<String>,
    pub(super) body: Value,
}

impl Made {
    pub(super) fn method(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }
}

#[derive(Default)]
pub(super) struct Vendor {
    /// The next answers of a method; the last one stays.
    answers: Mutex<HashMap<String, VecDeque<HttpAnswer>>>,
    pub(super) made: Mutex<Vec<Made>>,
    /// Methods that get no answer.
    stalling: Mutex<Vec<String>>,
    /// Sockets that are opened one after the other, by what they say.
    sockets: Mutex<VecDeque<Script>>,
}

impl Vendor {
    pub(super) fn answers(&self, method: &str, answer: Value) {
        self.answers_with(method, HttpAnswer { body: answer.to_string().into_bytes(), ..HttpAnswer::of(200) });
    }

    pub(super) fn answers_with(&self, method: &str, answer: HttpAnswer) {
        self.answers.lock().unwrap().entry(method.to_owned()).or_default().push_back(answer);
    }

    pub(super) fn stalls(&self, methods: &[&str]) {
        *self.stalling.lock().unwrap() = methods.iter().map(|method| (*method).to_owned()).collect();
    }

    pub(super) fn calls(&self, method: &str) -> Vec<Made> {
        self.made.lock().unwrap().iter().filter(|it| it.method() == method).cloned().collect()
    }

    pub(super) fn script(&self, script: Script) {
        self.sockets.lock().unwrap().push_back(script);
    }

    fn answer(&self, url: &str) -> HttpAnswer {
        let method = url.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let mut answers = self.answers.lock().unwrap();
        let Some(queue) = answers.get_mut(method) else {
            let body = json!({ "ok": false, "error": "unknown_method" }).to_string().into_bytes();
            return HttpAnswer { body, ..HttpAnswer::of(200) };
        };
        if queue.len() > 1 { queue.pop_front().unwrap() } else { queue[0].clone() }
    }

    async fn note(&self, call: Call<'_>) {
        let body = match call.body {
            Body::Empty => Value::Null,
            Body::Json(text) => serde_json::from_str(text).unwrap(),
            Body::Form(fields) => fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect(),
            Body::Bytes { bytes, .. } => String::from_utf8_lossy(&bytes).into_owned().into(),
            Body::Stream { mut body, .. } => {
                let mut whole = Vec::new();
                while let Some(piece) = body.next().await {
                    whole.extend_from_slice(&piece.unwrap());
                }
                String::from_utf8_lossy(&whole).into_owned().into()
            }
            Body::Multipart(_) => panic!("nothing goes out in this form"),
        };
        let bearer = call.bearer.map(|token| token.expose().to_owned());
        self.made.lock().unwrap().push(Made { url: call.url.to_owned(), bearer, body });
    }
}

impl Outcall for Vendor {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            let url = call.url.to_owned();
            self.note(call).await;
            let is_stalling = self.stalling.lock().unwrap().iter().any(|method| url.ends_with(method.as_str()));
            if is_stalling {
                std::future::pending::<()>().await;
            }
            Ok(self.answer(&url))
        })
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        Box::pin(async move {
            let url = call.url.to_owned();
            self.note(call).await;
            let HttpAnswer { status, headers, body } = self.answer(&url);
            let piece = Ok(bytes::Bytes::from(body));
            Ok(OpenAnswer { status, headers, body: Box::pin(futures_util::stream::iter([piece])) })
        })
    }

    fn socket<'a>(&'a self, _: Dial<'a>) -> BoxFuture<'a, Result<Box<dyn Socket>, OutcallError>> {
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
    incoming: mpsc::UnboundedReceiver<Value>,
    outgoing: mpsc::UnboundedSender<SocketMessage>,
}

pub(super) struct OtherEnd {
    pub(super) say: mpsc::UnboundedSender<Value>,
    pub(super) received: mpsc::UnboundedReceiver<SocketMessage>,
}

impl OtherEnd {
    pub(super) async fn next(&mut self) -> Value {
        match self.received.recv().await.expect("the socket was left") {
            SocketMessage::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn script() -> (Script, OtherEnd) {
    let ((say, incoming), (outgoing, received)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    (Script { incoming, outgoing }, OtherEnd { say, received })
}

impl Socket for Script {
    fn next(&mut self) -> BoxFuture<'_, Result<SocketMessage, String>> {
        Box::pin(async move {
            match self.incoming.recv().await {
                Some(Value::Null) => Ok(SocketMessage::Alive),
                Some(value) => Ok(SocketMessage::Text(value.to_string())),
                None => Err("the connection was closed".to_owned()),
            }
        })
    }

    fn send(&mut self, message: SocketMessage) -> BoxFuture<'_, Result<(), String>> {
        let sent = self.outgoing.send(message).map_err(|_| "the connection was lost".to_owned());
        Box::pin(std::future::ready(sent))
    }
}

/// The platform with a vendor, and a bot of workspace `T1`.
pub(super) struct Stage {
    pub(super) slack: Slack,
    pub(super) vendor: Arc<Vendor>,
    pub(super) bot: Bot,
}

pub(super) fn stage_with(settings: &[(&str, &str)], secrets: &[(&str, &str)]) -> Stage {
    let vendor = Arc::new(Vendor::default());
    vendor.answers(
        "auth.test",
        json!({ "ok": true, "user_id": "UBOT", "bot_id": "BBOT", "team_id": "T1", "team": "One", "user": "desk" }),
    );
    vendor.answers("users.info", json!({ "ok": true, "user": { "id": "UANN", "profile": { "display_name": "Ann" } } }));
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: vendor.clone(),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    };
    let settings: BTreeMap<_, _> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
    Stage { slack: Slack::new(&kit), vendor, bot: Bot::new("sl", None, settings, secrets) }
}

pub(super) fn stage() -> Stage {
    let secrets = [("bot_token", "xoxb-1-2-abc"), ("app_token", "xapp-1-A1-x"), ("signing_secret", SIGNING)];
    stage_with(&[("mode", "socket")], &secrets)
}

/// A message of Ann, as the Events API sends it.
pub(super) fn envelope(event: Value) -> Value {
    json!({
        "type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event_id": "Ev1", "event": event,
        "authorizations": [{ "team_id": "T1", "user_id": "UBOT", "is_bot": true }],
    })
}

pub(super) fn said(channel: &str, kind: &str, text: &str) -> Value {
    json!({
        "type": "message", "channel": channel, "channel_type": kind, "user": "UANN", "text": text,
        "ts": "1700000000.000100", "event_ts": "1700000000.000100",
    })
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
