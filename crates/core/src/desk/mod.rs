//! The desk: it takes what arrives, hands it over, and lets out what agents send.

mod agents;
mod alarms;
mod clock;
mod context;
mod deliver;
mod exchange;
mod inbound;
mod inbox;
mod interrupt;
mod letters;
mod links;
mod mail;
mod manage;
mod outbound;
mod people;
mod presence;
mod records;
mod roster;
mod shelf;
mod signets;
mod speaker;
mod wakes;

use std::collections::HashMap;
use std::sync::Arc;

use frontdesk_wire::Close;

use crate::alarms::signet::SigningAlg;
use crate::env::Env;
use crate::meters::Meters;
use crate::port::connectors::{Connectors, NoConnectors};
use crate::port::outcall::Outcall;
use crate::port::platform::Platform;
use crate::port::store::{Store, StoreError};
use crate::registry::Registry;
use crate::registry::facts::Instance;
use crate::seal::Sealer;
use crate::sight::SightCache;
use crate::switchboard::Switchboard;
use crate::tail::{Notice, Tail};
use crate::wake::WakeRules;

pub use agents::AgentRooms;
pub use alarms::{AlarmClock, LEASE_MS, Loading};
pub use clock::ClockWatch;
pub use exchange::{Line, TIMEOUT_MAX_MS};
pub use inbound::Receipt;
pub use inbox::{inbox_message, is_under_way};
pub use mail::mail_id;
pub use outbound::Refused;
pub use people::{Identity, Unproven, check_source};
pub use shelf::{TenantData, TenantSkills};
pub use speaker::Speaker;

/// The settings that the rules of the desk depend on.
#[derive(Debug, Clone)]
pub struct Rules {
    pub window: usize,
    pub ack_limit_ms: u64,
    pub settle_ms: u64,
    pub frame_max_bytes: usize,
    pub wake: WakeRules,
    pub vault_ttl_ms: u64,
    pub media_ttl_ms: u64,
    pub media_max_bytes: usize,
    pub rotation_overlap_ms: u64,
    /// How long a code for `/link` is good.
    pub link_ttl_ms: u64,
    /// How long a platform's word on who can see a chat is believed.
    pub sight_ms: u64,
    /// How long a refused fire is tried again, unless its job says otherwise.
    pub misfire_grace_ms: u64,
    /// Fires are spread over this much time after their moment, so that round hours are no storm.
    pub fire_jitter_ms: u64,
    pub fire_alg: SigningAlg,
    /// Our base URL as agents know it: who issues the fires' tokens.
    pub issuer: String,
    /// Registered agents of one tenant; they are held in memory. 0: no limit.
    pub agents_max: usize,
    /// Instances and gateways of one tenant, held in memory as well. 0: no limit.
    pub instances_max: usize,
    pub gateways_max: usize,
    /// Alarms that one tenant may have armed. 0: no limit.
    pub armed_max: u64,
    /// Bytes of files that are kept for one tenant. 0: no limit.
    pub media_tenant_bytes: u64,
    /// Approved skills must be signed, unless a tenant has its own rule.
    pub skills_secured: bool,
    /// Whose signature counts: Ed25519, PEM. Empty: nobody's.
    pub skills_public_key: String,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            window: 32,
            ack_limit_ms: 5_000,
            settle_ms: 3_000,
            frame_max_bytes: 1 << 20,
            wake: WakeRules { cooldown_ms: 30_000, retry_max_ms: 300_000, notice_after_ms: 120_000 },
            vault_ttl_ms: 900_000,
            media_ttl_ms: 3_600_000,
            media_max_bytes: 25 << 20,
            rotation_overlap_ms: 86_400_000,
            link_ttl_ms: 600_000,
            sight_ms: 30_000,
            misfire_grace_ms: 86_400_000,
            fire_jitter_ms: 0,
            fire_alg: SigningAlg::ES256,
            issuer: String::new(),
            agents_max: 10_000,
            instances_max: 10_000,
            gateways_max: 10_000,
            armed_max: 100_000,
            media_tenant_bytes: 2 << 30,
            skills_secured: false,
            skills_public_key: String::new(),
        }
    }
}

/// Why the desk says no. The text is for the caller; it never holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    RateLimited(String),
    /// Somebody whom we asked said no.
    #[error("{0}")]
    Elsewhere(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<crate::registry::AmendError<DeskError>> for DeskError {
    fn from(error: crate::registry::AmendError<DeskError>) -> Self {
        match error {
            crate::registry::AmendError::Refused(refused) => refused,
            crate::registry::AmendError::Store(error) => Self::Store(error),
        }
    }
}

/// A proven gateway. Built only where a token was checked; an id from a body never becomes one.
#[derive(Clone)]
pub struct Caller {
    pub tenant: String,
    pub gateway: String,
    pub instance: Arc<Instance>,
    /// The gateway's revocations when this was proven.
    revocations: u32,
}

impl Caller {
    pub fn guest(&self) -> Guest {
        Guest::of(&self.instance)
    }
}

/// A proven instance, by its gateway's token or by a signed word about it. What it may manage is its own.
#[derive(Clone)]
pub struct Guest {
    pub tenant: String,
    pub instance: Arc<Instance>,
}

pub struct Desk {
    pub env: Arc<dyn Env>,
    pub store: Arc<dyn Store>,
    pub registry: Registry,
    pub switchboard: Arc<Switchboard>,
    pub tail: Tail,
    pub meters: Meters,
    pub rules: Rules,
    pub outcall: Arc<dyn Outcall>,
    sealer: Sealer,
    platforms: HashMap<String, Arc<dyn Platform>>,
    sight: SightCache,
    link_tries: links::Tries,
    pub alarms: AlarmClock,
    pub rooms: AgentRooms,
    connectors: Arc<dyn Connectors>,
}

impl Desk {
    pub async fn open(
        env: Arc<dyn Env>,
        store: Arc<dyn Store>,
        sealer: Sealer,
        outcall: Arc<dyn Outcall>,
        platforms: Vec<Arc<dyn Platform>>,
        rules: Rules,
    ) -> Result<Self, StoreError> {
        let switchboard = Arc::new(Switchboard::default());
        store.attach_bell(switchboard.clone());
        for (instance, mut presence) in store.presences().await? {
            if presence.live {
                // Its socket ended when we did: a moment ago, as far as the agent is concerned.
                presence.live = false;
                presence.seen_ms = env.now_ms();
            }
            switchboard.set_presence(instance, |known| *known = presence);
        }
        let doubted = store.doubt_open_entries().await?;
        if doubted > 0 {
            tracing::warn!(doubted, "actions were under way when the desk went down; their outcome is unknown");
        }
        // Asked before the directory is read: whoever has letters now is in it, or was deleted.
        let inboxes = store.inboxes().await?;
        let registry = Registry::open(store.clone()).await?;
        for agent in inboxes.into_iter().filter(|no| registry.read(|view| view.agent_no(*no).is_none())) {
            store.drop_inbox(agent).await?; // what a deletion that was cut short has left
        }
        let platforms = platforms.into_iter().map(|p| (p.descriptor().platform.clone(), p)).collect();
        let desk = Self {
            env,
            store,
            registry,
            switchboard,
            tail: Tail::default(),
            meters: Meters::default(),
            rules,
            outcall,
            sealer,
            platforms,
            sight: SightCache::default(),
            link_tries: links::Tries::default(),
            alarms: AlarmClock::default(),
            rooms: AgentRooms::default(),
            connectors: Arc::new(NoConnectors),
        };
        desk.cut_signet().await?;
        Ok(desk)
    }

    /// Ways to agents besides their inboxes and sockets; without this there are none.
    #[must_use]
    pub fn with_connectors(self, connectors: Arc<dyn Connectors>) -> Self {
        Self { connectors, ..self }
    }

    pub fn platform(&self, name: &str) -> Option<&Arc<dyn Platform>> {
        self.platforms.get(name)
    }

    /// Ends every socket of a gateway now: its credential is gone.
    fn close_gateway(&self, gateway: &str) {
        self.switchboard.close(Some(gateway), Close::Unauthorized);
    }

    pub(crate) fn say(&self, tenant: &str, step: &'static str, fill: impl FnOnce(&mut Notice)) {
        self.tail.say(|| {
            let mut notice = Notice { at: self.env.now_ms(), tenant: tenant.into(), step, ..Notice::default() };
            fill(&mut notice);
            notice
        });
    }
}

/// Event ids as people see them.
pub fn event_id(event: u64) -> String {
    format!("ev-{event}")
}

pub fn parse_event_id(text: &str) -> Option<u64> {
    text.strip_prefix("ev-").unwrap_or(text).parse().ok()
}

/// The name under which a row is acked: made of the store's epoch, the instance and the row.
pub fn buffer_id(epoch: u32, instance: u64, seq: u64) -> String {
    format!("{epoch:08x}-{instance:x}-{seq:x}")
}

/// The row, if the id is one of this store and this instance.
pub fn parse_buffer_id(text: &str, epoch: u32, instance: u64) -> Option<u64> {
    // A number of ours has no sign, though Rust would read one.
    let number = |part: &str| u64::from_str_radix(part, 16).ok().filter(|_| !part.starts_with('+'));
    let mut parts = text.splitn(3, '-').map(number);
    let (store, owner, seq) = (parts.next()??, parts.next()??, parts.next()??);
    (store == u64::from(epoch) && owner == instance).then_some(seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_id_is_read_back_only_by_its_owner() {
        let id = buffer_id(7, 12, 300);
        assert_eq!(id, "00000007-c-12c");
        assert_eq!(parse_buffer_id(&id, 7, 12), Some(300));
        assert_eq!(parse_buffer_id(&id, 8, 12), None);
        assert_eq!(parse_buffer_id(&id, 7, 13), None);
        for bad in ["", "-", "7", "7-c", "7-c-zz", "7-c-1-2", "+7-c-1"] {
            assert_eq!(parse_buffer_id(bad, 7, 12), None, "{bad}");
        }
    }
}
