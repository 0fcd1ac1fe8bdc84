//! The server as a separate process, its APIs as a script uses them, and gateways on raw sockets.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

pub(crate) mod cluster;

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use frontdesk_wire::frame::GatewayLine;
use frontdesk_wire::lines::Lines;
use frontdesk_wire::{Secret, token};
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_websockets::{ClientBuilder, MaybeTlsStream, Message, WebSocketStream};

/// The tenant of a new server.
pub(crate) const TENANT: &str = "home";
/// Time limit of a start, which is long for machines that compile at the same time.
const START_TIME: Duration = Duration::from_mins(1);
/// Time limit of an answer. Long, because it costs nothing where all is well.
const TIME_LIMIT: Duration = Duration::from_mins(1);
/// How often a condition without notification is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

// ---- the server -------------------------------------------------------------------------------

/// `frontdesk serve` in its own data folder. It keeps its port over restarts.
pub(crate) struct Desk {
    child: Child,
    pub(crate) api: Api,
    address: String,
    settings: Vec<(String, String)>,
    folder: tempfile::TempDir,
}

impl Desk {
    /// `settings` are `FRONTDESK_` variables without their prefix.
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut all = vec![
            ("RELAY_SETTLE_MS".to_owned(), "0".to_owned()),
            ("OUTCALL_ALLOW".to_owned(), "127.0.0.0/8".to_owned()),
        ];
        all.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut child = spawn(folder.path(), "127.0.0.1:0", &all);
        let url = ready(&mut child).await.unwrap_or_else(|error| panic!("{error:#}\n{}", log(folder.path())));
        let token_file = all.iter().find(|(name, _)| name == "KEYS_ADMIN_TOKEN_FILE").map(|(_, file)| file.into());
        let token_file = token_file.unwrap_or_else(|| folder.path().join("admin.token"));
        let admin = std::fs::read_to_string(token_file).unwrap().trim().to_owned();
        let mut api = Api { client: client(), url, admin, chat: String::new(), identity: String::new() };
        api.chat = api.token("chat").await;
        api.identity = api.token("identity").await;
        let address = api.url.trim_start_matches("http://").to_owned();
        Self { child, api, address, settings: all, folder }
    }

    /// Sends SIGKILL.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Starts it again in the same folder and on the same port, after it ended.
    pub(crate) async fn start_again(&mut self) {
        let began = Instant::now();
        loop {
            self.child = spawn(self.folder.path(), &self.address, &self.settings);
            match ready(&mut self.child).await {
                Ok(_) => return,
                // Another client on this machine may use our port for a moment.
                Err(_) if began.elapsed() < START_TIME => sleep(LOOK_EVERY).await,
                Err(error) => panic!("{error:#}\n{}", self.log()),
            }
        }
    }

    /// Starts it and kills it so early that it may not be ready.
    pub(crate) async fn stumble(&mut self, after: Duration) {
        self.child = spawn(self.folder.path(), &self.address, &self.settings);
        sleep(after).await;
        self.kill().await;
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id().expect("the server runs"), name);
    }

    /// Its exit status, if it ends in time.
    pub(crate) async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        timeout(within, self.child.wait()).await.ok().map(Result::unwrap)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The last part of stderr of all its runs, for messages of failed tests.
    pub(crate) fn log(&self) -> String {
        log(self.folder.path())
    }
}

fn spawn(folder: &Path, address: &str, settings: &[(String, String)]) -> Child {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("stderr")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_frontdesk"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FRONTDESK_")) {
        command.env_remove(name);
    }
    command.args(["serve", "--listen", address, "--data-dir"]).arg(folder);
    command.envs(settings.iter().map(|(name, value)| (format!("FRONTDESK_{name}"), value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
    command.spawn().unwrap()
}

/// The URL that it prints, once, when it is ready.
async fn ready(child: &mut Child) -> anyhow::Result<String> {
    let mut said = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
    let first = timeout(START_TIME, said.next_line()).await.context("the server did not start in time")??;
    let first = first.context("the server ended before it was ready")?;
    let url = first.strip_prefix("frontdesk ready ").with_context(|| format!("unexpected first line {first:?}"))?;
    Ok(url.to_owned())
}

fn log(folder: &Path) -> String {
    let all = std::fs::read_to_string(folder.join("stderr")).unwrap_or_default();
    let lines: Vec<&str> = all.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Uses the shell, which knows all signals by name.
pub(crate) fn signal(process: u32, name: &str) {
    let sent = std::process::Command::new("sh").arg("-c").arg(format!("kill -{name} {process}")).status().unwrap();
    assert!(sent.success(), "sending SIG{name} to {process} failed");
}

fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .timeout(TIME_LIMIT)
        .pool_idle_timeout(Duration::from_secs(30))
        .build()
        .unwrap()
}

// ---- its APIs ---------------------------------------------------------------------------------

/// A client of the server: its address and tokens. It survives restarts of the server.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) client: reqwest::Client,
    pub(crate) url: String,
    pub(crate) admin: String,
    pub(crate) chat: String,
    identity: String,
}

/// Credentials of a gateway.
#[derive(Clone)]
pub(crate) struct GatewayAccount {
    pub(crate) gateway: String,
    pub(crate) secret: String,
}

impl Api {
    /// A client with its own connections.
    pub(crate) fn apart(&self) -> Self {
        Self { client: client(), ..self.clone() }
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        bearer: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let mut request = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(bearer);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let text = answer.text().await?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    pub(crate) async fn look(&self, path: &str) -> Value {
        self.expect(200, Method::GET, path, &self.admin, None).await
    }

    /// Asks again while the server says that it cannot answer now, as one of a cluster does after a stall of its machine.
    pub(crate) async fn answer(&self, method: Method, path: &str, bearer: &str, body: Option<&Value>) -> (u16, Value) {
        let answered = async || {
            let (status, body) = self.ask(method.clone(), path, bearer, body).await.unwrap();
            (status != 503).then_some((status, body))
        };
        until(path, TIME_LIMIT, answered).await
    }

    async fn expect(&self, expected: u16, method: Method, path: &str, bearer: &str, body: Option<&Value>) -> Value {
        let (status, body) = self.answer(method, path, bearer, body).await;
        assert_eq!(status, expected, "{path}: {body}");
        body
    }

    /// A token with which an agent arms its alarms.
    pub(crate) async fn identity_of(&self, instance: &str) -> String {
        self.make_token(json!({ "tenant": TENANT, "scope": "identity", "instance": instance })).await
    }

    async fn token(&self, scope: &str) -> String {
        self.make_token(json!({ "tenant": TENANT, "scope": scope })).await
    }

    async fn make_token(&self, body: Value) -> String {
        let made = self.expect(201, Method::POST, "/admin/v1/tokens", &self.admin, Some(&body)).await;
        made["token"].as_str().unwrap().to_owned()
    }

    /// Creates an instance with its gateway (of the same name) and a linked user `u-NAME`.
    pub(crate) async fn add_gateway(&self, instance: &str, wake_url: Option<&str>) -> GatewayAccount {
        let body = json!({
            "gatewayId": instance, "platform": "relay", "botId": "", "gatewayEndpoint": "http://127.0.0.1:9",
            "routeKeys": [], "instanceId": instance, "wakeUrl": wake_url,
        });
        let provisioned = self.expect(200, Method::POST, "/relay/provision", &self.identity, Some(&body)).await;
        let link = json!({ "platform": "relay", "user_id": person(instance), "tenant": TENANT, "instance": instance });
        self.expect(201, Method::POST, "/admin/v1/bindings", &self.admin, Some(&link)).await;
        GatewayAccount { gateway: instance.to_owned(), secret: provisioned["secret"].as_str().unwrap().to_owned() }
    }

    /// Posts once. `Ok` with the response only if the server accepted the message.
    pub(crate) async fn try_post(&self, chat: &str, user: &str, id: &str, text: &str) -> anyhow::Result<Value> {
        let body = json!({ "user_id": user, "text": text, "message_id": id });
        let path = format!("/chat/v1/chats/{chat}/messages");
        let (status, answer) = self.ask(Method::POST, &path, &self.chat, Some(&body)).await?;
        match status {
            202 => Ok(answer),
            500.. => bail!("{status}: {answer}"),
            _ => panic!("the server refused a message of {user}: {status} {answer}"),
        }
    }

    /// Posts until the server accepts it, as long as it says that it cannot now. The id makes it one message.
    pub(crate) async fn post(&self, chat: &str, user: &str, id: &str, text: &str) -> Value {
        let began = Instant::now();
        loop {
            match self.try_post(chat, user, id, text).await {
                Ok(answer) => return answer,
                Err(error) if error.to_string().starts_with("503") && began.elapsed() < TIME_LIMIT => {
                    sleep(LOOK_EVERY).await;
                }
                Err(error) => panic!("{id}: {error:#}"),
            }
        }
    }

    /// The newest page of an instance's rows.
    pub(crate) async fn try_mail(&self, instance: &str, state: &str, before: u64) -> anyhow::Result<Vec<Value>> {
        let state = if state.is_empty() { String::new() } else { format!("&state={state}") };
        let path = format!("/admin/v1/instances/{instance}/mail?before={before}{state}");
        let (status, mut page) = self.ask(Method::GET, &path, &self.admin, None).await?;
        match page["mail"].take() {
            Value::Array(rows) if status == 200 => Ok(rows),
            _ => bail!("{status}: {page}"),
        }
    }

    /// All rows, newest first.
    pub(crate) async fn mail(&self, instance: &str, state: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let before = all.last().map_or(0, |row| row["seq"].as_u64().unwrap());
            let page = self.try_mail(instance, state, before).await.unwrap();
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    /// Number of waiting rows of an instance.
    pub(crate) async fn waiting(&self, instance: &str) -> u64 {
        let all = self.look("/admin/v1/instances").await;
        let found = all["instances"].as_array().unwrap().iter().find(|it| it["instance"] == instance);
        found.expect("the instance is listed")["waiting"].as_u64().unwrap()
    }

    pub(crate) async fn connected(&self, gateway: &str) -> bool {
        self.look(&format!("/admin/v1/gateways/{gateway}")).await["connected"].as_bool().unwrap()
    }

    /// All lines of a chat, oldest first.
    pub(crate) async fn history(&self, chat: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = all.last().map_or(0, |line| line["seq"].as_u64().unwrap());
            let path = format!("/chat/v1/chats/{chat}/messages?after={after}");
            let (status, mut page) = self.ask(Method::GET, &path, &self.chat, None).await.unwrap();
            assert_eq!(status, 200, "{page}");
            match page["messages"].take() {
                Value::Array(lines) if !lines.is_empty() => all.extend(lines),
                _ => return all,
            }
        }
    }

    /// A value of `/metrics`, by its full name with labels; 0 if absent.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.ask(Method::GET, "/metrics", "", None).await.unwrap();
        let text = text.as_str().unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

/// The user who is linked to an instance.
pub(crate) fn person(instance: &str) -> String {
    format!("u-{instance}")
}

// ---- a gateway --------------------------------------------------------------------------------

/// A relay socket after its hello.
pub(crate) struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    lines: Lines,
    frames: VecDeque<Value>,
}

#[derive(Debug)]
pub(crate) enum Received {
    Row {
        buffer_id: String,
        message_id: String,
        text: String,
        media_urls: Vec<String>,
    },
    Frame(Value),
    /// The close code, if the server sent one.
    Closed(Option<u16>),
}

impl Socket {
    /// Connects and sends hello; the descriptor has been read.
    pub(crate) async fn dial(url: &str, account: &GatewayAccount) -> anyhow::Result<Self> {
        let uri: http::Uri = format!("{}/relay", url.replacen("http", "ws", 1)).parse()?;
        let bearer = format!("Bearer {}", token::mint(&account.gateway, &Secret::new(account.secret.as_str()), 0));
        let builder = ClientBuilder::from_uri(uri).add_header(http::header::AUTHORIZATION, bearer.parse()?)?;
        let (stream, _) = timeout(TIME_LIMIT, builder.connect()).await??;
        let mut socket = Self { stream, lines: Lines::new(1 << 20), frames: VecDeque::new() };
        socket.say(&GatewayLine::Hello { platform: "relay", bot_id: "", ready: false }.line()).await?;
        match timeout(TIME_LIMIT, socket.receive()).await? {
            Received::Frame(frame) if frame["type"] == "descriptor" => Ok(socket),
            other => bail!("no descriptor: {other:?}"),
        }
    }

    pub(crate) async fn say(&mut self, line: &str) -> anyhow::Result<()> {
        Ok(self.stream.send(Message::text(line.to_owned())).await?)
    }

    pub(crate) async fn ack(&mut self, buffer_id: &str) -> anyhow::Result<()> {
        self.say(&GatewayLine::InboundAck { buffer_id }.line()).await
    }

    /// Sends a close and drops the socket.
    pub(crate) async fn hang_up(mut self) {
        let _ = timeout(Duration::from_secs(1), self.stream.close()).await; // the server may already be gone
    }

    /// The next frame. Cancel-safe.
    pub(crate) async fn receive(&mut self) -> Received {
        loop {
            if let Some(mut frame) = self.frames.pop_front() {
                if frame["type"] != "inbound" {
                    return Received::Frame(frame);
                }
                let word = |value: &mut Value| match value.take() {
                    Value::String(text) => text,
                    other => panic!("{other} is not text"),
                };
                let buffer_id = word(&mut frame["bufferId"]);
                let event = &mut frame["event"];
                let media_urls = event.get_mut("media_urls").map(Value::take).unwrap_or_default();
                return Received::Row {
                    buffer_id,
                    message_id: word(&mut event["message_id"]),
                    text: word(&mut event["text"]),
                    media_urls: serde_json::from_value(media_urls).unwrap_or_default(),
                };
            }
            match self.stream.next().await {
                None | Some(Err(_)) => return Received::Closed(None),
                Some(Ok(message)) => {
                    if let Some((code, _)) = message.as_close() {
                        return Received::Closed(Some(code.into()));
                    }
                    let Some(text) = message.as_text() else { continue };
                    let frames = &mut self.frames;
                    let whole = self.lines.push(text, |line| frames.push_back(serde_json::from_str(line).unwrap()));
                    whole.expect("a frame is over the limit");
                }
            }
        }
    }

    /// The next row, if one arrives in time.
    pub(crate) async fn row(&mut self, within: Duration) -> Option<(String, String)> {
        let next = async {
            loop {
                match self.receive().await {
                    Received::Row { buffer_id, message_id, .. } => return Some((buffer_id, message_id)),
                    Received::Frame(_) => {}
                    Received::Closed(_) => return None,
                }
            }
        };
        timeout(within, next).await.ok().flatten()
    }

    /// Takes and acks this many rows; returns their message ids.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<String> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let next = self.row(TIME_LIMIT).await;
            let (buffer_id, message_id) = next.unwrap_or_else(|| panic!("only {taken:?} of {count} received"));
            self.ack(&buffer_id).await.unwrap();
            taken.push(message_id);
        }
        taken
    }
}

// ---- other ------------------------------------------------------------------------------------

/// Polls until there is a result. Panics with this text when the time is up.
pub(crate) async fn until<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        sleep(LOOK_EVERY).await;
    }
}

/// Pseudorandom numbers, the same for the same seed (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 0 to below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }
}
