//! Agents: registration, addresses, connectors and presence.

pub mod address;
mod admin;
pub mod approval;
mod caller;
mod data;
mod deliver;
mod exchange;
mod handoffs;
pub mod in_flight;
mod inbox;
mod messages;
pub mod skill_text;
mod skills;
mod stores;
pub mod streams;
pub mod waiters;
mod wakes;
mod waking;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::hmac;
use frontdesk_wire::agents::{AgentDescriptor, AgentPut, AgentStatus, Class, ConnectorSpec, Fault};
use frontdesk_wire::secret::same_bytes;
use frontdesk_wire::{InboxSeq, InstanceId, InstanceNo, Secret, TenantId};
use tokio::sync::Notify;

use self::in_flight::{Carrying, InFlight};
use self::streams::Streams;
use self::waiters::Waiters;
use crate::base::Base;
use crate::cron::CronPlane;
use crate::delivery::DeliveryPlane;
use crate::directory::facts::{Agent, Fact, Instance};
use crate::directory::{AmendError, DirectoryPlane, Draft, Effect, View, check_id, check_room};
use crate::env::Env;
use crate::error::DeskError;
use crate::lease::Lease;
use crate::port::alarms::{AGENT_NUMBERS, Alarm};
use crate::port::bus::{Bus, Hint, To};
use crate::port::connectors::Connectors;
use crate::port::inbox::Inbox;
use crate::port::outcall::Outcall;
use crate::port::store::{Claims, Mark, StoreError};
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::vault::Sealer;

pub use caller::AgentsCaller;
pub use data::TenantData;
pub use exchange::{AnswerChannel, BufferedReply, Exchanges, Question, Reservation, TIMEOUT_MAX_MS};
pub use handoffs::LOOK_EVERY;
pub use inbox::{InboxStream, Inboxes, is_in_flight};
pub use messages::Messages;
pub use skills::TenantSkills;
pub use stores::TenantStores;
pub use waking::Calls;

/// Connectors per agent.
const CONNECTORS_MAX: usize = 8;
const SECRET_MAX_CHARS: usize = 1024;
/// All connectors of one agent as JSON; agents are kept in memory.
const CONNECTORS_MAX_BYTES: usize = 64 << 10;
/// Time limit of the health check of a connector.
const HEALTH_TIME: Duration = Duration::from_secs(10);
/// How long a message may be handed to connectors, each of which has a time limit of its own.
const CARRY_MAX_MS: u64 = 600_000;
/// A connected agent is active if it had traffic within this time, otherwise idle.
const ACTIVE_MS: u64 = 300_000;

/// In-memory state: open streams, waiting callers, deliveries in flight, and wake requests.
#[derive(Default)]
pub struct LiveState {
    streams: Streams,
    waiters: Waiters,
    in_flight: InFlight,
    /// Agents whose wake URL should be called.
    pokes: Mutex<HashSet<InstanceNo>>,
    poke_notify: Notify,
    /// Another server handed a message to connectors of this one.
    handoff_notify: Notify,
    /// Handoffs that are done, and could not be removed from the store yet.
    done_handoffs: Mutex<HashSet<u64>>,
}

impl LiveState {
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    fn ask_for_poke(&self, agent: InstanceNo) {
        if self.pokes.lock().unwrap_or_else(PoisonError::into_inner).insert(agent) {
            self.look_at_pokes();
        }
    }

    /// The loop of the wake URLs looks at what is due.
    pub fn look_at_pokes(&self) {
        self.poke_notify.notify_one();
    }

    fn take_pokes(&self) -> HashSet<InstanceNo> {
        std::mem::take(&mut self.pokes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A resolved address: the agent, the session that was named, and how to reach it.
pub(super) struct Addressee {
    pub(super) agent: Arc<Agent>,
    pub(super) session: Option<String>,
    pub(super) relay: Vec<Arc<Instance>>,
    /// External connectors, i.e. all except relay.
    pub(super) ways: Vec<ConnectorSpec>,
    /// The connectors could not be decrypted.
    pub(super) unread: Option<Fault>,
}

/// What is needed to call connectors and wake URLs, and to decrypt their secrets.
pub(crate) struct Ways {
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) outcall: Arc<dyn Outcall>,
    pub(crate) connectors: Arc<dyn Connectors>,
}

/// Registration, addresses and presence of agents.
pub struct AgentsPlane {
    env: Arc<dyn Env>,
    directory: Arc<DirectoryPlane>,
    delivery: Arc<DeliveryPlane>,
    cron: Arc<CronPlane>,
    inbox: Arc<dyn Inbox>,
    claims: Arc<dyn Claims>,
    ways: Ways,
    live: LiveState,
    lease: Arc<Lease>,
    bus: Arc<dyn Bus>,
    rules: Arc<Rules>,
}

impl AgentsPlane {
    /// Notifies the agent's streams, here and at other servers, that its inbox changed.
    fn notify_streams(&self, agent: InstanceNo) {
        self.live.streams.notify(agent);
        if !self.lease.is_alone() {
            self.bus.send(To::All, Hint::Inboxes(vec![agent]));
        }
    }

    /// The agent sent something or read its inbox.
    pub(super) fn note_traffic(&self, agent: InstanceNo) {
        self.live.streams.note_traffic(agent, self.env.now_ms());
    }

    /// The agent has read its inbox up to this message. Another server may be calling its wake URL for it.
    pub(super) fn note_read(&self, agent: InstanceNo, seq: InboxSeq) {
        if !self.lease.is_alone() && self.live.streams.note_read(agent, seq) {
            self.bus.send(To::All, Hint::InboxRead(agent, seq));
        }
    }

    /// Whether the agent has read its whole inbox, here or at another server. If the store does not say, it has not.
    pub(super) async fn has_read_all(&self, agent: InstanceNo) -> bool {
        let read = self.live.streams.read(agent);
        !read.is_none() && self.inbox.newest_message(agent).await.is_ok_and(|newest| newest <= read)
    }

    pub(crate) fn read_elsewhere(&self, agent: InstanceNo, seq: InboxSeq) {
        if self.directory.read(|view| view.agent_no(agent).is_some()) {
            self.live.streams.note_read(agent, seq);
        }
    }

    /// Another server wrote to these inboxes.
    pub(crate) fn inboxes_changed(&self, agents: &[InstanceNo]) {
        for agent in agents {
            self.live.streams.notify(*agent);
        }
    }

    /// Makes all streams read their inboxes, because a hint may have been lost.
    pub(crate) fn streams_look(&self) {
        self.live.streams.notify_all();
    }

    pub(crate) async fn open(
        base: &Base,
        stores: &Stores,
        directory: &Arc<DirectoryPlane>,
        delivery: &Arc<DeliveryPlane>,
        cron: &Arc<CronPlane>,
        ways: Ways,
    ) -> Result<Self, StoreError> {
        // Inboxes are read before the directory is refreshed, so an inbox without an agent there belongs to a deleted agent.
        let inboxes = stores.inbox.inboxes().await?;
        directory.refresh().await?;
        // An unreadable agent record hides the number of its inbox, so nothing is deleted then.
        let is_known = !directory.read(|view| view.unreadable().has_kind("agent"));
        for agent in inboxes.into_iter().filter(|_| is_known) {
            if directory.read(|view| view.agent_no(agent).is_none()) {
                while stores.inbox.drop_inbox(agent).await?.more {} // left over from an interrupted deletion
            }
        }
        Ok(Self {
            lease: base.lease.clone(),
            bus: base.bus.clone(),
            env: base.env.clone(),
            directory: directory.clone(),
            delivery: delivery.clone(),
            cron: cron.clone(),
            inbox: stores.inbox.clone(),
            claims: stores.claims.clone(),
            ways,
            live: LiveState::default(),
            rules: base.rules.clone(),
        })
    }

    /// Claims a message for handing it to its connectors, across all servers. `None`: another caller has it.
    async fn carry(&self, mark: Mark) -> Result<Option<Carrying>, StoreError> {
        let Some(mut carrying) = self.live.in_flight.carry(mark) else { return Ok(None) };
        if self.bus.has_others() {
            let (me, live) = (self.lease.me(), self.lease.live());
            carrying.claimed(); // set before the call, so that a claim whose answer is lost is released too
            if !self.claims.claim(mark, me, live, CARRY_MAX_MS, self.env.now_ms()).await? {
                carrying.not_claimed();
                return Ok(None);
            }
        }
        Ok(Some(carrying))
    }

    /// Releases finished claims in the store, so that other servers can retry what failed here.
    pub(crate) async fn release_carried(&self) -> Result<(), StoreError> {
        match self.live.in_flight.take_released() {
            marks if marks.is_empty() => Ok(()),
            marks => {
                let released = self.claims.release(marks.clone(), self.lease.me()).await;
                if released.is_err() {
                    self.live.in_flight.put_back(marks);
                }
                released
            }
        }
    }

    /// Returns when another server handed a message to this one.
    pub async fn handoff_arrived(&self) {
        self.live.handoff_notify.notified().await;
    }

    /// Another server handed a message to connectors of this one.
    pub(crate) fn note_handoff(&self) {
        self.live.handoff_notify.notify_one();
    }

    /// In-memory state of this process.
    pub fn live(&self) -> &LiveState {
        &self.live
    }

    /// Called after a directory change was committed: closes streams and waiters of a deleted agent.
    pub(crate) fn apply(&self, effect: &Effect) {
        if let Effect::AgentRemoved(no) = effect {
            self.live.streams.forget(*no);
            self.live.waiters.forget(*no);
        }
    }

    /// Registers or updates an agent.
    pub async fn put_agent(
        &self,
        who: AgentsCaller<'_>,
        id: &InstanceId,
        put: AgentPut,
    ) -> Result<AgentDescriptor, Fault> {
        check_id("agent_id", id)?;
        who.check_own(id, "register")?;
        if let Some(name) = put.agent_name.as_deref().filter(|name| !name.is_empty()) {
            check_id("agent_name", name)?;
        }
        if put.webhook_secret.as_ref().is_some_and(|secret| secret.chars().count() > SECRET_MAX_CHARS) {
            return Err(Fault::invalid(format!(
                "webhook_secret is too long; the limit is {SECRET_MAX_CHARS} characters"
            )));
        }
        if let Some(url) = put.wake_url.as_deref().filter(|url| !url.is_empty()) {
            self.ways.outcall.check(url).map_err(|error| Fault::invalid(format!("wake_url: {error}")))?;
        }
        if let Some(specs) = &put.connectors {
            self.check_connectors(who, id, specs).await?;
        }
        let context = |what| [who.tenant, "agent", id, what];
        let seal =
            |value: &str, what| hex::encode(self.ways.sealer.seal(&*self.env, &Secret::new(value), &context(what)));
        let change = |view: &View, draft: &mut Draft| {
            let known = view.agent(who.tenant, id).map(|known| (**known).clone());
            if known.is_none() {
                self.check_count(view, who.tenant)?;
            }
            let mut agent = known.unwrap_or_else(|| self.new_agent(view, who.tenant, id));
            // An empty value deletes, an absent one keeps.
            if let Some(name) = &put.agent_name {
                agent.name = Some(name.clone()).filter(|name| !name.is_empty());
            }
            if let Some(url) = &put.wake_url {
                agent.wake_url = Some(url.clone()).filter(|url| !url.is_empty());
            }
            if let Some(secret) = put.webhook_secret.as_deref() {
                agent.webhook_secret = (!secret.is_empty()).then(|| seal(secret, "webhook"));
            }
            if let Some(specs) = &put.connectors {
                let json = serde_json::to_string(specs).unwrap_or_default();
                agent.connectors = (!specs.is_empty()).then(|| seal(&json, "connectors"));
            }
            let shown = describe(&agent.id, agent.name.clone());
            draft.put(Fact::Agent(agent));
            check_room(view, draft, who.tenant, self.rules.directory_max_bytes)?;
            Ok(shown)
        };
        self.directory.write(change).await.map_err(amended)
    }

    async fn check_connectors(
        &self,
        who: AgentsCaller<'_>,
        id: &InstanceId,
        specs: &[ConnectorSpec],
    ) -> Result<(), Fault> {
        if specs.len() > CONNECTORS_MAX {
            return Err(Fault::invalid(format!("too many connectors; the limit is {CONNECTORS_MAX} per agent")));
        }
        if serde_json::to_string(specs).map_or(usize::MAX, |json| json.len()) > CONNECTORS_MAX_BYTES {
            return Err(Fault::invalid(format!(
                "connectors are too large; the limit is {CONNECTORS_MAX_BYTES} bytes in total"
            )));
        }
        for spec in specs {
            let name = spec.name();
            if spec.is_local() && !who.operator {
                let text =
                    format!("a {name} connector accesses the server's own machine; use a token of scope operator");
                return Err(Fault::new(Class::ForbiddenError, text));
            }
            if let ConnectorSpec::Relay { instance } = spec {
                who.check_own(instance, "connect to the instance")?;
                let there = |view: &View| view.instance(who.tenant, instance).is_some_and(|it| it.left_ms.is_none());
                let there = self.directory.read(there);
                if !there {
                    return Err(Fault::invalid(format!("relay connector: instance {instance:?} not found")));
                }
                continue;
            }
            if spec.is_local() && (!self.lease.is_alone() || spec.desk().is_some()) {
                if let Some(server) = spec.desk() {
                    check_id("desk", server)?;
                }
                let Some(server) = spec.desk() else {
                    let text = format!(
                        "{name} connector: several servers share the store; name the one on whose machine it acts, like \
                         \"desk\": {:?}",
                        self.rules.desk_name
                    );
                    return Err(Fault::invalid(text));
                };
                if server != self.rules.desk_name && !self.bus.has_others() {
                    let text = format!(
                        "{name} connector: this server is {:?}, and no other one shares its store",
                        self.rules.desk_name
                    );
                    return Err(Fault::invalid(text));
                }
                if server != self.rules.desk_name {
                    continue; // only that server can check it
                }
            }
            let unhealthy =
                |fault: Fault| Fault::invalid(format!("the {name} connector is not healthy: {}", fault.message));
            let opened = self.ways.connectors.open(id, spec).map_err(unhealthy)?;
            match tokio::time::timeout(HEALTH_TIME, opened.health_check()).await {
                Ok(checked) => checked.map_err(unhealthy)?,
                Err(_) => {
                    return Err(Fault::invalid(format!(
                        "the {name} connector did not become healthy within {} s",
                        HEALTH_TIME.as_secs()
                    )));
                }
            }
        }
        Ok(())
    }

    fn check_count(&self, view: &View, tenant: &TenantId) -> Result<(), Fault> {
        let (there, max) = (view.tenant_index(tenant).map_or(0, |index| index.agents().len()), self.rules.agents_max);
        if max > 0 && there >= max {
            let text = format!("this tenant has {there} agents; delete some, or raise agents.per_tenant ({max})");
            return Err(Fault::new(Class::ForbiddenError, text));
        }
        Ok(())
    }

    fn new_agent(&self, view: &View, tenant: &TenantId, id: &InstanceId) -> Agent {
        Agent {
            no: self.new_agent_no(view),
            tenant: tenant.clone(),
            id: id.clone(),
            name: None,
            wake_url: None,
            webhook_secret: None,
            connectors: None,
            created_ms: self.env.now_ms(),
        }
    }

    /// Random, not sequential: numbers are never reused, so a new agent cannot get data of a deleted one.
    fn new_agent_no(&self, view: &View) -> InstanceNo {
        loop {
            let mut random = [0; 8];
            self.env.fill(&mut random);
            let no = InstanceNo(AGENT_NUMBERS | (u64::from_le_bytes(random) & (AGENT_NUMBERS - 1)));
            if view.agent_no(no).is_none() {
                return no;
            }
        }
    }

    /// Deletes the agent, its inbox and its planned wakes. An instance of the same name stays.
    pub async fn delete_agent(&self, who: AgentsCaller<'_>, id: &InstanceId) -> Result<(), Fault> {
        who.check_operator("deleting an agent")?;
        let change = |view: &View, draft: &mut Draft| {
            let agent = view.agent(who.tenant, id).cloned().ok_or_else(|| Fault::unknown_agent(id))?;
            draft.remove(&Fact::Agent((*agent).clone()));
            Ok(agent.no)
        };
        let no = self.directory.write(change).await.map_err(amended)?;
        self.cron.owner_removed(who.tenant, no).await;
        // The agent is deleted and its data unreachable. If erasing the data fails, the next start does it.
        let erase = async {
            while self.inbox.drop_inbox(no).await?.more {}
            Ok::<_, StoreError>(())
        };
        if let Err(error) = erase.await {
            tracing::warn!(%error, agent = id.as_str(), "erasing the inbox of a deleted agent failed; the next start tries again");
        }
        Ok(())
    }

    /// Alarms of the tenant, with their owners, and whether there may be more. A bound token sees those of its own agent.
    pub async fn armed(&self, who: AgentsCaller<'_>) -> Result<(Vec<(InstanceId, Alarm)>, bool), Fault> {
        Ok(self.cron.armed_of_tenant(who.tenant, who.bound).await?)
    }

    /// A registered agent or an instance, as the list shows it.
    pub fn descriptor(&self, tenant: &TenantId, id: &InstanceId) -> Option<AgentDescriptor> {
        self.directory.read(|view| {
            if let Some(agent) = view.agent(tenant, id) {
                return Some(describe(&agent.id, agent.name.clone()));
            }
            let instance = view.instance(tenant, id).filter(|it| it.left_ms.is_none())?;
            Some(describe(&instance.name, None))
        })
    }

    /// Registered agents and instances, sorted by id.
    pub fn list(&self, tenant: &TenantId) -> Vec<AgentDescriptor> {
        let mut found: Vec<AgentDescriptor> = self.directory.read(|view| {
            let Some(index) = view.tenant_index(tenant) else { return Vec::new() };
            let registered = index.agents().map(|it| describe(&it.id, it.name.clone()));
            let instances =
                index.instances().filter(|it| it.left_ms.is_none() && view.agent(tenant, &it.name).is_none());
            registered.chain(instances.map(|it| describe(&it.name, None))).collect()
        });
        found.sort_by(|a, b| a.agent_id.cmp(&b.agent_id));
        found
    }

    /// Never fails: an unknown address has the status `unknown`.
    pub fn status(&self, tenant: &TenantId, address: &str) -> AgentStatus {
        let Ok((id, _)) = self.find_agent(tenant, address) else { return AgentStatus::Unknown };
        let (agent, instance) =
            self.directory.read(|view| (view.agent(tenant, &id).cloned(), view.instance(tenant, &id).cloned()));
        let relay = agent.as_ref().map_or_else(|| instance.into_iter().collect(), |agent| self.ways_to(agent).0);
        let sockets =
            relay.iter().filter_map(|it| self.delivery.sockets().socket(it.no)).filter(|socket| !socket.is_idle());
        let traffic = sockets.map(|socket| socket.traffic_ms()).max();
        let attended = agent.as_ref().filter(|agent| self.live.streams.has_open_stream(agent.no));
        let stream_traffic = attended.map(|agent| self.live.streams.traffic_ms(agent.no));
        match traffic.max(stream_traffic) {
            None => AgentStatus::Asleep,
            Some(last_ms) if self.env.now_ms().saturating_sub(last_ms) <= ACTIVE_MS => AgentStatus::Active,
            Some(_) => AgentStatus::Idle,
        }
    }

    /// A number that changes when the agent sends something, reads its inbox, or opens a socket. Callers compare for
    /// inequality, not order, because the clock can be set back.
    pub fn traces_of(&self, agent_no: InstanceNo) -> u64 {
        let stream_traffic = self.live.streams.traffic_ms(agent_no);
        let Some(agent) = self.directory.read(|view| view.agent_no(agent_no).cloned()) else { return stream_traffic };
        let dials = self.ways_to(&agent).0.iter().map(|it| self.delivery.sockets().dials(it.no)).sum::<u64>();
        stream_traffic.wrapping_add(dials)
    }

    /// Whether the agent is connected now, by a stream or a socket.
    pub fn is_here(&self, agent_no: InstanceNo) -> bool {
        if self.live.streams.has_open_stream(agent_no) {
            return true;
        }
        let found = self.directory.read(|view| view.agent_no(agent_no).cloned());
        found.is_some_and(|agent| self.ways_to(&agent).0.iter().any(|it| self.delivery.sockets().is_served(it.no)))
    }

    /// Splits an address into id and session.
    pub(super) fn find_agent(&self, tenant: &TenantId, address: &str) -> Result<(InstanceId, Option<String>), Fault> {
        self.directory.read(|view| {
            let known = |name: &str| {
                let id = name.into();
                view.agent(tenant, &id).is_some()
                    || view.instance(tenant, &id).is_some_and(|it| it.left_ms.is_none())
                    || view.unreadable().has("agent", &[tenant, name])
            };
            let found = address::resolve(address, known).ok_or_else(|| Fault::unknown_agent(address))?;
            if view.unreadable().has("agent", &[tenant, found.agent]) {
                let text = "the record of this agent cannot be read by this server; use a server of a newer version";
                return Err(Fault::new(Class::UnavailableError, text));
            }
            Ok((found.agent.into(), found.session.map(str::to_owned)))
        })
    }

    /// Resolves an address for writing. An instance that is not registered as an agent is registered now, which creates
    /// its inbox.
    pub(super) async fn addressee(&self, tenant: &TenantId, address: &str) -> Result<Addressee, Fault> {
        let (id, session) = self.find_agent(tenant, address)?;
        let found = self.directory.read(|view| view.agent(tenant, &id).cloned());
        let agent = match found {
            Some(agent) => agent,
            None => self.register_instance(tenant, &id).await?,
        };
        let (relay, ways) = self.ways_to(&agent);
        let (ways, unread) = ways.map_or_else(|fault| (Vec::new(), Some(fault)), |ways| (ways, None));
        Ok(Addressee { agent, session, relay, ways, unread })
    }

    async fn register_instance(&self, tenant: &TenantId, id: &InstanceId) -> Result<Arc<Agent>, Fault> {
        let make = |view: &View, draft: &mut Draft| {
            if view.agent(tenant, id).is_none() {
                draft.put(Fact::Agent(self.new_agent(view, tenant, id)));
            }
            Ok::<_, Fault>(())
        };
        self.directory.write(make).await.map_err(amended)?;
        self.directory.read(|view| view.agent(tenant, id).cloned()).ok_or_else(|| Fault::unknown_agent(id))
    }

    /// Instances and connectors of an agent. An instance with the id of the agent is included without a connector.
    pub(super) fn ways_to(&self, agent: &Agent) -> (Vec<Arc<Instance>>, Result<Vec<ConnectorSpec>, Fault>) {
        let specs = self.connectors_of(agent);
        let (mut names, mut ways) = (vec![agent.id.clone()], Vec::new());
        for spec in specs.iter().flatten().cloned() {
            match spec {
                ConnectorSpec::Relay { instance } => names.push(instance),
                other => ways.push(other),
            }
        }
        names.sort();
        names.dedup();
        let relay = self.directory.read(|view| {
            let there =
                |name: &InstanceId| view.instance(&agent.tenant, name).filter(|it| it.left_ms.is_none()).cloned();
            names.iter().filter_map(there).collect()
        });
        (relay, specs.map(|_| ways))
    }

    fn connectors_of(&self, agent: &Agent) -> Result<Vec<ConnectorSpec>, Fault> {
        let Some(sealed) = &agent.connectors else { return Ok(Vec::new()) };
        let opened = self.open_of_agent(agent, sealed, "connectors");
        let specs = opened.and_then(|json| serde_json::from_str(json.expose()).ok());
        specs.ok_or_else(|| {
            let text = "the agent's connectors cannot be read; register them again";
            Fault::new(Class::UnavailableError, text)
        })
    }

    fn open_of_agent(&self, agent: &Agent, sealed: &str, what: &str) -> Option<Secret> {
        let opened = hex::decode(sealed).ok().and_then(|sealed| {
            let context = [agent.tenant.as_str(), "agent", &agent.id, what];
            self.ways.sealer.open(&sealed, &context).ok()
        });
        if opened.is_none() {
            tracing::error!(agent = agent.id.as_str(), what, "opening a secret of an agent failed");
        }
        opened
    }

    /// Verifies the signature of a delivery, over the raw bytes before they are parsed. An agent without a
    /// `webhook_secret` requires none. If the signature is given several times, each must be correct.
    pub fn verify_delivery<'s>(
        &self,
        tenant: &TenantId,
        address: &str,
        body: &[u8],
        signatures: impl Iterator<Item = &'s [u8]>,
    ) -> Result<(), Fault> {
        let Some(secret) = self.webhook_secret(tenant, address)? else { return Ok(()) };
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
        let correct = format!("sha256={}", hex::encode(hmac::sign(&key, body)));
        let mut signatures = signatures.peekable();
        if signatures.peek().is_some() && signatures.all(|given| same_bytes(given, correct.as_bytes())) {
            return Ok(());
        }
        let text = "X-Signature must be sha256=<hex HMAC-SHA256 of the raw body under the agent's webhook_secret>";
        Err(Fault::new(Class::SignatureError, text))
    }

    /// `Err`: the secret cannot be decrypted, so no signature is accepted.
    fn webhook_secret(&self, tenant: &TenantId, address: &str) -> Result<Option<Secret>, Fault> {
        let (id, _) = self.find_agent(tenant, address)?;
        let Some(agent) = self.directory.read(|view| view.agent(tenant, &id).cloned()) else { return Ok(None) };
        let Some(sealed) = &agent.webhook_secret else { return Ok(None) };
        let opened = self.open_of_agent(&agent, sealed, "webhook");
        opened.map(Some).ok_or_else(|| {
            Fault::new(
                Class::UnavailableError,
                "the agent's webhook secret cannot be opened; is this the right master.key?",
            )
        })
    }
}

fn describe(id: &InstanceId, name: Option<String>) -> AgentDescriptor {
    let capabilities = ["deliver", "wake", "augment", "template"].map(str::to_owned).to_vec();
    AgentDescriptor { agent_id: id.to_string(), agent_name: name, capabilities }
}

fn amended(error: AmendError<Fault>) -> Fault {
    match error {
        AmendError::Refused(fault) => fault,
        AmendError::Store(error) => error.into(),
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let class = if error == StoreError::Conflict { Class::ConflictError } else { Class::UnavailableError };
        Self::new(class, error.refusal())
    }
}

impl From<DeskError> for Fault {
    fn from(error: DeskError) -> Self {
        let class = match &error {
            DeskError::BadRequest(_) => Class::ValidationError,
            DeskError::Forbidden(_) => Class::ForbiddenError,
            DeskError::NotFound(_) => Class::NotFoundError,
            DeskError::Conflict(_) => Class::ConflictError,
            DeskError::TooLarge(_) => Class::TooLargeError,
            DeskError::RateLimited(_) => Class::RateLimitedError,
            DeskError::Elsewhere(_) => Class::DeliveryFailedError,
            DeskError::Store(error) => return error.clone().into(),
        };
        Self::new(class, error.to_string())
    }
}
