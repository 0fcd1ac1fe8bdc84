//! An HTTP server around the fake, on a free port of the loopback interface.

mod control;
mod requests;
mod socket;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use frontdesk_core::Env;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::FakeFeishu;
use super::api::{Answered, Asked};
use super::faults::Fault;
use crate::fakes::serving::clock::Clock;
use crate::fakes::serving::http::{Connection, Reply, Request};
use crate::fakes::serving::multipart;

/// It ends, with its connections, when it is dropped.
pub struct Server {
    /// For the setting `base_url`: scheme, host and port.
    pub base_url: String,
    pub fake: FakeFeishu,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeFeishu {
    /// With the time of this machine.
    pub async fn serve(self) -> io::Result<Server> {
        self.serve_by(Clock::of_machine()).await
    }

    /// With the time of this environment; a test moves it.
    pub async fn serve_with(self, env: Arc<dyn Env>) -> io::Result<Server> {
        self.serve_by(Clock::of(env)).await
    }

    async fn serve_by(self, clock: Clock) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let host = listener.local_addr()?.to_string();
        let site = Site { fake: self.clone(), clock: Arc::new(clock), host: host.clone() };
        let task = tokio::spawn(accept(listener, site));
        Ok(Server { base_url: format!("http://{host}"), fake: self, task })
    }
}

#[derive(Clone)]
struct Site {
    fake: FakeFeishu,
    clock: Arc<Clock>,
    host: String,
}

async fn accept(listener: TcpListener, site: Site) {
    // Aborted with this task, because the set is dropped with it.
    let mut tasks = JoinSet::new();
    tasks.spawn(requests::run(site.clone()));
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => { tasks.spawn(converse(stream, site.clone())); }
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Requests of one connection, one after the other. What is not HTTP ends it.
async fn converse(stream: TcpStream, site: Site) {
    let mut connection = Connection::new(stream);
    while let Ok(Some(request)) = connection.request().await {
        if request.path == "/ws" && request.header("upgrade").is_some() {
            return socket::run(site, connection, &request).await;
        }
        let reply = match request.path.strip_prefix("/control/") {
            Some(_) => Some(control::answer(&site, &request).await),
            None => answer(&site, &request),
        };
        let is_last = request.header("connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
        match reply {
            Some(reply) if connection.reply(&reply).await.is_ok() && !is_last => {}
            _ => return,
        }
    }
}

fn page(status: u16, text: &str) -> Reply {
    Reply::new(status, "text/html; charset=utf-8", format!("<html>{text}").into_bytes())
}

/// `None`: the connection is closed without an answer.
fn answer(site: &Site, request: &Request) -> Option<Reply> {
    if request.path == "/callback/ws/endpoint" {
        return endpoint(site, request);
    }
    let Some(path) = request.path.strip_prefix("/open-apis/") else { return Some(page(404, "not found")) };
    let asked = asked(request, path);
    match site.fake.call(site.clock.now_ms(), &asked) {
        Answered::Json(status, value) => Some(Reply::json(status, &value)),
        Answered::Limited(seconds) => {
            let mut reply = Reply::json(429, &json!({ "code": 99_991_400, "msg": "request trigger frequency limit" }));
            reply.headers.push(("x-ogw-ratelimit-reset".into(), seconds.to_string()));
            Some(reply)
        }
        Answered::File { name, mime, bytes } => {
            let mut reply = Reply::new(200, mime, bytes.to_vec());
            reply.headers.push(("Content-Disposition".into(), format!("attachment; filename=\"{name}\"")));
            Some(reply)
        }
        Answered::BadGateway => Some(page(502, "bad gateway")),
        Answered::Dropped => None,
    }
}

fn asked(request: &Request, path: &str) -> Asked {
    let query = url::form_urlencoded::parse(request.query.as_bytes()).into_owned().collect();
    let token = request.header("authorization").and_then(|it| it.strip_prefix("Bearer ")).unwrap_or_default();
    let mime = request.header("content-type").unwrap_or_default();
    let (mut body, mut file) = (json!({}), None);
    if mime.starts_with("multipart/form-data") {
        for part in multipart::read(mime, &request.body).unwrap_or_default() {
            // The vendor's library sends files without a name, if they have none.
            if part.filename.is_some() || matches!(part.field.as_str(), "image" | "file") {
                let name = part.filename.unwrap_or_else(|| "unnamed".to_owned());
                file = Some((name, part.mime, Bytes::copy_from_slice(part.content)));
            } else {
                body[part.field] = String::from_utf8_lossy(part.content).into_owned().into();
            }
        }
    } else if !request.body.is_empty() {
        body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    }
    Asked { method: request.method.clone(), path: path.to_owned(), query, token: token.to_owned(), body, file }
}

/// Where the socket is. The address has a ticket in it.
fn endpoint(site: &Site, request: &Request) -> Option<Reply> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let fault = site.fake.change(|state| state.faults.take("POST callback/ws/endpoint"));
    let app = site.fake.state().app.clone();
    let refused = |code: i64, text: &str| Some(Reply::json(200, &json!({ "code": code, "msg": text })));
    match fault {
        Some(Fault::Code { code }) => return refused(code, "refused by the fake"),
        Some(Fault::BadGateway) => return Some(page(502, "bad gateway")),
        Some(_) => return None,
        None => {}
    }
    if body["AppID"] != app.id.as_str() || body["AppSecret"] != app.secret.as_str() {
        return refused(514, "app_id or app_secret is invalid");
    }
    let url = format!("ws://{}/ws?device_id=1&access_key={}&service_id=33554678&ticket=x", site.host, app.secret);
    let ping_s = if app.ping_s == 0 { 120 } else { app.ping_s };
    let config = json!({ "ReconnectCount": -1, "ReconnectInterval": 1, "ReconnectNonce": 0, "PingInterval": ping_s });
    Some(Reply::json(200, &json!({ "code": 0, "msg": "", "data": { "URL": url, "ClientConfig": config } })))
}
