//! The one guarded way out to URLs that other people named: wakes, media, callbacks.

use std::time::Duration;

use frontdesk_wire::Secret;

use super::BoxFuture;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutcallError {
    /// Plainly forbidden; the same words for every reason, so that it is no port scanner.
    #[error("the URL is not an allowed destination")]
    Refused,
    #[error("the URL is not valid: {0}")]
    BadUrl(String),
    #[error("no answer: {0}")]
    Failed(String),
    #[error("no answer: it took too long")]
    TimedOut,
    #[error("the answer is over {0} bytes")]
    TooLarge(usize),
}

/// One call. Without a body it is a GET, with one a POST.
#[derive(Clone, Copy, Default)]
pub struct Call<'a> {
    pub url: &'a str,
    pub bearer: Option<&'a Secret>,
    pub json: Option<&'a str>,
    /// Sent as they are, beside those that the client sets itself.
    pub headers: &'a [(&'a str, &'a str)],
    /// Instead of the client's own limit, and never over its longest.
    pub time: Option<Duration>,
    /// The answer is read no further than this.
    pub max_bytes: usize,
    /// What is over that, or breaks off, is left out instead of refused: the status is what counts.
    pub cut: bool,
}

impl<'a> Call<'a> {
    pub fn get(url: &'a str, max_bytes: usize) -> Self {
        Self { url, max_bytes, ..Self::default() }
    }

    pub fn post(url: &'a str, json: &'a str, max_bytes: usize) -> Self {
        Self { url, json: Some(json), max_bytes, ..Self::default() }
    }
}

pub struct Answer {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Vec<u8>,
}

pub trait Outcall: Send + Sync {
    /// What can be told from the URL alone, without a lookup. Asked when a URL is given to us.
    fn check(&self, url: &str) -> Result<(), OutcallError>;
    /// Checked again, address pinned, no redirect followed, bounded in size and time.
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, OutcallError>>;

    /// A payload-free GET.
    fn get<'a>(&'a self, url: &'a str, max_bytes: usize) -> BoxFuture<'a, Result<Answer, OutcallError>> {
        self.call(Call::get(url, max_bytes))
    }
}
