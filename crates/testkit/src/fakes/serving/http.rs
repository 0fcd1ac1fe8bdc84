//! As much of HTTP/1.1 as clients of chat platforms use. By hand, because only a server of our own can drop a connection at
//! the point that a test wants.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// The first line and the headers, with names in lowercase.
#[derive(Debug, Default)]
pub(in crate::fakes) struct Head {
    pub(in crate::fakes) first: String,
    pub(in crate::fakes) headers: Vec<(String, String)>,
}

impl Head {
    pub(in crate::fakes) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug)]
pub(in crate::fakes) struct Request {
    head: Head,
    /// Decoded.
    pub(in crate::fakes) path: String,
    pub(in crate::fakes) query: String,
    pub(in crate::fakes) method: String,
    pub(in crate::fakes) body: Vec<u8>,
}

impl Request {
    pub(in crate::fakes) fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }
}

pub(in crate::fakes) struct Reply {
    pub(in crate::fakes) status: u16,
    pub(in crate::fakes) mime: String,
    pub(in crate::fakes) headers: Vec<(String, String)>,
    pub(in crate::fakes) body: Vec<u8>,
}

impl Reply {
    pub(in crate::fakes) fn new(status: u16, mime: impl Into<String>, body: Vec<u8>) -> Self {
        Self { status, mime: mime.into(), headers: Vec::new(), body }
    }

    pub(in crate::fakes) fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string().into_bytes())
    }
}

pub(in crate::fakes) struct Connection<S> {
    stream: S,
    held: Vec<u8>,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(in crate::fakes) fn new(stream: S) -> Self {
        Self { stream, held: Vec::new() }
    }

    /// For another protocol, after an upgrade. What was read beyond the request is lost: nothing may follow it.
    pub(in crate::fakes) async fn upgraded(mut self, head: &str) -> io::Result<S> {
        self.stream.write_all(head.as_bytes()).await?;
        Ok(self.stream)
    }

    /// `None` when the other side has closed the connection.
    async fn more(&mut self) -> io::Result<Option<()>> {
        Ok((self.stream.read_buf(&mut self.held).await? > 0).then_some(()))
    }

    async fn head(&mut self) -> io::Result<Option<Head>> {
        let end = loop {
            if let Some(end) = self.held.windows(4).position(|part| part == b"\r\n\r\n") {
                break end;
            }
            if self.held.len() > MAX_HEAD_BYTES {
                return Err(bad("the head is too long"));
            }
            if self.more().await?.is_none() {
                return if self.held.is_empty() { Ok(None) } else { Err(bad("the head ends early")) };
            }
        };
        let text = String::from_utf8_lossy(&self.held[..end]).into_owned();
        self.held.drain(..end + 4);
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let pair =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
        Ok(Some(Head { first, headers: lines.filter_map(pair).collect() }))
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > MAX_BODY_BYTES {
            return Err(bad("the body is too long"));
        }
        while self.held.len() < length {
            self.more().await?.ok_or_else(|| bad("the body ends early"))?;
        }
        Ok(self.held.drain(..length).collect())
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.held.windows(2).position(|part| part == b"\r\n") {
                let line = String::from_utf8_lossy(&self.held[..end]).into_owned();
                self.held.drain(..end + 2);
                return Ok(line);
            }
            self.more().await?.ok_or_else(|| bad("a chunk ends early"))?;
        }
    }

    /// `to_end`: an answer without a length lasts until the connection is closed.
    async fn body(&mut self, head: &Head, to_end: bool) -> io::Result<Vec<u8>> {
        if head.header("transfer-encoding").is_some_and(|it| it.to_lowercase().contains("chunked")) {
            let mut body = Vec::new();
            loop {
                let line = self.line().await?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(size, 16).map_err(|_| bad("not the size of a chunk"))?;
                body.extend(self.exactly(size).await?);
                self.line().await?;
                if size == 0 {
                    return Ok(body);
                }
                if body.len() > MAX_BODY_BYTES {
                    return Err(bad("the body is too long"));
                }
            }
        }
        if let Some(length) = head.header("content-length") {
            return self.exactly(length.parse().map_err(|_| bad("not a length"))?).await;
        }
        while to_end && self.held.len() <= MAX_BODY_BYTES && self.more().await?.is_some() {}
        Ok(if to_end { std::mem::take(&mut self.held) } else { Vec::new() })
    }

    pub(in crate::fakes) async fn request(&mut self) -> io::Result<Option<Request>> {
        let Some(head) = self.head().await? else { return Ok(None) };
        if head.header("expect").is_some() {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let body = self.body(&head, false).await?;
        let mut words = head.first.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().ok_or_else(|| bad("not a request"))?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (decoded(path), query.to_owned());
        Ok(Some(Request { head, path, query, method, body }))
    }

    /// Sends a request and reads the status and body of the answer.
    pub(in crate::fakes) async fn ask(&mut self, request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        self.stream.write_all(request).await?;
        loop {
            let head = self.head().await?.ok_or_else(|| bad("no answer"))?;
            let status = head.first.split(' ').nth(1).and_then(|it| it.parse().ok());
            let status: u16 = status.ok_or_else(|| bad("not an answer"))?;
            if status >= 200 {
                let body = self.body(&head, true).await?;
                return Ok((status, body));
            }
        }
    }

    pub(in crate::fakes) async fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        let mut head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\ncontent-length: {}\r\n",
            reply.status,
            if (200..300).contains(&reply.status) { "OK" } else { "Error" },
            reply.mime,
            reply.body.len()
        );
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let whole = [head.as_bytes(), &reply.body].concat();
        self.stream.write_all(&whole).await?;
        self.stream.flush().await
    }
}

/// `%3A` and the like; clients escape the colon of a token or not.
fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code =
            path.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(|it| u8::from_str_radix(it, 16).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}
