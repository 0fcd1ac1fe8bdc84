//! What the gate reads for every event, by tenant and platform: lookups build no keys, and do not get slower when
//! other tenants grow.

use std::collections::HashSet;
use std::sync::Arc;

use frontdesk_wire::{ChatId, InstanceId, UserId};

use super::facts::{Agent, Binding, DmDefault, Gateway, Grant, Instance, Policy, Principal};
use crate::hash::TextMap;

/// Data of one tenant.
#[derive(Default)]
pub struct TenantIndex {
    /// The tenant record exists; other records of it may be read before or after.
    pub(super) known: bool,
    pub(super) instances: TextMap<InstanceId, Arc<Instance>>,
    pub(super) principals: TextMap<InstanceId, Arc<Principal>>,
    pub(super) agents: TextMap<InstanceId, Arc<Agent>>,
    /// Gateways: (live, revoked).
    pub(super) gateways: (usize, usize),
    pub(super) platforms: TextMap<String, PlatformIndex>,
    /// Of the JSON of its records.
    pub(super) bytes: usize,
}

/// Data of one tenant on one platform.
#[derive(Default)]
pub struct PlatformIndex {
    people: TextMap<UserId, Person>,
    /// Links by instance; the first one is the oldest.
    owners: TextMap<InstanceId, Vec<Arc<Binding>>>,
    /// By channel; usually one scope per channel id.
    grants: TextMap<ChatId, Vec<Arc<Grant>>>,
    relevance: TextMap<InstanceId, Relevance>,
}

/// A user on a platform.
#[derive(Default)]
pub struct Person {
    /// Newest last.
    pub links: Vec<Arc<Binding>>,
    pub dm_default: Option<Arc<DmDefault>>,
}

/// A relevance policy, prepared for lookups.
#[derive(Debug, Default)]
pub struct Relevance {
    pub require_address: bool,
    pub allow_other_bots: bool,
    free: HashSet<String>,
}

impl TenantIndex {
    pub fn instance(&self, name: &InstanceId) -> Option<&Arc<Instance>> {
        self.instances.get(name)
    }

    pub fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.instances.values()
    }

    pub fn agents(&self) -> impl ExactSizeIterator<Item = &Arc<Agent>> {
        self.agents.values()
    }

    /// Instances: (live, removed).
    pub fn instance_counts(&self) -> (usize, usize) {
        let live = self.instances.values().filter(|it| it.left_ms.is_none()).count();
        (live, self.instances.len() - live)
    }

    /// Gateways: (live, revoked).
    pub fn gateway_counts(&self) -> (usize, usize) {
        self.gateways
    }

    pub(super) fn gateways_mut(&mut self, gateway: &Gateway) -> &mut usize {
        if gateway.revoked_ms.is_none() { &mut self.gateways.0 } else { &mut self.gateways.1 }
    }

    pub fn principal(&self, instance: &InstanceId) -> Option<&Arc<Principal>> {
        self.principals.get(instance)
    }

    pub fn on_platform(&self, platform: &str) -> Option<&PlatformIndex> {
        self.platforms.get(platform)
    }
}

impl PlatformIndex {
    pub fn person(&self, user_id: &UserId) -> Option<&Person> {
        self.people.get(user_id).filter(|person| !person.links.is_empty())
    }

    /// The user whose visibility applies to the instance: the one who was linked to it first.
    pub fn owner(&self, instance: &InstanceId) -> Option<&Arc<Binding>> {
        self.owners.get(instance)?.first()
    }

    pub fn grant(&self, scope: &str, channel: &ChatId) -> Option<&Arc<Grant>> {
        self.grants.get(channel)?.iter().find(|grant| grant.scope == scope)
    }

    pub fn relevance(&self, instance: &InstanceId) -> Option<&Relevance> {
        self.relevance.get(instance)
    }

    pub(super) fn link(&mut self, it: Arc<Binding>) {
        let links = &mut self.people.entry(it.user_id.clone()).or_default().links;
        put_in_order(links, it.clone(), |link| (link.at_ms, &link.instance));
        let owners = self.owners.entry(it.instance.clone()).or_default();
        put_in_order(owners, it, |link| (link.since_ms, &link.user_id));
    }

    pub(super) fn unlink(&mut self, it: &Binding) {
        if let Some(person) = self.people.get_mut(&it.user_id) {
            person.links.retain(|link| link.instance != it.instance);
            if person.links.is_empty() && person.dm_default.is_none() {
                self.people.remove(&it.user_id);
            }
        }
        if let Some(owners) = self.owners.get_mut(&it.instance) {
            owners.retain(|link| link.user_id != it.user_id);
            if owners.is_empty() {
                self.owners.remove(&it.instance);
            }
        }
    }

    pub(super) fn prefer(&mut self, user_id: &UserId, default: Option<Arc<DmDefault>>) {
        self.people.entry(user_id.clone()).or_default().dm_default = default;
    }

    pub(super) fn hold(&mut self, it: Arc<Grant>) {
        self.grants.entry(it.channel.clone()).or_default().push(it);
    }

    pub(super) fn release(&mut self, it: &Grant) {
        if let Some(held) = self.grants.get_mut(&it.channel) {
            held.retain(|grant| grant.scope != it.scope);
            if held.is_empty() {
                self.grants.remove(&it.channel);
            }
        }
    }

    pub(super) fn set_relevance(&mut self, it: &Policy) {
        self.relevance.insert(it.instance.clone(), Relevance::of(it));
    }

    pub(super) fn clear_relevance(&mut self, instance: &InstanceId) {
        self.relevance.remove(instance);
    }
}

/// Inserts into a sorted list.
pub(super) fn put_in_order(list: &mut Vec<Arc<Binding>>, one: Arc<Binding>, place: impl Fn(&Binding) -> (u64, &str)) {
    let at = list.partition_point(|other| place(other) <= place(&one));
    list.insert(at, one);
}

impl Relevance {
    fn of(it: &Policy) -> Self {
        Self {
            require_address: it.policy.require_address,
            allow_other_bots: it.policy.allow_other_bots,
            free: it.policy.free_response_scopes.iter().cloned().collect(),
        }
    }

    /// Whether messages in this place need not address the bot; `*` means everywhere, as in gateways.
    pub fn is_free(&self, chat_id: &ChatId, channel: &ChatId) -> bool {
        !self.free.is_empty() && ["*", chat_id, channel].iter().any(|place| self.free.contains(*place))
    }
}

impl Person {
    /// Which link gets their direct messages: the chosen one if it still exists, otherwise the newest.
    pub fn preferred(&self) -> Option<(&Arc<Binding>, &'static str)> {
        let chosen = self.dm_default.as_ref().and_then(|it| self.links.iter().find(|l| l.instance == it.instance));
        chosen.map(|link| (link, "dm-default")).or_else(|| self.links.last().map(|link| (link, "latest")))
    }
}
