//! `/stop`: from a user to the instance that runs the turn, and from a gateway to another instance.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_wire::{ChatId, InstanceNo, SessionKey, TenantId, session_aliases};

use super::served::Served;
use super::sockets::Sockets;
use super::turns::TURN_MS;
use crate::base::Base;
use crate::directory::index::TenantIndex;
use crate::directory::{Caller, DirectoryPlane};
use crate::env::Env;
use crate::meters::{Meters, Why};
use crate::port::store::{Ledger, StoreError};
use crate::port::stores::Stores;
use crate::tail::Tail;

/// Interrupts per second that the gateways of one tenant may send to other servers. Each one is sent to all servers.
const PASSED_PER_S: u32 = 16;
/// Queued interrupts from other servers: per tenant, and the number of tenants. Further ones are dropped.
const ASKED_MAX: usize = 32;
pub const ASKING_TENANTS_MAX: usize = 1_024;
/// Older interrupts of gateways are dropped, because they could stop the next turn of the session.
const AGE_MAX_MS: u64 = 3_000;
/// Time limit for reading the turns of the tenant's other agents from the ledger.
const SEARCH_MS: u64 = 1_500;

/// What a user's `/stop` interrupts.
pub(crate) struct LiveTurns {
    session_key: SessionKey,
    /// Gateways name sessions in different ways, so each instance gets the interrupt under every possible name.
    names: Vec<SessionKey>,
    turns: Vec<(InstanceNo, ChatId)>,
}

/// An interrupt that a gateway asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptRequest {
    pub session_key: SessionKey,
    /// Time of the request, by the steady clock.
    pub at_ms: u64,
}

pub struct Interrupts {
    env: Arc<dyn Env>,
    directory: Arc<DirectoryPlane>,
    ledger: Arc<dyn Ledger>,
    sockets: Arc<Sockets>,
    served: Arc<Served>,
    /// The current second, and the interrupts of each tenant that were passed on in it.
    passed: Mutex<(u64, HashMap<TenantId, u32>)>,
    /// Interrupts from other servers. A tenant stays in the map while a task works on its queue.
    asked: Mutex<HashMap<TenantId, VecDeque<InterruptRequest>>>,
    tail: Arc<Tail>,
    meters: Arc<Meters>,
}

impl Interrupts {
    pub(super) fn new(
        base: &Base,
        stores: &Stores,
        directory: &Arc<DirectoryPlane>,
        sockets: &Arc<Sockets>,
        served: &Arc<Served>,
    ) -> Self {
        Self {
            env: base.env.clone(),
            directory: directory.clone(),
            ledger: stores.ledger.clone(),
            sockets: sockets.clone(),
            served: served.clone(),
            passed: Mutex::default(),
            asked: Mutex::default(),
            tail: base.tail.clone(),
            meters: base.meters.clone(),
        }
    }

    /// The turns of this session on those of the instances that have a socket. `None`: there are none.
    pub(crate) async fn live_turns(
        &self,
        receivers: &[InstanceNo],
        session_key: SessionKey,
        names: Vec<SessionKey>,
        now_ms: u64,
    ) -> Result<Option<LiveTurns>, StoreError> {
        let since_ms = now_ms.saturating_sub(TURN_MS);
        let mut turns = Vec::new();
        for &instance in receivers {
            if let Some(chat_id) = self.turn_of(instance, &session_key, since_ms).await? {
                turns.push((instance, chat_id));
            }
        }
        Ok((!turns.is_empty()).then_some(LiveTurns { session_key, names, turns }))
    }

    /// True: the interrupt was sent to at least one of the instances.
    pub(crate) async fn send(&self, live: &LiveTurns) -> Result<bool, StoreError> {
        let (mut is_sent, mut failed) = (false, None);
        for (instance, chat_id) in &live.turns {
            match self.send_all(*instance, chat_id, live).await {
                Ok(this) => is_sent |= this,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !is_sent => Err(error),
            Some(error) => {
                tracing::warn!(%error, "an interrupt was sent to some of the agents only");
                Ok(true)
            }
            None => Ok(is_sent),
        }
    }

    /// Sends the interrupt to one instance, under all names of the session. True: under the first one.
    async fn send_all(&self, instance: InstanceNo, chat_id: &ChatId, live: &LiveTurns) -> Result<bool, StoreError> {
        let is_sent = self.send_one(instance, &live.session_key, chat_id).await?;
        for name in live.names.iter().filter(|name| is_sent && **name != live.session_key) {
            if let Err(error) = self.send_one(instance, name, chat_id).await {
                tracing::warn!(%error, "an interrupt was sent under some names of its session only");
                break;
            }
        }
        Ok(is_sent)
    }

    /// Forwards an interrupt of a gateway to the instance of its tenant that runs the session, preferably the caller's
    /// own, at this server or another. True: it was sent from here.
    pub async fn forward(&self, caller: &Caller, asked: &InterruptRequest) -> Result<bool, StoreError> {
        let found = self.forward_here(&caller.tenant, Some(caller.instance.no), asked).await;
        let may_be_elsewhere = !matches!(found, Ok(true)) && !self.served.is_alone() && !self.is_late(asked);
        if may_be_elsewhere && self.may_pass(&caller.tenant) {
            self.served.interrupt_turn_elsewhere(&caller.tenant, &asked.session_key);
        }
        found
    }

    /// Limits the interrupts of one tenant, because all tenants share the bus.
    fn may_pass(&self, tenant: &TenantId) -> bool {
        let second = self.env.steady_ms() / 1000;
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.0 != second {
            *passed = (second, HashMap::new());
        }
        let count = passed.1.entry(tenant.clone()).or_default();
        *count += 1;
        let (may, is_first) = (*count <= PASSED_PER_S, *count == PASSED_PER_S + 1);
        drop(passed);
        if !may {
            self.count_dropped("too_many");
        }
        if is_first {
            let (tenant, per_s) = (tenant.as_str(), PASSED_PER_S);
            tracing::warn!(tenant, per_s, "interrupts were dropped: the limit for other servers was reached");
        }
        may
    }

    fn count_dropped(&self, why: &'static str) {
        self.meters.interrupts_dropped.get_or_create(&Why { why }).inc();
    }

    /// Another server asks to interrupt a session of this tenant. True: the caller is to [work them off](Self::work_off).
    pub fn ask(&self, tenant: &TenantId, session_key: SessionKey) -> bool {
        let new = InterruptRequest { session_key, at_ms: self.env.steady_ms() };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let tenants = asked.len();
        let known = asked.get_mut(tenant);
        if let Some(same) = known.and_then(|it| it.iter_mut().find(|it| it.session_key == new.session_key)) {
            same.at_ms = new.at_ms;
            return false;
        }
        match asked.get_mut(tenant) {
            Some(waiting) if waiting.len() < ASKED_MAX => waiting.push_back(new),
            None if tenants < ASKING_TENANTS_MAX => {
                asked.insert(tenant.clone(), VecDeque::from([new]));
                return true;
            }
            _ => {
                drop(asked);
                self.count_dropped("queue_full");
            }
        }
        false
    }

    /// Works on one tenant's queue, so that slow reads delay only the interrupts of this tenant.
    pub async fn work_off(&self, tenant: TenantId) {
        let next = || {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let found = asked.get_mut(&tenant)?.pop_front();
            if found.is_none() {
                asked.remove(&tenant);
            }
            found
        };
        while let Some(asked) = next() {
            if let Err(error) = self.forward_here(&tenant, None, &asked).await {
                tracing::warn!(%error, "looking up the turn of an interrupt from another server failed");
            }
        }
    }

    fn is_late(&self, asked: &InterruptRequest) -> bool {
        self.env.steady_ms().saturating_sub(asked.at_ms) > AGE_MAX_MS
    }

    /// Interrupts the session on the instance of this tenant that has a socket here and runs it. What is known in memory
    /// comes first; the ledger is asked for one instance at a time.
    async fn forward_here(
        &self,
        tenant: &TenantId,
        preferred: Option<InstanceNo>,
        asked: &InterruptRequest,
    ) -> Result<bool, StoreError> {
        let session_key = &asked.session_key;
        let mut instances: Vec<InstanceNo> = self.directory.read(|view| {
            let of_tenant = view.tenant_index(tenant).into_iter().flat_map(TenantIndex::instances).map(|it| it.no);
            of_tenant.filter(|no| self.sockets.is_live(*no)).collect()
        });
        instances.sort_by_key(|no| (Some(*no) != preferred, *no));
        let since_ms = self.env.now_ms().saturating_sub(TURN_MS);
        let find = |among: &[InstanceNo], names: &[SessionKey]| {
            among.iter().find_map(|no| Some((*no, self.sockets.turn_chat(*no, names, since_ms)?)))
        };
        if self.is_late(asked) {
            self.count_dropped("late");
            return Ok(false);
        }
        let own = instances.first().filter(|no| Some(**no) == preferred);
        if let Some(own) = own {
            self.load_turns(*own).await?; // prefers the caller's own session over one of the same name elsewhere
        }
        let (began_ms, mut is_cut, mut failed) = (self.env.steady_ms(), false, None);
        let mut found = find(&instances, std::slice::from_ref(session_key));
        for &instance in &instances {
            is_cut = self.is_late(asked) || self.env.steady_ms().saturating_sub(began_ms) > SEARCH_MS;
            if found.is_some() || is_cut {
                break;
            }
            match self.load_turns(instance).await {
                Ok(true) => found = find(&[instance], std::slice::from_ref(session_key)),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
        }
        if found.is_none() {
            // Newer gateways may use another name for the session. Another agent may have a session of that name, so the
            // aliases are searched only among all known turns, or in the caller's own.
            let among = if is_cut || failed.is_some() { own.map_or(&[][..], std::slice::from_ref) } else { &instances };
            found = find(among, &session_aliases(session_key));
        }
        let Some((instance, chat_id)) = found else {
            if is_cut {
                self.count_dropped("late");
            }
            return failed.map_or(Ok(false), Err);
        };
        if self.is_late(asked) {
            self.count_dropped("late");
            return Ok(false);
        }
        self.send_one(instance, session_key, &chat_id).await
    }

    /// The chat of the session's turn on an instance that has a socket, here or at another server.
    async fn turn_of(
        &self,
        instance: InstanceNo,
        name: &SessionKey,
        since_ms: u64,
    ) -> Result<Option<ChatId>, StoreError> {
        if self.sockets.is_live(instance) {
            self.load_turns(instance).await?;
            return Ok(self.sockets.turn_chat(instance, std::slice::from_ref(name), since_ms));
        }
        if self.served.desk_of(instance).await?.is_none() {
            return Ok(None);
        }
        let turns = self.ledger.sent_turns(instance, since_ms).await?;
        Ok(turns.into_iter().find(|turn| turn.session_key == *name).map(|turn| turn.chat_id))
    }

    /// Reads the turns from before this socket from the ledger, once per socket. True: they were read now.
    async fn load_turns(&self, instance: InstanceNo) -> Result<bool, StoreError> {
        let Some(socket) = self.sockets.lacks_turns(instance) else { return Ok(false) };
        let since_ms = self.env.now_ms().saturating_sub(TURN_MS);
        let stored = self.ledger.sent_turns(instance, since_ms).await?;
        self.sockets.complete_turns(instance, socket, stored);
        Ok(true)
    }

    /// Sends the interrupt to the socket of the instance, here or at another server.
    async fn send_one(
        &self,
        instance: InstanceNo,
        session_key: &SessionKey,
        chat_id: &ChatId,
    ) -> Result<bool, StoreError> {
        let is_sent = match self.sockets.is_live(instance) {
            true => self.served.interrupt_here(instance, session_key, chat_id),
            false => self.served.interrupt_elsewhere(instance, session_key, chat_id).await?,
        };
        if is_sent {
            self.meters.interrupts.inc();
            self.tail.publish(&self.directory.tenant_of_no(instance), "interrupted", |notice| {
                notice.chat_id.clone_from(chat_id);
                notice.text = format!("interrupt sent for {session_key}");
            });
        }
        Ok(is_sent)
    }
}
