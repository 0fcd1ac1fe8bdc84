//! The open API.

use bytes::Bytes;
use serde_json::{Value, json};

use super::faults::Fault;
use super::state::{CallRecord, File, Message, State};

/// What a call gets in return.
#[derive(Debug, Clone, PartialEq)]
pub enum Answered {
    Json(u16, Value),
    /// 429, with the seconds to wait.
    Limited(u64),
    File {
        name: String,
        mime: String,
        bytes: Bytes,
    },
    /// 502 with a page.
    BadGateway,
    /// No answer at all.
    Dropped,
}

/// One call, as it came.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub method: String,
    /// Behind `/open-apis/`.
    pub path: String,
    pub query: Vec<(String, String)>,
    pub token: String,
    pub body: Value,
    /// Name, type and content of a file of the form.
    pub file: Option<(String, String, Bytes)>,
}

impl Asked {
    fn query(&self, name: &str) -> &str {
        self.query.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }
}

const TEXT_MAX_BYTES: usize = 150 << 10;
const CARD_MAX_BYTES: usize = 30 << 10;
const EDITS_MAX: u32 = 20;
const IMAGE_MAX_BYTES: usize = 10 << 20;
const FILE_MAX_BYTES: usize = 30 << 20;

type ApiResult = Result<Value, i64>;

/// With `:id` for what names something.
fn method_of(asked: &Asked) -> String {
    let parts = asked.path.split('/').map(|part| {
        let is_id =
            ["om_", "oc_", "ou_", "on_", "omt_", "img_", "file_", "react_"].iter().any(|it| part.starts_with(it));
        if is_id || asked.path.starts_with("contact/v3/users/") && !["contact", "v3", "users"].contains(&part) {
            ":id"
        } else {
            part
        }
    });
    format!("{} {}", asked.method, parts.collect::<Vec<_>>().join("/"))
}

pub(super) fn call(state: &mut State, now_ms: u64, asked: &Asked) -> Answered {
    let method = method_of(asked);
    let fault = state.faults.take(&method);
    let record = |state: &mut State, code: i64| {
        let query = asked.query.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
        let (method, path, body) = (method.clone(), asked.path.clone(), asked.body.clone());
        state.record(CallRecord { number: 0, method, path, query, body, code });
    };
    match &fault {
        Some(Fault::Limited { seconds }) => return Answered::Limited(*seconds),
        Some(Fault::BadGateway) => return Answered::BadGateway,
        Some(Fault::DropBefore) => return Answered::Dropped,
        Some(Fault::Code { code }) => {
            record(state, *code);
            return refused(*code);
        }
        Some(Fault::DropAfter) | None => {}
    }
    if let ("GET", ["im", "v1", "messages", id, "resources", key]) = (asked.method.as_str(), parts(asked).as_slice()) {
        let answered = if is_known(state, asked) { resource(state, id, key) } else { refused(99_991_663) };
        record(state, 0);
        return answered;
    }
    let outcome = match asked.path.as_str() {
        "auth/v3/tenant_access_token/internal" => token(state, &asked.body),
        _ if !is_known(state, asked) => Err(if asked.token.is_empty() { 99_991_661 } else { 99_991_663 }),
        "bot/v3/info" => {
            let app = &state.app;
            let bot = json!({ "activate_status": 2, "app_name": app.name, "open_id": app.open_id, "avatar_url": "" });
            Ok(json!({ "bot": bot, "msg": "ok" }))
        }
        _ => by_app(state, now_ms, asked).map(|data| json!({ "data": data, "msg": "success" })),
    };
    record(state, outcome.as_ref().err().copied().unwrap_or_default());
    match (fault, outcome) {
        (Some(Fault::DropAfter), _) => Answered::Dropped,
        (_, Ok(mut value)) => {
            value["code"] = 0.into();
            Answered::Json(200, value)
        }
        (_, Err(code)) => refused(code),
    }
}

fn refused(code: i64) -> Answered {
    // Wrong credentials of an app are told with a status of success.
    let status = if code < 100_000 { 200 } else { 400 };
    Answered::Json(status, json!({ "code": code, "msg": format!("refused by the fake: {code}") }))
}

fn is_known(state: &State, asked: &Asked) -> bool {
    state.tokens.contains(&asked.token)
}

fn parts(asked: &Asked) -> Vec<&str> {
    asked.path.split('/').collect()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn token(state: &mut State, body: &Value) -> ApiResult {
    if text(body, "app_id") != state.app.id || text(body, "app_secret") != state.app.secret {
        return Err(10_014);
    }
    let token = match state.tokens.last() {
        Some(token) => token.clone(),
        None => format!("t-fake{}", state.number()),
    };
    if state.tokens.is_empty() {
        state.tokens.push(token.clone());
    }
    Ok(json!({ "tenant_access_token": token, "expire": 7_200, "msg": "ok" }))
}

fn by_app(state: &mut State, now_ms: u64, asked: &Asked) -> ApiResult {
    let body = &asked.body;
    match (asked.method.as_str(), parts(asked).as_slice()) {
        ("POST", ["im", "v1", "messages"]) => create(state, now_ms, asked.query("receive_id_type"), body),
        ("POST", ["im", "v1", "messages", id, "reply"]) => reply(state, now_ms, id, body),
        ("GET", ["im", "v1", "messages"]) => {
            if asked.query("container_id_type") != "thread" {
                return Err(230_001);
            }
            let topic = asked.query("container_id");
            let all: Vec<Message> = state.messages.iter().filter(|it| it.thread_id == topic).cloned().collect();
            let items: Vec<Value> = all.iter().map(|message| item(state, message)).take(50).collect();
            Ok(json!({ "items": items, "has_more": false }))
        }
        ("GET", ["im", "v1", "messages", id]) => {
            let message = live(state, id)?.clone();
            Ok(json!({ "items": [item(state, &message)] }))
        }
        ("PUT", ["im", "v1", "messages", id]) => {
            let content = content_of(text(body, "msg_type"), text(body, "content"))?;
            let message = own(state, id)?;
            if !matches!(message.msg_type.as_str(), "text" | "post")
                || !matches!(text(body, "msg_type"), "text" | "post")
            {
                return Err(230_054);
            }
            if message.edits >= EDITS_MAX {
                return Err(230_072);
            }
            message.edits += 1;
            (message.content, message.msg_type) = (content, text(body, "msg_type").to_owned());
            Ok(json!({ "message_id": id }))
        }
        ("PATCH", ["im", "v1", "messages", id]) => {
            let content = content_of("interactive", text(body, "content"))?;
            let message = own(state, id)?;
            // Only a card that is shared by all members can be changed.
            if message.msg_type != "interactive" || message.content["config"]["update_multi"] != true {
                return Err(230_054);
            }
            message.content = content;
            Ok(json!({}))
        }
        ("DELETE", ["im", "v1", "messages", id]) => {
            own(state, id)?.is_deleted = true;
            Ok(json!({}))
        }
        ("POST", ["im", "v1", "messages", id, "reactions"]) => react(state, id, body),
        ("GET", ["im", "v1", "messages", id, "reactions"]) => {
            let (name, app) = (asked.query("reaction_type").to_owned(), state.app.id.clone());
            let all = live(state, id)?.reactions.clone();
            let shown = all.iter().filter(|(_, known, _)| name.is_empty() || *known == name).map(|(id, name, who)| {
                let kind = if *who == app { "app" } else { "user" };
                json!({ "reaction_id": id, "operator": { "operator_id": who, "operator_type": kind },
                    "action_time": "1", "reaction_type": { "emoji_type": name } })
            });
            Ok(json!({ "items": shown.collect::<Vec<_>>(), "has_more": false, "page_token": "" }))
        }
        ("DELETE", ["im", "v1", "messages", id, "reactions", reaction]) => {
            let message = live(state, id)?;
            let before = message.reactions.len();
            message.reactions.retain(|(known, _, _)| known != reaction);
            if message.reactions.len() == before { Err(231_007) } else { Ok(json!({})) }
        }
        ("POST", ["im", "v1", kind @ ("images" | "files")]) => upload(state, kind, asked),
        ("GET", ["im", "v1", "chats", id]) => chat(state, id),
        ("GET", ["im", "v1", "chats", id, "members"]) => members(state, id, asked),
        ("GET", ["contact", "v3", "users", id]) => {
            let open_id = state.person(id).cloned().ok_or(41_050)?;
            let user = &state.users[&open_id];
            let ids =
                json!({ "open_id": open_id, "user_id": user.user_id, "union_id": user.union_id, "name": user.name });
            Ok(json!({ "user": ids }))
        }
        _ => Err(99_991_404),
    }
}

fn chat(state: &State, id: &str) -> ApiResult {
    let chat = state.chats.get(id).ok_or(232_006)?;
    if !chat.has_bot {
        return Err(232_011);
    }
    Ok(json!({ "name": chat.name, "chat_mode": chat.mode, "chat_type": chat.kind, "avatar": "", "description": "",
        "external": false, "tenant_key": "tenant1", "chat_status": "normal" }))
}

/// Pages of two, so that they are turned.
fn members(state: &State, id: &str, asked: &Asked) -> ApiResult {
    chat(state, id)?;
    let kind = asked.query("member_id_type");
    let of = |open_id: &String| {
        let user = state.users.get(open_id)?;
        let id = match kind {
            "user_id" => &user.user_id,
            "union_id" => &user.union_id,
            _ => open_id,
        };
        Some(json!({ "member_id": id, "member_id_type": kind, "name": user.name, "tenant_key": "tenant1" }))
    };
    let all: Vec<Value> = state.chats[id].members.iter().filter_map(of).collect();
    let from: usize = asked.query("page_token").parse().unwrap_or_default();
    let page: Vec<&Value> = all.iter().skip(from).take(2).collect();
    let has_more = from + page.len() < all.len();
    let next = if has_more { (from + page.len()).to_string() } else { String::new() };
    Ok(json!({ "items": page, "has_more": has_more, "page_token": next, "member_total": all.len() }))
}

/// What Feishu takes of a content.
fn content_of(kind: &str, content: &str) -> ApiResult {
    let value: Value = serde_json::from_str(content).map_err(|_| 230_001)?;
    let is_text = |name: &str| value[name].as_str().is_some_and(|text| !text.is_empty());
    let most = if matches!(kind, "post" | "interactive") { CARD_MAX_BYTES } else { TEXT_MAX_BYTES };
    if content.len() > most {
        return Err(230_025);
    }
    let is_fine = match kind {
        "text" => is_text("text"),
        "post" => {
            let rows = |post: &Value| {
                post["content"].as_array().is_some_and(|rows| !rows.is_empty() && rows.iter().all(Value::is_array))
            };
            value.as_object().is_some_and(|languages| !languages.is_empty() && languages.values().all(rows))
        }
        "image" => is_text("image_key"),
        "file" | "audio" | "media" => is_text("file_key"),
        "interactive" => value["elements"].as_array().is_some_and(|all| !all.is_empty()),
        _ => false,
    };
    if is_fine { Ok(value) } else { Err(230_001) }
}

fn live<'a>(state: &'a mut State, id: &str) -> Result<&'a mut Message, i64> {
    let message = state.message(id).ok_or(231_003)?;
    if message.is_deleted { Err(230_011) } else { Ok(message) }
}

fn own<'a>(state: &'a mut State, id: &str) -> Result<&'a mut Message, i64> {
    let app = state.app.id.clone();
    let message = live(state, id)?;
    if message.sender == app { Ok(message) } else { Err(230_071) }
}

pub(super) fn item(state: &State, message: &Message) -> Value {
    let is_app = message.sender == state.app.id;
    let sender = json!({ "id": message.sender, "id_type": if is_app { "app_id" } else { "open_id" },
        "sender_type": if is_app { "app" } else { "user" }, "tenant_key": "tenant1" });
    let mut item = json!({
        "message_id": message.message_id, "chat_id": message.chat_id, "msg_type": message.msg_type, "deleted": false,
        "updated": message.edits > 0, "create_time": message.create_ms.to_string(),
        "update_time": message.create_ms.to_string(), "sender": sender,
        "body": { "content": message.content.to_string() },
    });
    for (name, value) in
        [("thread_id", &message.thread_id), ("root_id", &message.root_id), ("parent_id", &message.parent_id)]
    {
        if !value.is_empty() {
            item[name] = value.as_str().into();
        }
    }
    item
}

fn create(state: &mut State, now_ms: u64, id_type: &str, body: &Value) -> ApiResult {
    let to = text(body, "receive_id").to_owned();
    let (chat_id, thread_id) = match id_type {
        "chat_id" => (to, String::new()),
        "thread_id" => {
            let first = state.messages.iter().find(|message| message.thread_id == to).ok_or(230_001)?;
            (first.chat_id.clone(), to)
        }
        "open_id" => {
            let of = |(_, chat): &(&String, &super::state::Chat)| chat.mode == "p2p" && chat.members.contains(&to);
            let chat = state.chats.iter().find(of).map(|(id, _)| id.clone());
            (chat.ok_or(230_013)?, String::new())
        }
        _ => return Err(99_992_402),
    };
    add(state, now_ms, body, Message { chat_id, thread_id, ..Message::default() })
}

fn reply(state: &mut State, now_ms: u64, id: &str, body: &Value) -> ApiResult {
    let number = state.number();
    let parent = live(state, id)?;
    let in_thread = body["reply_in_thread"].as_bool() == Some(true);
    if in_thread && parent.thread_id.is_empty() {
        parent.thread_id = format!("omt_{number}");
    }
    let root_id = if parent.root_id.is_empty() { parent.message_id.clone() } else { parent.root_id.clone() };
    let message = Message {
        chat_id: parent.chat_id.clone(),
        thread_id: parent.thread_id.clone(),
        parent_id: id.to_owned(),
        root_id,
        ..Message::default()
    };
    add(state, now_ms, body, message)
}

fn add(state: &mut State, now_ms: u64, body: &Value, message: Message) -> ApiResult {
    if !state.chats.get(&message.chat_id).is_some_and(|chat| chat.has_bot) {
        return Err(230_002);
    }
    let content = content_of(text(body, "msg_type"), text(body, "content"))?;
    let mark = text(body, "uuid").to_owned();
    if mark.len() > 50 {
        return Err(99_992_402);
    }
    if let Some(known) = state.marks.get(&mark).cloned().filter(|_| !mark.is_empty()) {
        let known = live(state, &known)?.clone();
        return Ok(item(state, &known));
    }
    let keys = [text(&content, "image_key"), text(&content, "file_key")];
    if keys.into_iter().any(|key| !key.is_empty() && !state.files.contains_key(key)) {
        return Err(230_017);
    }
    let message_id = format!("om_{}", state.number());
    let (msg_type, sender) = (text(body, "msg_type").to_owned(), state.app.id.clone());
    let message = Message { message_id: message_id.clone(), msg_type, content, sender, create_ms: now_ms, ..message };
    if !mark.is_empty() {
        state.marks.insert(mark, message_id);
    }
    let created = item(state, &message);
    state.messages.push(message);
    Ok(created)
}

fn react(state: &mut State, id: &str, body: &Value) -> ApiResult {
    let name = text(&body["reaction_type"], "emoji_type").to_owned();
    if name.is_empty() {
        return Err(231_001);
    }
    let (number, app) = (state.number(), state.app.id.clone());
    let message = live(state, id)?;
    // The same reaction again is the same one.
    let known =
        message.reactions.iter().find(|(_, known, who)| *known == name && *who == app).map(|(id, _, _)| id.clone());
    let reaction = known.unwrap_or_else(|| {
        let id = format!("react_{number}");
        message.reactions.push((id.clone(), name.clone(), app.clone()));
        id
    });
    Ok(json!({ "reaction_id": reaction, "operator": { "operator_id": app, "operator_type": "app" },
        "reaction_type": { "emoji_type": name } }))
}

fn upload(state: &mut State, kind: &str, asked: &Asked) -> ApiResult {
    let (name, mime, bytes) = asked.file.clone().ok_or(234_001)?;
    let number = state.number();
    if kind == "images" {
        if text(&asked.body, "image_type") != "message" || bytes.is_empty() || bytes.len() > IMAGE_MAX_BYTES {
            return Err(234_006);
        }
        let key = format!("img_{number}");
        state.files.insert(key.clone(), File { name, mime, bytes });
        return Ok(json!({ "image_key": key }));
    }
    let is_type = ["opus", "mp4", "pdf", "doc", "xls", "ppt", "stream"].contains(&text(&asked.body, "file_type"));
    if !is_type || text(&asked.body, "file_name").is_empty() || bytes.is_empty() || bytes.len() > FILE_MAX_BYTES {
        return Err(234_001);
    }
    let key = format!("file_{number}");
    state.files.insert(key.clone(), File { name, mime, bytes });
    Ok(json!({ "file_key": key }))
}

fn resource(state: &mut State, id: &str, key: &str) -> Answered {
    let names = match live(state, id) {
        Ok(message) => message.content.to_string().contains(&format!("\"{key}\"")),
        Err(code) => return refused(code),
    };
    match state.files.get(key).filter(|_| names) {
        Some(file) => Answered::File { name: file.name.clone(), mime: file.mime.clone(), bytes: file.bytes.clone() },
        None => refused(234_003),
    }
}
