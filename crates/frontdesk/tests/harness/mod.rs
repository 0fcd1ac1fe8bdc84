//! A complete server in the test process, on loopback and with its own data folder. All tests here start with it.
#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

pub(crate) mod homeserver;
mod socket;
mod source;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frontdesk::app::{FIRST_TENANT, Frontdesk};
use frontdesk::config::Config;
use frontdesk::edge::App;
use frontdesk::env::SystemEnv;
use frontdesk_core::Env;
use frontdesk_core::directory::facts::Instance;
use frontdesk_core::directory::{Draft, Fact, View};
use frontdesk_core::port::platform::Platform;
use frontdesk_testkit::{TestEnv, postgres};
use frontdesk_wire::{InstanceNo, Secret, token};
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) use socket::{Frame, Socket, hello, outbound};
pub(crate) use source::Source;

/// Time limit of every wait; the awaited event normally comes much sooner.
pub(crate) const TIME_LIMIT: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// In the refusal of a server that does not know whether its directory is the newest.
const STORE_IS_AWAY: &str = "has not reached its database";
/// Guaranteed time limit of a shutdown.
const STOP_TIME: Duration = Duration::from_secs(10);

pub(crate) struct Harness {
    pub(crate) url: String,
    pub(crate) app: App,
    pub(crate) admin: String,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) client: reqwest::Client,
    /// Everything that the server sent, by HTTP and on sockets.
    pub(crate) received: Arc<Mutex<Vec<u8>>>,
    serving: Option<JoinHandle<()>>,
    /// When something was last repeated because the server had not reached its store, and for how long in all.
    waited: Mutex<(Instant, Duration)>,
}

/// An HTTP response.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{} is not JSON: {:?}", self.status, self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The JSON of a response that must have this status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// The text of a refusal of the form `{"error": "..."}`.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> String {
        let response = self.expect(status);
        assert_eq!(response.as_object().map(serde_json::Map::len), Some(1), "{response}");
        response["error"].as_str().unwrap_or_else(|| panic!("no error in {response}")).to_owned()
    }

    /// The code of a refusal of the form `application/problem+json`.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> String {
        let response = self.expect(status);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(response["status"], status);
        assert!(response["detail"].as_str().is_some_and(|text| !text.is_empty()), "{response}");
        response["code"].as_str().unwrap_or_else(|| panic!("no code in {response}")).to_owned()
    }
}

/// A gateway with its credentials and one linked user.
#[derive(Clone)]
pub(crate) struct GatewayAccount {
    pub(crate) gateway: String,
    pub(crate) secret: String,
    pub(crate) tenant: String,
    /// The linked user, whose messages reach the gateway.
    pub(crate) user: String,
    /// The chat token of its tenant.
    pub(crate) chat: String,
    pub(crate) identity: String,
}

impl GatewayAccount {
    pub(crate) fn bearer(&self) -> String {
        self.bearer_until(0)
    }

    pub(crate) fn bearer_until(&self, exp_s: u64) -> String {
        token::mint(&self.gateway, &Secret::new(self.secret.as_str()), exp_s)
    }
}

impl Harness {
    pub(crate) async fn open() -> Self {
        Self::with(|_| {}).await
    }

    /// A server with changed settings.
    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::again(tempfile::tempdir().unwrap(), change).await
    }

    /// A new server in the data folder of a stopped one, on another port.
    pub(crate) async fn again(folder: tempfile::TempDir, change: impl FnOnce(&mut Config)) -> Self {
        Self::by(Arc::new(SystemEnv), folder, change).await
    }

    /// Moves the clock. By it, the server has not reached a shared store for all that time; here it does at once.
    pub(crate) async fn pass(&self, clock: &TestEnv, ms: u64) {
        clock.advance_ms(ms);
        let desk = &self.app.desk;
        desk.lease().renew().await.unwrap();
        desk.lease().renew().await.unwrap(); // the first one came after the lease had run out
        desk.directory().refresh().await.unwrap();
        desk.lease().note_directory(desk.directory().version());
    }

    /// A server with a manual clock.
    pub(crate) async fn still() -> (Self, Arc<TestEnv>) {
        let clock = Arc::new(TestEnv::default());
        clock.set_ms(SystemEnv.now_ms());
        (Self::by(clock.clone(), tempfile::tempdir().unwrap(), |_| {}).await, clock)
    }

    pub(crate) async fn by(env: Arc<dyn Env>, folder: tempfile::TempDir, change: impl FnOnce(&mut Config)) -> Self {
        Self::running(Vec::new(), env, folder, change).await
    }

    /// A server that runs these platforms as well.
    pub(crate) async fn running(
        platforms: Vec<Arc<dyn Platform>>,
        env: Arc<dyn Env>,
        folder: tempfile::TempDir,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = Config::load(None).unwrap();
        config.data_dir = folder.path().join("data");
        config.listen = "127.0.0.1:0".into();
        config.relay.settle_ms = 0;
        config.outcall.allow = vec!["127.0.0.0/8".into()];
        change(&mut config);
        if let Some(shared) = postgres::shared(&config.data_dir) {
            (config.store.url, config.bus.url) = (shared.store, shared.bus);
        }
        let desk = Frontdesk::open_with(&config, env, platforms).await.unwrap();
        let (app, url, admin) = (desk.app.clone(), desk.url.clone(), desk.admin_token().expose().to_owned());
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .read_timeout(TIME_LIMIT * 2) // not of a whole response: some tests read a stream for minutes
            .pool_idle_timeout(Duration::from_secs(30)) // the server closes idle connections after 75 s
            .build()
            .unwrap();
        let serving = Some(tokio::spawn(desk.serve()));
        Self {
            url,
            app,
            admin,
            folder,
            client,
            received: Arc::default(),
            serving,
            waited: Mutex::new((Instant::now(), Duration::ZERO)),
        }
    }

    /// Stops the server, which must end within the guaranteed time.
    pub(crate) async fn finish(mut self) -> tempfile::TempDir {
        self.app.stop.cancel();
        let serving = self.serving.take().unwrap();
        let ended = timeout(STOP_TIME, serving).await;
        ended.expect("the server did not stop in time").expect("the server panicked");
        let spare = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.folder, spare)
    }

    // ---- HTTP ----------------------------------------------------------------------------

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// Sends a request, and again if the server has lost sight of a shared store: it then refuses everything at its door.
    /// On a busy machine that happens, and every client has to repeat what was refused.
    pub(crate) async fn response(&self, request: RequestBuilder) -> reqwest::Response {
        loop {
            let Some(attempt) = request.try_clone() else { return request.send().await.unwrap() };
            let response = attempt.send().await.unwrap();
            if response.status() != 503 {
                return response;
            }
            let (status, headers) = (response.status(), response.headers().clone());
            let body = response.bytes().await.unwrap();
            if !String::from_utf8_lossy(&body).contains(STORE_IS_AWAY) {
                let mut read = http::Response::new(body);
                (*read.status_mut(), *read.headers_mut()) = (status, headers);
                return read.into();
            }
            self.wait_for_store().await;
        }
    }

    /// Bounded in all of a test: a server that keeps losing its store must not pass.
    async fn wait_for_store(&self) {
        {
            let (last, waited) = &mut *self.waited.lock().unwrap();
            *waited += last.elapsed().min(LOOK_EVERY); // what others wait for at the same time counts once
            *last = Instant::now();
            assert!(*waited < TIME_LIMIT, "the server did not reach its store for {waited:?} of this test");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Reply {
        let response = Box::pin(self.response(request)).await; // large, and in each test many times
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.unwrap().to_vec();
        self.received.lock().unwrap().extend_from_slice(&body);
        Reply { status, headers, body }
    }

    pub(crate) async fn call(&self, method: &str, path: &str, bearer: &str, body: &Value) -> Reply {
        let mut request = self.request(method, path);
        if !bearer.is_empty() {
            request = request.bearer_auth(bearer);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        self.send(request).await
    }

    pub(crate) async fn get(&self, path: &str, bearer: &str) -> Reply {
        self.call("GET", path, bearer, &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, bearer: &str, body: &Value) -> Reply {
        self.call("POST", path, bearer, body).await
    }

    pub(crate) async fn admin(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.call(method, &format!("/admin/v1{path}"), &self.admin, body).await
    }

    /// Value of a metric, named with its labels; 0 if absent.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics", "").await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |number| number.trim().parse().unwrap())
    }

    /// Sends a raw request, whose body the response may cut short; returns the status.
    pub(crate) async fn raw(&self, head: &str, body: Vec<u8>) -> u16 {
        let stream = TcpStream::connect(self.url.trim_start_matches("http://")).await.unwrap();
        let (mut read, mut write) = stream.into_split();
        let head = format!("{head}\r\nHost: desk\r\n\r\n");
        let writing = tokio::spawn(async move {
            let _ = write.write_all(head.as_bytes()).await; // the server may have responded and closed
            let _ = write.write_all(&body).await;
            write
        });
        let mut answer = Vec::new();
        let reading = async {
            while !answer.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                let read = read.read_buf(&mut answer).await.unwrap();
                assert!(read > 0, "incomplete response: {:?}", String::from_utf8_lossy(&answer));
            }
        };
        timeout(TIME_LIMIT, reading).await.expect("no response");
        writing.abort();
        let text = String::from_utf8_lossy(&answer);
        text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status in {text}"))
    }

    // ---- tokens, gateways, users ---------------------------------------------------------

    pub(crate) async fn token(&self, tenant: &str, scope: &str) -> String {
        let made = self.admin("POST", "/tokens", &json!({ "tenant": tenant, "scope": scope })).await.expect(201);
        made["token"].as_str().unwrap().to_owned()
    }

    /// Creates a gateway of the first tenant, with a linked user `u-{gateway}`.
    pub(crate) async fn add_gateway(&self, gateway: &str) -> GatewayAccount {
        self.add_gateway_in(FIRST_TENANT, gateway).await
    }

    pub(crate) async fn add_gateway_in(&self, tenant: &str, gateway: &str) -> GatewayAccount {
        if tenant != FIRST_TENANT {
            let made = self.admin("POST", "/tenants", &json!({ "name": tenant })).await;
            assert!([201, 409].contains(&made.status), "{}", made.text());
        }
        let identity = self.token(tenant, "identity").await;
        let ask = json!({ "gatewayId": gateway, "platform": "relay" });
        let reply = self.post("/relay/provision", &identity, &ask).await.expect(200);
        let user = format!("u-{gateway}");
        self.bind(tenant, &user, gateway).await;
        GatewayAccount {
            gateway: gateway.into(),
            secret: reply["secret"].as_str().unwrap().to_owned(),
            tenant: tenant.into(),
            user,
            chat: self.token(tenant, "chat").await,
            identity,
        }
    }

    pub(crate) async fn bind(&self, tenant: &str, user: &str, instance: &str) {
        let link = json!({ "platform": "relay", "user_id": user, "tenant": tenant, "instance": instance });
        self.admin("POST", "/bindings", &link).await.expect(201);
    }

    /// Creates an instance whose name exists in another tenant too, as in databases of the first release.
    pub(crate) async fn namesake(&self, tenant: &str, name: &str) {
        let [tenant, name] = [tenant, name].map(str::to_owned);
        let fact = Fact::Instance(Instance {
            no: InstanceNo::NONE,
            tenant: tenant.into(),
            name: name.into(),
            wake_url: None,
            left_ms: None,
        });
        let put = |_: &View, draft: &mut Draft| {
            draft.put(fact.clone());
            Ok::<_, std::convert::Infallible>(())
        };
        self.app.desk.directory().write(put).await.unwrap();
    }

    /// Posts a message of the linked user; returns the server's response.
    pub(crate) async fn say(&self, account: &GatewayAccount, chat: &str, text: &str) -> Value {
        let posted = self.say_as(account, chat, json!({ "user_id": account.user, "text": text })).await;
        posted.expect(202)
    }

    pub(crate) async fn say_as(&self, account: &GatewayAccount, chat: &str, body: Value) -> Reply {
        self.post(&format!("/chat/v1/chats/{chat}/messages"), &account.chat, &body).await
    }

    /// The lines of a chat as users see them.
    pub(crate) async fn history(&self, account: &GatewayAccount, chat: &str) -> Vec<Value> {
        let history = self.get(&format!("/chat/v1/chats/{chat}/messages"), &account.chat).await.expect(200);
        history["messages"].as_array().unwrap().clone()
    }

    /// One line of a chat.
    pub(crate) async fn line(&self, account: &GatewayAccount, chat: &str, message_id: &str) -> Value {
        let lines = self.history(account, chat).await;
        let found = lines.iter().find(|line| line["message_id"] == message_id);
        found.unwrap_or_else(|| panic!("no {message_id} in {lines:?}")).clone()
    }

    /// The rows of an instance, oldest first.
    pub(crate) async fn mail(&self, account: &GatewayAccount) -> Vec<Value> {
        let path = format!("/instances/{}/mail?tenant={}", account.gateway, account.tenant);
        let mut rows = self.admin("GET", &path, &Value::Null).await.expect(200)["mail"].as_array().unwrap().clone();
        rows.sort_by_key(|row| row["seq"].as_u64());
        rows
    }

    // ---- sockets -------------------------------------------------------------------------

    pub(crate) async fn dial(&self, bearer: &str) -> Socket {
        self.dial_into(bearer, &self.received).await
    }

    /// A socket whose bytes are kept apart from all others.
    pub(crate) async fn dial_into(&self, bearer: &str, received: &Arc<Mutex<Vec<u8>>>) -> Socket {
        self.dial_with(Some((http::header::AUTHORIZATION, format!("Bearer {bearer}"))), received).await
    }

    pub(crate) async fn dial_without_token(&self) -> Socket {
        self.dial_with(None, &self.received).await
    }

    /// Again, as in `response`, if the server has lost sight of its store. It may have found it by the time that it is looked at.
    async fn dial_with(&self, header: Option<(http::HeaderName, String)>, received: &Arc<Mutex<Vec<u8>>>) -> Socket {
        for attempt in 0.. {
            match Socket::dial_with(&self.url, "/relay", header.clone(), received.clone()).await {
                Err(error) if error.contains("503") && (attempt < 3 || !self.app.desk.directory().is_current()) => {
                    self.wait_for_store().await;
                }
                dialed => return dialed.unwrap(),
            }
        }
        unreachable!()
    }

    /// With the token among the subprotocols, as clients do that cannot set headers.
    pub(crate) async fn dial_by_protocol(&self, offered: &str) -> Socket {
        self.dial_with(Some((http::header::SEC_WEBSOCKET_PROTOCOL, offered.to_owned())), &self.received).await
    }

    /// Connects and sends hello: ready for deliveries.
    pub(crate) async fn socket(&self, account: &GatewayAccount) -> Socket {
        let mut socket = self.dial(&account.bearer()).await;
        socket.hello("relay", "").await;
        socket
    }

    /// Close code and reason of a refused connection.
    pub(crate) async fn refusal(&self, bearer: &str) -> (u16, String) {
        self.dial(bearer).await.closed().await
    }

    pub(crate) async fn open_stream(&self, path: &str, bearer: &str) -> reqwest::Response {
        Box::pin(self.response(self.request("GET", path).bearer_auth(bearer))).await
    }

    /// Reads an event stream until all of these texts were in it; returns what was read.
    pub(crate) async fn stream(&self, path: &str, bearer: &str, words: &[&str]) -> String {
        let mut response = self.open_stream(path, bearer).await;
        assert_eq!(response.status(), 200);
        self.follow(&mut response, words).await
    }

    pub(crate) async fn follow(&self, response: &mut reqwest::Response, words: &[&str]) -> String {
        let mut came = String::new();
        let mut missing = words.to_vec();
        let longest = words.iter().map(|word| word.len()).max().unwrap_or(0);
        let reading = async {
            while !missing.is_empty() {
                let chunk = response.chunk().await.unwrap().expect("the stream ended early");
                self.received.lock().unwrap().extend_from_slice(&chunk);
                // Only where a word can have become complete: streams may be long.
                let from = came.floor_char_boundary(came.len().saturating_sub(longest));
                came.push_str(&String::from_utf8_lossy(&chunk));
                missing.retain(|word| !came[from..].contains(word));
            }
        };
        let in_time = timeout(TIME_LIMIT, reading).await.is_ok();
        assert!(in_time, "{words:?} were not all received: {came}");
        came
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.app.stop.cancel();
        assert!(self.serving.is_none() || std::thread::panicking(), "a test must end with finish()");
    }
}
