//! Contract and bodies for delivering to agents, waking them, and asking them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Promise;
use crate::ids::{EventId, InstanceId};

/// What a skill hands to an agent. `augment` is context to absorb, `template` a playbook to execute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum DeliveryPayload {
    Augment { content: String, meta: DeliveryMeta },
    Template { prompt: String, meta: DeliveryMeta },
}

impl DeliveryPayload {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Augment { .. } => "augment",
            Self::Template { .. } => "template",
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Augment { content, .. } => content,
            Self::Template { prompt, .. } => prompt,
        }
    }

    pub fn meta(&self) -> &DeliveryMeta {
        match self {
            Self::Augment { meta, .. } | Self::Template { meta, .. } => meta,
        }
    }

    pub fn meta_mut(&mut self) -> &mut DeliveryMeta {
        match self {
            Self::Augment { meta, .. } | Self::Template { meta, .. } => meta,
        }
    }
}

/// The envelope, filled by the sender. Unset fields are absent, never null; unknown fields are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliveryMeta {
    /// One per `notify`, the same for all connectors.
    pub dispatch_id: String,
    /// The sender's clock, unix ms.
    pub sent_at: u64,
    pub origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl DeliveryMeta {
    /// Transit time between two clocks; never negative.
    pub fn lag_ms(&self, delivered_at: u64) -> u64 {
        delivered_at.saturating_sub(self.sent_at)
    }
}

/// The sender. Used for attribution, never for authorisation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_skill_name: Option<String>,
    /// An open set: cron, event, webhook, agent, cli, dashboard, inline, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_agent_id: Option<String>,
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Origin {
    /// Normalized for the envelope: an entry skill that equals the skill is omitted, and so is the caller for triggers
    /// that have none.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        if self.entry_skill_name == self.skill_name {
            self.entry_skill_name = None;
        }
        let callerless = ["cron", "event", "cli", "dashboard"];
        if self.trigger_kind.as_deref().is_some_and(|kind| callerless.contains(&kind)) {
            self.caller_agent_id = None;
        }
        self
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryReceipt {
    /// When it was durable, unix ms.
    pub delivered_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// Set only if one session took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Stored, but not pushed now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delivery_skipped: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeOpts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

/// `"immediate"`, or unix ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum When {
    Word(Immediate),
    At(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Immediate {
    #[serde(rename = "immediate")]
    Now,
}

impl WakeOpts {
    /// The requested time, if it is in the future.
    pub fn later_than(&self, now_ms: u64) -> Option<u64> {
        match self.when {
            Some(When::At(at_ms)) => u64::try_from(at_ms).ok().filter(|at_ms| *at_ms > now_ms),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeReceipt {
    pub woken_at: u64,
    /// True only if a live session took the message.
    pub woken: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Time for which it is planned, unix ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDescriptor {
    pub agent_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentStatus {
    Active,
    Idle,
    Asleep,
    Unknown,
}

/// Answer of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentReply {
    pub correlation_id: String,
    pub content: String,
    /// When the agent answered, unix ms.
    pub sent_at: u64,
    pub agent_id: String,
}

/// A way to reach agents. An `agent_id` is opaque; it may be `agent@session`.
pub trait AgentConnector: Send + Sync {
    fn list_agents(&self) -> Promise<'_, Vec<AgentDescriptor>>;
    /// Stores the message for the agent without an interrupt. Returns once it is stored.
    fn deliver<'a>(&'a self, agent_id: &'a str, payload: &'a DeliveryPayload) -> Promise<'a, DeliveryReceipt>;
    /// Interrupts the agent. If that is not possible, the message is delivered and `woken` is false, which is not a
    /// failure. An unknown agent or a failing connector is one.
    fn wake<'a>(&'a self, agent_id: &'a str, opts: &'a WakeOpts) -> Promise<'a, WakeReceipt>;
    /// Called once, at registration. The fault says what is wrong.
    fn health_check(&self) -> Promise<'_, ()>;
    /// Sends, and waits for the reply with the same `correlation_id`.
    fn request_response<'a>(
        &'a self,
        agent_id: &'a str,
        payload: &'a DeliveryPayload,
        timeout_ms: u64,
    ) -> Promise<'a, AgentReply>;
    /// For information only: nothing is skipped because of it.
    fn agent_status<'a>(&'a self, _agent_id: &'a str) -> Promise<'a, AgentStatus> {
        Box::pin(std::future::ready(Ok(AgentStatus::Unknown)))
    }
}

// ---- bodies of the HTTP API -------------------------------------------------------------------

/// A connector of an agent. The inbox always exists and is not listed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum ConnectorSpec {
    /// The agent's own socket and ledger.
    Relay {
        instance: InstanceId,
    },
    Webhook {
        url: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wake_url: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status_url: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authorization: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hmac_secret: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// `desk` is the server on whose machine the folder is; needed where several share a store.
    File {
        dir: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        desk: Option<String>,
    },
    Tmux {
        target: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        desk: Option<String>,
    },
    Noop {},
}

impl ConnectorSpec {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Relay { .. } => "relay",
            Self::Webhook { .. } => "webhook",
            Self::File { .. } => "file",
            Self::Tmux { .. } => "tmux",
            Self::Noop {} => "noop",
        }
    }

    /// The server on whose machine it acts, if it names one.
    pub fn desk(&self) -> Option<&str> {
        match self {
            Self::File { desk, .. } | Self::Tmux { desk, .. } => desk.as_deref(),
            _ => None,
        }
    }

    /// Whether it accesses the server's own machine.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Tmux { .. })
    }
}

/// Not derived, because it contains secrets.
impl std::fmt::Debug for ConnectorSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectorSpec").field("type", &self.name()).finish_non_exhaustive()
    }
}

/// `PUT /v1/agents/{id}`. Absent fields stay unchanged.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentPut {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connectors: Option<Vec<ConnectorSpec>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentList {
    pub agents: Vec<AgentDescriptor>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    pub agent_id: String,
    pub status: AgentStatus,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReplyPost {
    pub correlation_id: String,
    pub content: String,
}

/// Result of a reply. Without `delivered_to` the waiting caller has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replied {
    pub ok: bool,
    /// `inbox`: the caller did not wait any more, and it was delivered to the inbox of the asking agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_to: Option<String>,
}

/// A message in an agent's inbox: augment, template, wake, `wake_degraded`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InboxMessage {
    pub seq: u64,
    pub delivery_id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    pub at: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Inbox {
    pub messages: Vec<InboxMessage>,
    /// The highest `seq` of the inbox, 0 for none. If a reader's position is above it, the server was restored from an
    /// older backup, and the reader continues from here.
    #[serde(default)]
    pub newest: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NotifyPost {
    pub agent: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default)]
    pub origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notified {
    pub dispatch_id: String,
    /// deliver or wake
    pub route: String,
    pub receipts: Vec<ConnectorReceipt>,
}

/// Result of one connector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectorReceipt {
    pub connector: String,
    pub ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// One dispatch as shown in the console: sender, receiver, and the results of all connectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    pub event_id: EventId,
    pub at: u64,
    pub agent_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub text: String,
    pub receipts: Vec<ConnectorReceipt>,
}
