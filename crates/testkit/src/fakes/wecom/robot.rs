//! The socket of a robot, and the people who talk to it.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use serde_json::{Value, json};

use super::{FakeWeCom, File, Line, Out, ROBOT, ROBOT_SECRET, Refused, Sent, seal};

const TEXT_MAX_BYTES: usize = 20_480;

#[derive(Default)]
pub(super) struct Robot {
    /// The one that is open, by its number.
    line: Option<(u64, Line)>,
    /// How often one was opened.
    pub(super) opened: u64,
    /// Nothing is answered, and nothing is told.
    is_silent: bool,
    /// The next answer has this error.
    refuse: Option<i64>,
    /// Chats of messages that can be answered, by the id of their request.
    requests: HashMap<String, String>,
    /// Streams that are over, and all that were begun.
    finished: HashSet<String>,
    sent: Vec<Sent>,
    uploads: HashMap<String, Upload>,
    /// Files at links, sealed.
    pub(super) links: HashMap<String, File>,
    pings: u64,
}

struct Upload {
    kind: String,
    filename: String,
    md5: String,
    chunks: Vec<Option<Vec<u8>>>,
    size: usize,
}

impl FakeWeCom {
    pub(super) fn robot_opened(&self) -> u64 {
        self.change(|state| {
            state.robot.opened += 1;
            state.robot.opened
        })
    }

    pub(super) fn robot_closed(&self, number: u64) {
        self.change(|state| {
            if state.robot.line.as_ref().is_some_and(|(known, _)| *known == number) {
                state.robot.line = None;
            }
        });
    }

    /// A frame of the client; what is answered.
    pub(super) fn robot_frame(&self, number: u64, line: &Line, text: &str) -> Option<String> {
        let frame: Value = serde_json::from_str(text).unwrap_or_default();
        let req_id = frame["headers"]["req_id"].as_str().unwrap_or_default();
        if self.state().robot.is_silent {
            return None;
        }
        let answer = |errcode: i64, errmsg: &str, body: Value| {
            let mut answer = json!({ "headers": { "req_id": req_id }, "errcode": errcode, "errmsg": errmsg });
            if !body.is_null() {
                answer["body"] = body;
            }
            Some(answer.to_string())
        };
        if let Some(code) = self.change(|state| state.robot.refuse.take()) {
            return answer(code, "refused by a test", Value::Null);
        }
        let is_known = self.state().robot.line.as_ref().is_some_and(|(known, _)| *known == number);
        let cmd = frame["cmd"].as_str().unwrap_or_default();
        if !is_known && cmd != "aibot_subscribe" {
            return answer(853_001, "not subscribed", Value::Null);
        }
        match self.robot_command(cmd, req_id, &frame["body"], number, line) {
            Ok(body) => answer(0, "ok", body),
            Err(Refused(code, message)) => answer(code, message, Value::Null),
        }
    }

    fn robot_command(&self, cmd: &str, req_id: &str, body: &Value, number: u64, line: &Line) -> Result<Value, Refused> {
        match cmd {
            "aibot_subscribe" if body["bot_id"] == ROBOT && body["secret"] == ROBOT_SECRET => {
                let old = self.change(|state| state.robot.line.replace((number, line.clone())));
                if let Some((_, old)) = old.filter(|(known, _)| *known != number) {
                    let event = self.event_frame(&json!({ "eventtype": "disconnected_event" }), "", "");
                    let _ = old.send(Out::Text(event)); // it may be gone
                    let _ = old.send(Out::Close);
                }
                Ok(Value::Null)
            }
            "aibot_subscribe" => Err(Refused(40_001, "invalid bot_id or secret")),
            "ping" => {
                self.change(|state| state.robot.pings += 1);
                Ok(Value::Null)
            }
            "aibot_respond_msg" => {
                let chat = self.state().robot.requests.get(req_id).cloned();
                let chat = chat.ok_or(Refused(846_605, "invalid req_id"))?;
                self.check_reply(body)?;
                self.keep(req_id, &chat, body);
                Ok(Value::Null)
            }
            "aibot_send_msg" => {
                let chat =
                    body["chatid"].as_str().filter(|id| !id.is_empty()).ok_or(Refused(40_058, "chatid is empty"))?;
                if body["msgtype"] == "stream" {
                    return Err(Refused(40_008, "invalid message type"));
                }
                self.check_reply(body)?;
                self.keep(req_id, chat, body);
                Ok(Value::Null)
            }
            "aibot_upload_media_init" => self.upload_begins(body),
            "aibot_upload_media_chunk" => self.upload_goes_on(body),
            "aibot_upload_media_finish" => self.upload_ends(body),
            _ => Err(Refused(40_058, "unknown command")),
        }
    }

    fn keep(&self, id: &str, to: &str, message: &Value) {
        self.change(|state| {
            state.robot.sent.push(Sent { id: id.to_owned(), to: to.to_owned(), message: message.clone() });
        });
    }

    fn check_reply(&self, body: &Value) -> Result<(), Refused> {
        let kind = body["msgtype"].as_str().unwrap_or_default();
        match kind {
            "markdown" | "text" => {
                let text = body[kind]["content"].as_str().unwrap_or_default();
                match text.len() {
                    0 => Err(Refused(44_004, "empty content")),
                    TEXT_MAX_BYTES.. => Err(Refused(45_002, "content size out of limit")),
                    _ => Ok(()),
                }
            }
            "stream" => {
                let id =
                    body["stream"]["id"].as_str().filter(|id| !id.is_empty()).ok_or(Refused(40_058, "stream.id"))?;
                let text = body["stream"]["content"].as_str().unwrap_or_default();
                if text.len() > TEXT_MAX_BYTES {
                    return Err(Refused(45_002, "content size out of limit"));
                }
                self.change(|state| {
                    if state.robot.finished.contains(id) {
                        return Err(Refused(846_608, "stream is finished"));
                    }
                    if body["stream"]["finish"] == true {
                        state.robot.finished.insert(id.to_owned());
                    }
                    Ok(())
                })
            }
            "image" | "voice" | "video" | "file" => {
                let id = body[kind]["media_id"].as_str().unwrap_or_default();
                match self.state().files.contains_key(id) {
                    true => Ok(()),
                    false => Err(Refused(40_007, "invalid media_id")),
                }
            }
            "template_card" => Ok(()),
            _ => Err(Refused(40_008, "invalid message type")),
        }
    }

    fn upload_begins(&self, body: &Value) -> Result<Value, Refused> {
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| body[name].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(0);
        let (size, chunks) = (number("total_size"), number("total_chunks"));
        let is_kind = ["image", "voice", "video", "file"].contains(&text("type").as_str());
        if !is_kind || !(6..=20 << 20).contains(&size) || !(1..=100).contains(&chunks) || text("filename").is_empty() {
            return Err(Refused(40_058, "invalid upload"));
        }
        let id = format!("upload-{}", self.fresh());
        let upload = Upload {
            kind: text("type"),
            filename: text("filename"),
            md5: text("md5"),
            chunks: vec![None; chunks],
            size,
        };
        self.change(|state| state.robot.uploads.insert(id.clone(), upload));
        Ok(json!({ "upload_id": id }))
    }

    fn upload_goes_on(&self, body: &Value) -> Result<Value, Refused> {
        let id = body["upload_id"].as_str().unwrap_or_default();
        let bytes = STANDARD.decode(body["base64_data"].as_str().unwrap_or_default());
        let bytes = bytes.ok().filter(|bytes| (1..=512 << 10).contains(&bytes.len()));
        let bytes = bytes.ok_or(Refused(40_058, "invalid chunk"))?;
        let index = body["chunk_index"].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(usize::MAX);
        self.change(|state| {
            let upload = state.robot.uploads.get_mut(id).ok_or(Refused(40_058, "invalid upload_id"))?;
            *upload.chunks.get_mut(index).ok_or(Refused(40_058, "invalid chunk_index"))? = Some(bytes);
            Ok(Value::Null)
        })
    }

    fn upload_ends(&self, body: &Value) -> Result<Value, Refused> {
        let id = body["upload_id"].as_str().unwrap_or_default();
        let upload = self.change(|state| state.robot.uploads.remove(id)).ok_or(Refused(40_058, "invalid upload_id"))?;
        let parts: Option<Vec<Vec<u8>>> = upload.chunks.into_iter().collect();
        let bytes = parts.ok_or(Refused(40_058, "a chunk is missing"))?.concat();
        if bytes.len() != upload.size || hex::encode(Md5::digest(&bytes)) != upload.md5 {
            return Err(Refused(40_058, "size or md5 is another"));
        }
        let media_id = self.attach("application/octet-stream", &upload.filename, &bytes);
        Ok(json!({ "type": upload.kind, "media_id": media_id, "created_at": "1700000000" }))
    }

    fn event_frame(&self, event: &Value, person: &str, chat: &str) -> String {
        let number = self.fresh();
        let mut body = json!({ "msgid": format!("event-{number}"), "create_time": 1_700_000_000, "aibotid": ROBOT,
            "from": { "userid": person }, "msgtype": "event", "event": event });
        if !chat.is_empty() {
            (body["chatid"], body["chattype"]) = (chat.into(), "group".into());
        }
        let headers = json!({ "req_id": format!("request-{number}") });
        json!({ "cmd": "aibot_event_callback", "headers": headers, "body": body }).to_string()
    }

    // ---- people ----------------------------------------------------------------------------

    /// A person sends this: `{"msgtype": "text", "text": {...}}`, in a group if one is named. Returns the id of the message.
    pub fn robot_say(&self, person: &str, group: Option<&str>, content: &Value) -> Result<String, String> {
        let number = self.fresh();
        let id = content["msgid"].as_str().map_or_else(|| format!("robot-{number:020}"), str::to_owned);
        let req_id = format!("request-{number}");
        let mut body = json!({ "msgid": id, "aibotid": ROBOT, "chattype": if group.is_some() { "group" } else { "single" },
            "from": { "userid": person }, "create_time": 1_700_000_000 });
        if let Some(group) = group {
            body["chatid"] = group.into();
        }
        if let (Value::Object(fields), Value::Object(content)) = (&mut body, content) {
            fields.extend(content.clone());
        }
        let frame = json!({ "cmd": "aibot_msg_callback", "headers": { "req_id": req_id }, "body": body }).to_string();
        let chat = group.unwrap_or(person).to_owned();
        self.change(|state| {
            let line = state.robot.line.as_ref().ok_or("no socket is open")?.1.clone();
            state.robot.requests.insert(req_id, chat);
            line.send(Out::Text(frame)).map_err(|_| "the socket is closed".to_owned())
        })?;
        Ok(id)
    }

    /// Something happened that is no message: `{"eventtype": "enter_chat"}`.
    pub fn robot_event(&self, person: &str, event: &Value) -> Result<(), String> {
        let frame = self.event_frame(event, person, "");
        let state = self.state();
        let (_, line) = state.robot.line.as_ref().ok_or("no socket is open")?;
        line.send(Out::Text(frame)).map_err(|_| "the socket is closed".to_owned())
    }

    /// A file of a person: its link and its key, for a message.
    pub fn robot_attach(&self, origin: &str, mime: &str, filename: &str, bytes: &[u8]) -> Value {
        let number = self.fresh();
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        let sealed = seal::encrypted(&key, bytes);
        let file = File { mime: mime.to_owned(), filename: filename.to_owned(), bytes: sealed };
        let id = format!("link-{number}");
        self.change(|state| state.robot.links.insert(id.clone(), file));
        json!({ "url": format!("{origin}/files/{id}"), "aeskey": STANDARD.encode(key) })
    }

    /// What the robot has said, streams in each of their frames.
    pub fn robot_sent(&self) -> Vec<Sent> {
        self.state().robot.sent.clone()
    }

    pub fn robot_pings(&self) -> u64 {
        self.state().robot.pings
    }

    pub fn robot_is_connected(&self) -> bool {
        self.state().robot.line.is_some()
    }

    /// The link neither answers nor tells anything, and stays open.
    pub fn robot_silence(&self, is_silent: bool) {
        self.change(|state| state.robot.is_silent = is_silent);
    }

    /// The next frame is answered with this error.
    pub fn robot_refuse(&self, code: i64) {
        self.change(|state| state.robot.refuse = Some(code));
    }

    /// The requests of messages that came can no longer be answered.
    pub fn robot_forget_requests(&self) {
        self.change(|state| state.robot.requests.clear());
    }

    /// The link is closed.
    pub fn robot_hang_up(&self) {
        let line = self.change(|state| state.robot.line.take());
        if let Some((_, line)) = line {
            let _ = line.send(Out::Close); // it may be gone
        }
    }
}
