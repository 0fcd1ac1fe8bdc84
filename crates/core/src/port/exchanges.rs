//! Questions whose askers wait for the answer. Asker and answering agent may be at different servers: the row decides
//! which reply is the answer, and whether the asker still waits.
//!
//! A store of one process keeps them in memory: when it ends, no asker waits any more.

use frontdesk_wire::{ChatId, DeskNo, InstanceId, InstanceNo, TenantId};

use super::stored::Stored;

/// An exchange that was not ended is removed this long after its time limit: its server could not reach the store.
pub const EXCHANGE_LEFT_MS: u64 = 60_000;
/// Exchanges that `left_exchanges` gives at once.
pub const LEFT_MAX: usize = 100;

/// A question, and who waits for the answer. Correlation ids are unique per tenant among exchanges in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Never reused: a later exchange with the same correlation id has another one.
    pub token: u64,
    pub tenant: TenantId,
    pub correlation_id: String,
    /// The server at which the asker waits.
    pub desk: DeskNo,
    /// The asking agent, if one asks.
    pub asker: Option<InstanceId>,
    pub agent: InstanceNo,
    pub agent_id: InstanceId,
    /// The stored question, and the chat and instances from which a socket would answer it.
    pub delivery_id: String,
    pub chat_id: ChatId,
    pub instances: Vec<InstanceNo>,
    pub timeout_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub content: String,
    pub at_ms: u64,
}

/// A reply: who sends it, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub tenant: TenantId,
    pub correlation_id: String,
    pub agent: InstanceNo,
    pub answer: StoredAnswer,
    /// The server that received it.
    pub desk: DeskNo,
}

/// What happens to a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// The asker waits at this server, with this token.
    At(DeskNo, u64),
    NobodyWaits,
    /// Another reply came first.
    Answered,
    OtherAgent,
}

/// A message that may answer a question: by the correlation id that it names, or by the message that it replies to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mention {
    pub tenant: TenantId,
    pub instance: InstanceNo,
    pub chat_id: ChatId,
    pub correlation_id: Option<String>,
    pub delivery_id: Option<String>,
}

/// `live` are the servers that are known to be live; the list may be some seconds old, so a store that several servers
/// share looks at their leases as well. The asker of an exchange at a server that is gone does not wait any more.
pub trait Exchanges: Send + Sync {
    /// False: an exchange with this correlation id is in progress. One whose asker has its answer is not. If an answer
    /// is there without an asker, and the same agent is asked again, it is the answer to this one.
    fn open_exchange(&self, exchange: Exchange, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, bool>;
    /// The question is stored under another delivery id than it was given: it was asked before.
    fn name_question(&self, token: u64, delivery_id: String) -> Stored<'_, ()>;
    /// The exchange that a message answers: its correlation id and the agent that was asked. One by its correlation id is
    /// preferred.
    fn meant_exchange(&self, mention: Mention) -> Stored<'_, Option<(String, InstanceNo)>>;
    /// Takes the first reply of the agent that was asked as the answer; the same reply again is the same answer. If the
    /// asker waits at the server that received it, it has the answer with that.
    fn answer_exchange(&self, reply: Reply, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, ReplyOutcome>;
    /// The answers to these exchanges that are there. Their askers have them with that.
    fn take_answers(&self, tokens: Vec<u64>) -> Stored<'_, Vec<(u64, StoredAnswer)>>;
    /// The asker did not get the answer: the exchange has no asker any more, and the answer is kept for the asking
    /// agent.
    fn leave_answer(&self, token: u64, now_ms: u64) -> Stored<'_, ()>;
    /// The server of these askers has another number: it had lost its lease.
    fn adopt_exchanges(&self, me: DeskNo, tokens: Vec<u64>) -> Stored<'_, ()>;
    /// The asker does not wait any more. Returns the answer, if there is one.
    fn end_exchange(&self, token: u64) -> Stored<'_, Option<StoredAnswer>>;
    /// Forgets exchanges whose server is gone or did not end them. Returns those that were answered and are kept until
    /// `end_exchange`: their askers may not have the answer.
    fn left_exchanges(&self, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, Vec<(Exchange, StoredAnswer)>>;
}
