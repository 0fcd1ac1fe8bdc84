//! The bus between servers that share a store: hints, which say that something changed.
//!
//! A hint may be lost, late or doubled. The store has the facts: a server that receives a hint reads there, and sweeps
//! find changes without a hint. So only speed depends on hints.

use frontdesk_wire::{BotId, ChatId, DeskNo, InboxSeq, InstanceNo, Seq, SessionKey, SessionNo, TenantId};
use serde::{Deserialize, Serialize};

use super::BoxFuture;

/// Unknown ones are skipped: a newer server on the same store may send them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// From a server to itself, to know that it receives.
    Echo(DeskNo),
    /// New rows for instances that the server serves.
    Rows(Vec<InstanceNo>),
    /// The directory has this version.
    Directory(u64),
    /// Another server serves the instance now; this session has ended.
    Replaced(InstanceNo, SessionNo),
    /// New messages in the inboxes of these agents.
    Inboxes(Vec<InstanceNo>),
    /// This agent has read its inbox at the server, up to this message.
    InboxRead(InstanceNo, InboxSeq),
    /// The server sends as this bot (platform and id), whose budget is divided by all that do.
    Sending(DeskNo, String, BotId),
    /// An alarm was armed that the server fires: instance, id, time and host.
    Alarm(InstanceNo, u64, u64, String),
    /// A message was handed to connectors of some server.
    Handoffs,
    /// Results for the socket of this instance were parked.
    Results(InstanceNo),
    /// Answers to these exchanges, whose askers wait at the server.
    Answered(Vec<u64>),
    /// A message of a platform to its counterparts at other servers, in its own format.
    Platform(String, String),
    /// Interrupt this session (its key and chat) on the socket of the instance. It is stored nowhere, so it is lost
    /// with the hint. A late one is not sent: it would stop another turn.
    Interrupt(InstanceNo, SessionKey, ChatId),
    /// Interrupt the session of this tenant that has this key, on whichever instance runs it. It may get lost, too.
    InterruptTurn(TenantId, SessionKey),
    /// The operator dropped a row that the socket of the instance may still hold. If the hint is lost, the agent may
    /// still get the row.
    Dropped(InstanceNo, Seq),
    /// A client of this server watches the events of all servers; it wants theirs for some seconds.
    AskTail(DeskNo),
    /// What a server did, for one that asked.
    Tail(TailPart),
}

/// Entries of the tail of a server, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailPart {
    pub of: DeskNo,
    pub name: String,
    /// The number of the first entry. Each server counts its own.
    pub first: u64,
    pub entries: Vec<serde_json::Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum To {
    Desk(DeskNo),
    /// All others, and this one.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusEvent {
    Hint(Hint),
    /// Some hints may have been lost: sweep.
    Missed,
}

impl BusEvent {
    /// Whether handling it writes to the store, which may take long: other hints must not wait for it.
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::Hint(Hint::Answered(_) | Hint::Results(_)))
    }
}

pub trait Bus: Send + Sync {
    /// The number of this server, to which others send. It changes if the lease was lost.
    fn listen_as(&self, me: DeskNo);
    /// Does not wait. Hints that wait to be sent are merged where possible; if there are too many, the oldest are
    /// dropped.
    fn send(&self, to: To, hint: Hint);
    /// The next hint. For one caller.
    fn next_event(&self) -> BoxFuture<'_, BusEvent>;
    /// False: there are no other servers.
    fn has_others(&self) -> bool {
        true
    }
}

/// For a store that one server uses.
pub struct NoBus;

impl Bus for NoBus {
    fn listen_as(&self, _: DeskNo) {}

    fn send(&self, _: To, _: Hint) {}

    fn next_event(&self) -> BoxFuture<'_, BusEvent> {
        Box::pin(std::future::pending())
    }

    fn has_others(&self) -> bool {
        false
    }
}
