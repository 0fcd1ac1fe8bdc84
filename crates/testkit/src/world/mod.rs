//! Random worlds for tests of the gate: small, made from a seed, and full of near misses. There are few ids, used
//! again on purpose by other tenants, in other scopes, and on the other platform.
//!
//! A [`World`] is plain lists. [`reference`] evaluates the rules on them in the simplest way; the code under test gets
//! the same data from [`World::facts`] and [`World::change`]. Nothing here may use an index or the code under test.
//!
//! To load a world into a running server: create its tenants and instances, link by `(since_ms, user_id)`, then link
//! again by `at_ms`; members of the built-in chat are [`World::members`]. Use only events that are
//! [`World::is_postable`]. [`World::without_ghosts`] removes records that no server would write.

mod change;
pub(crate) mod dice;
mod event;
mod make;
pub mod reference;

use frontdesk_core::directory::Fact;
use frontdesk_core::directory::facts::{Binding, DmDefault, Grant, Instance, Policy, Principal, Route, Tenant};
use frontdesk_wire::UserId;

pub use change::Change;
pub use dice::Dice;
pub use event::Event;

/// A platform that separates tenants: its credential names the tenant, and a chat id is a different chat in each
/// tenant. The name is that of the built-in chat.
pub const APART: &str = "relay";
/// A platform with one bot for all tenants: the tenant of an event follows from routes, or in a direct message from its
/// author.
pub const SHARED: &str = "square";
pub const PLATFORMS: [&str; 2] = [APART, SHARED];
/// A tenant that routes and links may name, but that never exists.
pub const NOWHERE: &str = "nowhere";

/// All inputs of the gate's decision.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub seed: u64,
    pub tenants: Vec<String>,
    /// On both platforms, under the same id.
    pub people: Vec<Person>,
    pub instances: Vec<Instance>,
    /// Some refer to instances or tenants that do not exist.
    pub links: Vec<Binding>,
    pub grants: Vec<Grant>,
    pub principals: Vec<Principal>,
    pub policies: Vec<Policy>,
    /// Some name an instance that the user is not linked to.
    pub dm_defaults: Vec<DmDefault>,
    pub routes: Vec<Route>,
    pub visibility: Vec<ChatVisibility>,
    pub scopes: Vec<String>,
    pub channels: Vec<String>,
    pub threads: Vec<String>,
    pub directs: Vec<String>,
    /// Each time is used once, so that there is always one latest.
    clock_ms: u64,
    last_instance_no: u64,
}

#[derive(Debug, Clone)]
pub struct Person {
    pub user_id: UserId,
    pub is_bot: bool,
}

/// Who can see one chat.
#[derive(Debug, Clone)]
pub struct ChatVisibility {
    /// Set if the platform separates tenants.
    pub tenant: Option<String>,
    pub platform: String,
    pub chat_id: String,
    /// `None`: the platform does not know. The built-in chat always knows.
    pub sees: Vec<(UserId, Option<bool>)>,
}

impl World {
    /// All records of the directory, in no particular order.
    pub fn facts(&self) -> Vec<Fact> {
        let tenants = self.tenants.iter().map(|name| tenant(name));
        tenants
            .chain(self.instances.iter().cloned().map(Fact::Instance))
            .chain(self.links.iter().cloned().map(Fact::Binding))
            .chain(self.grants.iter().cloned().map(Fact::Grant))
            .chain(self.principals.iter().cloned().map(Fact::Principal))
            .chain(self.policies.iter().cloned().map(Fact::Policy))
            .chain(self.dm_defaults.iter().cloned().map(Fact::DmDefault))
            .chain(self.routes.iter().cloned().map(Fact::Route))
            .collect()
    }

    /// Whether this user can see the chat, as the platform would answer.
    pub fn sees(&self, tenant: &str, platform: &str, chat_id: &str, viewer: &str) -> Option<bool> {
        let chat = self.visibility.iter().find(|it| {
            it.platform == platform && it.chat_id == chat_id && it.tenant.as_ref().is_none_or(|only| only == tenant)
        });
        chat?.sees.iter().find(|(user_id, _)| user_id == viewer)?.1
    }

    /// The users who can see a chat of the built-in platform.
    pub fn members(&self, tenant: &str, chat_id: &str) -> Vec<&str> {
        let sees = |user_id: &str| self.sees(tenant, APART, chat_id, user_id) == Some(true);
        self.people.iter().map(|person| person.user_id.as_str()).filter(|user_id| sees(user_id)).collect()
    }

    pub fn instance(&self, tenant: &str, name: &str) -> Option<&Instance> {
        self.instances.iter().find(|it| it.tenant == tenant && it.name == name)
    }

    /// The same world without references to missing records.
    #[must_use]
    pub fn without_ghosts(mut self) -> Self {
        let known = self.tenants.clone();
        self.instances.retain(|it| known.iter().any(|tenant| it.tenant == *tenant));
        self.routes.retain(|it| known.iter().any(|tenant| it.tenant == *tenant));
        let instances = self.instances.clone();
        let real = |tenant: &str, name: &str| instances.iter().any(|it| it.tenant == tenant && it.name == name);
        self.links.retain(|it| real(&it.tenant, &it.instance));
        self.grants.retain(|it| real(&it.tenant, &it.instance));
        self.principals.retain(|it| real(&it.tenant, &it.instance));
        self.policies.retain(|it| real(&it.tenant, &it.instance));
        let links = &self.links;
        self.dm_defaults.retain(|default| links.iter().any(|link| is_live(default, link)));
        self
    }

    fn tick(&mut self) -> u64 {
        self.clock_ms += 1;
        self.clock_ms
    }
}

fn tenant(name: &str) -> Fact {
    Fact::Tenant(Tenant { name: name.into(), created_ms: 0, notices: true })
}

/// Whether the DM default names this link.
fn is_live(default: &DmDefault, link: &Binding) -> bool {
    (&default.tenant, &default.platform, &default.user_id, &default.instance)
        == (&link.tenant, &link.platform, &link.user_id, &link.instance)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_determines_the_world_and_its_changes() {
        let story = |seed| {
            let (mut world, mut dice) = (World::generate(seed), Dice::new(seed));
            for _ in 0..20 {
                world.change(&mut dice);
            }
            format!("{world:?} {:?}", world.event(&mut dice))
        };
        assert_eq!(story(3), story(3));
        assert_ne!(story(3), story(4));
    }

    #[test]
    fn no_two_facts_share_a_key_however_the_world_has_changed() {
        for seed in 0..50 {
            let (mut world, mut dice) = (World::generate(seed), Dice::new(seed));
            for _ in 0..100 {
                world.change(&mut dice);
            }
            for world in [world.clone(), world.without_ghosts()] {
                let facts = world.facts();
                let keys: BTreeSet<(&str, String)> = facts.iter().map(|fact| (fact.kind(), fact.key())).collect();
                assert_eq!(keys.len(), facts.len(), "seed {seed}");
            }
        }
    }

    #[test]
    fn the_built_in_chat_always_knows_who_sees() {
        let world = World::generate(7);
        let mut dice = Dice::new(7);
        let posts = (0..2_000).map(|_| world.event_on(&mut dice, APART)).filter(|it| world.is_postable(it));
        let posts: Vec<Event> = posts.collect();
        assert!(posts.len() > 500);
        for post in posts {
            let tenant = post.tenant.as_deref().unwrap();
            for person in &world.people {
                assert!(world.sees(tenant, APART, &post.source.chat_id, &person.user_id).is_some());
            }
        }
    }
}
