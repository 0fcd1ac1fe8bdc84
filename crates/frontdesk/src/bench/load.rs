//! The load process: many gateways that take and ack, and a feed that sends. It must not disturb what it measures, so
//! it reads only what it needs of each line.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use frontdesk_wire::{Secret, token};
use futures_util::{SinkExt as _, StreamExt as _};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_websockets::{ClientBuilder, MaybeTlsStream, Message, WebSocketStream};

use super::door::{CONNECTIONS, DoorOrders};
use super::report::quantile;
use super::stage::{Gateway, tenant_of};
use crate::print::out_line;

/// Events per batch of the flood, and connections that feed it.
const FLOOD_BATCH: u64 = 256;
const FEEDS: u64 = 8;
/// Batches of the paced run: one per tick.
const TICK: Duration = Duration::from_millis(1);
/// Sockets that dial at once.
const DIALS: usize = 64;

#[derive(Serialize, Deserialize)]
pub(super) struct LoadOrders {
    /// Of each server. Gateways dial them in turn.
    pub(super) urls: Vec<String>,
    /// Of each server, or none.
    pub(super) feeds: Vec<SocketAddr>,
    /// Instead of the feed.
    #[serde(default)]
    pub(super) door: Option<DoorOrders>,
    pub(super) gateways: Vec<Gateway>,
    /// Each gateway is in a tenant of its own.
    #[serde(default)]
    pub(super) in_tenants: bool,
    pub(super) messages: u64,
    pub(super) bytes: usize,
    pub(super) rate: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct LoadReady {
    sockets: usize,
}

#[derive(Serialize, Deserialize)]
pub(super) struct LoadDone {
    pub(super) seconds: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) p999_ms: f64,
    pub(super) max_ms: f64,
    /// By vendor, in the order of the orders: p99.9 and the longest.
    #[serde(default)]
    pub(super) vendors: Vec<(f64, f64)>,
}

pub fn load() -> anyhow::Result<()> {
    let orders: LoadOrders =
        serde_json::from_reader(std::io::stdin()).context("the parameters on stdin are not valid JSON")?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(orders))
}

/// What all tasks of the load share.
struct Run {
    began: Instant,
    taken: AtomicU64,
    messages: u64,
    all: Notify,
}

async fn run(orders: LoadOrders) -> anyhow::Result<()> {
    let run = Arc::new(Run {
        began: Instant::now(),
        taken: AtomicU64::new(0),
        messages: orders.messages,
        all: Notify::new(),
    });
    let placed = orders.urls.iter().cycle().zip(&orders.gateways);
    let dials = futures_util::stream::iter(placed).map(|(url, gateway)| dial(url, gateway));
    let mut dials = dials.buffer_unordered(DIALS);
    let mut sockets = Vec::new();
    while let Some(socket) = dials.next().await {
        sockets.push(socket?);
    }
    drop(dials);
    say(&LoadReady { sockets: sockets.len() })?;
    for socket in sockets {
        tokio::spawn(take(run.clone(), socket)); // they end with this process
    }
    if let Some(door) = &orders.door {
        return through_door(&run, door, &orders).await;
    }
    if orders.feeds.is_empty() {
        return std::future::pending().await; // idle until the bench ends us
    }
    let began = run.began.elapsed();
    let source = Source {
        servers: orders.feeds.len() as u64,
        people: orders.gateways.len() as u64,
        in_tenants: orders.in_tenants,
        bytes: orders.bytes,
    };
    match orders.rate {
        None => {
            let mut feeds = Vec::new();
            for number in 0..FEEDS {
                let span = (orders.messages * number / FEEDS)..(orders.messages * (number + 1) / FEEDS);
                let server = number % source.servers;
                let feed = orders.feeds[usize::try_from(server)?];
                feeds.push(tokio::spawn(flood(run.clone(), feed, span, source, server)));
            }
            for feed in feeds {
                feed.await??;
            }
        }
        Some(rate) => pace(&run, &orders.feeds, rate, source).await?,
    }
    finish(&run, began).await
}

/// One request a message.
async fn through_door(run: &Arc<Run>, door: &DoorOrders, orders: &LoadOrders) -> anyhow::Result<()> {
    let began = run.began.elapsed();
    let since = run.began;
    let now_us = move || since.elapsed().as_micros();
    if let Some(rate) = orders.rate {
        let took_us = door.pace(orders.messages, rate, now_us).await?;
        if orders.gateways.is_empty() {
            return say(&answered(run, began, &took_us, door.platforms.len())); // no agent takes the messages
        }
        return finish(run, began).await;
    }
    let mut connections = Vec::new();
    let count = CONNECTIONS as u64;
    for number in 0..count {
        let span = (orders.messages * number / count)..(orders.messages * (number + 1) / count);
        let door = door.clone();
        connections.push(tokio::spawn(async move { door.flood(span, now_us).await }));
    }
    for connection in connections {
        connection.await??;
    }
    finish(run, began).await
}

/// All messages were taken: reports the time of that and their latencies.
async fn finish(run: &Run, began: Duration) -> anyhow::Result<()> {
    while run.taken.load(Ordering::Relaxed) < run.messages {
        run.all.notified().await;
    }
    say(&done(run, began, TIMES.with_borrow_mut(std::mem::take)))
}

fn done(run: &Run, began: Duration, mut micros: Vec<u32>) -> LoadDone {
    let seconds = run.began.elapsed().saturating_sub(began).as_secs_f64();
    micros.sort_unstable();
    let ms = |part| f64::from(quantile(&micros, part)) / 1000.0;
    let vendors = Vec::new();
    LoadDone { seconds, p50_ms: ms(0.5), p99_ms: ms(0.99), p999_ms: ms(0.999), max_ms: ms(1.0), vendors }
}

/// The answers are measured: vendor and microseconds of each.
fn answered(run: &Run, began: Duration, took_us: &[(usize, u32)], vendors: usize) -> LoadDone {
    let micros = |of: Option<usize>| -> Vec<u32> {
        took_us.iter().filter(|(vendor, _)| of.is_none_or(|of| of == *vendor)).map(|(_, took)| *took).collect()
    };
    let each = (0..vendors).map(|vendor| {
        let one = done(run, began, micros(Some(vendor)));
        (one.p999_ms, one.max_ms)
    });
    LoadDone { vendors: each.collect(), ..done(run, began, micros(None)) }
}

thread_local! {
    /// One thread runs everything here, so a plain list will do.
    static TIMES: std::cell::RefCell<Vec<u32>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn say(what: &impl Serialize) -> anyhow::Result<()> {
    out_line!("{}", serde_json::to_string(what)?);
    Ok(())
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn dial(url: &str, gateway: &Gateway) -> anyhow::Result<Socket> {
    let uri: http::Uri = format!("{}/relay", url.replacen("http", "ws", 1)).parse()?;
    let bearer = format!("Bearer {}", token::mint(&gateway.id, &Secret::new(gateway.secret.as_str()), 0));
    let builder = ClientBuilder::from_uri(uri).add_header(http::header::AUTHORIZATION, bearer.parse()?)?;
    let (mut socket, _) = builder.connect().await?;
    socket.send(Message::text("{\"type\":\"hello\",\"platform\":\"relay\",\"botId\":\"\"}\n")).await?;
    socket.next().await.context("the server sent no descriptor frame")??;
    Ok(socket)
}

/// Takes deliveries, notes how old they are, acks all of one message in one message.
async fn take(run: Arc<Run>, mut socket: Socket) {
    while let Some(Ok(message)) = socket.next().await {
        let Some(text) = message.as_text() else { continue };
        let now = run.began.elapsed();
        let mut acks = String::new();
        let mut taken = 0;
        TIMES.with_borrow_mut(|times| {
            for line in text.lines() {
                let Some((_, id)) = line.rsplit_once("\"bufferId\":\"") else { continue };
                acks.push_str("{\"type\":\"inbound_ack\",\"bufferId\":\"");
                acks.push_str(id.trim_end_matches("\"}"));
                acks.push_str("\"}\n");
                taken += 1;
                let sent = line.split_once("t=").and_then(|(_, rest)| rest.split('.').next()?.parse::<u64>().ok());
                let age = now.saturating_sub(Duration::from_micros(sent.unwrap_or(0)));
                times.push(u32::try_from(age.as_micros()).unwrap_or(u32::MAX));
            }
        });
        if taken > 0 && socket.send(Message::text(acks)).await.is_err() {
            break;
        }
        if run.taken.fetch_add(taken, Ordering::Relaxed) + taken >= run.messages {
            run.all.notify_one();
        }
    }
}

/// As fast as the server accepts them, two batches ahead of its answers.
async fn flood(
    run: Arc<Run>,
    feed: SocketAddr,
    span: std::ops::Range<u64>,
    source: Source,
    server: u64,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(feed).await?;
    stream.set_nodelay(true)?;
    let (mut next, mut unanswered) = (span.start, 0);
    let mut answer = [0; 3];
    while next < span.end || unanswered > 0 {
        if next < span.end && unanswered < 2 {
            let end = (next + FLOOD_BATCH).min(span.end);
            stream.write_all(source.batch(&run, next..end, server).as_bytes()).await?;
            next = end;
            unanswered += 1;
        } else {
            stream.read_exact(&mut answer).await?;
            unanswered -= 1;
        }
    }
    Ok(())
}

/// At a fixed rate, however late the server is. Over several connections in turn, as from many chats: one batch does
/// not wait for the commit of another.
async fn pace(run: &Run, feeds: &[SocketAddr], rate: u64, source: Source) -> anyhow::Result<()> {
    let (mut writers, mut answers) = (Vec::new(), Vec::new());
    for number in 0..usize::try_from(FEEDS)? {
        let stream = TcpStream::connect(feeds[number % feeds.len()]).await?;
        stream.set_nodelay(true)?;
        let (mut read, write) = stream.into_split();
        writers.push(write);
        answers.push(tokio::spawn(async move {
            let mut answer = Vec::new();
            read.read_to_end(&mut answer).await
        }));
    }
    let mut tick = tokio::time::interval(TICK);
    let began = run.began.elapsed();
    let (mut sent, mut turn) = (0, 0);
    while sent < run.messages {
        tick.tick().await;
        let due = (run.began.elapsed().saturating_sub(began).as_secs_f64() * rate as f64) as u64;
        let end = due.min(run.messages);
        if end > sent {
            let server = (turn % feeds.len()) as u64;
            writers[turn].write_all(source.batch(run, sent..end, server).as_bytes()).await?;
            turn = (turn + 1) % writers.len();
            sent = end;
        }
    }
    for mut write in writers {
        write.shutdown().await?; // the server answers all and closes the connection
    }
    for answer in answers {
        answer.await??;
    }
    Ok(())
}

/// What the events are like.
#[derive(Clone, Copy)]
struct Source {
    servers: u64,
    people: u64,
    in_tenants: bool,
    bytes: usize,
}

impl Source {
    /// With several servers no message is for a gateway of the server that accepts it.
    fn batch(&self, run: &Run, span: std::ops::Range<u64>, server: u64) -> String {
        let mut text = format!("{}\n", span.end - span.start);
        let process = std::process::id(); // a shared store has the messages of earlier runs
        let end = format!("t={}.\"}}", run.began.elapsed().as_micros());
        let padding = "x".repeat(self.bytes);
        for number in span {
            let mut person = number % self.people;
            if self.servers > 1 && person % self.servers == server {
                person = (person + 1) % self.people;
            }
            let start = text.len();
            // No name here needs escaping.
            let _ = write!(text, r#"{{"message_type":"text","message_id":"m{process}-{number}","source":{{"#);
            let _ = write!(text, r#""platform":"relay","chat_type":"dm","chat_id":"c{person}","user_id":"u{person}""#);
            if self.in_tenants {
                let _ = write!(text, r#","scope_id":"{}""#, tenant_of(person));
            }
            text.push_str(r#"},"text":""#);
            // The text is padded until the event has its size; the server adds the fields that it always sends.
            let length = text.len() - start + end.len();
            text.push_str(&padding[length.min(self.bytes)..]);
            text.push_str(&end);
            text.push('\n');
        }
        text
    }
}
