//! Load through a real route: one HTTP request per message, over connections that are kept open.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use frontdesk_core::Env as _;
use frontdesk_platforms::samples;
use frontdesk_platforms::shared::sample::{Said, Sample};
use frontdesk_platforms::shared::standard_webhooks::sign;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::env::SystemEnv;

/// Connections that are open, each with one request at a time.
pub(super) const CONNECTIONS: usize = 64;
/// The paced run starts requests at these times.
const TICK: Duration = Duration::from_millis(1);

/// The route that takes the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// Posts to the built-in chat
    Chat,
    /// Signed webhooks
    Hooks,
    /// What vendors send, for `bench webhooks`
    #[value(skip)]
    Vendors,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct DoorOrders {
    pub(super) door: Door,
    pub(super) address: String,
    /// The chat token, or the key of the webhooks.
    pub(super) secret: String,
    /// The vendors, in turn.
    #[serde(default)]
    pub(super) platforms: Vec<String>,
    pub(super) people: u64,
    pub(super) bytes: usize,
}

/// The bot of each vendor.
pub(super) const BOT: &str = "bench";

/// One message as a request, and its answer.
struct Exchange {
    request: Vec<u8>,
    /// The vendor, by its place in the orders.
    vendor: usize,
    status: u16,
    /// Something in the body of the answer.
    body: &'static str,
}

impl DoorOrders {
    /// `now_us` is in the text: the receiver knows how old it is.
    fn exchange(&self, number: u64, now_us: u128) -> Exchange {
        let person = number % self.people;
        let text = format!("t={now_us}.");
        let (mut vendor, mut status, mut found) = (0, 202, "");
        let (path, headers, body) = match self.door {
            Door::Chat => {
                let path = format!("/chat/v1/chats/c{person}/messages");
                let rest = format!("\"user_id\":\"u{person}\",\"message_id\":\"m{number}\"}}");
                let pad = "x".repeat(self.bytes.saturating_sub(rest.len() + text.len() + 12));
                let headers = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", self.secret);
                (path, headers, format!("{{\"text\":\"{pad}{text}\",{rest}"))
            }
            Door::Hooks => {
                let body = format!("{}{text}", "x".repeat(self.bytes.saturating_sub(text.len())));
                let now_s = SystemEnv.now_ms() / 1_000;
                let id = format!("m{number}");
                let signature = sign(self.secret.as_bytes(), &id, now_s, body.as_bytes());
                let headers =
                    format!("webhook-id: {id}\r\nwebhook-timestamp: {now_s}\r\nwebhook-signature: {signature}\r\n");
                (format!("/hooks/h{person}"), headers, body)
            }
            Door::Vendors => {
                let vendors = self.vendors();
                vendor = usize::try_from(number).unwrap_or_default() % vendors.len();
                let sample = &vendors[vendor];
                (status, found) = sample.answer();
                let public_url = format!("http://{}", self.address);
                let person = number / vendors.len() as u64 % self.people;
                let now_ms = SystemEnv.now_ms();
                let said = Said { bot: BOT, public_url: &public_url, number, person, text: &text, now_ms };
                let made = sample.request(&said);
                (made.path, made.headers, made.body)
            }
        };
        let length = body.len();
        let request = format!("POST {path} HTTP/1.1\r\nHost: desk\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        Exchange { request: request.into_bytes(), vendor, status, body: found }
    }

    /// Those of the orders, in their order.
    fn vendors(&self) -> &'static [Box<dyn Sample>] {
        static VENDORS: OnceLock<Vec<Box<dyn Sample>>> = OnceLock::new();
        VENDORS.get_or_init(|| {
            let is_wanted = |sample: &dyn Sample| self.platforms.iter().any(|name| name == sample.platform());
            samples().into_iter().filter(|sample| is_wanted(&**sample)).collect()
        })
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, read: Vec::with_capacity(4096) })
    }

    /// As fast as the route answers.
    pub(super) async fn flood(&self, span: std::ops::Range<u64>, now_us: impl Fn() -> u128) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        for number in span {
            connection.send(&self.exchange(number, now_us())).await?;
        }
        Ok(())
    }

    /// At a fixed rate: a request that finds no free connection waits, and its latency includes the wait. Returns the
    /// vendor of each request and the microseconds until its answer.
    pub(super) async fn pace(
        &self,
        messages: u64,
        rate: u64,
        now_us: impl Fn() -> u128 + Clone + Send + 'static,
    ) -> anyhow::Result<Vec<(usize, u32)>> {
        // In turn: the server closes a connection that is idle for long.
        let mut free = VecDeque::new();
        for _ in 0..CONNECTIONS {
            free.push_back(self.connect().await?);
        }
        let (give_back, mut free_again) = tokio::sync::mpsc::channel(CONNECTIONS);
        let failed: Arc<Mutex<Option<anyhow::Error>>> = Arc::default();
        let mut took_us = Vec::with_capacity(usize::try_from(messages).unwrap_or_default());
        let mut tick = tokio::time::interval(TICK);
        let began_us = now_us();
        let mut sent = 0;
        while sent < messages {
            tick.tick().await;
            let due = (now_us() - began_us) * u128::from(rate) / 1_000_000;
            let due = u64::try_from(due).unwrap_or(u64::MAX).min(messages);
            while sent < due {
                let made_us = now_us();
                let mut connection = if let Some(connection) = free.pop_front() {
                    connection
                } else {
                    let (connection, took) = free_again.recv().await.context("all connections are gone")?;
                    took_us.push(took);
                    connection
                };
                let exchange = self.exchange(sent, made_us);
                let (give_back, failed, now_us) = (give_back.clone(), failed.clone(), now_us.clone());
                tokio::spawn(async move {
                    match connection.send(&exchange).await {
                        Ok(()) => {
                            let took = u32::try_from(now_us() - made_us).unwrap_or(u32::MAX);
                            drop(give_back.send((connection, (exchange.vendor, took))).await);
                        }
                        Err(error) => *failed.lock().await = Some(error),
                    }
                });
                sent += 1;
            }
            while let Ok((connection, took)) = free_again.try_recv() {
                free.push_back(connection);
                took_us.push(took);
            }
            if let Some(error) = failed.lock().await.take() {
                return Err(error);
            }
        }
        drop(give_back);
        while let Some((_, took)) = free_again.recv().await {
            took_us.push(took);
        }
        match failed.lock().await.take() {
            Some(error) => Err(error),
            None => Ok(took_us),
        }
    }
}

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    /// Sends one request and reads its answer, which must be as expected.
    async fn send(&mut self, exchange: &Exchange) -> anyhow::Result<()> {
        self.stream.write_all(&exchange.request).await?;
        self.read.clear();
        let head = loop {
            ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the server closed the connection");
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = String::from_utf8_lossy(&self.read[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let whole = head + length.context("an answer without a length")?;
        while self.read.len() < whole {
            ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the server closed the connection");
        }
        let body = String::from_utf8_lossy(&self.read[head..whole]);
        if !text.starts_with(&format!("http/1.1 {}", exchange.status)) || !body.contains(exchange.body) {
            bail!("not accepted: {}", String::from_utf8_lossy(&self.read));
        }
        Ok(())
    }
}
