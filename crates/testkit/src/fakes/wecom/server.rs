//! A server around the fake, on a free port of the loopback interface: the API, the socket at `/`, and files at `/files/`.
//!
//! `/control/...` is for other programs: `POST webhook {url}`, `POST check`, `POST say {from, text}`, `POST fields {from, fields}`,
//! `POST attach {mime, filename, content}`, `POST fault {...}`, `POST expire`, `POST robot_say {from, group, content}`,
//! `POST robot_event {from, event}`, `POST robot_attach {mime, filename, content}`, `GET calls`, `GET sent`, `GET robot_sent`.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_websockets::{Message, ServerBuilder};

use super::{CallRecord, FakeWeCom, File, Out, RECORDS_MAX, Refused};
use crate::fakes::serving::clock::Clock;
use crate::fakes::serving::faults::Fault;
use crate::fakes::serving::http::{Connection, Reply, Request};
use crate::fakes::serving::multipart;

/// The protocol's own constant (RFC 6455).
const ACCEPT_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// It ends, with its connections, when it is dropped.
pub struct Server {
    /// For the setting `base_url`.
    pub base_url: String,
    /// For the setting `socket_url`.
    pub socket_url: String,
    pub fake: FakeWeCom,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeWeCom {
    pub async fn serve(self) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let base_url = format!("http://{address}");
        let task = tokio::spawn(accept(listener, self.clone(), base_url.clone()));
        Ok(Server { base_url, socket_url: format!("ws://{address}"), fake: self, task })
    }
}

async fn accept(listener: TcpListener, fake: FakeWeCom, base_url: String) {
    // Aborted with this task, because the set is dropped with it.
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => { tasks.spawn(converse(stream, fake.clone(), base_url.clone())); }
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, fake: FakeWeCom, base_url: String) {
    let mut connection = Connection::new(stream);
    while let Ok(Some(request)) = connection.request().await {
        if request.header("upgrade").is_some_and(|it| it.eq_ignore_ascii_case("websocket")) {
            return talk(fake, connection, &request).await;
        }
        let reply = match request.path.strip_prefix("/control/") {
            Some(name) => Some(control(&fake, name, &request, &base_url).await),
            None => api(&fake, &request).await,
        };
        let Some(reply) = reply else { return };
        if connection.reply(&reply).await.is_err() {
            return;
        }
    }
}

/// The socket of a robot.
async fn talk(fake: FakeWeCom, connection: Connection<TcpStream>, request: &Request) {
    let key = request.header("sec-websocket-key").unwrap_or_default();
    let accept = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{ACCEPT_GUID}").as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {}\r\n\r\n",
        STANDARD.encode(accept.as_ref())
    );
    let Ok(stream) = connection.upgraded(&head).await else { return };
    let mut socket = ServerBuilder::new().serve(stream);
    let (line, mut lines) = mpsc::unbounded_channel();
    let number = fake.robot_opened();
    loop {
        let text = tokio::select! {
            Some(out) = lines.recv() => match out {
                Out::Text(text) => Some(text),
                Out::Close => break,
            },
            message = socket.next() => match message {
                Some(Ok(message)) if message.is_text() => {
                    fake.robot_frame(number, &line, message.as_text().unwrap_or_default())
                }
                Some(Ok(message)) if !message.is_close() => None,
                _ => break,
            },
        };
        if let Some(text) = text
            && socket.send(Message::text(text)).await.is_err()
        {
            break;
        }
    }
    fake.robot_closed(number);
    let _ = socket.send(Message::close(None, "")).await; // it may be gone
}

async fn control(fake: &FakeWeCom, name: &str, request: &Request, base_url: &str) -> Reply {
    let given: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let text = |name: &str| given[name].as_str().unwrap_or_default();
    let now_s = given["now_s"].as_u64().unwrap_or_else(|| Clock::of_machine().now_ms() / 1_000);
    let mut is_done = true;
    match name {
        "webhook" => fake.set_webhook(text("url")),
        "expire" => fake.expire_token(),
        "hide" => fake.hide(text("member")),
        "robot_hang_up" => fake.robot_hang_up(),
        "robot_refuse" => fake.robot_refuse(given["code"].as_i64().unwrap_or(-1)),
        _ => is_done = false,
    }
    let result = match name {
        _ if is_done => Ok(true.into()),
        "calls" => Ok(json!(fake.calls())),
        "sent" => Ok(json!(fake.sent())),
        "robot_sent" => Ok(json!(fake.robot_sent())),
        "robot_is_connected" => Ok(json!(fake.robot_is_connected())),
        "attach" => Ok(fake.attach(text("mime"), text("filename"), text("content").as_bytes()).into()),
        "robot_attach" => Ok(fake.robot_attach(base_url, text("mime"), text("filename"), text("content").as_bytes())),
        "fault" => match serde_json::from_value::<Fault>(given.clone()) {
            Ok(fault) => {
                fake.fault(fault);
                Ok(true.into())
            }
            Err(error) => Err(error.to_string()),
        },
        "check" => {
            let response = fake.check_address(now_s).await;
            response.map(|(status, body, echo)| json!({ "status": status, "body": body, "echo": echo }))
        }
        "say" => {
            let said = fake.say(text("from"), text("text"), now_s).await;
            said.map(|(id, status, body)| json!({ "id": id, "status": status, "body": body }))
        }
        "fields" => {
            let said = fake.send_fields(text("from"), text("fields"), now_s).await;
            said.map(|(status, body)| json!({ "status": status, "body": body }))
        }
        "robot_say" => {
            let said = fake.robot_say(text("from"), given["group"].as_str(), &given["content"]);
            said.map(|id| json!({ "id": id }))
        }
        "robot_event" => fake.robot_event(text("from"), &given["event"]).map(|()| true.into()),
        _ => Err(format!("/control/{name} is not known")),
    };
    match result {
        Ok(result) => Reply::json(200, &json!({ "ok": true, "result": result })),
        Err(error) => Reply::json(400, &json!({ "ok": false, "error": error })),
    }
}

/// `None`: the connection is closed without an answer.
async fn api(fake: &FakeWeCom, request: &Request) -> Option<Reply> {
    if let Some(id) = request.path.strip_prefix("/files/") {
        let found = fake.state().robot.links.get(id).cloned();
        return Some(found.map_or_else(|| Reply::json(404, &Value::Null), shown_file));
    }
    let path = request.path.strip_prefix("/cgi-bin/").unwrap_or_default();
    let is_faulty = request.method == "POST" || path == "media/get";
    let fault = if is_faulty { fake.change(|state| state.faults.pop_front()) } else { None };
    match fault {
        Some(Fault::Status { status, body }) => return Some(Reply::json(status, &body)),
        Some(Fault::DropBefore) => return None,
        _ => {}
    }
    let reply = answer(fake, path, request);
    match fault {
        Some(Fault::DropAfter) => return None,
        Some(Fault::Slow { delay_ms }) => tokio::time::sleep(Duration::from_millis(delay_ms)).await,
        _ => {}
    }
    Some(reply)
}

fn shown_file(file: File) -> Reply {
    let mut reply = Reply::new(200, file.mime, file.bytes);
    let named = format!("attachment; filename=\"{}\"", file.filename);
    reply.headers.push(("Content-disposition".into(), named));
    reply
}

fn answer(fake: &FakeWeCom, path: &str, request: &Request) -> Reply {
    let query: BTreeMap<String, String> = url::form_urlencoded::parse(request.query.as_bytes()).into_owned().collect();
    let mime = request.header("content-type").unwrap_or_default();
    let mut file = None;
    let mut body = Value::Null;
    if mime.starts_with("multipart/") {
        let parts = multipart::read(mime, &request.body).unwrap_or_default();
        file = parts.iter().find(|part| part.field == "media").map(|part| File {
            mime: part.mime.clone(),
            filename: part.filename.clone().unwrap_or_default(),
            bytes: part.content.to_vec(),
        });
    } else if let Ok(json) = serde_json::from_slice(&request.body) {
        body = json;
    }
    let checked = fake.answer(if path == "media/get" { "user/get" } else { path }, &query, &body, file);
    let reply = match checked {
        Ok(_) if path == "media/get" => {
            let id = query.get("media_id").map(String::as_str).unwrap_or_default();
            let missing = || Reply::json(200, &Refused(40_007, "invalid media_id").shown());
            fake.file(id).map_or_else(missing, shown_file)
        }
        Ok(answer) => Reply::json(200, &answer),
        Err(refused) => Reply::json(200, &refused.shown()),
    };
    let record = CallRecord { path: path.to_owned(), query, body, status: reply.status };
    fake.change(|state| {
        if state.calls.len() < RECORDS_MAX {
            state.calls.push(record);
        }
    });
    reply
}
