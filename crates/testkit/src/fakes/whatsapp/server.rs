//! An HTTP server around the fake, on a free port of the loopback interface.
//!
//! `/control/...` is for other programs: `POST say {from, name, content}`, `POST report {id, status, code, title}`,
//! `POST webhook {url}`, `POST fault {...}`, `POST close {person}`, `POST attach {mime, content}`, `GET calls`, `GET sent`.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use aws_lc_rs::digest;
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::{CallRecord, FakeWhatsApp, NUMBER, NUMBER_ID, Refused, TOKEN};
use crate::fakes::serving::faults::Fault;
use crate::fakes::serving::http::{Connection, Reply, Request};
use crate::fakes::serving::multipart;

/// It ends, with its connections, when it is dropped.
pub struct Server {
    /// For the setting `base_url`.
    pub base_url: String,
    pub fake: FakeWhatsApp,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeWhatsApp {
    pub async fn serve(self) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let task = tokio::spawn(accept(listener, self.clone(), base_url.clone()));
        Ok(Server { base_url, fake: self, task })
    }
}

async fn accept(listener: TcpListener, fake: FakeWhatsApp, base_url: String) {
    // Aborted with this task, because the set is dropped with it.
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => { tasks.spawn(converse(stream, fake.clone(), base_url.clone())); }
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, fake: FakeWhatsApp, base_url: String) {
    let mut connection = Connection::new(stream);
    while let Ok(Some(request)) = connection.request().await {
        let reply = match request.path.strip_prefix("/control/") {
            Some(name) => Some(control(&fake, name, &request).await),
            None => api(&fake, &request, &base_url).await,
        };
        let Some(reply) = reply else { return };
        if connection.reply(&reply).await.is_err() {
            return;
        }
    }
}

async fn control(fake: &FakeWhatsApp, name: &str, request: &Request) -> Reply {
    let given: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let text = |name: &str| given[name].as_str().unwrap_or_default();
    let result = match name {
        "calls" => Ok(json!(fake.calls())),
        "sent" => Ok(json!(fake.sent())),
        "webhook" => {
            fake.set_webhook(text("url"));
            Ok(true.into())
        }
        "close" => {
            fake.close_window(text("person"));
            Ok(true.into())
        }
        "attach" => Ok(fake.attach(text("mime"), text("content").as_bytes()).into()),
        "fault" => match serde_json::from_value::<Fault>(given.clone()) {
            Ok(fault) => {
                fake.fault(fault);
                Ok(true.into())
            }
            Err(error) => Err(error.to_string()),
        },
        "say" => {
            let said = fake.say(text("from"), text("name"), &given["content"]).await;
            said.map(|(id, status)| json!({ "id": id, "status": status }))
        }
        "report" => {
            let error = given["code"].as_i64().map(|code| (code, text("title")));
            fake.report(text("id"), text("status"), error).await.map(Value::from)
        }
        _ => Err(format!("/control/{name} is not known")),
    };
    match result {
        Ok(result) => Reply::json(200, &json!({ "ok": true, "result": result })),
        Err(error) => Reply::json(400, &json!({ "ok": false, "error": error })),
    }
}

fn refused(Refused(status, code, message): &Refused) -> Reply {
    let error = json!({ "message": format!("(#{code}) {message}"), "type": "OAuthException", "code": code,
        "error_data": { "messaging_product": "whatsapp", "details": message }, "fbtrace_id": "Az8or2yhqkZfEZ-_4Qn_Bam" });
    Reply::json(*status, &json!({ "error": error }))
}

/// `None`: the connection is closed without an answer.
async fn api(fake: &FakeWhatsApp, request: &Request, base_url: &str) -> Option<Reply> {
    let is_message = request.method == "POST" && request.path.ends_with("/messages");
    let fault = if is_message { fake.change(|state| state.faults.pop_front()) } else { None };
    match fault {
        Some(Fault::Status { status, body }) => return Some(Reply::json(status, &body)),
        Some(Fault::DropBefore) => return None,
        _ => {}
    }
    let reply = answer(fake, request, base_url);
    let body = serde_json::from_slice(&request.body).unwrap_or_else(|_| Value::Object(form_of(request)));
    let (method, path) = (request.method.clone(), request.path.clone());
    fake.record(CallRecord { method, path, body, status: reply.status });
    match fault {
        Some(Fault::DropAfter) => return None,
        Some(Fault::Slow { delay_ms }) => tokio::time::sleep(Duration::from_millis(delay_ms)).await,
        _ => {}
    }
    Some(reply)
}

fn form_of(request: &Request) -> Map<String, Value> {
    let mime = request.header("content-type").unwrap_or_default();
    let parts = multipart::read(mime, &request.body).unwrap_or_default();
    let texts = parts.iter().filter(|part| part.filename.is_none());
    texts.map(|part| (part.field.clone(), String::from_utf8_lossy(part.content).into())).collect()
}

fn answer(fake: &FakeWhatsApp, request: &Request, base_url: &str) -> Reply {
    if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return refused(&Refused(401, 190, "Invalid OAuth access token - Cannot parse access token".into()));
    }
    let absent = || refused(&Refused(400, 100, "Unsupported request. Object does not exist".into()));
    if let Some(id) = request.path.strip_prefix("/files/") {
        let found = fake.state().files.get(id).cloned();
        return found.map_or_else(|| Reply::json(404, &Value::Null), |file| Reply::new(200, file.mime, file.bytes));
    }
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    match (request.method.as_str(), &parts[..]) {
        ("POST", [_, NUMBER_ID, "messages"]) => {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            fake.post_message(&body).map_or_else(|why| refused(&why), |answer| Reply::json(200, &answer))
        }
        ("POST", [_, NUMBER_ID, "media"]) => upload(fake, request),
        ("GET", [_, NUMBER_ID]) => {
            let number = json!({ "id": NUMBER_ID, "verified_name": "Fake", "display_phone_number": NUMBER,
                "quality_rating": "GREEN", "code_verification_status": "VERIFIED", "platform_type": "CLOUD_API" });
            Reply::json(200, &number)
        }
        ("GET", [_, id]) => {
            let Some(file) = fake.state().files.get(*id).cloned() else { return absent() };
            let sha256 = hex::encode(digest::digest(&digest::SHA256, &file.bytes));
            let found = json!({ "messaging_product": "whatsapp", "url": format!("{base_url}/files/{id}"),
                "mime_type": file.mime, "sha256": sha256, "file_size": file.bytes.len(), "id": id });
            Reply::json(200, &found)
        }
        ("DELETE", [_, id]) => {
            let removed = fake.change(|state| state.files.remove(*id)).is_some();
            Reply::json(200, &json!({ "success": removed }))
        }
        _ => absent(),
    }
}

fn upload(fake: &FakeWhatsApp, request: &Request) -> Reply {
    let mime = request.header("content-type").unwrap_or_default();
    let parts = multipart::read(mime, &request.body).unwrap_or_default();
    let file = parts.iter().find(|part| part.field == "file" && part.filename.is_some());
    let is_ours = form_of(request).get("messaging_product") == Some(&json!("whatsapp"));
    match file {
        Some(file) if is_ours => Reply::json(200, &json!({ "id": fake.put_file(&file.mime, file.content.to_vec()) })),
        _ => refused(&Refused(400, 100, "(#100) messaging_product and file are required".into())),
    }
}
