//! The receiver process: the HTTP server of an agent, which accepts every fire at once and notes its lateness. It uses
//! little processor time, so that the server is measured and not itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use frontdesk_core::Env as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::report::quantile;
use crate::env::SystemEnv;
use crate::print::out_line;

const ANSWER: &[u8] = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";

/// How many fires of each kind to wait for. A job's id is `{kind}-{due in ms}-{number}`.
#[derive(Serialize, Deserialize)]
pub(super) struct SinkOrders {
    pub(super) kinds: HashMap<String, usize>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SinkReady {
    pub(super) url: String,
}

/// All fires of a kind have come.
#[derive(Serialize, Deserialize)]
pub(super) struct SinkDone {
    pub(super) kind: String,
    pub(super) p50_ms: u64,
    pub(super) p99_ms: u64,
    pub(super) max_ms: u64,
    pub(super) early: usize,
    pub(super) last_at_ms: u64,
}

struct Seen {
    orders: SinkOrders,
    late_ms: Mutex<HashMap<String, Vec<i64>>>,
}

pub fn sink() -> anyhow::Result<()> {
    let orders: SinkOrders =
        serde_json::from_reader(std::io::stdin()).context("the parameters on stdin are not valid JSON")?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        out_line!("{}", serde_json::to_string(&SinkReady { url })?);
        let seen = Arc::new(Seen { orders, late_ms: Mutex::default() });
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(serve(stream, seen.clone())); // they end with this process
        }
    })
}

async fn serve(mut stream: TcpStream, seen: Arc<Seen>) {
    let _ = stream.set_nodelay(true); // only a hint
    let mut buffer = Vec::with_capacity(4096);
    loop {
        while let Some(length) = whole_request(&buffer) {
            seen.note(&buffer[..length]);
            buffer.drain(..length);
            if stream.write_all(ANSWER).await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// The length of the first request in these bytes, if all of it is there.
fn whole_request(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = head + length.unwrap_or(0);
    (bytes.len() >= whole).then_some(whole)
}

impl Seen {
    fn note(&self, request: &[u8]) {
        let now_ms = SystemEnv.now_ms();
        let text = String::from_utf8_lossy(request);
        let job = text.split_once("\"job_id\":\"").and_then(|(_, rest)| rest.split('"').next());
        let Some((kind, due_ms)) = job.and_then(|job| {
            let mut parts = job.split('-');
            Some((parts.next()?.to_owned(), parts.next()?.parse::<u64>().ok()?))
        }) else {
            return;
        };
        let Some(&count) = self.orders.kinds.get(&kind) else { return };
        let mut all = self.late_ms.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let late = all.entry(kind.clone()).or_default();
        late.push(now_ms.cast_signed() - due_ms.cast_signed());
        if late.len() == count {
            late.sort_unstable();
            let at = |part| u64::try_from(quantile(late, part)).unwrap_or(0);
            let done = SinkDone {
                kind,
                p50_ms: at(0.5),
                p99_ms: at(0.99),
                max_ms: at(1.0),
                early: late.iter().filter(|late| **late < 0).count(),
                last_at_ms: now_ms,
            };
            out_line!("{}", serde_json::to_string(&done).unwrap_or_default());
        }
    }
}
