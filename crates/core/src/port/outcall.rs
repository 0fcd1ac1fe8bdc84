//! The guarded client for URLs that others chose (wake URLs, media, callbacks), and for the APIs of vendors.

use std::time::Duration;

use bytes::Bytes;
use frontdesk_wire::Secret;

use super::BoxFuture;
use super::media::MediaBody;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutcallError {
    /// One text for every reason, so that callers cannot scan ports with it.
    #[error("the URL is not an allowed destination")]
    Refused,
    #[error("the URL is not valid: {0}")]
    BadUrl(String),
    /// No connection was made.
    #[error("no connection: {0}")]
    NotSent(String),
    #[error("no answer: {0}")]
    Failed(String),
    #[error("no answer: it took too long")]
    TimedOut,
    #[error("the answer is over {0} bytes")]
    TooLarge(usize),
}

impl OutcallError {
    /// Whether the request may have reached its destination, and may have had its effect there.
    pub fn may_have_been_sent(&self) -> bool {
        match self {
            Self::Refused | Self::BadUrl(_) | Self::NotSent(_) => false,
            Self::Failed(_) | Self::TimedOut | Self::TooLarge(_) => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpMethod {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

/// What a call carries.
#[derive(Default)]
pub enum Body<'a> {
    #[default]
    Empty,
    Json(&'a str),
    /// As `application/x-www-form-urlencoded`.
    Form(&'a [(&'a str, &'a str)]),
    Bytes {
        mime: &'a str,
        bytes: Bytes,
    },
    /// As they come; a call with it cannot be repeated.
    Stream {
        mime: &'a str,
        length: Option<u64>,
        body: MediaBody,
    },
    /// As `multipart/form-data`.
    Multipart(Vec<Part<'a>>),
}

/// One field of a form with files.
pub struct Part<'a> {
    pub name: &'a str,
    pub value: PartValue<'a>,
}

pub enum PartValue<'a> {
    Text(&'a str),
    File { filename: &'a str, mime: &'a str, length: Option<u64>, body: MediaBody },
}

#[derive(Default)]
pub struct Call<'a> {
    pub method: HttpMethod,
    pub url: &'a str,
    pub bearer: Option<&'a Secret>,
    pub body: Body<'a>,
    /// Sent as they are, beside those that the client sets itself.
    pub headers: &'a [(&'a str, &'a str)],
    /// The base URL that the operator set for a bot. A URL of the same scheme, host and port may be private.
    pub trusted: Option<&'a str>,
    /// Instead of the client's own limit, and at most its longest.
    pub time: Option<Duration>,
    /// The answer is an endless stream of events: only its beginning is limited in time. For `open`.
    pub endless: bool,
    /// The answer is read up to this length.
    pub max_bytes: usize,
    /// A longer or interrupted answer is cut off instead of refused: only the status matters.
    pub cut: bool,
}

impl<'a> Call<'a> {
    pub fn get(url: &'a str, max_bytes: usize) -> Self {
        Self { url, max_bytes, ..Self::default() }
    }

    pub fn post(url: &'a str, json: &'a str, max_bytes: usize) -> Self {
        Self { method: HttpMethod::Post, url, body: Body::Json(json), max_bytes, ..Self::default() }
    }
}

#[derive(Debug, Clone, Default)]
pub struct HttpAnswer {
    pub status: u16,
    /// Names in lowercase. Values that are not text are left out.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// With this status and nothing else.
    pub fn of(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// The first header of this name, which is in lowercase.
    pub fn header(&self, name: &str) -> Option<&str> {
        header_of(&self.headers, name)
    }
}

/// An answer whose body is read as it comes. More than `max_bytes` of it is an error of the body.
pub struct OpenAnswer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: MediaBody,
}

impl OpenAnswer {
    pub fn header(&self, name: &str) -> Option<&str> {
        header_of(&self.headers, name)
    }
}

fn header_of<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// A message of a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketMessage {
    Text(String),
    Binary(Bytes),
    /// A ping or a pong: the peer is alive. Pings are answered by the socket itself.
    Alive,
}

/// An open WebSocket. Dropped, it is closed.
pub trait Socket: Send {
    /// The next message. May be dropped before it is ready: nothing is lost. `Err`: why there are no more; no URL is in it.
    fn next(&mut self) -> BoxFuture<'_, Result<SocketMessage, String>>;

    /// `Alive` sends a ping.
    fn send(&mut self, message: SocketMessage) -> BoxFuture<'_, Result<(), String>>;
}

/// Where a WebSocket is opened.
#[derive(Debug, Clone, Copy)]
pub struct Dial<'a> {
    /// With `ws` or `wss`.
    pub url: &'a str,
    /// The base URL that the operator set for a bot, with `http` or `https`. The same host and port may be private.
    pub trusted: Option<&'a str>,
    /// A longer message ends the socket.
    pub max_bytes: usize,
}

pub trait Outcall: Send + Sync {
    /// Checks that need no lookup. Called when a URL is configured.
    fn check(&self, url: &str) -> Result<(), OutcallError>;

    /// Checked again, address pinned, no redirect followed, bounded in size and time.
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>>;

    /// The same, with the body as a stream: for files.
    fn open<'a>(&'a self, _call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        Box::pin(std::future::ready(Err(OutcallError::NotSent("streams are not supported here".into()))))
    }

    /// A WebSocket, to an address that is checked in the same way.
    fn socket<'a>(&'a self, _dial: Dial<'a>) -> BoxFuture<'a, Result<Box<dyn Socket>, OutcallError>> {
        Box::pin(std::future::ready(Err(OutcallError::NotSent("sockets are not supported here".into()))))
    }

    /// A GET without a payload.
    fn get<'a>(&'a self, url: &'a str, max_bytes: usize) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        self.call(Call::get(url, max_bytes))
    }
}
