//! The socket of a robot, with the other end in the hands of the test.

mod acting;
mod listening;
mod normalize;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use frontdesk_core::DeskError;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::media::body_of;
use frontdesk_core::port::outcall::{Call, Dial, HttpAnswer, OpenAnswer, OutcallError, Socket, SocketMessage};
use frontdesk_core::port::platform::{Change, Gap, LateReceipt};
use frontdesk_core::port::store::StoreError;
use frontdesk_testkit::TestEnv;
use frontdesk_wire::EventId;
use frontdesk_wire::api::VerdictBrief;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::NoMedia;

/// What a socket receives, and where its messages go.
pub(super) struct Script {
    incoming: mpsc::UnboundedReceiver<SocketMessage>,
    outgoing: mpsc::UnboundedSender<Value>,
}

impl Socket for Script {
    fn next(&mut self) -> BoxFuture<'_, Result<SocketMessage, String>> {
        Box::pin(async move { self.incoming.recv().await.ok_or_else(|| "the connection was closed".to_owned()) })
    }

    fn send(&mut self, message: SocketMessage) -> BoxFuture<'_, Result<(), String>> {
        let SocketMessage::Text(text) = message else { panic!("{message:?}") };
        let _ = self.outgoing.send(serde_json::from_str(&text).unwrap()); // the test may not look
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The vendor's end of a socket.
pub(super) struct Far {
    pub(super) say: mpsc::UnboundedSender<SocketMessage>,
    pub(super) received: mpsc::UnboundedReceiver<Value>,
}

impl Far {
    pub(super) fn send(&self, frame: Value) {
        self.say.send(SocketMessage::Text(frame.to_string())).unwrap();
    }

    pub(super) fn answer(&self, frame: &Value, errcode: i64, body: Value) {
        self.send(json!({ "headers": frame["headers"], "errcode": errcode, "errmsg": "m", "body": body }));
    }

    /// The next frame that is no ping.
    pub(super) async fn next(&mut self) -> Value {
        loop {
            let frame = self.received.recv().await.expect("the socket was closed");
            if frame["cmd"] != "ping" {
                return frame;
            }
            self.answer(&frame, 0, Value::Null);
        }
    }

    pub(super) async fn accept(&mut self) {
        let hello = self.next().await;
        assert_eq!((&hello["cmd"], &hello["body"]["bot_id"]), (&json!("aibot_subscribe"), &json!("robot-1")));
        assert_eq!(hello["body"]["secret"], "the-secret-of-the-robot");
        self.answer(&hello, 0, Value::Null);
    }

    pub(super) fn said(&self, message_id: &str, req_id: &str, more: Value) {
        self.send(said(message_id, req_id, more));
    }
}

pub(super) fn said(message_id: &str, req_id: &str, more: Value) -> Value {
    let mut body =
        json!({ "msgid": message_id, "aibotid": "robot-1", "chattype": "single", "from": { "userid": "ann" } });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "cmd": "aibot_msg_callback", "headers": { "req_id": req_id }, "body": body })
}

pub(super) fn text(content: &str) -> Value {
    json!({ "msgtype": "text", "text": { "content": content } })
}

#[derive(Default)]
pub(super) struct Vendor {
    sockets: Mutex<VecDeque<Script>>,
    pub(super) dialed: Mutex<Vec<(String, Option<String>)>>,
    pub(super) file: Mutex<Option<(u16, Vec<u8>)>>,
}

impl Vendor {
    /// The next socket that is dialed.
    pub(super) fn socket(&self) -> Far {
        let ((say, incoming), (outgoing, received)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        self.sockets.lock().unwrap().push_back(Script { incoming, outgoing });
        Far { say, received }
    }
}

impl Outcall for Vendor {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        panic!("a robot makes no calls");
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        self.dialed.lock().unwrap().push((call.url.to_owned(), call.trusted.map(str::to_owned)));
        if call.url.contains("/slow") {
            return Box::pin(std::future::pending());
        }
        let (status, bytes) = self.file.lock().unwrap().clone().unwrap_or((200, b"a picture".to_vec()));
        let headers = vec![
            ("content-type".to_owned(), "image/png".to_owned()),
            ("content-disposition".to_owned(), "attachment; filename=\"a.png\"".to_owned()),
        ];
        Box::pin(std::future::ready(Ok(OpenAnswer { status, headers, body: body_of(Bytes::from(bytes)) })))
    }

    fn socket<'a>(&'a self, dial: Dial<'a>) -> BoxFuture<'a, Result<Box<dyn Socket>, OutcallError>> {
        self.dialed.lock().unwrap().push((dial.url.to_owned(), dial.trusted.map(str::to_owned)));
        let next = self.sockets.lock().unwrap().pop_front();
        let opened = next.map(|script| Box::new(script) as Box<dyn Socket>);
        Box::pin(std::future::ready(opened.ok_or(OutcallError::NotSent("refused".into()))))
    }
}

/// Takes events, or nothing while it is down.
pub(super) struct Store {
    taken: mpsc::UnboundedSender<Intake>,
    pub(super) is_down: AtomicBool,
    pub(super) is_withheld: AtomicBool,
    pub(super) gaps: Mutex<Vec<Gap>>,
    pub(super) cursors: Mutex<Vec<String>>,
}

impl Store {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Intake>) {
        let (taken, events) = mpsc::unbounded_channel();
        let (gaps, cursors) = (Mutex::default(), Mutex::default());
        (Self { taken, is_down: AtomicBool::new(false), is_withheld: AtomicBool::new(false), gaps, cursors }, events)
    }
}

impl Inlet for Store {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        Box::pin(async move {
            if self.is_down.load(Ordering::SeqCst) {
                return Err(StoreError::Unavailable("down".into()).into());
            }
            let mut receipts = Vec::new();
            for intake in intakes {
                let outcome = if self.is_withheld.load(Ordering::SeqCst) { "withheld" } else { "delivered" };
                let verdict = VerdictBrief { outcome: outcome.into(), text: String::new(), delivery: None };
                receipts.push(Ok(Receipt { event_id: EventId(1), verdict, fresh: true, line: None }));
                let _ = self.taken.send(intake); // the test may not look
            }
            Ok(receipts)
        })
    }

    fn changed(&self, _: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        panic!("nothing changes");
    }

    fn receipt<'a>(&'a self, _: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        panic!("there are no receipts");
    }

    fn gap(&self, gap: Gap) {
        self.gaps.lock().unwrap().push(gap);
    }

    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>> {
        self.cursors.lock().unwrap().push(cursor);
        Box::pin(std::future::ready(Ok(())))
    }
}

pub(super) struct Scene {
    pub(super) vendor: Arc<Vendor>,
    pub(super) env: Arc<TestEnv>,
    pub(super) robot: Robot,
    pub(super) bot: Bot,
}

pub(super) fn bot_with(settings: &[(&str, &str)], secrets: &[(&str, &str)]) -> Bot {
    let settings: BTreeMap<String, String> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
    Bot::new("wr", Some("home".into()), settings, secrets)
}

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
        let robot = Robot::new(&kit);
        let bot = bot_with(&[("bot_id", "robot-1")], &[("secret", "the-secret-of-the-robot")]);
        assert_eq!(robot.check_bot(&bot), Ok(()));
        Self { vendor, env, robot, bot }
    }

    pub(super) async fn listen(&self, store: &Store) -> ListenEnd {
        self.robot.listen(&self.bot, Part::WHOLE, None, store).await
    }

    pub(super) async fn act(&self, action: Value) -> Acted {
        let action = Action::parse(&action.to_string()).unwrap();
        self.robot.act(ActingAs::new(&"home".into(), &self.bot), &action, None).await
    }
}
