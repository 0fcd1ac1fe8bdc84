//! An HTTP server around the fake, on a free port of the loopback interface.
//!
//! `/control/...` is for other programs: `POST say {from, to, body, files}`, `POST report {sid, status, error}`,
//! `POST webhook {url}`, `POST fault {...}`, `GET calls`, `GET sent`.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::{ACCOUNT, CallRecord, FakeTwilio, File, Refused, TOKEN, shown};
use crate::fakes::serving::faults::Fault;
use crate::fakes::serving::http::{Connection, Reply, Request};
use crate::fakes::serving::multipart;

/// It ends, with its connections, when it is dropped.
pub struct Server {
    /// For the setting `base_url`.
    pub base_url: String,
    pub fake: FakeTwilio,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeTwilio {
    pub async fn serve(self) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let task = tokio::spawn(accept(listener, self.clone(), base_url.clone()));
        Ok(Server { base_url, fake: self, task })
    }
}

async fn accept(listener: TcpListener, fake: FakeTwilio, base_url: String) {
    // Aborted with this task, because the set is dropped with it.
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => { tasks.spawn(converse(stream, fake.clone(), base_url.clone())); }
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, fake: FakeTwilio, base_url: String) {
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

async fn control(fake: &FakeTwilio, name: &str, request: &Request) -> Reply {
    let given: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let text = |name: &str| given[name].as_str().unwrap_or_default();
    let result = match name {
        "calls" => Ok(json!(fake.calls())),
        "sent" => Ok(json!(fake.sent())),
        "webhook" => {
            fake.set_webhook(text("url"));
            Ok(true.into())
        }
        "fault" => match serde_json::from_value::<Fault>(given.clone()) {
            Ok(fault) => {
                fake.fault(fault);
                Ok(true.into())
            }
            Err(error) => Err(error.to_string()),
        },
        "say" => {
            let files: Vec<File> = serde_json::from_value(given["files"].clone()).unwrap_or_default();
            let said = fake.say(text("from"), text("to"), text("body"), &files).await;
            said.map(|(status, body)| json!({ "status": status, "body": body }))
        }
        "report" => {
            let error = given["error"].as_u64().and_then(|code| code.try_into().ok());
            let response = fake.report(text("sid"), text("status"), error).await;
            response.map(|(status, body)| json!({ "status": status, "body": body }))
        }
        _ => Err(format!("/control/{name} is not known")),
    };
    match result {
        Ok(result) => Reply::json(200, &json!({ "ok": true, "result": result })),
        Err(error) => Reply::json(400, &json!({ "ok": false, "error": error })),
    }
}

fn refused(Refused(status, code, message): &Refused) -> Reply {
    let more_info = format!("https://www.twilio.com/docs/errors/{code}");
    Reply::json(*status, &json!({ "code": code, "message": message, "more_info": more_info, "status": status }))
}

/// `None`: the connection is closed without an answer.
async fn api(fake: &FakeTwilio, request: &Request, base_url: &str) -> Option<Reply> {
    if let Some(id) = request.path.strip_prefix("/files/") {
        return Some(stored_file(fake, id, request));
    }
    let fault = if request.method == "POST" { fake.change(|state| state.faults.pop_front()) } else { None };
    match fault {
        Some(Fault::Status { status, body }) => return Some(Reply::json(status, &body)),
        Some(Fault::DropBefore) => return None,
        _ => {}
    }
    let reply = answer(fake, request, base_url).await;
    let form = form_of(request).into_iter().collect();
    let (method, path) = (request.method.clone(), request.path.clone());
    fake.record(CallRecord { method, path, form, status: reply.status });
    match fault {
        Some(Fault::DropAfter) => return None,
        Some(Fault::Slow { delay_ms }) => tokio::time::sleep(Duration::from_millis(delay_ms)).await,
        _ => {}
    }
    Some(reply)
}

fn form_of(request: &Request) -> Vec<(String, String)> {
    let mime = request.header("content-type").unwrap_or_default();
    if mime.starts_with("multipart/") {
        let text = |part: &multipart::Part<'_>| String::from_utf8_lossy(part.content).into_owned();
        let parts = multipart::read(mime, &request.body).unwrap_or_default();
        return parts.iter().map(|part| (part.field.clone(), text(part))).collect();
    }
    url::form_urlencoded::parse(&request.body).into_owned().collect()
}

async fn answer(fake: &FakeTwilio, request: &Request, base_url: &str) -> Reply {
    let basic = format!("Basic {}", STANDARD.encode(format!("{ACCOUNT}:{TOKEN}")));
    if request.header("authorization") != Some(&basic) {
        return refused(&Refused(401, 20_003, "Authenticate"));
    }
    let absent = || refused(&Refused(404, 20_404, "The requested resource was not found"));
    let Some(rest) = request.path.strip_prefix(&format!("/2010-04-01/Accounts/{ACCOUNT}")) else { return absent() };
    let parts: Vec<&str> = rest.trim_end_matches(".json").split('/').filter(|part| !part.is_empty()).collect();
    match (request.method.as_str(), &parts[..]) {
        ("GET", []) => Reply::json(
            200,
            &json!({ "sid": ACCOUNT, "friendly_name": "Fake", "status": "active", "type": "Full",
                "auth_token": TOKEN, "owner_account_sid": ACCOUNT, "uri": request.path, "subresource_uris": {},
                "date_created": "Fri, 24 May 2019 17:44:46 +0000", "date_updated": "Fri, 24 May 2019 17:44:46 +0000" }),
        ),
        ("GET", ["IncomingPhoneNumbers"]) => numbers(fake, request),
        ("POST", ["Messages"]) => match fake.create(&form_of(request)).await {
            Ok(message) => Reply::json(201, &message),
            Err(why) => refused(&why),
        },
        ("GET", ["Messages"]) => {
            let all: Vec<Value> = fake.sent().iter().rev().map(shown).collect();
            let page = json!({ "messages": all, "page": 0, "page_size": 50, "start": 0, "end": 0, "first_page_uri": rest,
                "next_page_uri": null, "previous_page_uri": null, "uri": rest });
            Reply::json(200, &page)
        }
        ("GET", ["Messages", sid]) => {
            fake.sent().iter().find(|sent| sent.sid == *sid).map_or_else(absent, |sent| Reply::json(200, &shown(sent)))
        }
        ("GET", ["Messages", sid, "Media", id]) => {
            let key = ((*sid).to_owned(), (*id).to_owned());
            if !fake.state().files.contains_key(&key) {
                return absent();
            }
            let mut reply = Reply::new(307, "text/plain", Vec::new());
            reply.headers.push(("Location".into(), format!("{base_url}/files/{sid}.{id}")));
            reply
        }
        _ => absent(),
    }
}

fn numbers(fake: &FakeTwilio, request: &Request) -> Reply {
    let query = url::form_urlencoded::parse(request.query.as_bytes());
    let asked = query.into_owned().find(|(name, _)| name == "PhoneNumber").map(|(_, value)| value);
    let state = fake.state();
    let shown = |number: &&String| asked.as_ref().is_none_or(|asked| asked == *number);
    let number = |number: &String| {
        json!({ "sid": "PN1", "account_sid": ACCOUNT, "phone_number": number, "sms_url": state.webhook, "sms_method": "POST",
            "capabilities": { "sms": true, "mms": true, "voice": true, "fax": false } })
    };
    let all: Vec<Value> = state.numbers.iter().filter(shown).map(number).collect();
    Reply::json(200, &json!({ "incoming_phone_numbers": all, "page": 0, "page_size": 50, "next_page_uri": null }))
}

/// The store of files takes no credentials: its URLs are some.
fn stored_file(fake: &FakeTwilio, id: &str, request: &Request) -> Reply {
    let found = id.split_once('.').and_then(|(sid, id)| {
        let state = fake.state();
        state.files.get(&(sid.to_owned(), id.to_owned())).cloned()
    });
    match found {
        Some(_) if request.header("authorization").is_some_and(|it| !it.contains("Basic")) => {
            Reply::new(400, "application/xml", b"<Error/>".to_vec())
        }
        Some(file) => Reply::new(200, file.mime, file.content.into_bytes()),
        None => Reply::new(404, "application/xml", b"<Error/>".to_vec()),
    }
}
