//! Bodies of the HTTP API: relay, chat and admin. Shared by server, command line and clients.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::action::PromptOption;
use crate::ids::{BotId, ChatId, EventId, GatewayId, InstanceId, MessageId, TenantId, UserId};

// ---- relay ---------------------------------------------------------------------------------

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionRequest {
    pub gateway_id: GatewayId,
    pub platform: String,
    #[serde(default)]
    pub bot_id: BotId,
    #[serde(default)]
    pub gateway_endpoint: Option<String>,
    #[serde(default)]
    pub route_keys: Vec<String>,
    #[serde(default)]
    pub instance_id: Option<InstanceId>,
    #[serde(default)]
    pub wake_url: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionReply {
    pub secret: String,
    pub delivery_key: String,
    pub tenant: TenantId,
    pub gateway_id: GatewayId,
    pub route_keys: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrollRequest {
    pub enrollment_token: String,
    pub gateway_id: GatewayId,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelevancePolicy {
    pub platform: String,
    #[serde(default)]
    pub require_address: bool,
    #[serde(default)]
    pub free_response_scopes: Vec<String>,
    #[serde(default)]
    pub allow_other_bots: bool,
}

// ---- management -----------------------------------------------------------------------------

/// All bodies here are about the calling instance; an `instanceId` in them is ignored.
#[derive(Debug, Deserialize, Serialize)]
pub struct LinkAsk {
    pub platform: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct LinkOffer {
    /// Sent to the bot as `/link CODE`, it links the sender.
    pub code: String,
    pub expires_at: u64,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ScopeAsk {
    pub platform: String,
    /// Guild, workspace or server; empty if the platform has none.
    #[serde(default)]
    pub scope_id: String,
    pub channel_id: ChatId,
}

/// Which users an instance listens to besides its own, in channels that it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrincipalPolicy {
    #[default]
    OwnerOnly,
    AllowList,
    Any,
}

impl PrincipalPolicy {
    pub fn name(self) -> &'static str {
        match self {
            Self::OwnerOnly => "owner-only",
            Self::AllowList => "allow-list",
            Self::Any => "any",
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
pub struct PrincipalAsk {
    pub policy: PrincipalPolicy,
    #[serde(default)]
    pub allow: Vec<UserId>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct DmDefaultAsk {
    pub platform: String,
    pub user_id: UserId,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct MediaReply {
    pub id: String,
    pub size: u64,
}

// ---- chat ----------------------------------------------------------------------------------

#[derive(Debug, Default, Deserialize, Serialize)]
pub struct ChatPost {
    pub user_id: UserId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    #[serde(default)]
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default)]
    pub is_bot: bool,
    #[serde(default)]
    pub mentions_bot: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<MediaRef>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct MediaRef {
    pub id: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct ChatPosted {
    pub event_id: EventId,
    pub message_id: MessageId,
    pub verdict: VerdictBrief,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct VerdictBrief {
    pub outcome: String,
    pub text: String,
    /// `pushed`: live sockets of all receivers have it. `partly_pushed`: of some. `queued`: it waits for them. Absent: there is no
    /// receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Cow<'static, str>>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct ChatPress {
    pub prompt_id: String,
    pub option_id: String,
    pub user_id: UserId,
    #[serde(default)]
    pub user_name: Option<String>,
}

/// Who may see a chat: absent leaves it unchanged, `null` opens it to everyone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "Option<Vec<String>>", into = "Option<Vec<String>>")]
pub enum Members {
    #[default]
    AsBefore,
    Everyone,
    Only(Vec<String>),
}

impl From<Option<Vec<String>>> for Members {
    fn from(named: Option<Vec<String>>) -> Self {
        named.map_or(Self::Everyone, Self::Only)
    }
}

impl From<Members> for Option<Vec<String>> {
    fn from(members: Members) -> Self {
        match members {
            Members::Only(named) => Some(named),
            Members::AsBefore | Members::Everyone => None,
        }
    }
}

impl Members {
    fn is_as_before(&self) -> bool {
        *self == Self::AsBefore
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub struct ChatSettings {
    #[serde(default, skip_serializing_if = "Members::is_as_before")]
    pub members: Members,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One message of the built-in chat, in history and stream.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
pub struct ChatMessage {
    pub seq: u64,
    pub message_id: MessageId,
    pub direction: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    pub text: String,
    pub edited: bool,
    pub deleted: bool,
    pub reactions: Vec<Reaction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<ChatPrompt>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<ChatMedia>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
    pub at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Reaction {
    pub emoji: String,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct ChatPrompt {
    pub prompt_id: String,
    pub kind: String,
    pub options: Vec<PromptOption>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct ChatMedia {
    pub id: String,
    pub url: String,
    pub kind: String,
    pub mime: String,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caption: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct ChatHistory {
    pub messages: Vec<ChatMessage>,
    pub typing: bool,
    /// The page is full: continue after its last message.
    #[serde(default)]
    pub more: bool,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ChatList {
    pub chats: Vec<ChatSummary>,
    /// The page is full: continue after its last chat.
    #[serde(default)]
    pub more: bool,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ChatSummary {
    pub chat_id: ChatId,
    pub name: String,
    pub chat_type: String,
    pub last_seq: u64,
}

// ---- admin ---------------------------------------------------------------------------------

#[derive(Debug, Deserialize, Serialize)]
pub struct TenantNew {
    pub name: TenantId,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct TokenNew {
    pub tenant: TenantId,
    pub scope: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct EnrollmentNew {
    pub tenant: TenantId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
}

/// A new token. It is shown once.
#[derive(Debug, Deserialize, Serialize)]
pub struct TokenMade {
    pub id: String,
    pub token: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct BotNew {
    pub platform: String,
    pub id: BotId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct RouteNew {
    pub platform: String,
    pub key: String,
    pub tenant: TenantId,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct BindingNew {
    pub platform: String,
    pub user_id: UserId,
    pub tenant: TenantId,
    pub instance: InstanceId,
}

/// A channel that an instance of a tenant may hold.
#[derive(Debug, Deserialize, Serialize)]
pub struct GrantName {
    pub tenant: TenantId,
    pub platform: String,
    #[serde(default)]
    pub scope_id: String,
    pub channel_id: ChatId,
}

/// A gateway created by the admin, without an identity token.
#[derive(Debug, Deserialize, Serialize)]
pub struct GatewayNew {
    pub id: GatewayId,
    pub tenant: TenantId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_url: Option<String>,
}

/// The credential of a new gateway. It is shown once.
#[derive(Debug, Deserialize, Serialize)]
pub struct GatewayMade {
    pub id: GatewayId,
    pub tenant: TenantId,
    pub secret: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct DropMail {
    pub reason: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Rotated {
    pub secret: String,
    pub overlap_until: u64,
}

/// `application/problem+json`: a stable code, and a text that says what to do.
#[derive(Debug, Deserialize, Serialize)]
pub struct Problem {
    pub code: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
}

/// Explanation of an event: who got it, and for others that were considered, which layer refused and why.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Explanation {
    pub event_id: EventId,
    pub tenant: TenantId,
    pub outcome: String,
    pub instances: Vec<Considered>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Considered {
    pub instance: InstanceId,
    pub outcome: String,
    pub layer: String,
    pub rule: String,
    pub value: String,
    pub text: String,
}
