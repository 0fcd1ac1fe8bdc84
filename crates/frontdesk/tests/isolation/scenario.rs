//! A generated world in a server: its tenants, agents and rules are created through the APIs, with a socket for each
//! agent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_core::directory::facts::{Binding, Policy, Principal};
use frontdesk_testkit::world::reference::{self, Line};
use frontdesk_testkit::world::{APART, ChatVisibility, Dice, Event, World};
use frontdesk_wire::{Secret, build_session_key, token};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Tally;
use crate::agents::Agent;
use crate::harness::{Harness, Reply};

/// Concurrent requests.
const AT_ONCE: usize = 16;

pub(crate) struct Scenario {
    pub(crate) harness: Harness,
    pub(crate) world: World,
    pub(crate) dice: Dice,
    pub(crate) homes: Vec<Home>,
    pub(crate) agents: Vec<Agent>,
    /// All messages of users, in order per tenant.
    pub(crate) said: Vec<Said>,
    pub(crate) tally: Tally,
    /// How often the rules have changed.
    pub(crate) part: usize,
    /// How many of `said` were checked with explain.
    pub(crate) explained: usize,
}

/// A tenant.
pub(crate) struct Home {
    pub(crate) tenant: String,
    /// Text that is in every message, name and file of this tenant, and nowhere else.
    pub(crate) mark: String,
    pub(crate) token: String,
    /// A chat whose name no other tenant uses.
    pub(crate) own_chat: String,
    /// Messages of the bot, by chat.
    pub(crate) bot_lines: HashMap<String, Vec<String>>,
    /// Number of messages so far.
    pub(crate) count: usize,
    /// Type of each chat, set by its first message.
    pub(crate) chat_types: HashMap<String, String>,
    /// Latest scope of each chat.
    pub(crate) chat_scopes: HashMap<String, String>,
    /// Files uploaded by its users.
    pub(crate) files: Vec<String>,
    /// Messages deleted by its agents.
    pub(crate) deleted: Vec<String>,
    /// Live stream of a chat whose name every tenant uses.
    pub(crate) stream: watch::Receiver<String>,
}

/// A message or button press of a user.
pub(crate) struct Said {
    pub(crate) home: usize,
    pub(crate) id: String,
    pub(crate) event: Event,
    pub(crate) text: String,
    pub(crate) reply_to: Option<String>,
    /// The text that it replies to, if the server has that message.
    pub(crate) quoted: Option<String>,
    pub(crate) file: Option<File>,
    pub(crate) mentions_bot: bool,
    pub(crate) is_press: bool,
    /// The lines of the reference, and the agents that it delivers to.
    pub(crate) lines: Vec<Line>,
    pub(crate) reached: Vec<usize>,
    /// It interrupted a turn and was not delivered as a message.
    pub(crate) is_interrupt: bool,
    pub(crate) part: usize,
    /// Session key of its turn.
    pub(crate) session_key: String,
    /// Event id of the server.
    pub(crate) event_id: String,
}

#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Known after the upload.
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

    /// A command that the server handles itself and delivers to no agent.
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
        // Agents ack only after all messages were sent, which can take long on a busy machine.
        let harness = Harness::with(|config| config.relay.ack_limit_ms = 60_000).await;
        let mut scenario = Self {
            harness,
            world,
            dice: Dice::new(!seed),
            homes: Vec::new(),
            agents: Vec::new(),
            said: Vec::new(),
            tally: Tally::default(),
            part: 0,
            explained: 0,
        };
        scenario.settle_tenants().await;
        scenario.settle_agents().await;
        scenario.open_chats().await;
        scenario.write_links().await;
        scenario.write_rules().await;
        scenario.send_bot_messages().await;
        scenario.watch_chats().await;
        scenario
    }

    async fn settle_tenants(&mut self) {
        for tenant in self.world.tenants.clone() {
            self.harness.admin("POST", "/tenants", &json!({ "name": tenant })).await.expect(201);
            self.homes.push(Home {
                token: self.harness.token(&tenant, "chat").await,
                mark: format!("x{}x", tenant.to_uppercase()),
                own_chat: format!("den-{tenant}"),
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
        // Routes on this platform must have no effect.
        for it in self.world.routes.iter().filter(|it| it.platform == APART) {
            let route = json!({ "platform": it.platform, "key": it.key, "tenant": it.tenant });
            self.harness.admin("POST", "/routes", &route).await.expect(201);
        }
    }

    async fn settle_agents(&mut self) {
        let harness = &self.harness;
        for it in &self.world.instances {
            harness.namesake(&it.tenant, &it.name).await;
        }
        let agents = self.world.instances.iter().map(async |it| {
            let home = self.homes.iter().position(|home| home.tenant == it.tenant).unwrap();
            let gateway = format!("{}.{}", it.tenant, it.name);
            let ask = json!({ "id": gateway, "tenant": it.tenant, "instance": it.name });
            let made = harness.admin("POST", "/gateways", &ask).await.expect(201);
            let bearer = token::mint(&gateway, &Secret::new(made["secret"].as_str().unwrap()), 0);
            let raw: Arc<Mutex<Vec<u8>>> = Arc::default();
            let mut socket = harness.dial_into(&bearer, &raw).await;
            socket.hello(APART, "").await;
            Agent::new(home, it.name.to_string(), bearer, socket, raw)
        });
        self.agents = join_all(agents).await;
    }

    /// Creates chats with the same names in every tenant, with the members of the world, and one chat of its own.
    async fn open_chats(&mut self) {
        for home in &self.homes {
            let sees = self.world.people.iter().map(|person| (person.user_id.clone(), Some(true))).collect();
            let (tenant, platform, chat_id) = (Some(home.tenant.clone()), APART.into(), home.own_chat.clone());
            self.world.visibility.push(ChatVisibility { tenant, platform, chat_id, sees });
        }
        self.show_chats().await;
    }

    /// Sets the members of the chats.
    pub(crate) async fn show_chats(&self) {
        let chats = self.world.visibility.iter().filter(|it| it.platform == APART);
        let calls = chats.map(async |it| {
            let home = self.homes.iter().find(|home| it.tenant.as_ref() == Some(&home.tenant)).unwrap();
            let members = self.world.members(&home.tenant, &it.chat_id);
            let settings = json!({ "members": members, "name": home.chat_name(&it.chat_id) });
            self.harness.call("PUT", &format!("/chat/v1/chats/{}", it.chat_id), &home.token, &settings).await
        });
        for reply in some_at_once(calls).await {
            reply.expect(200);
        }
    }

    /// Creates the links first in the order of agent owners, then in the order of the latest links.
    async fn write_links(&self) {
        let mut links: Vec<&Binding> = self.world.links.iter().filter(|it| it.platform == APART).collect();
        links.sort_by_key(|it| (it.since_ms, &it.user_id));
        for same_time in links.chunk_by(|a, b| a.since_ms == b.since_ms) {
            self.tick().await;
            for it in same_time {
                self.harness.bind(&it.tenant, &it.user_id, &it.instance).await;
            }
        }
        // The order of links matters only per user.
        links.sort_by_key(|it| (&it.user_id, it.at_ms));
        let people = links.chunk_by(|a, b| a.user_id == b.user_id).map(async |of_person| {
            for it in of_person {
                self.harness.bind(&it.tenant, &it.user_id, &it.instance).await;
            }
        });
        join_all(people).await;
    }

    /// Links within one millisecond have no order, so this waits for the next one.
    pub(crate) async fn tick(&self) {
        let now = || self.harness.app.desk.env().now_ms();
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
        let calls = asks.iter().map(|(agent, path, body)| self.harness.post(path, &agent.bearer, body));
        for reply in some_at_once(calls).await {
            assert_eq!(reply.expect(200), json!({ "ok": true }));
        }
    }

    /// An agent of every tenant sends to every chat, so that there are bot messages to reply to.
    async fn send_bot_messages(&mut self) {
        let visibility = self.world.visibility.iter().filter(|it| it.platform == APART);
        let chats: Vec<(String, String)> =
            visibility.map(|it| (it.tenant.clone().unwrap(), it.chat_id.clone())).collect();
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
            let mut response = self.harness.open_stream(&path, &home.token).await;
            assert_eq!(response.status(), 200);
            let (sender, receiver) = watch::channel(String::new());
            home.stream = receiver;
            // Ends with the server.
            tokio::spawn(async move {
                while let Ok(Some(chunk)) = response.chunk().await {
                    sender.send_modify(|text| text.push_str(&String::from_utf8_lossy(&chunk)));
                }
            });
        }
    }

    /// A message that is going to be posted, with the expected outcome.
    pub(crate) fn prepare(&mut self, home: usize, id: Option<String>, event: Event, text: String) -> Said {
        let lines = reference::evaluate(&self.world, &event);
        let delivered = |at: &usize| {
            let name = Some(&self.agents[*at].name);
            lines.iter().any(|line| line.delivered && line.instance.as_ref() == name)
        };
        let reached = self.agents_of(home).into_iter().filter(delivered).collect();
        Said {
            home,
            id: id.unwrap_or_else(|| self.homes[home].next_id()),
            session_key: build_session_key(&event.source).into(),
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

    // ---- lookup --------------------------------------------------------------------------

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

    /// A chat whose name every tenant uses.
    pub(crate) fn any_chat(&mut self) -> String {
        let world = &self.world;
        let chats: Vec<&String> = world.channels.iter().chain(&world.threads).chain(&world.directs).collect();
        (*self.dice.pick(&chats)).clone()
    }

    pub(crate) async fn close(self) -> Tally {
        let Self { harness, agents, tally, .. } = self;
        for agent in agents {
            agent.socket.hang_up().await;
        }
        harness.finish().await;
        tally
    }
}

impl Home {
    pub(crate) fn next_id(&mut self) -> String {
        self.count += 1;
        // Ids often share a prefix, but no tenant has an id of another tenant.
        format!("{}-{}", self.own_chat, self.count)
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

/// Runs all calls, a few concurrently; returns the responses in order.
pub(crate) async fn some_at_once<F: Future<Output = Reply>>(calls: impl Iterator<Item = F>) -> Vec<Reply> {
    let mut calls: Vec<F> = calls.collect();
    let mut replies = Vec::with_capacity(calls.len());
    while !calls.is_empty() {
        let rest = calls.split_off(calls.len().min(AT_ONCE));
        replies.extend(join_all(std::mem::replace(&mut calls, rest)).await);
    }
    replies
}
