//! Questions whose askers wait for the answer. Asker and answering agent may be at different servers: the row decides
//! which reply is the answer, and whether the asker still waits.
//!
//! A store of one process keeps them in memory: when it ends, no asker waits any more.

use frontdesk_wire::{ChatId, DeskNo, InstanceId, InstanceNo, TenantId};

use super::stored::Stored;

/// An exchange that was not ended is removed this long after its time limit: its server could not reach the store.
pub const EXCHANGE_LEFT_MS: u64 = 60_000;
/// Exchanges that `left_exchanges` returns at a time.
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
/// share checks their leases as well. An exchange whose server is gone has no waiting asker.
pub trait Exchanges: Send + Sync {
    /// False: an exchange with this correlation id is in progress, i.e. its asker has no answer yet. If the store has an
    /// undelivered answer and the same agent is asked again, that answer counts for this exchange.
    fn open_exchange(&self, exchange: Exchange, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, bool>;
    /// Sets the delivery id of a question that was asked before and is stored under its first id.
    fn name_question(&self, token: u64, delivery_id: String) -> Stored<'_, ()>;
    /// The exchange that a message answers: its correlation id and the agent that was asked. A match by correlation id wins
    /// over one by delivery id.
    fn meant_exchange(&self, mention: Mention) -> Stored<'_, Option<(String, InstanceNo)>>;
    /// Stores the first reply of the asked agent as the answer; repeating the same reply has the same result. If the asker
    /// waits at the server that received the reply, the answer also counts as delivered.
    fn answer_exchange(&self, reply: Reply, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, ReplyOutcome>;
    /// Returns the stored answers of these exchanges, and marks them as delivered.
    fn take_answers(&self, tokens: Vec<u64>) -> Stored<'_, Vec<(u64, StoredAnswer)>>;
    /// The asker did not get the answer: removes the asker, and keeps the answer for the asking agent.
    fn leave_answer(&self, token: u64, now_ms: u64) -> Stored<'_, ()>;
    /// Moves exchanges to the new number of a server that had lost its lease.
    fn adopt_exchanges(&self, me: DeskNo, tokens: Vec<u64>) -> Stored<'_, ()>;
    /// Ends an exchange, and returns its answer if it has one.
    fn end_exchange(&self, token: u64) -> Stored<'_, Option<StoredAnswer>>;
    /// Removes unanswered exchanges whose server is gone or did not end them. Returns answered ones, which are kept until
    /// `end_exchange` because their answers may be undelivered.
    fn left_exchanges(&self, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, Vec<(Exchange, StoredAnswer)>>;
}
