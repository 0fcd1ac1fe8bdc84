//! A raw relay socket: it can send anything, and keeps everything that it receives.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use frontdesk_wire::lines::Lines;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_websockets::{ClientBuilder, CloseCode, MaybeTlsStream, Message, WebSocketStream};

use super::TIME_LIMIT;

const FRAME_MAX_BYTES: usize = 1 << 20;

pub(crate) struct Socket {
    sink: SplitSink<Stream, Message>,
    /// Reads continuously, like a real client, so that pings and closes are answered.
    reader: JoinHandle<()>,
    received: mpsc::UnboundedReceiver<Received>,
    lines: Lines,
    frames: VecDeque<Frame>,
    requests: u32,
    ended: Option<(u16, String)>,
}

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

enum Received {
    Text(String),
    Ended(u16, String),
}

/// One line of the server, raw and parsed.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) raw: String,
    pub(crate) json: Value,
}

impl Frame {
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.json["type"] == kind
    }

    pub(crate) fn buffer_id(&self) -> &str {
        self.json["bufferId"].as_str().unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        self.json["event"]["text"].as_str().unwrap()
    }

    /// The raw result, without the request id.
    pub(crate) fn result(&self) -> &str {
        let (_, result) = self.raw.split_once("\"result\":").unwrap();
        result
    }
}

impl Socket {
    /// Returns the HTTP status if the upgrade is refused.
    pub(crate) async fn dial(
        url: &str,
        path: &str,
        bearer: Option<&str>,
        received: Arc<Mutex<Vec<u8>>>,
    ) -> Result<Self, String> {
        let header = bearer.map(|bearer| (http::header::AUTHORIZATION, format!("Bearer {bearer}")));
        Self::dial_with(url, path, header, received).await
    }

    pub(crate) async fn dial_with(
        url: &str,
        path: &str,
        header: Option<(http::HeaderName, String)>,
        received: Arc<Mutex<Vec<u8>>>,
    ) -> Result<Self, String> {
        let uri: http::Uri = format!("{}{path}", url.replacen("http", "ws", 1)).parse().unwrap();
        let mut builder = ClientBuilder::from_uri(uri);
        if let Some((name, value)) = header {
            builder = builder.add_header(name, value.parse().unwrap()).unwrap();
        }
        let dialed = timeout(TIME_LIMIT, builder.connect()).await.expect("the upgrade timed out");
        let (stream, _) = dialed.map_err(|error| error.to_string())?;
        let (lines, frames) = (Lines::new(FRAME_MAX_BYTES), VecDeque::new());
        let (sink, stream) = stream.split();
        let (sender, receiver) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read_on(stream, sender, received));
        Ok(Self { sink, reader, received: receiver, lines, frames, requests: 0, ended: None })
    }

    // ---- sending -------------------------------------------------------------------------

    pub(crate) async fn say(&mut self, message: Message) {
        timeout(TIME_LIMIT, self.sink.send(message)).await.expect("the server does not read").unwrap();
    }

    /// Sends one message with exactly this text.
    pub(crate) async fn text(&mut self, text: impl Into<String>) {
        self.say(Message::text(text.into())).await;
    }

    /// Sends one message with one frame.
    pub(crate) async fn frame(&mut self, frame: &Value) {
        self.text(format!("{frame}\n")).await;
    }

    /// The same, if the server may have closed the socket already.
    pub(crate) async fn try_text(&mut self, text: impl Into<String>) {
        let _ = timeout(TIME_LIMIT, self.sink.send(Message::text(text.into()))).await;
    }

    /// Sends hello and returns the descriptor.
    pub(crate) async fn hello(&mut self, platform: &str, bot: &str) -> Value {
        self.frame(&hello(platform, bot)).await;
        self.of("descriptor").await.json["descriptor"].clone()
    }

    pub(crate) async fn ack(&mut self, frame: &Frame) {
        self.ack_id(frame.buffer_id()).await;
    }

    pub(crate) async fn ack_id(&mut self, id: &str) {
        self.frame(&json!({ "type": "inbound_ack", "bufferId": id })).await;
    }

    /// Sends an action and returns its request id.
    pub(crate) async fn begin(&mut self, action: Value) -> String {
        self.requests += 1;
        let id = format!("r{}", self.requests);
        self.frame(&outbound(&id, action)).await;
        id
    }

    /// Sends an action and waits for its result.
    pub(crate) async fn act(&mut self, action: Value) -> Value {
        self.act_frame(action).await.json["result"].clone()
    }

    pub(crate) async fn act_frame(&mut self, action: Value) -> Frame {
        let id = self.begin(action).await;
        self.result(&id).await
    }

    pub(crate) async fn follow_up(&mut self, session_key: &str, kind: &str, content: &str) -> Frame {
        self.act_frame(json!({ "op": "follow_up", "session_key": session_key, "kind": kind, "content": content })).await
    }

    // ---- receiving -----------------------------------------------------------------------

    /// The first matching frame; others are kept.
    async fn find(&mut self, what: &str, fits: impl Fn(&Frame) -> bool) -> Frame {
        let waiting = async {
            loop {
                if let Some(index) = self.frames.iter().position(&fits) {
                    return self.frames.remove(index);
                }
                if !self.read().await {
                    return None;
                }
            }
        };
        let found = timeout(TIME_LIMIT, waiting).await;
        match found.ok() {
            Some(Some(frame)) => frame,
            Some(None) => panic!("closed with {:?} while waiting for {what}; unread: {:?}", self.ended, self.frames),
            None => panic!("no {what} received; unread: {:?}", self.frames),
        }
    }

    /// The next frame of any kind.
    pub(crate) async fn next(&mut self) -> Frame {
        self.find("frame", |_| true).await
    }

    pub(crate) async fn of(&mut self, kind: &str) -> Frame {
        self.find(kind, |frame| frame.is(kind)).await
    }

    pub(crate) async fn event(&mut self) -> Frame {
        self.of("inbound").await
    }

    pub(crate) async fn events(&mut self, count: usize) -> Vec<Frame> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.event().await);
        }
        events
    }

    pub(crate) async fn result(&mut self, request: &str) -> Frame {
        let fits = |frame: &Frame| frame.is("outbound_result") && frame.json["requestId"] == request;
        self.find(&format!("result of {request}"), fits).await
    }

    /// The request id of the next result.
    pub(crate) async fn next_result(&mut self) -> String {
        let frame = self.of("outbound_result").await;
        frame.json["requestId"].as_str().unwrap().to_owned()
    }

    /// Returns when the server has read everything sent so far and could write its answers.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..2 {
            // A refused action is answered too, and needs no chat, hello or store.
            self.act_frame(json!({ "op": "nothing" })).await;
        }
    }

    /// Received deliveries that the test has not taken yet.
    pub(crate) async fn unread(&mut self) -> usize {
        self.settle().await;
        let delivery = |frame: &&Frame| frame.is("inbound") || frame.is("passthrough_forward");
        self.frames.iter().filter(delivery).count()
    }

    /// Received frames that the test has not taken yet.
    pub(crate) fn came(&self) -> usize {
        self.frames.len()
    }

    /// Waits for the close; returns its code and reason.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        let ending = async { while self.read().await {} };
        let in_time = timeout(TIME_LIMIT, ending).await.is_ok();
        assert!(in_time, "the socket stays open; unread: {:?}", self.frames);
        self.ended.clone().unwrap()
    }

    /// Closes the socket; the server must answer with a close frame.
    pub(crate) async fn hang_up(mut self) {
        self.say(Message::close(Some(CloseCode::NORMAL_CLOSURE), "bye")).await;
        let (code, reason) = self.closed().await;
        assert_eq!(code, 1000, "{reason}");
    }

    /// Reads one more message. False: the socket has ended.
    async fn read(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        match self.received.recv().await {
            Some(Received::Text(text)) => {
                let frames = &mut self.frames;
                let take = |line: &str| {
                    let json: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
                    assert!(json.is_object(), "not a frame: {line}");
                    frames.push_back(Frame { raw: line.into(), json });
                };
                self.lines.push(&text, take).expect("a line over 1 MiB");
            }
            Some(Received::Ended(code, reason)) => {
                self.ended = Some((code, reason));
                return false;
            }
            None => panic!("the reader task has ended"),
        }
        true
    }
}

async fn read_on(mut stream: SplitStream<Stream>, tell: mpsc::UnboundedSender<Received>, all: Arc<Mutex<Vec<u8>>>) {
    let mut ended = (1006, "gone".to_owned());
    while let Some(message) = stream.next().await {
        match message {
            Ok(message) => {
                all.lock().unwrap().extend_from_slice(message.as_payload());
                if let Some((code, reason)) = message.as_close() {
                    ended = (code.into(), reason.to_owned()); // the stream then ends by itself
                } else if let Some(text) = message.as_text() {
                    let _ = tell.send(Received::Text(text.to_owned())); // the receiver may be gone
                }
            }
            Err(error) => {
                ended = (1006, error.to_string());
                break;
            }
        }
    }
    let _ = tell.send(Received::Ended(ended.0, ended.1));
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

pub(crate) fn hello(platform: &str, bot: &str) -> Value {
    json!({ "type": "hello", "platform": platform, "botId": bot })
}

pub(crate) fn outbound(request: &str, action: Value) -> Value {
    json!({ "type": "outbound", "requestId": request, "action": action })
}
