//! Records of the directory: tenants, tokens, bots, links, grants, gateways, instances, policies.
//!
//! Plain records with a key each. Secrets are encrypted or hashed before they get here.

use std::collections::{BTreeMap, BTreeSet};

use frontdesk_wire::api::{PrincipalPolicy, RelevancePolicy};
use frontdesk_wire::{BotId, ChatId, GatewayId, InstanceId, InstanceNo, TenantId, UserId};
use serde::{Deserialize, Serialize};

use frontdesk_wire::cron::SigningAlg;

use crate::port::platform::{Command, PlatformBot};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tenant {
    pub name: TenantId,
    pub created_ms: u64,
    /// Send a notice to the chat when the agent cannot be woken.
    #[serde(default = "yes")]
    pub notices: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    Identity,
    Agents,
    Operator,
    Chat,
}

impl Scope {
    pub fn parse(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }
}

/// A bearer token created by the admin; only its hash is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Token {
    pub id: String,
    pub hash: String,
    pub tenant: TenantId,
    pub scope: Scope,
    pub instance: Option<InstanceId>,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
}

impl Token {
    pub fn is_live_at(&self, now_ms: u64) -> bool {
        self.expires_ms.is_none_or(|at| at > now_ms)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Enrollment {
    pub id: String,
    pub hash: String,
    pub tenant: TenantId,
    pub expires_ms: u64,
    pub used_by: Option<GatewayId>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bot {
    pub platform: String,
    pub id: BotId,
    /// `None`: shared by all tenants.
    pub tenant: Option<TenantId>,
    pub settings: BTreeMap<String, String>,
    /// Encrypted, hex.
    pub secrets: BTreeMap<String, String>,
}

/// A guild, chat or path of a platform that belongs to one tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Route {
    pub platform: String,
    pub key: String,
    pub tenant: TenantId,
}

/// A user of a platform, linked to one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    pub tenant: TenantId,
    pub platform: String,
    pub user_id: UserId,
    pub instance: InstanceId,
    /// When they were last linked; increases with every link of a user.
    pub at_ms: u64,
    /// When they were first linked. The owner of an instance is the user who was linked to it first.
    #[serde(default)]
    pub since_ms: u64,
}

/// Which of several instances gets the direct messages of a user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DmDefault {
    pub tenant: TenantId,
    pub platform: String,
    pub user_id: UserId,
    pub instance: InstanceId,
    pub at_ms: u64,
}

/// A code that links the user who sends it to the bot. Only a keyed hash is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkCode {
    pub hash: String,
    pub tenant: TenantId,
    pub platform: String,
    pub instance: InstanceId,
    pub expires_ms: u64,
    pub used_by: Option<UserId>,
}

/// A channel that an instance listens to, beyond its own users. The instance is not part of the key, so a channel has
/// at most one holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub tenant: TenantId,
    pub platform: String,
    pub scope: String,
    pub channel: ChatId,
    pub instance: InstanceId,
    pub at_ms: u64,
}

/// Which other users an instance listens to in channels that it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    pub tenant: TenantId,
    pub instance: InstanceId,
    pub policy: PrincipalPolicy,
    pub allow: BTreeSet<UserId>,
}

/// A key that signs alarm calls. The newest one signs; older ones stay valid until they retire.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SigningKeyRecord {
    pub kid: String,
    pub alg: SigningAlg,
    /// PKCS#8 in base64, encrypted, hex.
    pub sealed: String,
    pub made_ms: u64,
    pub retires_ms: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GatewaySecret {
    pub id: String,
    /// Encrypted, hex; decrypted only to verify a token.
    pub sealed: String,
    pub created_ms: u64,
    /// Set by rotation: valid until then.
    pub retires_ms: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Gateway {
    pub id: GatewayId,
    pub tenant: TenantId,
    pub instance: InstanceId,
    pub secrets: Vec<GatewaySecret>,
    pub platforms: Vec<PlatformBot>,
    pub route_keys: Vec<String>,
    pub created_ms: u64,
    pub revoked_ms: Option<u64>,
    /// Number of revocations: an authentication from before a revocation stays invalid if the gateway returns.
    #[serde(default)]
    pub revocations: u32,
}

impl Gateway {
    /// The gateway with its credential revoked.
    #[must_use]
    pub fn revoked(&self, now_ms: u64) -> Self {
        Self { revoked_ms: Some(now_ms), revocations: self.revocations + 1, secrets: Vec::new(), ..self.clone() }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Instance {
    /// Number of its ledger, unique in the server.
    pub no: InstanceNo,
    pub tenant: TenantId,
    pub name: InstanceId,
    pub wake_url: Option<String>,
    /// It was removed; its ledger stays. Provisioning a gateway for it restores it.
    #[serde(default)]
    pub left_ms: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Policy {
    pub tenant: TenantId,
    pub instance: InstanceId,
    pub policy: RelevancePolicy,
}

/// An agent that others can address by name. Instances are addressable without this record, which adds connectors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Agent {
    /// Number of its inbox, in another range than instance numbers.
    pub no: InstanceNo,
    pub tenant: TenantId,
    pub id: InstanceId,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub wake_url: Option<String>,
    /// Encrypted, hex: callers must sign deliveries with it.
    #[serde(default)]
    pub webhook_secret: Option<String>,
    /// Connectors as JSON, encrypted, hex, because they may contain secrets.
    #[serde(default)]
    pub connectors: Option<String>,
    pub created_ms: u64,
}

/// What a tenant requires of approved skills; without this record the server's own setting applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillRules {
    pub tenant: TenantId,
    pub secured: bool,
    /// Ed25519, PEM.
    pub public_key_pem: String,
}

/// What an agent offers to people on one bot, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedCommands {
    pub platform: String,
    pub bot: BotId,
    pub tenant: TenantId,
    pub instance: InstanceId,
    pub commands: Vec<Command>,
}

/// Any record.
#[derive(Debug, Clone)]
pub enum Fact {
    Tenant(Tenant),
    Token(Token),
    Enrollment(Enrollment),
    Bot(Bot),
    Route(Route),
    Binding(Binding),
    Gateway(Gateway),
    Instance(Instance),
    Policy(Policy),
    DmDefault(DmDefault),
    LinkCode(LinkCode),
    Grant(Grant),
    Principal(Principal),
    SigningKey(SigningKeyRecord),
    Agent(Agent),
    SkillRules(SkillRules),
    Commands(OfferedCommands),
}

/// Joins parts so that different lists never give the same key.
pub fn key(parts: &[&str]) -> String {
    parts.join("\u{1f}")
}

const KINDS: [&str; 17] = [
    "tenant",
    "token",
    "enrollment",
    "bot",
    "route",
    "binding",
    "gateway",
    "instance",
    "policy",
    "dm_default",
    "link_code",
    "grant",
    "principal",
    "signing_key",
    "agent",
    "skill_rules",
    "commands",
];

impl Fact {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tenant(_) => "tenant",
            Self::Token(_) => "token",
            Self::Enrollment(_) => "enrollment",
            Self::Bot(_) => "bot",
            Self::Route(_) => "route",
            Self::Binding(_) => "binding",
            Self::Gateway(_) => "gateway",
            Self::Instance(_) => "instance",
            Self::Policy(_) => "policy",
            Self::DmDefault(_) => "dm_default",
            Self::LinkCode(_) => "link_code",
            Self::Grant(_) => "grant",
            Self::Principal(_) => "principal",
            Self::SigningKey(_) => "signing_key",
            Self::Agent(_) => "agent",
            Self::SkillRules(_) => "skill_rules",
            Self::Commands(_) => "commands",
        }
    }

    pub fn key(&self) -> String {
        match self {
            Self::Tenant(it) => it.name.to_string(),
            Self::Token(it) => it.id.clone(),
            Self::Enrollment(it) => it.id.clone(),
            Self::Bot(it) => key(&[&it.platform, &it.id]),
            Self::Route(it) => key(&[&it.platform, &it.key]),
            Self::Binding(it) => key(&[&it.tenant, &it.platform, &it.user_id, &it.instance]),
            Self::Gateway(it) => it.id.to_string(),
            Self::Instance(it) => key(&[&it.tenant, &it.name]),
            Self::Policy(it) => key(&[&it.tenant, &it.policy.platform, &it.instance]),
            Self::DmDefault(it) => key(&[&it.tenant, &it.platform, &it.user_id]),
            Self::LinkCode(it) => it.hash.clone(),
            Self::Grant(it) => key(&[&it.tenant, &it.platform, &it.scope, &it.channel]),
            Self::Principal(it) => key(&[&it.tenant, &it.instance]),
            Self::SigningKey(it) => it.kid.clone(),
            Self::Agent(it) => key(&[&it.tenant, &it.id]),
            Self::SkillRules(it) => it.tenant.to_string(),
            // By bot first: all lists of a bot are read together.
            Self::Commands(it) => key(&[&it.platform, &it.bot, &it.tenant, &it.instance]),
        }
    }

    /// Whose record it is; `None`: the server's, or shared.
    pub fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Tenant(it) => Some(&it.name),
            Self::Token(it) => Some(&it.tenant),
            Self::Enrollment(it) => Some(&it.tenant),
            Self::Bot(it) => it.tenant.as_ref(),
            Self::Route(it) => Some(&it.tenant),
            Self::Binding(it) => Some(&it.tenant),
            Self::Gateway(it) => Some(&it.tenant),
            Self::Instance(it) => Some(&it.tenant),
            Self::Policy(it) => Some(&it.tenant),
            Self::DmDefault(it) => Some(&it.tenant),
            Self::LinkCode(it) => Some(&it.tenant),
            Self::Grant(it) => Some(&it.tenant),
            Self::Principal(it) => Some(&it.tenant),
            Self::SigningKey(_) => None,
            Self::Agent(it) => Some(&it.tenant),
            Self::SkillRules(it) => Some(&it.tenant),
            Self::Commands(it) => Some(&it.tenant),
        }
    }

    pub fn json(&self) -> String {
        let text = match self {
            Self::Tenant(it) => serde_json::to_string(it),
            Self::Token(it) => serde_json::to_string(it),
            Self::Enrollment(it) => serde_json::to_string(it),
            Self::Bot(it) => serde_json::to_string(it),
            Self::Route(it) => serde_json::to_string(it),
            Self::Binding(it) => serde_json::to_string(it),
            Self::Gateway(it) => serde_json::to_string(it),
            Self::Instance(it) => serde_json::to_string(it),
            Self::Policy(it) => serde_json::to_string(it),
            Self::DmDefault(it) => serde_json::to_string(it),
            Self::LinkCode(it) => serde_json::to_string(it),
            Self::Grant(it) => serde_json::to_string(it),
            Self::Principal(it) => serde_json::to_string(it),
            Self::SigningKey(it) => serde_json::to_string(it),
            Self::Agent(it) => serde_json::to_string(it),
            Self::SkillRules(it) => serde_json::to_string(it),
            Self::Commands(it) => serde_json::to_string(it),
        };
        text.unwrap_or_default()
    }

    /// `None`: this version does not know records of that kind.
    pub(super) fn known_kind(kind: &str) -> Option<&'static str> {
        KINDS.into_iter().find(|known| *known == kind)
    }

    pub fn parse(kind: &str, json: &str) -> Option<Self> {
        Some(match kind {
            "tenant" => Self::Tenant(serde_json::from_str(json).ok()?),
            "token" => Self::Token(serde_json::from_str(json).ok()?),
            "enrollment" => Self::Enrollment(serde_json::from_str(json).ok()?),
            "bot" => Self::Bot(serde_json::from_str(json).ok()?),
            "route" => Self::Route(serde_json::from_str(json).ok()?),
            "binding" => Self::Binding(serde_json::from_str(json).ok()?),
            "gateway" => Self::Gateway(serde_json::from_str(json).ok()?),
            "instance" => Self::Instance(serde_json::from_str(json).ok()?),
            "policy" => Self::Policy(serde_json::from_str(json).ok()?),
            "dm_default" => Self::DmDefault(serde_json::from_str(json).ok()?),
            "link_code" => Self::LinkCode(serde_json::from_str(json).ok()?),
            "grant" => Self::Grant(serde_json::from_str(json).ok()?),
            "principal" => Self::Principal(serde_json::from_str(json).ok()?),
            "signing_key" => Self::SigningKey(serde_json::from_str(json).ok()?),
            "agent" => Self::Agent(serde_json::from_str(json).ok()?),
            "skill_rules" => Self::SkillRules(serde_json::from_str(json).ok()?),
            "commands" => Self::Commands(serde_json::from_str(json).ok()?),
            _ => return None,
        })
    }
}
