//! An HTTP server around the fake, on a free port of the loopback interface.

mod control;
mod requests;
mod socket;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use frontdesk_core::Env;
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::api::Answered;
use super::{FakeSlack, people, uploads};
use crate::fakes::serving::clock::Clock;
use crate::fakes::serving::http::{Connection, Reply, Request};
use crate::fakes::serving::multipart;

/// It ends, with its connections, when it is dropped.
pub struct Server {
    /// For the setting `base_url`: with `/api`.
    pub base_url: String,
    pub fake: FakeSlack,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeSlack {
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
        let origin = format!("http://{}", listener.local_addr()?);
        let base_url = format!("{origin}/api");
        let site = Site { fake: self.clone(), clock: Arc::new(clock), origin };
        let task = tokio::spawn(accept(listener, site));
        Ok(Server { base_url, fake: self, task })
    }
}

#[derive(Clone)]
struct Site {
    fake: FakeSlack,
    clock: Arc<Clock>,
    origin: String,
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
        let path = request.path.clone();
        if path.starts_with("/link/") && request.header("upgrade").is_some() {
            return socket::run(site, connection, &request).await;
        }
        let reply = match path.strip_prefix("/control/") {
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
    let now_ms = site.clock.now_ms();
    let token = request.header("authorization").and_then(|it| it.strip_prefix("Bearer ")).unwrap_or_default();
    let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", method] => {
            let mut params = params_of(request);
            let in_body = params.as_object_mut().and_then(|fields| fields.remove("token"));
            let in_body = in_body.as_ref().and_then(Value::as_str).unwrap_or_default();
            let token = if token.is_empty() { in_body } else { token };
            // An app proves itself by fields, or by a header.
            if let (Some((id, secret)), Some(fields)) = (basic(request), params.as_object_mut()) {
                fields.insert("client_id".into(), id.into());
                fields.insert("client_secret".into(), secret.into());
            }
            match site.fake.call(now_ms, &site.origin, token, method, &params) {
                Answered::Json(value) => {
                    let mut reply = Reply::json(200, &value);
                    let scopes = site.fake.state().app.scopes.join(",");
                    if !scopes.is_empty() {
                        reply.headers.push(("x-oauth-scopes".into(), scopes));
                    }
                    Some(reply)
                }
                Answered::Limited(seconds) => {
                    let mut reply = Reply::json(429, &json!({ "ok": false, "error": "ratelimited" }));
                    reply.headers.push(("retry-after".into(), seconds.to_string()));
                    Some(reply)
                }
                Answered::BadGateway => Some(page(502, "bad gateway")),
                Answered::Dropped => None,
            }
        }
        ["upload", "v1", ticket] => {
            let bytes = Bytes::copy_from_slice(&request.body);
            Some(match site.fake.change(|state| uploads::take(state, ticket, bytes)) {
                Ok(length) => Reply::new(200, "text/plain", format!("OK - {length}").into_bytes()),
                Err(status) => page(status, "upload failed"),
            })
        }
        ["files", id, ..] => {
            let state = site.fake.state();
            let team = state.team_of_token(token).map(|team| team.id.clone());
            Some(match state.files.get(*id) {
                None => page(404, "not found"),
                // Without a token there is a page to sign in, as at the real one.
                Some(file) if team.as_deref() != Some(file.team.as_str()) => page(200, "Sign in to Slack"),
                Some(file) => Reply::new(200, file.mime.clone(), file.bytes.to_vec()),
            })
        }
        ["response", id] => {
            let body = serde_json::from_slice(&request.body).unwrap_or_default();
            Some(match site.fake.change(|state| people::respond(state, now_ms, id, &body)) {
                Ok(()) => Reply::new(200, "text/plain", b"ok".to_vec()),
                Err(status) => Reply::json(status, &json!({ "ok": false, "error": "expired_url" })),
            })
        }
        ["oauth", "v2", "authorize"] => Some(page(200, "Do you agree?")),
        _ => Some(page(404, "not found")),
    }
}

/// Name and password of basic authentication.
fn basic(request: &Request) -> Option<(String, String)> {
    let encoded = request.header("authorization")?.strip_prefix("Basic ")?;
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()?;
    text.split_once(':').map(|(name, password)| (name.to_owned(), password.to_owned()))
}

/// Parameters come in the query, as a form, as JSON or as multipart.
fn params_of(request: &Request) -> Value {
    let form = |bytes: &[u8]| -> Map<String, Value> {
        let pairs = url::form_urlencoded::parse(bytes).into_owned();
        pairs.map(|(name, value)| (name, Value::String(value))).collect()
    };
    let mut all = form(request.query.as_bytes());
    let mime = request.header("content-type").unwrap_or_default();
    if mime.starts_with("application/json") {
        if let Ok(Value::Object(fields)) = serde_json::from_slice(&request.body) {
            all.extend(fields);
        }
    } else if mime.starts_with("multipart/form-data") {
        for part in multipart::read(mime, &request.body).unwrap_or_default() {
            all.insert(part.field, String::from_utf8_lossy(part.content).into_owned().into());
        }
    } else {
        all.extend(form(&request.body));
    }
    Value::Object(all)
}

/// Addresses of the server in what the app is told.
fn with_origin(site: &Site, payload: &Value) -> String {
    payload.to_string().replace("{origin}", &site.origin)
}
