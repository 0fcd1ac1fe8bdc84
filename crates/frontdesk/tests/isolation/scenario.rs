//! A world in a desk: its tenants, agents and rules put there through the doors, and a socket for each agent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_core::directory::facts::{Binding, Policy, Principal};
use frontdesk_testkit::world::reference::{self, Line};
use frontdesk_testkit::world::{APART, Dice, Event, Sight, World};
use frontdesk_wire::{Secret, build_session_key, token};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Tally;
use crate::agents::Agent;
use crate::harness::{Harness, Reply, Socket};

/// Requests under way at once.
const AT_ONCE: usize = 16;

pub(crate) struct Scenario {
    pub(crate) house: Harness,
    pub(crate) world: World,
    pub(crate) dice: Dice,
    pub(crate) homes: Vec<Home>,
    pub(crate) agents: Vec<Agent>,
    /// Everything that people said, in the order of each tenant.
    pub(crate) said: Vec<Said>,
    pub(crate) tally: Tally,
    /// How often the rules have changed.
    pub(crate) part: usize,
    /// How much of `said` was explained.
    pub(crate) explained: usize,
}

/// A tenant.
pub(crate) struct Home {
    pub(crate) tenant: String,
    /// In every word, name and file of this tenant, and nowhere else.
    pub(crate) mark: String,
    pub(crate) token: String,
    /// A chat that no other tenant has one of the same name of.
    pub(crate) den: String,
    /// What the bot said, by chat.
    pub(crate) bot_lines: HashMap<String, Vec<String>>,
    /// Said so far.
    pub(crate) count: usize,
    /// The type of a chat is what its first message said.
    pub(crate) chat_types: HashMap<String, String>,
    /// Where each chat was last said to be.
    pub(crate) chat_scopes: HashMap<String, String>,
    /// Uploaded by its people.
    pub(crate) files: Vec<String>,
    /// Messages that its agents deleted.
    pub(crate) deleted: Vec<String>,
    /// What people see live in a chat whose name every tenant uses.
    pub(crate) stream: watch::Receiver<String>,
}

/// Something that a person said or pressed.
pub(crate) struct Said {
    pub(crate) home: usize,
    pub(crate) id: String,
    pub(crate) event: Event,
    pub(crate) text: String,
    pub(crate) reply_to: Option<String>,
    /// The words that it answers, where the desk has them in hand.
    pub(crate) quoted: Option<String>,
    pub(crate) file: Option<File>,
    pub(crate) mentions_bot: bool,
    pub(crate) is_press: bool,
    /// What the reference says, and the agents that it delivers to.
    pub(crate) lines: Vec<Line>,
    reached: Vec<usize>,
    /// It interrupted a turn, and nobody got it as a message.
    pub(crate) is_interrupt: bool,
    pub(crate) part: usize,
    /// The name of the turn that it is, or would be.
    pub(crate) session_key: String,
    /// What the desk calls it.
    pub(crate) event_id: String,
}

#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Known once it is uploaded.
    pub(crate) id: String,
    pub(crate) body: String,
}

impl Said {
    pub(crate) fn chat(&self) -> &str {
        &self.event.source.chat_id
    }

    /// The agents that get it as a message.
    pub(crate) fn receivers(&self) -> &[usize] {
        if self.is_interrupt { &[] } else { &self.reached }
    }

    /// The desk itself obeys it, and nobody gets it.
    pub(crate) fn take_as_desk(&mut self, command: &str) {
        let value = command.to_owned();
        self.lines = vec![Line { instance: None, delivered: false, layer: "owner", rule: "desk", value }];
        self.reached.clear();
    }

    pub(crate) fn outcome(&self) -> &'static str {
        match self.reached.is_empty() {
            false => "delivered",
            true => "withheld",
        }
    }
}

impl Scenario {
    pub(crate) async fn open(seed: u64) -> Self {
        let world = World::generate(seed).without_ghosts();
        // Agents ack when everybody has spoken, however long that takes on a busy machine.
        let house = Harness::with(|config| config.relay.ack_limit_ms = 60_000).await;
        let mut town = Self {
            house,
            world,
            dice: Dice::new(!seed),
            homes: Vec::new(),
            agents: Vec::new(),
            said: Vec::new(),
            tally: Tally::default(),
            part: 0,
            explained: 0,
        };
        town.settle_tenants().await;
        town.settle_agents().await;
        town.open_chats().await;
        town.write_links().await;
        town.write_rules().await;
        town.greet().await;
        town.watch_chats().await;
        town
    }

    async fn settle_tenants(&mut self) {
        for tenant in self.world.tenants.clone() {
            self.house.admin("POST", "/tenants", &json!({ "name": tenant })).await.expect(201);
            self.homes.push(Home {
                token: self.house.token(&tenant, "chat").await,
                mark: format!("x{}x", tenant.to_uppercase()),
                den: format!("den-{tenant}"),
                tenant,
                bot_lines: HashMap::new(),
                count: 0,
                chat_types: HashMap::new(),
                chat_scopes: HashMap::new(),
                files: Vec::new(),
                deleted: Vec::new(),
                stream: watch::channel(String::new()).1,
            });
        }
        // There are routes on this platform too, and they must not matter.
        for it in self.world.routes.iter().filter(|it| it.platform == APART) {
            let route = json!({ "platform": it.platform, "key": it.key, "tenant": it.tenant });
            self.house.admin("POST", "/routes", &route).await.expect(201);
        }
    }

    async fn settle_agents(&mut self) {
        let house = &self.house;
        for it in &self.world.instances {
            house.namesake(&it.tenant, &it.name).await;
        }
        let agents = self.world.instances.iter().map(async |it| {
            let home = self.homes.iter().position(|home| home.tenant == it.tenant).unwrap();
            let gateway = format!("{}.{}", it.tenant, it.name);
            let ask = json!({ "id": gateway, "tenant": it.tenant, "instance": it.name });
            let made = house.admin("POST", "/gateways", &ask).await.expect(201);
            let bearer = token::mint(&gateway, &Secret::new(made["secret"].as_str().unwrap()), 0);
            let raw: Arc<Mutex<Vec<u8>>> = Arc::default();
            let mut socket = Socket::dial(&house.url, "/relay", Some(&bearer), raw.clone()).await.unwrap();
            socket.hello(APART, "").await;
            Agent::new(home, it.name.clone(), bearer, socket, raw)
        });
        self.agents = join_all(agents).await;
    }

    /// Chats of the same names in every tenant, shown to whom the world says, and one that is its own.
    async fn open_chats(&mut self) {
        for home in &self.homes {
            let sees = self.world.people.iter().map(|person| (person.user_id.clone(), Some(true))).collect();
            let (tenant, platform, chat_id) = (Some(home.tenant.clone()), APART.into(), home.den.clone());
            self.world.sight.push(Sight { tenant, platform, chat_id, sees });
        }
        self.show_chats().await;
    }

    /// Tells the desk who can see which chat.
    pub(crate) async fn show_chats(&self) {
        let chats = self.world.sight.iter().filter(|it| it.platform == APART);
        let calls = chats.map(async |it| {
            let home = self.homes.iter().find(|home| it.tenant.as_ref() == Some(&home.tenant)).unwrap();
            let members = self.world.members(&home.tenant, &it.chat_id);
            let settings = json!({ "members": members, "name": home.chat_name(&it.chat_id) });
            self.house.call("PUT", &format!("/chat/v1/chats/{}", it.chat_id), &home.token, &settings).await
        });
        for reply in some_at_once(calls).await {
            reply.expect(200);
        }
    }

    /// First in the order in which agents got their owners, then in the order of the latest links.
    async fn write_links(&self) {
        let mut links: Vec<&Binding> = self.world.links.iter().filter(|it| it.platform == APART).collect();
        links.sort_by_key(|it| (it.since_ms, &it.user_id));
        for same_time in links.chunk_by(|a, b| a.since_ms == b.since_ms) {
            self.tick().await;
            for it in same_time {
                self.house.bind(&it.tenant, &it.user_id, &it.instance).await;
            }
        }
        // Which link is the latest is a matter of each person alone.
        links.sort_by_key(|it| (&it.user_id, it.at_ms));
        let people = links.chunk_by(|a, b| a.user_id == b.user_id).map(async |of_person| {
            for it in of_person {
                self.house.bind(&it.tenant, &it.user_id, &it.instance).await;
            }
        });
        join_all(people).await;
    }

    /// Links of one millisecond have no order of their own: waits for the next one.
    pub(crate) async fn tick(&self) {
        let now = || self.house.app.desk.env().now_ms();
        let before = now();
        while now() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn write_rules(&self) {
        let mut asks = Vec::new();
        let world = &self.world;
        for it in world.grants.iter().filter(|it| it.platform == APART) {
            let channel = channel(&it.scope, &it.channel);
            asks.push((self.agent(&it.tenant, &it.instance), "/manage/scope", channel));
        }
        for it in &world.principals {
            asks.push((self.agent(&it.tenant, &it.instance), "/manage/principal", principal(it)));
        }
        for it in world.policies.iter().filter(|it| it.policy.platform == APART) {
            asks.push((self.agent(&it.tenant, &it.instance), "/relay/policy", policy(it)));
        }
        for it in world.dm_defaults.iter().filter(|it| it.platform == APART) {
            let choice = json!({ "platform": APART, "user_id": it.user_id });
            asks.push((self.agent(&it.tenant, &it.instance), "/manage/dm-default", choice));
        }
        let calls = asks.iter().map(|(agent, path, body)| self.house.post(path, &agent.bearer, body));
        for reply in some_at_once(calls).await {
            assert_eq!(reply.expect(200), json!({ "ok": true }));
        }
    }

    /// An agent of every tenant says something in every chat, so that there is something of the bot's to answer.
    async fn greet(&mut self) {
        let sight = self.world.sight.iter().filter(|it| it.platform == APART);
        let chats: Vec<(String, String)> = sight.map(|it| (it.tenant.clone().unwrap(), it.chat_id.clone())).collect();
        for (tenant, chat) in chats {
            let home = self.homes.iter().position(|home| home.tenant == tenant).unwrap();
            let (at, home) = (self.any_agent(home), &mut self.homes[home]);
            let hello = json!({ "op": "send", "chat_id": chat, "content": format!("{} hello", home.mark) });
            let sent = self.agents[at].socket.act(hello).await;
            let id = sent["message_id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned();
            home.bot_lines.entry(chat).or_default().push(id);
        }
    }

    async fn watch_chats(&mut self) {
        let path = format!("/chat/v1/chats/{}/stream", self.world.channels[0]);
        for home in &mut self.homes {
            let mut response = self.house.request("GET", &path).bearer_auth(&home.token).send().await.unwrap();
            assert_eq!(response.status(), 200);
            let (tell, told) = watch::channel(String::new());
            home.stream = told;
            // Ends with the desk.
            tokio::spawn(async move {
                while let Ok(Some(chunk)) = response.chunk().await {
                    tell.send_modify(|text| text.push_str(&String::from_utf8_lossy(&chunk)));
                }
            });
        }
    }

    /// Something that is going to be said, and what should become of it.
    pub(crate) fn words(&mut self, home: usize, id: Option<String>, event: Event, text: String) -> Said {
        let lines = reference::judge(&self.world, &event);
        let delivered = |at: &usize| {
            let name = Some(&self.agents[*at].name);
            lines.iter().any(|line| line.delivered && line.instance.as_ref() == name)
        };
        let reached = self.agents_of(home).into_iter().filter(delivered).collect();
        Said {
            home,
            id: id.unwrap_or_else(|| self.homes[home].next_id()),
            session_key: build_session_key(&event.source),
            event,
            text,
            reply_to: None,
            quoted: None,
            file: None,
            mentions_bot: false,
            is_press: false,
            lines,
            reached,
            is_interrupt: false,
            part: self.part,
            event_id: String::new(),
        }
    }

    // ---- finding -------------------------------------------------------------------------

    pub(crate) fn agent(&self, tenant: &str, name: &str) -> &Agent {
        let is_it = |it: &&Agent| self.homes[it.home].tenant == tenant && it.name == name;
        self.agents.iter().find(is_it).unwrap_or_else(|| panic!("no {name} of {tenant}"))
    }

    pub(crate) fn agents_of(&self, home: usize) -> Vec<usize> {
        (0..self.agents.len()).filter(|at| self.agents[*at].home == home).collect()
    }

    pub(crate) fn any_agent(&mut self, home: usize) -> usize {
        let own = self.agents_of(home);
        *self.dice.pick(&own)
    }

    /// Any chat whose name every tenant uses.
    pub(crate) fn any_chat(&mut self) -> String {
        let world = &self.world;
        let chats: Vec<&String> = world.channels.iter().chain(&world.threads).chain(&world.directs).collect();
        (*self.dice.pick(&chats)).clone()
    }

    pub(crate) async fn close(self) -> Tally {
        let Self { house, agents, tally, .. } = self;
        for agent in agents {
            agent.socket.hang_up().await;
        }
        house.finish().await;
        tally
    }
}

impl Home {
    pub(crate) fn next_id(&mut self) -> String {
        self.count += 1;
        // One id often begins like another, and no tenant has an id of another's.
        format!("{}-{}", self.den, self.count)
    }

    pub(crate) fn chat_name(&self, chat: &str) -> String {
        format!("{} {chat}", self.mark)
    }
}

pub(crate) fn channel(scope: &str, channel: &str) -> Value {
    json!({ "platform": APART, "scope_id": scope, "channel_id": channel })
}

pub(crate) fn principal(it: &Principal) -> Value {
    json!({ "policy": it.policy, "allow": it.allow })
}

pub(crate) fn policy(it: &Policy) -> Value {
    serde_json::to_value(&it.policy).unwrap()
}

/// All of them, a few under way at a time; the answers in their order.
pub(crate) async fn some_at_once<F: Future<Output = Reply>>(calls: impl Iterator<Item = F>) -> Vec<Reply> {
    let mut calls: Vec<F> = calls.collect();
    let mut replies = Vec::with_capacity(calls.len());
    while !calls.is_empty() {
        let rest = calls.split_off(calls.len().min(AT_ONCE));
        replies.extend(join_all(std::mem::replace(&mut calls, rest)).await);
    }
    replies
}
