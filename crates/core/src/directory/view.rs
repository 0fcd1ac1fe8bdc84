//! Tables of the directory, and the indexes for the hot paths.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use frontdesk_wire::{BotId, GatewayId, InstanceId, InstanceNo, TenantId, UserId};

use super::facts::{
    Agent, Binding, Bot, DmDefault, Enrollment, Fact, Gateway, Grant, Instance, LinkCode, OfferedCommands, Policy,
    Principal, Route, SigningKeyRecord, SkillRules, Tenant, Token, key,
};
use super::index::{PlatformIndex, TenantIndex, put_in_order};
use super::unreadable::Unreadable;
use crate::hash::TextMap;
use crate::port::store::Record;

/// What is kept of each record besides its content.
struct Known {
    version: u64,
    tenant: Option<TenantId>,
    /// The length of its JSON.
    bytes: usize,
}

#[derive(Default)]
pub struct View {
    /// Version of the directory that this view shows.
    pub(super) directory_version: u64,
    known: HashMap<(&'static str, String), Known>,
    pub(super) unreadable: Unreadable,
    pub(super) tenants: BTreeMap<TenantId, Arc<Tenant>>,
    pub(super) tokens: BTreeMap<String, Arc<Token>>,
    pub(super) enrollments: HashMap<String, Arc<Enrollment>>,
    pub(super) bots: BTreeMap<String, Arc<Bot>>,
    pub(super) routes: BTreeMap<String, Arc<Route>>,
    pub(super) bindings: BTreeMap<String, Arc<Binding>>,
    pub(super) gateways: BTreeMap<GatewayId, Arc<Gateway>>,
    pub(super) instances: BTreeMap<String, Arc<Instance>>,
    pub(super) policies: BTreeMap<String, Arc<Policy>>,
    pub(super) grants: BTreeMap<String, Arc<Grant>>,
    pub(super) principals: BTreeMap<String, Arc<Principal>>,
    pub(super) dm_defaults: BTreeMap<String, Arc<DmDefault>>,
    pub(super) link_codes: HashMap<String, Arc<LinkCode>>,
    pub(super) signing_keys: BTreeMap<String, Arc<SigningKeyRecord>>,
    pub(super) skill_rules: HashMap<String, Arc<SkillRules>>,
    pub(super) commands: BTreeMap<String, Arc<OfferedCommands>>,
    agent_by_no: HashMap<InstanceNo, Arc<Agent>>,
    token_by_hash: HashMap<String, Arc<Token>>,
    instance_by_no: HashMap<InstanceNo, Arc<Instance>>,
    by_tenant: TextMap<TenantId, TenantIndex>,
    /// Platform, then key, to route.
    routed: TextMap<String, TextMap<String, Arc<Route>>>,
    /// Platform, then user: links in all tenants, for direct messages to a shared bot.
    linked: TextMap<String, TextMap<UserId, Vec<Arc<Binding>>>>,
    /// Names are unique in a server, but databases of the first release may have one name in several tenants.
    instances_named: HashMap<InstanceId, Vec<Arc<Instance>>>,
}

impl View {
    fn version(&self, kind: &'static str, key: &str) -> u64 {
        self.known.get(&(kind, key.to_owned())).map_or(0, |known| known.version)
    }

    /// Index of a known tenant.
    pub fn tenant_index(&self, tenant: &TenantId) -> Option<&TenantIndex> {
        self.by_tenant.get(tenant).filter(|index| index.known)
    }

    pub fn instance(&self, tenant: &TenantId, name: &InstanceId) -> Option<&Arc<Instance>> {
        self.by_tenant.get(tenant)?.instance(name)
    }

    pub fn instance_no(&self, no: InstanceNo) -> Option<&Arc<Instance>> {
        self.instance_by_no.get(&no)
    }

    pub fn agent(&self, tenant: &TenantId, id: &InstanceId) -> Option<&Arc<Agent>> {
        self.by_tenant.get(tenant)?.agents.get(id)
    }

    pub fn agent_no(&self, no: InstanceNo) -> Option<&Arc<Agent>> {
        self.agent_by_no.get(&no)
    }

    pub fn agent_nos(&self) -> impl Iterator<Item = InstanceNo> + '_ {
        self.agent_by_no.keys().copied()
    }

    /// Tenant and name of the instance or agent with this number.
    pub fn owner_of_no(&self, no: InstanceNo) -> Option<(TenantId, InstanceId)> {
        let instance = self.instance_no(no).map(|it| (it.tenant.clone(), it.name.clone()));
        instance.or_else(|| self.agent_no(no).map(|it| (it.tenant.clone(), it.id.clone())))
    }

    /// Instances of this name in all tenants.
    pub fn instances_named(&self, name: &InstanceId) -> &[Arc<Instance>] {
        self.instances_named.get(name).map_or(&[], Vec::as_slice)
    }

    /// The bytes of all records of a tenant, and those of one record, if it is one of them.
    pub(super) fn bytes_of(&self, tenant: &TenantId, kind: &'static str, key: &str) -> (usize, usize) {
        let all = self.by_tenant.get(tenant).map_or(0, |index| index.bytes);
        let own = self.known.get(&(kind, key.to_owned())).filter(|known| known.tenant.as_deref() == Some(tenant));
        (all, own.map_or(0, |known| known.bytes))
    }

    /// Those of them that were not removed.
    pub fn live_instances_named(&self, name: &InstanceId) -> impl Iterator<Item = &Arc<Instance>> {
        self.instances_named(name).iter().filter(|it| it.left_ms.is_none())
    }

    /// Records that this version cannot read.
    pub fn unreadable(&self) -> &Unreadable {
        &self.unreadable
    }

    /// All records, in no order.
    pub fn facts(&self) -> Vec<Fact> {
        let agents = self.by_tenant.values().flat_map(|index| index.agents.values());
        let mut facts: Vec<Fact> = agents.map(|it| Fact::Agent((**it).clone())).collect();
        facts.extend(self.tenants.values().map(|it| Fact::Tenant((**it).clone())));
        facts.extend(self.tokens.values().map(|it| Fact::Token((**it).clone())));
        facts.extend(self.enrollments.values().map(|it| Fact::Enrollment((**it).clone())));
        facts.extend(self.bots.values().map(|it| Fact::Bot((**it).clone())));
        facts.extend(self.routes.values().map(|it| Fact::Route((**it).clone())));
        facts.extend(self.bindings.values().map(|it| Fact::Binding((**it).clone())));
        facts.extend(self.gateways.values().map(|it| Fact::Gateway((**it).clone())));
        facts.extend(self.instances.values().map(|it| Fact::Instance((**it).clone())));
        facts.extend(self.policies.values().map(|it| Fact::Policy((**it).clone())));
        facts.extend(self.grants.values().map(|it| Fact::Grant((**it).clone())));
        facts.extend(self.principals.values().map(|it| Fact::Principal((**it).clone())));
        facts.extend(self.dm_defaults.values().map(|it| Fact::DmDefault((**it).clone())));
        facts.extend(self.link_codes.values().map(|it| Fact::LinkCode((**it).clone())));
        facts.extend(self.signing_keys.values().map(|it| Fact::SigningKey((**it).clone())));
        facts.extend(self.skill_rules.values().map(|it| Fact::SkillRules((**it).clone())));
        facts.extend(self.commands.values().map(|it| Fact::Commands((**it).clone())));
        facts
    }

    /// Kinds and keys of all records.
    pub(super) fn names(&self) -> impl Iterator<Item = &(&'static str, String)> {
        self.known.keys()
    }

    pub(super) fn agent_by_key(&self, key: &str) -> Option<&Arc<Agent>> {
        let (tenant, id) = key.split_once('\u{1f}')?;
        self.agent(&tenant.into(), &id.into())
    }

    pub fn tenant(&self, name: &TenantId) -> Option<&Arc<Tenant>> {
        self.tenants.get(name)
    }

    pub fn tenants(&self) -> impl ExactSizeIterator<Item = &Arc<Tenant>> {
        self.tenants.values()
    }

    pub fn token(&self, id: &str) -> Option<&Arc<Token>> {
        self.tokens.get(id)
    }

    pub fn tokens(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.tokens.values()
    }

    pub fn gateway(&self, id: &GatewayId) -> Option<&Arc<Gateway>> {
        self.gateways.get(id)
    }

    pub fn gateways(&self) -> impl Iterator<Item = &Arc<Gateway>> {
        self.gateways.values()
    }

    pub fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.instances.values()
    }

    pub fn bots(&self) -> impl Iterator<Item = &Arc<Bot>> {
        self.bots.values()
    }

    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.values()
    }

    pub fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values()
    }

    pub fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.grants.values()
    }

    pub fn signing_keys(&self) -> impl Iterator<Item = &Arc<SigningKeyRecord>> {
        self.signing_keys.values()
    }

    pub fn skill_rules(&self, tenant: &TenantId) -> Option<&Arc<SkillRules>> {
        self.skill_rules.get(tenant.as_str())
    }

    /// All records with versions, for comparison with the store.
    pub fn records(&self) -> Vec<Record> {
        let record = |fact: Fact| {
            let (kind, key, json) = (fact.kind(), fact.key(), fact.json());
            Record { version: self.version(kind, &key), kind: kind.into(), key, json: Some(json) }
        };
        let mut records: Vec<Record> = self.facts().into_iter().map(record).collect();
        records.sort_by(|a, b| (&a.kind, &a.key).cmp(&(&b.kind, &b.key)));
        records
    }

    pub fn token_by_hash(&self, hash: &str) -> Option<&Arc<Token>> {
        self.token_by_hash.get(hash)
    }

    pub fn bot(&self, platform: &str, id: &BotId) -> Option<&Arc<Bot>> {
        self.bots.get(&key(&[platform, id]))
    }

    pub fn route(&self, platform: &str, discriminator: &str) -> Option<&Arc<Route>> {
        self.routed.get(platform)?.get(discriminator)
    }

    /// All instances of this tenant that the user is linked to, newest link last.
    pub fn links(&self, tenant: &TenantId, platform: &str, user_id: &UserId) -> &[Arc<Binding>] {
        let there = self.by_tenant.get(tenant).and_then(|index| index.on_platform(platform));
        there.and_then(|there| there.person(user_id)).map_or(&[], |person| person.links.as_slice())
    }

    /// The same for all tenants.
    pub fn links_anywhere(&self, platform: &str, user_id: &UserId) -> &[Arc<Binding>] {
        self.linked.get(platform).and_then(|people| people.get(user_id)).map_or(&[], Vec::as_slice)
    }

    pub fn dm_default(&self, tenant: &TenantId, platform: &str, user_id: &UserId) -> Option<&Arc<DmDefault>> {
        self.by_tenant.get(tenant)?.on_platform(platform)?.person(user_id)?.dm_default.as_ref()
    }

    pub fn apply(&mut self, fact: Fact, version: u64) {
        let fact_key = fact.key();
        self.forget(fact.kind(), &fact_key);
        let known = Known { version, tenant: fact.tenant().cloned(), bytes: fact.json().len() };
        if let Some(tenant) = &known.tenant {
            self.by_tenant.entry(tenant.clone()).or_default().bytes += known.bytes;
        }
        self.known.insert((fact.kind(), fact_key.clone()), known);
        match fact {
            Fact::Tenant(it) => {
                self.by_tenant.entry(it.name.clone()).or_default().known = true;
                self.tenants.insert(it.name.clone(), Arc::new(it));
            }
            Fact::Enrollment(it) => drop(self.enrollments.insert(fact_key, Arc::new(it))),
            Fact::Bot(it) => drop(self.bots.insert(fact_key, Arc::new(it))),
            Fact::Gateway(it) => {
                *self.by_tenant.entry(it.tenant.clone()).or_default().gateways_mut(&it) += 1;
                self.gateways.insert(it.id.clone(), Arc::new(it));
            }
            Fact::LinkCode(it) => drop(self.link_codes.insert(fact_key, Arc::new(it))),
            Fact::SigningKey(it) => drop(self.signing_keys.insert(fact_key, Arc::new(it))),
            Fact::SkillRules(it) => drop(self.skill_rules.insert(fact_key, Arc::new(it))),
            Fact::Commands(it) => drop(self.commands.insert(fact_key, Arc::new(it))),
            Fact::Agent(it) => {
                let it = Arc::new(it);
                self.agent_by_no.insert(it.no, it.clone());
                self.by_tenant.entry(it.tenant.clone()).or_default().agents.insert(it.id.clone(), it);
            }
            Fact::Route(it) => {
                let it = Arc::new(it);
                self.routed.entry(it.platform.clone()).or_default().insert(it.key.clone(), it.clone());
                self.routes.insert(fact_key, it);
            }
            Fact::Policy(it) => {
                self.on_platform(&it.tenant, &it.policy.platform).set_relevance(&it);
                self.policies.insert(fact_key, Arc::new(it));
            }
            Fact::Token(it) => {
                let it = Arc::new(it);
                self.token_by_hash.insert(it.hash.clone(), it.clone());
                self.tokens.insert(fact_key, it);
            }
            Fact::Instance(it) => {
                let it = Arc::new(it);
                self.instances_named.entry(it.name.clone()).or_default().push(it.clone());
                self.instance_by_no.insert(it.no, it.clone());
                self.by_tenant.entry(it.tenant.clone()).or_default().instances.insert(it.name.clone(), it.clone());
                self.instances.insert(fact_key, it);
            }
            Fact::Binding(it) => {
                let it = Arc::new(it);
                self.on_platform(&it.tenant, &it.platform).link(it.clone());
                let people = self.linked.entry(it.platform.clone()).or_default();
                let links = people.entry(it.user_id.clone()).or_default();
                put_in_order(links, it.clone(), |link| (link.at_ms, &link.tenant));
                self.bindings.insert(fact_key, it);
            }
            Fact::DmDefault(it) => {
                let it = Arc::new(it);
                self.on_platform(&it.tenant, &it.platform).prefer(&it.user_id, Some(it.clone()));
                self.dm_defaults.insert(fact_key, it);
            }
            Fact::Grant(it) => {
                let it = Arc::new(it);
                self.on_platform(&it.tenant, &it.platform).hold(it.clone());
                self.grants.insert(fact_key, it);
            }
            Fact::Principal(it) => {
                let it = Arc::new(it);
                let index = self.by_tenant.entry(it.tenant.clone()).or_default();
                index.principals.insert(it.instance.clone(), it.clone());
                self.principals.insert(fact_key, it);
            }
        }
    }

    pub fn forget(&mut self, kind: &'static str, fact_key: &str) {
        self.unreadable.remove(kind, fact_key);
        if let Some(Known { tenant: Some(tenant), bytes, .. }) = self.known.remove(&(kind, fact_key.to_owned()))
            && let Some(index) = self.by_tenant.get_mut(&tenant)
        {
            index.bytes -= bytes;
        }
        match kind {
            "tenant" => {
                self.tenants.remove(fact_key);
                if let Some(index) = self.by_tenant.get_mut(fact_key) {
                    index.known = false;
                }
            }
            "enrollment" => drop(self.enrollments.remove(fact_key)),
            "bot" => drop(self.bots.remove(fact_key)),
            "gateway" => {
                let Some(it) = self.gateways.remove(fact_key) else { return };
                if let Some(index) = self.by_tenant.get_mut(&it.tenant) {
                    *index.gateways_mut(&it) -= 1;
                }
            }
            "link_code" => drop(self.link_codes.remove(fact_key)),
            "signing_key" => drop(self.signing_keys.remove(fact_key)),
            "skill_rules" => drop(self.skill_rules.remove(fact_key)),
            "commands" => drop(self.commands.remove(fact_key)),
            "agent" => {
                let Some((tenant, id)) = fact_key.split_once('\u{1f}') else { return };
                let Some(it) = self.by_tenant.get_mut(tenant).and_then(|index| index.agents.remove(id)) else { return };
                self.agent_by_no.remove(&it.no);
            }
            "route" => {
                let Some(it) = self.routes.remove(fact_key) else { return };
                self.routed.get_mut(&it.platform).map(|routed| routed.remove(&it.key));
            }
            "policy" => {
                let Some(it) = self.policies.remove(fact_key) else { return };
                self.on_platform(&it.tenant, &it.policy.platform).clear_relevance(&it.instance);
            }
            "token" => {
                if let Some(it) = self.tokens.remove(fact_key) {
                    self.token_by_hash.remove(&it.hash);
                }
            }
            "instance" => {
                let Some(it) = self.instances.remove(fact_key) else { return };
                self.instance_by_no.remove(&it.no);
                if let Some(named) = self.instances_named.get_mut(&it.name) {
                    named.retain(|other| other.tenant != it.tenant);
                    if named.is_empty() {
                        self.instances_named.remove(&it.name);
                    }
                }
                self.by_tenant.get_mut(&it.tenant).map(|index| index.instances.remove(&it.name));
            }
            "binding" => {
                let Some(it) = self.bindings.remove(fact_key) else { return };
                self.on_platform(&it.tenant, &it.platform).unlink(&it);
                let Some(people) = self.linked.get_mut(&it.platform) else { return };
                if let Some(links) = people.get_mut(&it.user_id) {
                    links.retain(|link| **link != *it);
                    if links.is_empty() {
                        people.remove(&it.user_id);
                    }
                }
            }
            "dm_default" => {
                let Some(it) = self.dm_defaults.remove(fact_key) else { return };
                self.on_platform(&it.tenant, &it.platform).prefer(&it.user_id, None);
            }
            "grant" => {
                let Some(it) = self.grants.remove(fact_key) else { return };
                self.on_platform(&it.tenant, &it.platform).release(&it);
            }
            "principal" => {
                let Some(it) = self.principals.remove(fact_key) else { return };
                self.by_tenant.get_mut(&it.tenant).map(|index| index.principals.remove(&it.instance));
            }
            _ => {}
        }
    }

    fn on_platform(&mut self, tenant: &TenantId, platform: &str) -> &mut PlatformIndex {
        let platforms = &mut self.by_tenant.entry(tenant.clone()).or_default().platforms;
        platforms.entry(platform.to_owned()).or_default()
    }
}
