//! The tables of the directory and the indexes that the hot paths read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::facts::{Binding, Bot, Enrollment, Fact, Gateway, Instance, Policy, Route, Tenant, Token, key};

/// User id to links.
type People = HashMap<String, Vec<Arc<Binding>>>;

#[derive(Default)]
pub struct View {
    versions: HashMap<(&'static str, String), u64>,
    pub tenants: BTreeMap<String, Arc<Tenant>>,
    pub tokens: BTreeMap<String, Arc<Token>>,
    pub enrollments: HashMap<String, Arc<Enrollment>>,
    pub bots: BTreeMap<String, Arc<Bot>>,
    pub routes: BTreeMap<String, Arc<Route>>,
    pub bindings: BTreeMap<String, Arc<Binding>>,
    pub gateways: BTreeMap<String, Arc<Gateway>>,
    pub instances: BTreeMap<String, Arc<Instance>>,
    pub policies: BTreeMap<String, Arc<Policy>>,
    token_by_hash: HashMap<String, Arc<Token>>,
    instance_by_no: HashMap<u64, Arc<Instance>>,
    /// tenant, then platform, then person: what the gate asks for every event.
    people: HashMap<String, HashMap<String, People>>,
    last_instance_no: u64,
}

impl View {
    pub fn version(&self, kind: &'static str, key: &str) -> u64 {
        self.versions.get(&(kind, key.to_owned())).copied().unwrap_or(0)
    }

    pub fn instance(&self, tenant: &str, name: &str) -> Option<&Arc<Instance>> {
        self.instances.get(&key(&[tenant, name]))
    }

    pub fn instance_no(&self, no: u64) -> Option<&Arc<Instance>> {
        self.instance_by_no.get(&no)
    }

    pub fn next_instance_no(&self) -> u64 {
        self.last_instance_no + 1
    }

    pub fn token_by_hash(&self, hash: &str) -> Option<&Arc<Token>> {
        self.token_by_hash.get(hash)
    }

    pub fn bot(&self, platform: &str, id: &str) -> Option<&Arc<Bot>> {
        self.bots.get(&key(&[platform, id]))
    }

    pub fn route(&self, platform: &str, discriminator: &str) -> Option<&Arc<Route>> {
        self.routes.get(&key(&[platform, discriminator]))
    }

    pub fn policy(&self, tenant: &str, platform: &str, instance: &str) -> Option<&Arc<Policy>> {
        self.policies.get(&key(&[tenant, platform, instance]))
    }

    /// Every instance that this person is linked to, latest link last.
    pub fn links(&self, tenant: &str, platform: &str, user_id: &str) -> &[Arc<Binding>] {
        let found = self.people.get(tenant).and_then(|p| p.get(platform)).and_then(|p| p.get(user_id));
        found.map_or(&[], Vec::as_slice)
    }

    pub fn apply(&mut self, fact: Fact, version: u64) {
        let fact_key = fact.key();
        self.forget(fact.kind(), &fact_key);
        self.versions.insert((fact.kind(), fact_key.clone()), version);
        match fact {
            Fact::Tenant(it) => drop(self.tenants.insert(fact_key, Arc::new(it))),
            Fact::Enrollment(it) => drop(self.enrollments.insert(fact_key, Arc::new(it))),
            Fact::Bot(it) => drop(self.bots.insert(fact_key, Arc::new(it))),
            Fact::Route(it) => drop(self.routes.insert(fact_key, Arc::new(it))),
            Fact::Gateway(it) => drop(self.gateways.insert(fact_key, Arc::new(it))),
            Fact::Policy(it) => drop(self.policies.insert(fact_key, Arc::new(it))),
            Fact::Token(it) => {
                let it = Arc::new(it);
                self.token_by_hash.insert(it.hash.clone(), it.clone());
                self.tokens.insert(fact_key, it);
            }
            Fact::Instance(it) => {
                let it = Arc::new(it);
                self.last_instance_no = self.last_instance_no.max(it.no);
                self.instance_by_no.insert(it.no, it.clone());
                self.instances.insert(fact_key, it);
            }
            Fact::Binding(it) => {
                let it = Arc::new(it);
                let people = self.people.entry(it.tenant.clone()).or_default();
                let links = people.entry(it.platform.clone()).or_default().entry(it.user_id.clone()).or_default();
                links.push(it.clone());
                links.sort_by_key(|link| link.at_ms);
                self.bindings.insert(fact_key, it);
            }
        }
    }

    pub fn forget(&mut self, kind: &'static str, fact_key: &str) {
        self.versions.remove(&(kind, fact_key.to_owned()));
        match kind {
            "tenant" => drop(self.tenants.remove(fact_key)),
            "enrollment" => drop(self.enrollments.remove(fact_key)),
            "bot" => drop(self.bots.remove(fact_key)),
            "route" => drop(self.routes.remove(fact_key)),
            "gateway" => drop(self.gateways.remove(fact_key)),
            "policy" => drop(self.policies.remove(fact_key)),
            "token" => {
                if let Some(it) = self.tokens.remove(fact_key) {
                    self.token_by_hash.remove(&it.hash);
                }
            }
            "instance" => {
                if let Some(it) = self.instances.remove(fact_key) {
                    self.instance_by_no.remove(&it.no);
                }
            }
            "binding" => {
                let Some(it) = self.bindings.remove(fact_key) else { return };
                let links = self.people.get_mut(&it.tenant).and_then(|p| p.get_mut(&it.platform));
                if let Some(links) = links.and_then(|p| p.get_mut(&it.user_id)) {
                    links.retain(|link| link.instance != it.instance);
                }
            }
            _ => {}
        }
    }
}
