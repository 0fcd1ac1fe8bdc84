//! The HTTP routes of a platform: raw requests in, verified events and a reply out.

use std::collections::BTreeMap;

use bytes::Bytes;
use frontdesk_wire::{ChatId, Secret};

use super::inlet::{Change, Gap, LateReceipt};
use crate::error::DeskError;
use crate::intake::{Intake, Receipt};
use crate::port::BoxFuture;
use crate::port::media::{MediaBody, MediaItem};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
        }
    }
}

/// A route that the edge opens for a platform.
#[derive(Debug, Clone, Copy)]
pub struct Door {
    pub method: Method,
    /// With `{bot}` in it the bot is looked up before the platform is asked: `/hooks/{bot}`. Without it the platform
    /// finds the bot by its credential.
    pub path: &'static str,
    /// For the API description.
    pub summary: &'static str,
    /// The longest body that is read. It is read before the sender is authenticated.
    pub max_bytes: usize,
}

/// A request as it was received: nothing is parsed, so that the raw bytes can be verified.
#[derive(Debug, Clone, Default)]
pub struct RawRequest {
    /// The path of the door, with the names of its parameters.
    pub door: &'static str,
    pub parameters: BTreeMap<String, String>,
    pub query: String,
    /// Names in lowercase. Values that are not text are left out.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub now_ms: u64,
}

impl RawRequest {
    /// The first header of this name, which is in lowercase.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A header that must be there once: of two signatures, a proxy may have checked the other one.
    pub fn only_header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        let first = found.next()?;
        found.next().is_none().then_some(first.1.as_str())
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
    /// Beside the type: the target of a redirect, and cookies.
    pub headers: Vec<(&'static str, String)>,
}

impl Reply {
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into(), headers: Vec::new() }
    }

    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self { status, content_type: "application/json", body: body.to_string(), headers: Vec::new() }
    }
}

/// Makes a reply from the receipts of the events.
pub type ReplyMaker = Box<dyn FnOnce(&[Receipt]) -> Reply + Send>;

/// Makes a reply from the reason why no event was taken.
pub type ReplyToFailure = Box<dyn FnOnce(&DeskError) -> Reply + Send>;

/// Makes what is done after the answer, from the receipts of the events: a call that the vendor expects beside the
/// answer. It is done once, and not again after a restart.
pub type Afterwards = Box<dyn FnOnce(&[Receipt]) -> BoxFuture<'static, ()> + Send>;

/// A secret that the platform got for a bot itself, beside those that the operator gave. Its name contains a colon: operators
/// cannot give one of that name, and `bot add` keeps it.
pub struct GrantedSecret {
    pub name: String,
    pub value: Secret,
}

/// What is answered once the events are stored.
pub enum DoorAnswer {
    /// The same also if the server refuses all events: that is recorded, and sending them again would not help.
    Fixed(Reply),
    /// Made from the receipts: who gets the events, or why no agent does. If the server refuses all events, that is the
    /// answer instead.
    FromReceipts(ReplyMaker),
    /// A file of this server, for a vendor that fetches what it sends.
    File(MediaItem, MediaBody),
}

/// A fragment of an event that comes in several requests, each after the last was answered.
pub struct ReceivedFragment {
    pub chat_id: ChatId,
    /// The event that it belongs to, among all events of the bot.
    pub group: String,
    /// Tells it from all other fragments of the bot, also after a change of the account.
    pub id: String,
    /// What [`Platform::join`](super::Platform::join) gets.
    pub body: Secret,
}

/// A request that is genuine.
pub struct ReceivedRequest {
    pub intakes: Vec<Intake>,
    /// Kept until the rest is there; the event is made by [`Platform::join`](super::Platform::join).
    pub fragment: Option<ReceivedFragment>,
    /// Where this was said. Fragments of other events that are kept for this chat are complete.
    pub chat_id: Option<ChatId>,
    /// Late reports about messages that were sent earlier, and changes at the platform.
    pub receipts: Vec<LateReceipt>,
    pub changes: Vec<Change>,
    /// Events that are known to be missing.
    pub gaps: Vec<Gap>,
    /// Sealed with the bot before anything else is stored.
    pub granted: Vec<GrantedSecret>,
    pub answer: DoorAnswer,
    /// Answered instead if the events could not be stored, or if all of them were refused and the answer depends on
    /// them. For senders that do not retry. `None`: the edge says why, with a status that makes the sender retry.
    pub if_not_stored: Option<ReplyToFailure>,
    /// Only if the events were stored, or refused and recorded.
    pub afterwards: Option<Afterwards>,
}

impl ReceivedRequest {
    pub fn events(intakes: Vec<Intake>, answer: DoorAnswer) -> Self {
        Self {
            intakes,
            fragment: None,
            chat_id: None,
            receipts: Vec::new(),
            changes: Vec::new(),
            gaps: Vec::new(),
            granted: Vec::new(),
            answer,
            if_not_stored: None,
            afterwards: None,
        }
    }

    /// Nothing to store: a check of the address by the vendor, an event of no interest.
    pub fn nothing(reply: Reply) -> Self {
        Self::events(Vec::new(), DoorAnswer::Fixed(reply))
    }
}
