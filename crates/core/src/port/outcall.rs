//! The one guarded way out to URLs that other people named: wakes, media, callbacks.

use super::Soon;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutcallError {
    /// Plainly forbidden; the same words for every reason, so that it is no port scanner.
    #[error("the URL is not an allowed destination")]
    Refused,
    #[error("the URL is not valid: {0}")]
    BadUrl(String),
    #[error("no answer: {0}")]
    Failed(String),
    #[error("the answer is over {0} bytes")]
    TooLarge(usize),
}

pub struct Answer {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Vec<u8>,
}

pub trait Outcall: Send + Sync {
    /// What can be told from the URL alone, without a lookup. Asked when a URL is given to us.
    fn check(&self, url: &str) -> Result<(), OutcallError>;
    /// A payload-free GET. Checked again, address pinned, no redirect followed, bounded.
    fn get<'a>(&'a self, url: &'a str, max_bytes: usize) -> Soon<'a, Result<Answer, OutcallError>>;
}
