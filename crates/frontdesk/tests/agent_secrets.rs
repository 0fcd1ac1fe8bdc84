//! Secrets of agents must not leak: tokens in capability URLs, webhook secrets, keys of connectors. Checked in
//! everything that a real server returns, logs and stores.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod process;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::http::{HeaderMap, StatusCode};
use frontdesk_testkit::folder::{files, holds};
use process::{Desk, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const TIME_LIMIT: Duration = Duration::from_mins(1);
const WEBHOOK_SECRET: &str = "webhook-s3cr3t-0123456789";
const HMAC_SECRET: &str = "hmac-s3cr3t-0123456789";
const AUTHORIZATION: &str = "Bearer authorization-s3cr3t-0123456789";
/// A text that is not secret and must be found, which shows that the checks work.
const PLAIN: &str = "words-in-plain";

/// A client that records all bytes of responses, including headers.
struct RecordingClient {
    desk: Desk,
    received: Arc<Mutex<Vec<u8>>>,
}

impl RecordingClient {
    async fn start(log: &str) -> Self {
        let desk = Desk::start(&[("LOG", log), ("LOG_FILTER", "trace"), ("WAKE_COOLDOWN_MS", "0")]).await;
        Self { desk, received: Arc::default() }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> (u16, HeaderMap, Vec<u8>) {
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.bytes().await.unwrap().to_vec();
        let mut received = self.received.lock().unwrap();
        for (name, value) in &headers {
            received.extend_from_slice(name.as_str().as_bytes());
            received.extend_from_slice(value.as_bytes());
        }
        received.extend_from_slice(&body);
        (status, headers, body)
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.desk.api.client.request(method, format!("{}{path}", self.desk.api.url))
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = self.request(method, path);
        let request = if body.is_null() { request } else { request.json(body) };
        let (status, _, body) = self.send(request).await;
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn admin(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = self.request(method, &format!("/admin/v1{path}")).bearer_auth(&self.desk.api.admin);
        let request = if body.is_null() { request } else { request.json(body) };
        let (status, _, body) = self.send(request).await;
        assert!((200..300).contains(&status), "{path}: {status} {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// Sends bytes that no HTTP library would send.
    async fn raw(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(self.desk.api.url.trim_start_matches("http://")).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(TIME_LIMIT, stream.read_to_end(&mut answer)).await.expect("no response").unwrap();
        self.received.lock().unwrap().extend_from_slice(&answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Opens an event stream and records it.
    async fn follow(&self, request: reqwest::RequestBuilder, words: &'static str) -> tokio::task::JoinHandle<()> {
        let mut answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let received = self.received.clone();
        tokio::spawn(async move {
            let mut came = Vec::new();
            while !holds(&came, words) {
                let chunk = answer.chunk().await.unwrap().expect("the stream ended early");
                received.lock().unwrap().extend_from_slice(&chunk);
                came.extend_from_slice(&chunk);
            }
        })
    }

    /// Calls every route that shows messages, receivers or senders.
    async fn look_at_everything(&self) {
        let shown = self.admin("GET", "/dispatches?tenant=home", &Value::Null).await;
        let shown = shown["dispatches"].as_array().unwrap().clone();
        assert!(!shown.is_empty());
        for one in shown.iter().take(5) {
            let path = format!("/events/{}/explain", one["event_id"].as_str().unwrap());
            self.admin("GET", &path, &Value::Null).await;
        }
        for path in ["/journal", "/instances", "/gateways", "/tokens", "/bots", "/bindings", "/tenants", "/doctor"] {
            self.admin("GET", path, &Value::Null).await;
        }
        for path in ["/metrics", "/openapi.json", "/readyz", "/healthz"] {
            self.send(self.request("GET", path)).await;
        }
        let dispatches = self.request("GET", "/chat/v1/dispatches").bearer_auth(&self.desk.api.chat);
        assert_eq!(self.send(dispatches).await.0, 200);
    }

    /// None of these secrets is in any response, log or file.
    fn nowhere(&self, secrets: &[(&str, &str)]) {
        let received = self.received.lock().unwrap().clone();
        assert!(holds(&received, PLAIN), "no response was recorded");
        let log = std::fs::read(self.desk.folder().join("stderr")).unwrap();
        assert!(holds(&log, "TRACE") && holds(&log, "DEBUG"), "nothing was logged");
        assert!(!holds(&log, "panicked"), "{}", self.desk.log());
        let files = files(self.desk.folder());
        assert!(files.iter().any(|(name, bytes)| name != "stderr" && holds(bytes, PLAIN)), "no file was checked");
        for (what, secret) in secrets {
            assert!(secret.len() > 16, "{what}");
            assert!(!holds(&received, secret), "{what} is in a response");
            for (name, bytes) in &files {
                assert!(!holds(bytes, secret), "{what} is in {name}: {}", around(bytes, secret));
            }
        }
    }
}

/// The context of the secret, for debugging.
fn around(bytes: &[u8], secret: &str) -> String {
    let at = bytes.windows(secret.len()).position(|window| window == secret.as_bytes()).unwrap_or_default();
    let (from, to) = (at.saturating_sub(300), bytes.len().min(at + secret.len() + 100));
    String::from_utf8_lossy(&bytes[from..to]).into_owned()
}

/// Creates a token; returns it with its id.
async fn token(client: &RecordingClient, scope: &str) -> (String, String) {
    let body = json!({ "tenant": process::TENANT, "scope": scope });
    let (status, made) =
        client.desk.api.ask(Method::POST, "/admin/v1/tokens", &client.desk.api.admin, Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{made}");
    let word = |name: &str| made[name].as_str().unwrap().to_owned();
    (word("token"), word("id"))
}

fn augment(dispatch_id: &str, content: &str) -> Value {
    json!({ "kind": "augment", "content": content,
        "meta": { "dispatch_id": dispatch_id, "sent_at": 1, "origin": { "skill_name": "s" } } })
}

// ---- capability URLs ------------------------------------------------------------------------

async fn capability_urls(log: &str) {
    let client = RecordingClient::start(log).await;
    let (good, _) = token(&client, "agents").await;
    let (gone, gone_id) = token(&client, "agents").await;
    let tail = client.request("GET", "/admin/v1/events/stream").bearer_auth(&client.desk.api.admin);
    let tail = client.follow(tail, "\"degraded\"").await;
    let root = format!("/k/{good}");

    // Successful requests.
    let of = |path: &str| format!("{root}{path}");
    for (method, path, body, status) in [
        ("GET", "/v1/health", Value::Null, 200),
        ("PUT", "/v1/agents/ann", json!({ "agent_name": "Ann" }), 200),
        ("GET", "/v1/agents", Value::Null, 200),
        ("GET", "/v1/agents/ann/status", Value::Null, 200),
    ] {
        assert_eq!(client.call(method, &of(path), &body).await.0, status, "{method} {path}");
    }
    let stream = client.request("GET", &of("/v1/agents/ann/inbox/stream?session=tab"));
    let stream = client.follow(stream, "stop-here").await;
    let exchange = |timeout_ms: u64| {
        let mut body = augment("d-2", "anybody?");
        body["meta"]["correlation_id"] = json!("c-1");
        body["timeout_ms"] = json!(timeout_ms);
        body
    };
    for (method, path, body, status) in [
        ("POST", "/v1/agents/ann/deliver", augment("d-1", PLAIN), 200),
        ("POST", "/v1/agents/ann/wake", json!({ "context": "stop-here" }), 200),
        ("POST", "/v1/agents/ann%40elsewhere/wake", json!({ "context": PLAIN }), 200),
        ("POST", "/v1/notify", json!({ "agent": "ann", "message": PLAIN }), 200),
        ("GET", "/v1/agents/ann/inbox?after=0", Value::Null, 200),
        ("PUT", "/v1/skills/hello", json!({ "source": format!("# Skill: hello\n{PLAIN}\n") }), 200),
        ("POST", "/v1/data", json!({ "content": PLAIN }), 201),
        // Failing requests.
        ("POST", "/v1/agents/ann/exchange", exchange(30), 504),
        ("POST", "/v1/agents/nobody/deliver", augment("d-3", PLAIN), 404),
        ("POST", "/v1/agents/ann/deliver", json!({ "kind": "song" }), 422),
        ("POST", "/v1/agents/ann/deliver", json!([1]), 400),
        ("POST", "/v1/agents/ann/replies", json!({ "correlation_id": "c", "content": "late" }), 410),
        ("GET", "/v1/agents/%FF/inbox", Value::Null, 400),
        ("GET", "/v1/agents/nobody/inbox/stream", Value::Null, 404),
        ("GET", "/v1/skills/none", Value::Null, 404),
        ("DELETE", "/v1/skills/hello", Value::Null, 403),
        ("GET", "/v1/nothing/here", Value::Null, 404),
        ("DELETE", "/v1/notify", Value::Null, 405),
    ] {
        let (seen, response) = client.call(method, &of(path), &body).await;
        assert_eq!(seen, status, "{method} {path}: {response}");
    }
    timeout(TIME_LIMIT, stream).await.expect("the text did not arrive in the stream").unwrap();

    // Unknown routes, invalid tokens and similar paths.
    client.admin("DELETE", &format!("/tokens/{gone_id}"), &Value::Null).await;
    assert_eq!(client.call("GET", &format!("/k/{gone}/v1/health"), &Value::Null).await.0, 401);
    for path in [
        root.clone(),
        of("/"),
        of("/admin/v1/tenants"),
        of("/metrics"),
        of("/mcpx"),
        of("/v1"),
        format!("/{root}/v1/health"),
        format!("/K/{good}/v1/health"),
        format!("/k/{good}x/v1/health"),
        format!("/k/%20{good}/v1/health"),
        format!("/v1/health?token={good}"),
        format!("/v1/agents/{good}/k/v1/health"),
        format!("/chat/{good}"),
    ] {
        let (status, _) = client.call("GET", &path, &Value::Null).await;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    let other = client.request("GET", &of("/v1/health")).bearer_auth(&gone);
    assert_eq!(client.send(other).await.0, 400, "two tokens");
    let large = client.request("POST", &of("/v1/data")).header("content-type", "application/json");
    assert_eq!(client.send(large.body(vec![b' '; 9 << 20])).await.0, 413);
    let response =
        client.raw(&format!("GET {root}/v1/he alth HTTP/1.1\r\nHost: desk\r\nConnection: close\r\n\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    let response = client.raw(&format!("GET {root}/v1/health HTTP/1.0\r\n\r\n")).await;
    assert!(response.contains(" 200 "), "{response}");
    let upgrade = "Connection: close, upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    let response = client.raw(&format!("GET {root}/relay HTTP/1.1\r\nHost: desk\r\n{upgrade}\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 4"), "{response}");

    mcp(&client, &of("/mcp")).await;
    timeout(TIME_LIMIT, tail).await.expect("the tail did not report it").unwrap();
    client.look_at_everything().await;
    let secrets = [("the token of a capability URL", good.as_str()), ("a revoked token", &gone)];
    client.nowhere(&secrets);
    end(client, &secrets).await;
}

/// The same URL as MCP: initialized, used correctly and incorrectly, and closed.
async fn mcp(client: &RecordingClient, path: &str) {
    let post = |session: &str, method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = client.request("POST", path).header("accept", "application/json, text/event-stream").json(&body);
        if session.is_empty() { request } else { request.header("mcp-session-id", session) }
    };
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let (status, headers, _) = client.send(post("", "initialize", hello)).await;
    assert_eq!(status, 200);
    let session = headers["mcp-session-id"].to_str().unwrap();
    for (tool, arguments) in [
        ("agent_deliver", json!({ "agent_id": "ann", "content": PLAIN })),
        ("agent_deliver", json!({ "agent_id": "nobody", "content": PLAIN })),
        ("no_such_tool", json!({})),
    ] {
        let call = json!({ "name": tool, "arguments": arguments });
        assert_eq!(client.send(post(session, "tools/call", call)).await.0, 200);
    }
    assert_eq!(client.send(post("nobodys", "tools/list", json!({}))).await.0, 404);
    let broken = client.request("POST", path).header("accept", "text/event-stream, application/json");
    let broken = broken.header("content-type", "application/json").header("mcp-session-id", session).body("{");
    assert!((400..500).contains(&client.send(broken).await.0));
    assert!(client.send(client.request("DELETE", path).header("mcp-session-id", session)).await.0 < 300);
}

/// Stops the server and checks its last log lines and its data folder.
async fn end(mut client: RecordingClient, secrets: &[(&str, &str)]) {
    client.desk.signal("TERM");
    let ended = client.desk.ended(TIME_LIMIT).await.expect("the server did not stop");
    assert!(ended.success(), "{}", client.desk.log());
    client.nowhere(secrets);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_capability_url_does_not_leak_with_text_logs() {
    capability_urls("text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_capability_url_does_not_leak_with_json_logs() {
    capability_urls("json").await;
}

// ---- secrets of agents and their connectors ---------------------------------------------------

/// An agent behind a URL: records request heads and responds as told.
struct Hook {
    url: String,
    heads: Arc<Mutex<Vec<HeaderMap>>>,
    status: Arc<Mutex<StatusCode>>,
}

impl Hook {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let heads: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
        let status = Arc::new(Mutex::new(StatusCode::OK));
        let (kept, says) = (heads.clone(), status.clone());
        let answer = move |headers: HeaderMap| {
            kept.lock().unwrap().push(headers);
            let status = *says.lock().unwrap();
            async move { (status, "{}") }
        };
        let app = axum::Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, heads, status }
    }

    /// Number of requests with the configured keys.
    fn authorized(&self) -> usize {
        let heads = self.heads.lock().unwrap();
        heads.iter().filter(|it| it.get("authorization").is_some_and(|it| it == AUTHORIZATION)).count()
    }
}

async fn secrets_of_agents(log: &str) {
    let mut client = RecordingClient::start(log).await;
    let (token, operator) = (token(&client, "agents").await.0, token(&client, "operator").await.0);
    let hook = Hook::open().await;
    let root = format!("/k/{token}/v1");
    let connector = json!({ "type": "webhook", "url": hook.url, "authorization": AUTHORIZATION,
        "hmac_secret": HMAC_SECRET });
    let put = json!({ "agent_name": PLAIN, "webhook_secret": WEBHOOK_SECRET, "connectors": [connector] });
    let (status, response) = client.call("PUT", &format!("{root}/agents/ann"), &put).await;
    assert_eq!(status, 200, "{response}");
    // Invalid specifications, each for another reason.
    for bad in [
        json!({ "webhook_secret": WEBHOOK_SECRET, "connectors": [{ "type": "webhook", "url": "ftp://x", "authorization": AUTHORIZATION, "hmac_secret": HMAC_SECRET }] }),
        json!({ "webhook_secret": WEBHOOK_SECRET, "connectors": [{ "type": "webhook", "url": hook.url, "authorization": format!("{AUTHORIZATION}\n"), "hmac_secret": HMAC_SECRET }] }),
        json!({ "connectors": [{ "type": "webhook", "url": hook.url, "authorization": [AUTHORIZATION], "hmac_secret": HMAC_SECRET }] }),
        json!({ "connectors": [{ "type": "webhook", "url": hook.url, "hmac_secret": HMAC_SECRET, "pass": AUTHORIZATION }] }),
        json!({ "connectors": [{ "type": AUTHORIZATION, "hmac_secret": HMAC_SECRET }] }),
        json!({ "connectors": AUTHORIZATION }),
        json!({ "webhook_secret": [WEBHOOK_SECRET] }),
    ] {
        let (status, response) = client.call("PUT", &format!("{root}/agents/eve"), &bad).await;
        assert_eq!(status, 400, "{response}");
    }
    let tail = client.request("GET", "/admin/v1/events/stream").bearer_auth(&client.desk.api.admin);
    let tail = client.follow(tail, "webhook: failed").await;

    let signed = |body: &Value, secret: &str| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let body = body.to_string();
        let signature = format!("sha256={}", hex::encode(hmac::sign(&key, body.as_bytes())));
        let request = client.request("POST", &format!("{root}/agents/ann/deliver"));
        request.header("content-type", "application/json").header("x-signature", signature).body(body)
    };
    assert_eq!(client.send(signed(&augment("d-1", PLAIN), WEBHOOK_SECRET)).await.0, 200);
    assert_eq!(client.send(signed(&augment("d-2", PLAIN), "another")).await.0, 401);
    assert_eq!(client.call("POST", &format!("{root}/agents/ann/deliver"), &augment("d-3", PLAIN)).await.0, 401);
    assert!(hook.authorized() >= 1, "the keys were not used");
    assert!(hook.heads.lock().unwrap().iter().any(|head| head.contains_key("x-signature")));
    // The webhook fails: first it refuses, then it is gone.
    *hook.status.lock().unwrap() = StatusCode::UNAUTHORIZED;
    assert_eq!(client.send(signed(&augment("d-4", PLAIN), WEBHOOK_SECRET)).await.0, 200);
    client.call("POST", &format!("{root}/agents/ann/wake"), &json!({ "context": PLAIN })).await;
    client.call("POST", &format!("{root}/notify"), &json!({ "agent": "ann", "message": PLAIN })).await;
    timeout(TIME_LIMIT, tail).await.expect("the tail did not report it").unwrap();
    for path in ["/agents", "/agents/ann", "/agents/ann/status", "/agents/ann/inbox"] {
        assert_eq!(client.call("GET", &format!("{root}{path}"), &Value::Null).await.0, 200, "{path}");
    }
    client.look_at_everything().await;
    let backup = client.desk.folder().join("backup.db");
    client.admin("POST", "/backup", &json!({ "file": backup })).await;
    let secrets = [
        ("the secret of a webhook", WEBHOOK_SECRET),
        ("the key of a connector", HMAC_SECRET),
        ("the authorization of a connector", AUTHORIZATION.trim_start_matches("Bearer ")),
        ("an agents token", &token),
        ("an operator's token", &operator),
    ];
    client.nowhere(&secrets);

    // The secrets are stored, so a restarted server can use them.
    client.desk.kill().await;
    client.desk.start_again().await;
    *hook.status.lock().unwrap() = StatusCode::OK;
    let before = hook.authorized();
    assert_eq!(client.call("POST", &format!("{root}/agents/ann/deliver"), &augment("d-5", PLAIN)).await.0, 401);
    let body = augment("d-6", PLAIN).to_string();
    let key = hmac::Key::new(hmac::HMAC_SHA256, WEBHOOK_SECRET.as_bytes());
    let signature = format!("sha256={}", hex::encode(hmac::sign(&key, body.as_bytes())));
    let request = client.request("POST", &format!("{root}/agents/ann/deliver")).header("x-signature", signature);
    assert_eq!(client.send(request.header("content-type", "application/json").body(body)).await.0, 200);
    until("the hook is called", TIME_LIMIT, async || (hook.authorized() > before).then_some(())).await;
    let delete = client.request("DELETE", "/v1/agents/ann").bearer_auth(&operator);
    assert_eq!(client.send(delete).await.0, 204);
    end(client, &secrets).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_agents_and_connectors_do_not_leak_with_text_logs() {
    secrets_of_agents("text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_agents_and_connectors_do_not_leak_with_json_logs() {
    secrets_of_agents("json").await;
}
