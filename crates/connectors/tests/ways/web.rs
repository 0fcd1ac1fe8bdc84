//! A loopback HTTP server that records requests, and an Outcall that may call it.
//!
//! The guarded client is tested in its own crate; this one supports only as much HTTP as the tests need.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, Outcall, OutcallError};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Clone)]
pub(crate) enum Says {
    Status(u16, String),
    /// Accepts the request and never responds.
    Nothing,
    /// Closes the connection instead of responding.
    Hangs,
}

pub(crate) fn says(status: u16, body: &str) -> Says {
    Says::Status(status, body.into())
}

pub(crate) struct Site {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    says: Arc<Mutex<Says>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Site {
    pub(crate) async fn open(first: Says) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let says = Arc::new(Mutex::new(first));
        let (notes, script) = (asked.clone(), says.clone());
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let question = read_message(&mut stream).await.unwrap();
                notes.lock().unwrap().push(question);
                let says = script.lock().unwrap().clone();
                match says {
                    Says::Status(status, body) => {
                        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
                        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                    }
                    Says::Nothing => held.push(stream),
                    Says::Hangs => drop(stream),
                }
            }
        });
        Self { url, asked, says, task }
    }

    pub(crate) fn now(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    /// After this the port is closed.
    pub(crate) async fn close(mut self) {
        self.task.abort();
        assert!((&mut self.task).await.unwrap_err().is_cancelled());
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn last(&self) -> Asked {
        self.asked().pop().unwrap()
    }
}

/// Head and body of a request or response. `None`: the peer closed the connection.
async fn read_message(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let pairs = lines.filter_map(|line| line.split_once(": "));
    let headers: Vec<(String, String)> = pairs.map(|(name, value)| (name.into(), value.into())).collect();
    let mut message = Asked { line, headers, body: bytes.split_off(end) };
    let length: usize = message.header("content-length").map_or(0, |text| text.parse().unwrap());
    while message.body.len() < length {
        if stream.read_buf(&mut message.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(message)
}

/// Calls loopback addresses only and follows the rules of the port: one call, no redirects, bounded.
pub(crate) struct Near;

impl Near {
    async fn ask(call: Call<'_>) -> Result<HttpAnswer, OutcallError> {
        let failed = || OutcallError::Failed("the connection failed".into());
        let (host, path) = call.url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap();
        let mut stream = TcpStream::connect(host).await.map_err(|_| failed())?;
        let (verb, body) = match call.body {
            Body::Json(json) => ("POST", json),
            _ => ("GET", ""),
        };
        let mut text = format!("{verb} /{path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in call.headers {
            assert!(!value.contains(['\r', '\n']), "{name}");
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).await.map_err(|_| failed())?;
        let answer = read_message(&mut stream).await.ok_or_else(failed)?;
        let status = answer.line.split(' ').nth(1).unwrap().parse().unwrap();
        let fits = answer.body.len() <= call.max_bytes;
        let body = if fits { answer.body } else { Vec::new() };
        Ok(HttpAnswer { body, ..HttpAnswer::of(status) })
    }
}

impl Outcall for Near {
    fn check(&self, url: &str) -> Result<(), OutcallError> {
        if url.starts_with("http://127.0.0.1:") { Ok(()) } else { Err(OutcallError::Refused) }
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            self.check(call.url)?;
            assert!(call.cut, "a response that is too long must not fail the call");
            tokio::time::timeout(call.time.unwrap_or(LIMIT), Self::ask(call))
                .await
                .unwrap_or(Err(OutcallError::TimedOut))
        })
    }
}
