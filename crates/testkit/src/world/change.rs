//! Changes of a world: people link and unlink, channels get other holders, policies change.

use frontdesk_core::directory::View;
use frontdesk_core::directory::facts::{Binding, Fact, Grant, Route};

use super::make::{NAMES, TENANTS, any_answer, any_tenant};
use super::{Dice, NOWHERE, PLATFORMS, World, tenant};

/// The directory change of a step.
#[derive(Debug, Clone)]
pub enum Change {
    Put(Fact),
    Forget(Fact),
}

impl Change {
    pub fn tell(self, view: &mut View, version: u64) {
        match self {
            Self::Put(fact) => view.apply(fact, version),
            Self::Forget(fact) => view.forget(fact.kind(), &fact.key()),
        }
    }
}

impl World {
    /// One step. `None` if the directory does not change; visibility may have.
    pub fn change(&mut self, dice: &mut Dice) -> Option<Change> {
        match dice.below(16) {
            0 => forget(&mut self.links, dice).map(Fact::Binding).map(Change::Forget),
            1 | 2 => self.link_again(dice),
            3 | 4 => Some(self.link_anew(dice)),
            5 => forget(&mut self.grants, dice).map(Fact::Grant).map(Change::Forget),
            6 | 7 => self.claim(dice),
            8 => self.change_principal(dice),
            9 => self.change_policy(dice),
            10 => forget(&mut self.dm_defaults, dice).map(Fact::DmDefault).map(Change::Forget),
            11 => self.choose(dice),
            12 => forget(&mut self.routes, dice).map(Fact::Route).map(Change::Forget),
            13 => Some(self.route(dice)),
            14 => Some(if dice.chance(5) { self.change_tenant(dice) } else { self.change_instance(dice) }),
            _ => {
                self.change_visibility(dice);
                None
            }
        }
    }

    fn link_again(&mut self, dice: &mut Dice) -> Option<Change> {
        let it = one_of(&self.links, dice)?;
        let made = self.link(&it.tenant, &it.platform, &it.user_id, &it.instance, 0);
        Some(Change::Put(Fact::Binding(made)))
    }

    fn link_anew(&mut self, dice: &mut Dice) -> Change {
        let tenant = any_tenant(&self.tenants, dice);
        let instance = self.any_name(&tenant, dice);
        let user_id = dice.pick(&self.people).user_id.clone();
        let (platform, now_ms) = (*dice.pick(&PLATFORMS), self.tick());
        Change::Put(Fact::Binding(self.link(&tenant, platform, &user_id, &instance, now_ms)))
    }

    /// Claims a channel that is held, or one that is not.
    fn claim(&mut self, dice: &mut Dice) -> Option<Change> {
        let near = one_of(&self.grants, dice)?;
        let channel = if dice.chance(50) { near.channel.clone() } else { dice.pick(&self.channels).into() };
        let instance = self.any_name(&near.tenant, dice);
        let made = Grant { channel, instance: instance.into(), ..near };
        let key = |it: &Grant| Fact::Grant(it.clone()).key();
        self.grants.retain(|it| key(it) != key(&made));
        self.grants.push(made.clone());
        Some(Change::Put(Fact::Grant(made)))
    }

    fn change_principal(&mut self, dice: &mut Dice) -> Option<Change> {
        if dice.chance(30) {
            return forget(&mut self.principals, dice).map(Fact::Principal).map(Change::Forget);
        }
        let of = one_of(&self.instances, dice)?;
        let made = self.any_principal(&of.tenant, &of.name, dice);
        self.principals.retain(|it| (&it.tenant, &it.instance) != (&made.tenant, &made.instance));
        self.principals.push(made.clone());
        Some(Change::Put(Fact::Principal(made)))
    }

    fn change_policy(&mut self, dice: &mut Dice) -> Option<Change> {
        if dice.chance(30) {
            return forget(&mut self.policies, dice).map(Fact::Policy).map(Change::Forget);
        }
        let of = one_of(&self.instances, dice)?;
        let platform = *dice.pick(&PLATFORMS);
        let made = self.any_policy(&of.tenant, platform, &of.name, dice);
        self.policies.retain(|it| {
            (&it.tenant, &it.policy.platform, &it.instance) != (&made.tenant, &made.policy.platform, &made.instance)
        });
        self.policies.push(made.clone());
        Some(Change::Put(Fact::Policy(made)))
    }

    fn choose(&mut self, dice: &mut Dice) -> Option<Change> {
        let link: Binding = one_of(&self.links, dice)?;
        Some(Change::Put(Fact::DmDefault(self.prefer(&link, dice))))
    }

    fn route(&mut self, dice: &mut Dice) -> Change {
        let platform = (*dice.pick(&PLATFORMS)).to_owned();
        let places: Vec<&String> = self.scopes.iter().chain(&self.channels).chain(&self.directs).collect();
        let key = (*dice.pick(&places)).clone();
        let made = Route { platform, key, tenant: any_tenant(&self.tenants, dice).into() };
        self.routes.retain(|it| (&it.platform, &it.key) != (&made.platform, &made.key));
        self.routes.push(made.clone());
        Change::Put(Fact::Route(made))
    }

    /// Removes an instance and leaves records about it; or adds one, possibly again, with a new number.
    fn change_instance(&mut self, dice: &mut Dice) -> Change {
        let tenant = any_tenant(&self.tenants, dice);
        let name = *dice.pick(&NAMES);
        let known = self.instances.iter().position(|it| it.tenant == tenant && it.name == name);
        let gone = known.map(|at| self.instances.remove(at));
        match gone.filter(|_| dice.chance(50)) {
            Some(gone) => Change::Forget(Fact::Instance(gone)),
            None => Change::Put(Fact::Instance(self.add_instance(&tenant, name))),
        }
    }

    /// Removes a tenant and leaves records about it; mostly it is soon added again with all of them.
    fn change_tenant(&mut self, dice: &mut Dice) -> Change {
        let named = self.instances.iter().map(|it| &it.tenant).filter(|it| *it != NOWHERE);
        let gone: Vec<String> = named.map(ToString::to_string).filter(|it| !self.tenants.contains(it)).collect();
        if self.tenants.is_empty() || (!gone.is_empty() && dice.chance(80)) {
            let back = one_of(&gone, dice).unwrap_or_else(|| TENANTS[0].into());
            self.tenants.push(back.clone());
            return Change::Put(tenant(&back));
        }
        let at = dice.below(self.tenants.len());
        Change::Forget(tenant(&self.tenants.remove(at)))
    }

    fn change_visibility(&mut self, dice: &mut Dice) {
        let at = dice.below(self.visibility.len());
        let chat = &mut self.visibility[at];
        for (_, sees) in &mut chat.sees {
            *sees = any_answer(&chat.platform, dice);
        }
    }
}

fn one_of<T: Clone>(list: &[T], dice: &mut Dice) -> Option<T> {
    (!list.is_empty()).then(|| dice.pick(list).clone())
}

fn forget<T>(list: &mut Vec<T>, dice: &mut Dice) -> Option<T> {
    (!list.is_empty()).then(|| list.swap_remove(dice.below(list.len())))
}
