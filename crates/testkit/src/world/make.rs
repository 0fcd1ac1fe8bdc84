//! Makes a world from its seed.

use frontdesk_core::directory::facts::{Binding, DmDefault, Grant, Instance, Policy, Principal, Route};
use frontdesk_wire::api::{PrincipalPolicy, RelevancePolicy};
use frontdesk_wire::{InstanceNo, TenantId, UserId};

use super::{APART, ChatVisibility, Dice, NOWHERE, PLATFORMS, Person, World};

pub(super) const TENANTS: [&str; 6] = ["alder", "birch", "cedar", "dogwood", "elm", "fir"];
/// All tenants name their instances from this list, so that the same name means many agents.
pub(super) const NAMES: [&str; 6] = ["ada", "bee", "cox", "dot", "eli", "fay"];
const SCOPES: [&str; 3] = ["s1", "s2", "s3"];
const CHANNELS: [&str; 4] = ["c1", "c2", "c3", "c4"];
const THREADS: [&str; 2] = ["t1", "t2"];
const DIRECTS: [&str; 2] = ["d1", "d2"];
/// Links begin here; earlier times are for `since_ms`, where duplicates are wanted.
const START_MS: u64 = 1_000;
const SINCE_MS: usize = 4;

impl World {
    pub fn generate(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut first = |from: &[&str]| {
            let count = 1 + dice.below(from.len());
            from[..count].iter().map(|it| (*it).to_owned()).collect::<Vec<String>>()
        };
        let mut world = Self {
            seed,
            tenants: first(&TENANTS),
            scopes: first(&SCOPES),
            channels: first(&CHANNELS),
            threads: first(&THREADS),
            directs: first(&DIRECTS),
            clock_ms: START_MS,
            ..Self::default()
        };
        let dice = &mut dice;
        let person = |user_id: UserId, is_bot| Person { user_id, is_bot };
        world.people = (1..=3 + dice.below(6)).map(|no| person(format!("u{no}").into(), false)).collect();
        world.people.extend((1..=1 + dice.below(2)).map(|no| person(format!("bot{no}").into(), true)));
        for tenant in world.tenants.clone() {
            let mut names = NAMES;
            dice.shuffle(&mut names);
            for name in &names[..2 + dice.below(NAMES.len() - 1)] {
                world.add_instance(&tenant, name);
            }
        }
        world.make_routes(dice);
        world.make_links(dice);
        world.make_grants(dice);
        world.make_policies(dice);
        world.make_visibility(dice);
        world
    }

    pub(super) fn add_instance(&mut self, tenant: &str, name: &str) -> Instance {
        self.last_instance_no += 1;
        let (no, tenant, name) = (self.last_instance_no, TenantId::from(tenant), name.into());
        let made = Instance { no: InstanceNo(no), tenant, name, wake_url: None, left_ms: None };
        self.instances.push(made.clone());
        made
    }

    /// The platform that does not use routes has some too; they must not matter.
    fn make_routes(&mut self, dice: &mut Dice) {
        for platform in PLATFORMS {
            for (keys, percent) in [(&self.scopes, 60), (&self.channels, 40), (&self.threads, 15), (&self.directs, 10)]
            {
                for key in dice.sift(keys, percent) {
                    let tenant = any_tenant(&self.tenants, dice);
                    self.routes.push(Route { platform: platform.into(), key, tenant: tenant.into() });
                }
            }
        }
    }

    /// Users with no link, one, several, or links in several tenants; and DM defaults for some of them.
    fn make_links(&mut self, dice: &mut Dice) {
        let mut links = Vec::new();
        for platform in PLATFORMS {
            for person in &self.people {
                for _ in 0..dice.below(5) {
                    let tenant = any_tenant(&self.tenants, dice);
                    for _ in 0..*dice.pick(&[1, 1, 1, 2, 2, 3]) {
                        let instance = self.any_name(&tenant, dice);
                        links.push((tenant.clone(), platform, person.user_id.clone(), instance));
                    }
                }
            }
        }
        // The order of links must not correlate with anything else.
        dice.shuffle(&mut links);
        for (tenant, platform, user_id, instance) in links {
            let since_ms = 1 + u64::try_from(dice.below(SINCE_MS)).unwrap();
            self.link(&tenant, platform, &user_id, &instance, since_ms);
        }
        let mut linked: Vec<Binding> = self.links.iter().filter(|_| dice.chance(40)).cloned().collect();
        dice.shuffle(&mut linked);
        for link in linked {
            self.prefer(&link, dice);
        }
    }

    /// An existing link only gets a later time.
    pub(super) fn link(&mut self, tenant: &str, platform: &str, user_id: &str, instance: &str, now_ms: u64) -> Binding {
        let key = (tenant, platform, user_id, instance);
        let is_it = |it: &Binding| (&*it.tenant, &*it.platform, &*it.user_id, &*it.instance) == key;
        let since_ms = self.links.iter().find(|it| is_it(it)).map_or(now_ms, |it| it.since_ms);
        self.links.retain(|it| !is_it(it));
        let at_ms = self.tick();
        let [platform, user_id] = [platform, user_id].map(str::to_owned);
        let made = Binding {
            tenant: tenant.into(),
            platform,
            user_id: user_id.into(),
            instance: instance.into(),
            at_ms,
            since_ms,
        };
        self.links.push(made.clone());
        made
    }

    /// Sets a DM default: mostly this link, otherwise an instance that may not be linked.
    pub(super) fn prefer(&mut self, link: &Binding, dice: &mut Dice) -> DmDefault {
        let Binding { tenant, platform, user_id, .. } = link.clone();
        let instance = if dice.chance(75) { link.instance.clone() } else { (*dice.pick(&NAMES)).into() };
        let at_ms = self.tick();
        let made = DmDefault { tenant, platform, user_id, instance, at_ms };
        let key = |it: &DmDefault| (it.tenant.clone(), it.platform.clone(), it.user_id.clone());
        self.dm_defaults.retain(|it| key(it) != key(&made));
        self.dm_defaults.push(made.clone());
        made
    }

    fn make_grants(&mut self, dice: &mut Dice) {
        let percent = 20 + u64::try_from(dice.below(50)).unwrap();
        let scopes: Vec<String> = self.scopes.iter().cloned().chain([String::new()]).collect();
        for tenant in self.tenants.clone() {
            for platform in PLATFORMS {
                for scope in &scopes {
                    let held = dice.sift(&self.channels, percent).into_iter().chain(dice.sift(&self.threads, 10));
                    for channel in held.chain(dice.sift(&self.directs, 10)) {
                        let instance = self.any_name(&tenant, dice);
                        let (tenant, platform, scope, at_ms) = (tenant.clone(), platform.into(), scope.clone(), 1);
                        self.grants.push(Grant {
                            tenant: tenant.into(),
                            platform,
                            scope,
                            channel: channel.into(),
                            instance: instance.into(),
                            at_ms,
                        });
                    }
                }
            }
        }
    }

    fn make_policies(&mut self, dice: &mut Dice) {
        for Instance { tenant, name, .. } in self.instances.clone() {
            if dice.chance(90) {
                let principal = self.any_principal(&tenant, &name, dice);
                self.principals.push(principal);
            }
            for platform in PLATFORMS {
                if dice.chance(70) {
                    let policy = self.any_policy(&tenant, platform, &name, dice);
                    self.policies.push(policy);
                }
            }
        }
    }

    pub(super) fn any_principal(&self, tenant: &str, instance: &str, dice: &mut Dice) -> Principal {
        let policy = match dice.below(10) {
            0 => PrincipalPolicy::OwnerOnly,
            1..5 => PrincipalPolicy::AllowList,
            _ => PrincipalPolicy::Any,
        };
        // The list is set for all policies, although only one of them reads it.
        let allow = dice.sift(&self.people, 60).into_iter().map(|person| person.user_id).collect();
        Principal { tenant: tenant.into(), instance: instance.into(), policy, allow }
    }

    /// Free places include scopes, although no rule applies to a whole scope.
    pub(super) fn any_policy(&self, tenant: &str, platform: &str, instance: &str, dice: &mut Dice) -> Policy {
        let mut free: Vec<String> = Vec::new();
        if dice.chance(70) {
            free.extend(dice.sift(&["*".to_owned()], 15));
            free.extend(dice.sift(&self.channels, 50));
            free.extend(dice.sift(&self.threads, 15));
            free.extend(dice.sift(&self.scopes, 30));
        }
        let policy = RelevancePolicy {
            platform: platform.into(),
            require_address: dice.chance(75),
            free_response_scopes: free,
            allow_other_bots: dice.chance(50),
        };
        Policy { tenant: tenant.into(), instance: instance.into(), policy }
    }

    fn make_visibility(&mut self, dice: &mut Dice) {
        for platform in PLATFORMS {
            let tenants: Vec<Option<String>> = match platform {
                APART => self.tenants.iter().cloned().map(Some).collect(),
                _ => vec![None],
            };
            for tenant in tenants {
                for chat_id in self.channels.iter().chain(&self.threads).chain(&self.directs) {
                    let people = self.people.iter().map(|person| person.user_id.clone());
                    let sees = people.map(|user_id| (user_id, any_answer(platform, dice))).collect();
                    let (tenant, platform, chat_id) = (tenant.clone(), platform.into(), chat_id.clone());
                    self.visibility.push(ChatVisibility { tenant, platform, chat_id, sees });
                }
            }
        }
    }

    /// Mostly an instance of this tenant.
    pub(super) fn any_name(&self, tenant: &str, dice: &mut Dice) -> String {
        let own: Vec<&Instance> = self.instances.iter().filter(|it| it.tenant == tenant).collect();
        match own.is_empty() || dice.chance(5) {
            true => (*dice.pick(&NAMES)).into(),
            false => dice.pick(&own).name.to_string(),
        }
    }
}

pub(super) fn any_tenant(tenants: &[String], dice: &mut Dice) -> String {
    match tenants.is_empty() || dice.chance(2) {
        true => NOWHERE.into(),
        false => dice.pick(tenants).clone(),
    }
}

pub(super) fn any_answer(platform: &str, dice: &mut Dice) -> Option<bool> {
    match platform {
        APART => Some(dice.chance(85)),
        _ => dice.chance(90).then(|| dice.chance(85)),
    }
}
