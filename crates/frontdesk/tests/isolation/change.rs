//! Changes of the rules: links, channel grants, policies and chat members. The world and the server get the same
//! changes.

use frontdesk_core::directory::facts::{Binding, DmDefault, Fact, Grant, Instance, Policy, Principal};
use frontdesk_testkit::world::{APART, Event};
use frontdesk_wire::api::{PrincipalPolicy, RelevancePolicy};
use frontdesk_wire::{Source, UserId};
use serde_json::json;

use crate::scenario::{Scenario, channel, policy, principal};
use crate::talk::say;

/// Share of the records that change.
const PERCENT: u64 = 30;
const NEW_LINKS: usize = 4;

impl Scenario {
    pub(crate) async fn change(&mut self) {
        self.unlink_some().await;
        self.link_some().await;
        self.hand_over_channels().await;
        self.decide_anew().await;
        self.choose_anew().await;
        self.show_to_others().await;
        self.receive().await;
    }

    /// Users unlink themselves with a command in their own tenant; bots are unlinked by the admin.
    async fn unlink_some(&mut self) {
        let links: Vec<Binding> = self.world.links.iter().filter(|it| it.platform == APART).cloned().collect();
        for it in self.dice.sift(&links, PERCENT) {
            let is_bot = self.world.people.iter().any(|person| person.is_bot && person.user_id == it.user_id);
            if is_bot {
                let link =
                    json!({ "platform": APART, "user_id": it.user_id, "tenant": it.tenant, "instance": it.instance });
                let gone = self.harness.admin("DELETE", "/bindings", &link).await;
                assert_eq!(gone.status, 204, "{}", gone.text());
            } else {
                self.type_to_bot(&it.tenant, &it.user_id, "/unlink", &it.instance).await;
            }
            self.world.links.retain(|link| *link != it);
            // A default that names the link is removed with it.
            let names_it = |default: &DmDefault| {
                (&default.tenant, &default.platform, &default.user_id, &default.instance)
                    == (&it.tenant, &it.platform, &it.user_id, &it.instance)
            };
            self.world.dm_defaults.retain(|default| !names_it(default));
        }
    }

    /// Links with a code, which must not work in another tenant.
    async fn link_some(&mut self) {
        let people: Vec<UserId> = self.world.people.iter().map(|person| person.user_id.clone()).collect();
        for _ in 0..NEW_LINKS {
            let at = self.dice.below(self.agents.len());
            let user_id = self.dice.pick(&people).clone();
            let (home, instance) = (self.agents[at].home, self.agents[at].name.clone());
            let ask = json!({ "platform": APART });
            let offer = self.harness.post("/manage/link", &self.agents[at].bearer, &ask).await.expect(200);
            let code = offer["code"].as_str().unwrap();
            let tenant = self.homes[home].tenant.clone();
            let elsewhere: Vec<String> = self.world.tenants.iter().filter(|it| **it != tenant).cloned().collect();
            let others: Vec<UserId> = people.iter().filter(|it| **it != user_id).cloned().collect();
            let (elsewhere, somebody) = (self.dice.pick(&elsewhere).clone(), self.dice.pick(&others).clone());
            self.type_to_bot(&elsewhere, &somebody, "/link", code).await;
            self.tick().await;
            self.type_to_bot(&tenant, &user_id, "/link", code).await;
            self.note_link(&tenant, &user_id, &instance);
        }
    }

    /// Adds the link to the world: newer than all others, unless it already existed.
    fn note_link(&mut self, tenant: &str, user_id: &str, instance: &str) {
        let links = &mut self.world.links;
        let at_ms = links.iter().map(|it| it.at_ms).max().unwrap_or(0) + 1;
        let is_it = |it: &Binding| {
            (it.tenant.as_str(), it.platform.as_str(), it.user_id.as_str(), it.instance.as_str())
                == (tenant, APART, user_id, instance)
        };
        let since_ms = links.iter().find(|it| is_it(it)).map_or(at_ms, |it| it.since_ms);
        links.retain(|it| !is_it(it));
        let [tenant, platform, user_id, instance] = [tenant, APART, user_id, instance].map(str::to_owned);
        links.push(Binding {
            tenant: tenant.into(),
            platform,
            user_id: user_id.into(),
            instance: instance.into(),
            at_ms,
            since_ms,
        });
    }

    /// Sends a command to the server itself, in a direct chat. No agent gets it.
    async fn type_to_bot(&mut self, tenant: &str, user_id: &str, command: &str, rest: &str) {
        let home = self.homes.iter().position(|home| home.tenant == tenant).unwrap();
        let source = Source {
            platform: APART.into(),
            chat_id: self.dice.pick(&self.world.directs).into(),
            chat_type: "dm".into(),
            user_id: Some(user_id.into()),
            ..Source::default()
        };
        let event = Event { tenant: Some(tenant.to_owned()), source, addressed: true };
        let mut said = self.prepare(home, None, event, format!("{command} {rest}"));
        said.take_as_desk(command);
        say(&self.harness, &mut self.homes[home], &mut said).await;
        self.said.push(said);
    }

    /// Some channels are released, and some of those are claimed by another agent of the tenant.
    async fn hand_over_channels(&mut self) {
        let grants: Vec<Grant> = self.world.grants.iter().filter(|it| it.platform == APART).cloned().collect();
        for it in self.dice.sift(&grants, PERCENT) {
            let place = channel(&it.scope, &it.channel);
            let holder = self.agent(&it.tenant, &it.instance).bearer.clone();
            let home = self.homes.iter().position(|home| home.tenant == it.tenant).unwrap();
            let next = self.any_agent(home);
            let (next, name) = (self.agents[next].bearer.clone(), self.agents[next].name.clone());
            if name != it.instance {
                self.harness.post("/manage/scope", &next, &place).await.error(409);
            }
            self.harness.post("/manage/scope/release", &holder, &place).await.expect(200);
            self.world.grants.retain(|grant| *grant != it);
            if self.dice.chance(60) {
                self.harness.post("/manage/scope", &next, &place).await.expect(200);
                self.world.grants.push(Grant { instance: name.into(), ..it });
            }
        }
    }

    /// Changes principals and relevance policies.
    async fn decide_anew(&mut self) {
        let instances = self.world.instances.clone();
        for Instance { tenant, name, .. } in self.dice.sift(&instances, PERCENT) {
            let policies = [PrincipalPolicy::OwnerOnly, PrincipalPolicy::AllowList, PrincipalPolicy::Any];
            let allow = self.dice.sift(&self.world.people, 50).into_iter().map(|person| person.user_id).collect();
            let (policy, instance) = (*self.dice.pick(&policies), name);
            let made = Principal { tenant, instance, policy, allow };
            let bearer = &self.agent(&made.tenant, &made.instance).bearer;
            self.harness.post("/manage/principal", bearer, &principal(&made)).await.expect(200);
            self.world.principals.retain(|it| (&it.tenant, &it.instance) != (&made.tenant, &made.instance));
            self.world.principals.push(made);
        }
        for Instance { tenant, name, .. } in self.dice.sift(&instances, PERCENT) {
            let relevance = RelevancePolicy {
                platform: APART.into(),
                require_address: self.dice.chance(60),
                free_response_scopes: self.dice.sift(&self.world.channels, 40),
                allow_other_bots: self.dice.chance(50),
            };
            let made = Policy { tenant, instance: name, policy: relevance };
            let bearer = &self.agent(&made.tenant, &made.instance).bearer;
            self.harness.post("/relay/policy", bearer, &policy(&made)).await.expect(200);
            let key = |it: &Policy| Fact::Policy(it.clone()).key();
            self.world.policies.retain(|it| key(it) != key(&made));
            self.world.policies.push(made);
        }
    }

    /// Changes the default agent for direct messages.
    async fn choose_anew(&mut self) {
        let links: Vec<Binding> = self.world.links.iter().filter(|it| it.platform == APART).cloned().collect();
        for Binding { tenant, platform, user_id, instance, .. } in self.dice.sift(&links, PERCENT / 2) {
            let ask = json!({ "platform": platform, "user_id": user_id });
            let bearer = &self.agent(&tenant, &instance).bearer;
            self.harness.post("/manage/dm-default", bearer, &ask).await.expect(200);
            let is_it = |it: &DmDefault| (&it.tenant, &it.platform, &it.user_id) == (&tenant, &platform, &user_id);
            self.world.dm_defaults.retain(|it| !is_it(it));
            self.world.dm_defaults.push(DmDefault { tenant, platform, user_id, instance, at_ms: 0 });
        }
    }

    async fn show_to_others(&mut self) {
        let mut visibility = self.world.visibility.clone();
        for it in visibility.iter_mut().filter(|it| it.platform == APART) {
            for (_, sees) in &mut it.sees {
                if self.dice.chance(PERCENT) {
                    *sees = Some(self.dice.chance(75));
                }
            }
        }
        self.world.visibility = visibility;
        self.show_chats().await;
    }
}
