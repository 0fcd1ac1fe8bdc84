//! Messages as vendors would send and sign them, for benchmarks and tests. Not used by a server.

use std::collections::BTreeMap;

/// One message of a person in a direct chat with the bot.
pub struct Said<'a> {
    pub bot: &'a str,
    /// The URL under which the vendor calls this server.
    pub public_url: &'a str,
    /// Unique per message.
    pub number: u64,
    pub person: u64,
    pub text: &'a str,
    pub now_ms: u64,
}

pub struct SampleRequest {
    pub path: String,
    /// Whole lines.
    pub headers: String,
    pub body: String,
}

/// A bot at a vendor.
pub trait Sample: Send + Sync {
    fn platform(&self) -> &'static str;
    /// `vendor` is a URL at which every call gets the answer of the vendor.
    fn settings(&self, vendor: &str) -> BTreeMap<String, String>;
    /// JSON: what the vendor says about the bot and about users, as the answer to any call.
    fn vendor_answer(&self) -> &'static str {
        "{}"
    }
    fn secrets(&self) -> BTreeMap<String, String>;
    /// The id of a person of this number who writes to the bot.
    fn user(&self, bot: &str, person: u64) -> String;
    fn request(&self, said: &Said<'_>) -> SampleRequest;
    /// False: the vendor sends a shared secret instead of a signature.
    fn signs_body(&self) -> bool {
        true
    }
    /// True: the signature covers a time, and old requests are refused.
    fn signs_time(&self) -> bool {
        false
    }
    /// The expected status of an accepted request, and a part of its body.
    fn answer(&self) -> (u16, &'static str) {
        (200, "")
    }
}

pub(crate) fn named<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}
