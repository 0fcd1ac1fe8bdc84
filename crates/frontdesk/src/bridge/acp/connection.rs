//! JSON-RPC over the standard input and output of a child: one JSON object per line, requests in both directions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::super::lock;

/// A longer line ends the connection.
const LINE_MAX_BYTES: u64 = 8 << 20;
/// Lines that are not JSON-RPC before the connection is ended: some programs print a greeting.
const BAD_LINES_MAX: usize = 20;
/// Lines that wait to be written, updates that wait for a turn, and requests of the agent that wait for us.
const QUEUE_MAX: usize = 256;
/// Bytes of all waiting updates. Above this limit the child is not read from.
const QUEUE_MAX_BYTES: usize = 16 << 20;
/// Longest part of the child's output in an error.
const QUOTE_MAX_CHARS: usize = 80;

/// The child closed its output. The exit status of the process tells the reason.
pub(super) const ENDED: &str = "the command ended";

#[derive(Debug, thiserror::Error)]
pub(super) enum RpcError {
    /// The child is gone, or does not speak the protocol.
    #[error("{0}")]
    Gone(String),
    #[error("{message} (error {code})")]
    Refused { code: i64, message: String },
    #[error("no answer to {method} within {} s", limit.as_secs())]
    Late { method: &'static str, limit: Duration },
}

/// What the agent sends for a session.
#[derive(Debug)]
pub(super) enum FromAgent {
    Text(String),
    /// The agent uses a tool; text before and after it goes into separate paragraphs.
    Tool {
        id: String,
        title: Option<String>,
    },
    Permission {
        id: Value,
        params: Value,
    },
}

impl FromAgent {
    /// In bytes, about.
    fn length(&self) -> u32 {
        let length = match self {
            Self::Text(text) => text.len(),
            Self::Tool { id, title } => id.len() + title.as_ref().map_or(0, String::len),
            Self::Permission { params, .. } => params.to_string().len(),
        };
        u32::try_from(length.min(QUEUE_MAX_BYTES)).unwrap_or(u32::MAX)
    }
}

type Answer = Result<Value, RpcError>;

#[derive(Default)]
struct Shared {
    waiting: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    /// Turns, by session.
    turns: Mutex<HashMap<String, mpsc::Sender<Queued>>>,
}

/// An update that waits for its turn, and its part of [`QUEUE_MAX_BYTES`].
struct Queued {
    update: FromAgent,
    _bytes: OwnedSemaphorePermit,
}

/// Updates of a session.
pub(super) struct Updates(mpsc::Receiver<Queued>);

impl Updates {
    pub(super) async fn recv(&mut self) -> Option<FromAgent> {
        self.0.recv().await.map(|queued| queued.update)
    }

    pub(super) fn try_recv(&mut self) -> Option<FromAgent> {
        self.0.try_recv().ok().map(|queued| queued.update)
    }
}

pub(super) struct Connection {
    shared: Arc<Shared>,
    lines: mpsc::Sender<String>,
    last_id: AtomicU64,
    /// Why it ended.
    ended: watch::Receiver<Option<String>>,
}

impl Connection {
    pub(super) fn over(stdin: ChildStdin, stdout: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let shared = Arc::<Shared>::default();
        let (lines, written) = mpsc::channel(QUEUE_MAX);
        let (end, ended) = watch::channel(None);
        tokio::spawn(write(stdin, written));
        tokio::spawn(read(stdout, shared.clone(), lines.clone(), end));
        Self { shared, lines, last_id: AtomicU64::new(0), ended }
    }

    /// `None` while it is there.
    pub(super) fn end(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    pub(super) async fn call(&self, method: &'static str, params: Value, limit: Duration) -> Answer {
        let answer = async { self.answer(self.begin(method, &params).await?).await };
        timeout(limit, answer).await.unwrap_or(Err(RpcError::Late { method, limit }))
    }

    /// Sends a request; its answer is waited for with [`Self::answer`].
    pub(super) async fn begin(&self, method: &str, params: &Value) -> Result<oneshot::Receiver<Answer>, RpcError> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.shared.waiting).insert(id, answer);
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await?;
        Ok(answered)
    }

    pub(super) async fn answer(&self, answered: oneshot::Receiver<Answer>) -> Answer {
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            answer = answered => answer.unwrap_or_else(|_| Err(self.gone())),
            _ = ended.wait_for(Option::is_some) => Err(self.gone()),
        }
    }

    pub(super) async fn notify(&self, method: &str, params: Value) -> Result<(), RpcError> {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await
    }

    pub(super) async fn reply(&self, id: Value, result: Value) -> Result<(), RpcError> {
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).await
    }

    /// Updates of a session, until the receiver is dropped.
    pub(super) fn follow(&self, session: &str) -> Updates {
        let (sender, updates) = mpsc::channel(QUEUE_MAX);
        lock(&self.shared.turns).insert(session.to_owned(), sender);
        Updates(updates)
    }

    pub(super) fn unfollow(&self, session: &str) {
        lock(&self.shared.turns).remove(session);
    }

    fn gone(&self) -> RpcError {
        RpcError::Gone(self.end().unwrap_or_else(|| ENDED.into()))
    }

    async fn write(&self, message: &Value) -> Result<(), RpcError> {
        let mut ended = self.ended.clone();
        let line = format!("{message}\n");
        tokio::select! {
            sent = self.lines.send(line) => sent.map_err(|_| self.gone()),
            _ = ended.wait_for(Option::is_some) => Err(self.gone()),
        }
    }
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        let done = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        };
        if done.await.is_err() {
            return; // the reader notices the end, and says why
        }
    }
}

async fn read(
    stdout: impl AsyncRead + Unpin,
    shared: Arc<Shared>,
    lines: mpsc::Sender<String>,
    end: watch::Sender<Option<String>>,
) {
    let why = read_lines(stdout, &shared, &lines).await;
    end.send_replace(Some(why));
    lock(&shared.waiting).clear();
    lock(&shared.turns).clear();
}

/// Returns why it ended.
async fn read_lines(stdout: impl AsyncRead + Unpin, shared: &Shared, lines: &mpsc::Sender<String>) -> String {
    let mut stdout = BufReader::new(stdout);
    let (mut line, mut bad) = (Vec::new(), 0);
    let room = Arc::new(Semaphore::new(QUEUE_MAX_BYTES));
    loop {
        line.clear();
        match (&mut stdout).take(LINE_MAX_BYTES).read_until(b'\n', &mut line).await {
            Ok(0) => return ENDED.into(),
            Ok(_) if line.last() == Some(&b'\n') => {}
            Ok(length) if length as u64 == LINE_MAX_BYTES => {
                return format!("the command wrote a line of more than {LINE_MAX_BYTES} bytes");
            }
            Ok(_) => return "the command ended in the middle of a line".into(),
            Err(error) => return format!("reading the output of the command failed: {error}"),
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Value>(&line) {
            Ok(message) if message.is_object() => take(shared, lines, &room, message).await,
            _ => {
                let quote: String = String::from_utf8_lossy(&line).trim().chars().take(QUOTE_MAX_CHARS).collect();
                tracing::warn!(line = quote, "the command wrote a line that is not JSON-RPC");
                bad += 1;
                if bad == BAD_LINES_MAX {
                    return format!("the command does not speak the Agent Client Protocol; it wrote {quote:?}");
                }
            }
        }
    }
}

async fn take(shared: &Shared, lines: &mpsc::Sender<String>, room: &Arc<Semaphore>, mut message: Value) {
    let id = message.get("id").filter(|id| !id.is_null()).cloned();
    let Some(method) = message.get("method").and_then(Value::as_str).map(str::to_owned) else {
        let waiting = id.and_then(|id| lock(&shared.waiting).remove(&id.as_u64()?));
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer(&mut message)); // the caller may be gone
        }
        return;
    };
    let params = message["params"].take();
    let session = params["sessionId"].as_str().unwrap_or_default();
    let turn = lock(&shared.turns).get(session).cloned();
    let from_agent = match (method.as_str(), &id) {
        ("session/update", _) => update(&params["update"]),
        ("session/request_permission", Some(id)) if turn.is_some() => {
            Some(FromAgent::Permission { id: id.clone(), params: params.clone() })
        }
        ("session/request_permission", Some(id)) => {
            let outcome = json!({ "outcome": { "outcome": "cancelled" } }); // there is no user to ask
            let _ = lines.send(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": outcome }))).await;
            None
        }
        (_, Some(id)) => {
            let error = json!({ "code": -32601, "message": format!("{method} is not supported by this client") });
            let _ = lines.send(format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "error": error }))).await;
            None
        }
        (_, None) => None,
    };
    // Without a turn it is the history of a session that is being loaded, or comes too late.
    if let (Some(update), Some(turn)) = (from_agent, turn) {
        // Never closed, and no update is longer than a line.
        let Ok(bytes) = room.clone().acquire_many_owned(update.length()).await else { return };
        let _ = turn.send(Queued { update, _bytes: bytes }).await; // the turn may have ended
    }
}

fn answer(message: &mut Value) -> Answer {
    let error = message["error"].take();
    if error.is_null() {
        return Ok(message["result"].take());
    }
    let text = error["message"].as_str().unwrap_or("the agent refused");
    let detail = error["data"].as_str().or_else(|| error["data"]["details"].as_str());
    let text = detail.map_or_else(|| text.to_owned(), |detail| format!("{text}: {detail}"));
    let message = text.chars().take(300).collect();
    Err(RpcError::Refused { code: error["code"].as_i64().unwrap_or(0), message })
}

fn update(update: &Value) -> Option<FromAgent> {
    match update["sessionUpdate"].as_str()? {
        "agent_message_chunk" => match update["content"]["type"].as_str()? {
            "text" => Some(FromAgent::Text(update["content"]["text"].as_str()?.to_owned())),
            other => Some(FromAgent::Text(format!("({other} that cannot be shown here)"))),
        },
        "tool_call" | "tool_call_update" => Some(FromAgent::Tool {
            id: update["toolCallId"].as_str()?.to_owned(),
            title: update["title"].as_str().map(str::to_owned),
        }),
        _ => None,
    }
}
